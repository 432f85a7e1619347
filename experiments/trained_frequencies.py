"""X-16 (C-29): RoPE with trained frequencies, and with trained logarithms of frequencies, compared with X-03's models
with frozen frequencies and without an encoding."""

import numpy as np

from .figure3_convergence import convergence_design
from .language_models import rows_of_runs, settings_of, train
from .run import Experiment, row

RAW, LOG = "rope:trainable=true", "rope:trainable=log"
MEDIAN, LARGEST = "median change of the logarithm of a frequency", "largest change of a frequency, of it"
FREQUENCY = "frequency by pair of dimensions"


def settings(scale):
    frozen = convergence_design(scale)
    trained = frozen | {"runs": "trained-frequencies", "arms": {RAW: RAW, LOG: LOG}}
    return settings_of(trained, frozen)


def run(context, settings):
    frozen, frozen_rates = train(context, settings["designs"]["convergence"], ["none", "rope"])
    reading = ("frequencies", {}, lambda run, _: frequencies_of(run.directory))
    trained, rates = train(context, settings["designs"]["trained-frequencies"], read=reading)
    yield from [*frozen_rates, *rates, *rows_of_runs([*frozen, *trained])]
    for run in trained:
        if run.diverged:
            continue
        about = {"seed": run.seed, "made": run.record}
        now = np.array(run.reading["frequencies"])
        before = np.float32(10000.0 ** (-2 * np.arange(len(now)) / run.reading["head size"])).astype(float)
        if (now > 0).all():  # raw ones may have crossed 0
            yield row(MEDIAN, run.arm, np.median(np.abs(np.log(now / before))), **about)
        yield row(LARGEST, run.arm, np.max(np.abs(now - before) / before), **about)
        yield from (row(FREQUENCY, run.arm, value, step=pair, **about) for pair, value in enumerate(now))


def frequencies_of(directory):
    """The frequencies of a model that trains them, and the size of its heads."""
    import roformer_cpp

    model = roformer_cpp.load_model(directory, "RfEncoderForMaskedLM", dtype="float64")
    parameters = dict(model.named_parameters())
    found = parameters.get("position_encoding.freqs")
    found = parameters["position_encoding.log_freqs"].exp() if found is None else found
    config = model.config
    head_size = config["hidden_size"] // config["num_attention_heads"]
    return {"head size": head_size, "frequencies": found.flatten().tolist()}


EXPERIMENTS = [
    Experiment(
        "trained-frequencies",
        "Do frequencies stay where they are when they may be trained?",
        run,
        settings,
        shares_arms=True,
        hours=2.6,
        exceptions=("the claim's source names no hyperparameters; they are those of convergence",),
    )
]
