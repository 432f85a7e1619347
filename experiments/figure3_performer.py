"""X-04 (C-18, C-08, the paper's Figure 3, right): causal models of bytes, linear attention with and without RoPE.

The feature map is elu + 1, whose sums are exact, or in a separate experiment the Performer's; at scale paper it is
always the Performer's. One model has softmax attention in its place. `smallest denominator` is the least mean weight
that a query of Eq. 19 gives to its keys.
"""

import math

from . import corpus
from .language_models import byte_run, design, rows_of_runs, rows_of_steps, settings_of, train
from .layer_parts import layer_inputs, projected
from .rate_search import rate_search
from .run import Experiment, row, seeds_of

NAME = "linear-language-model"


def settings(scale):
    linear = _favor(scale) if scale == "paper" else {"type": "linear", "feature_map": "elu"}
    softmax = _design(f"{NAME}-softmax", scale, {"rope, softmax": "rope"}, "softmax")
    reading = {"rows": 2 if scale == "tiny" else 16, "tokens": 256}
    return settings_of(_design(NAME, scale, ["none", "learned", "rope"], linear), softmax, reading=reading)


def settings_of_performer(scale):
    runs = NAME if scale == "paper" else f"{NAME}-favor"
    return settings_of(_design(runs, scale, ["learned", "rope"], _favor(scale)))


def _favor(scale):
    """d log d random features for heads of d: 266 of 64, and 110 of 32."""
    return {"type": "linear", "feature_map": "favor", "num_features": 266 if scale == "paper" else 110}


def _design(runs, scale, arms, attention):
    run = byte_run(scale, attention, 256, 16)
    search = rate_search(scale, 500, tiny_lower=1)
    return design(runs, corpus.wikipedia(scale), seeds_of(scale), arms, run, search=search)


def run(context, settings):
    def smallest(run, data):
        return smallest_mean_weight(run.directory, corpus.held_out_rows(data, **settings["reading"]))

    designs, reading = settings["designs"], ("denominator", settings["reading"], smallest)
    others, rates = train(context, designs[NAME], ["none", "learned"])
    rope, of_rope = train(context, designs[NAME], ["rope"], reading)
    softmax, of_softmax = train(context, designs[f"{NAME}-softmax"])
    runs = [*others, *rope, *softmax]
    yield from [*rates, *of_rope, *of_softmax, *rows_of_runs(runs), *rows_of_steps(runs, "rope", "learned", "learned")]
    for run in rope:
        yield row("smallest denominator by keys", run.arm, run.reading, seed=run.seed, made=run.record)


def run_performer(context, settings):
    (of_design,) = settings["designs"].values()
    runs, rates = train(context, of_design)
    yield from [*rates, *rows_of_runs(runs), *rows_of_steps(runs, "rope", "learned", "learned")]


def smallest_mean_weight(directory, ids_BT):
    """A query's smallest mean weight of a key in a model of Eq. 19, over layers, heads and tokens."""
    import torch

    import roformer_cpp

    model = roformer_cpp.load_model(directory, dtype="float64")
    smallest = math.inf
    with torch.no_grad():
        for layer, x_BTC in enumerate(layer_inputs(model, ids_BT)):
            queries, keys = (_features(model, layer, x_BHTD) for x_BHTD in projected(model, layer, x_BTC))
            sums_BHT = (queries * keys.cumsum(2)).sum(-1)
            smallest = min(smallest, (sums_BHT / torch.arange(1, ids_BT.shape[1] + 1)).min().item())
    return smallest


def _features(model, layer, x_BHTD):
    import torch

    if model.config["attention"]["feature_map"] == "elu":
        return torch.nn.functional.elu(x_BHTD) + 1
    w_FD = dict(model.named_buffers())[f"linear_attention.{layer}.projection"].to(x_BHTD.dtype)
    x_BHTD = x_BHTD * x_BHTD.shape[-1] ** -0.25
    return (x_BHTD @ w_FD.T - x_BHTD.square().sum(-1, keepdim=True) / 2).exp() / math.sqrt(len(w_FD))


EXPERIMENTS = [
    Experiment(
        NAME,
        "Does linear attention learn faster with RoPE? (Figure 3, right)",
        run,
        settings,
        shares_arms=True,
        hours=1.5,
        exceptions=(
            "norms after the blocks, biases and a tied output, where the published code has norms before them, no "
            "biases and an output of its own",
            "the 266 random features are drawn once, where the published code draws anew every 1,000 steps",
            "a constant learning rate without warm-up: the paper names none",
            "100,000 steps, the axis of Figure 3",
        ),
    ),
    Experiment(
        "performer-language-model",
        "Does a Performer with its random features learn faster with RoPE? (Figure 3, right)",
        run_performer,
        settings_of_performer,
        shares_arms=True,
        hours=3.5,
        exceptions=("as in linear-language-model",),
    ),
]
