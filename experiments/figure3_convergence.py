"""X-03 (C-17, the paper's Figure 3, left): the masked-LM loss of the same body with BERT's learned table, with
sinusoids that are added to scaled words, with RoPE, and without positions.

Data order, masks and initial weights are the same. Scale paper is R-CFG-2; its learning rate of 1e-5 is too low for few
steps, so at scale small each arm has its own. The arm without an encoding shows what positions are worth. Training
losses are smoothed by means over a twentieth of the run, so no ratio of steps can be below 0.05.
"""

from . import corpus
from .language_models import (
    SINUSOIDS,
    design,
    masked_run,
    pretrained,
    rows_of_body,
    rows_of_runs,
    rows_of_steps,
    settings_of,
    train,
)
from .rate_search import rate_search
from .run import Experiment, seeds_of


def convergence_design(scale):
    arms = ["none", SINUSOIDS, "learned", "rope"]
    search = rate_search(scale, 1500)
    return design("convergence", corpus.books(scale), seeds_of(scale), arms, masked_run(scale, 10000), search=search)


def settings(scale):
    return settings_of(convergence_design(scale))


def run(context, settings):
    runs, rates = train(context, settings["designs"]["convergence"])
    yield from rates
    yield from rows_of_runs(runs)
    yield from rows_of_steps(runs, "rope", "learned", "learned")
    yield from rows_of_steps(runs, "rope", SINUSOIDS, "sinusoidal")


def longer_settings(scale):
    """The learned table, four times as long."""
    of_corpus, run = corpus.books(scale), masked_run(scale, 40000)
    run["model"]["position_encoding"] = "learned"
    if scale == "paper":
        run["stages"][0]["steps"] *= 4
    return {"corpus": of_corpus, "files": corpus.files_of(of_corpus), "seeds": [1], "run": run}


def run_longer(context, settings):
    data = corpus.prepared(context, settings["corpus"])
    for seed in settings["seeds"]:
        yield from rows_of_body("learned", pretrained(context, ("learned-longer",), settings["run"], data, seed))


EXPERIMENTS = [
    Experiment(
        "convergence",
        "Does the masked-LM loss fall faster with RoPE? (Figure 3, left)",
        run,
        settings,
        shares_arms=True,
        hours=5.5,
        exceptions=(
            "the learning rate of 1e-5 is constant: the paper names no schedule",
            "English text of --data in place of BookCorpus and Wikipedia",
            "bfloat16, and gradients clipped at a norm of 1: the paper names neither",
        ),
    ),
    Experiment(
        "learned-longer",
        "Does the learned table learn positions if it is trained four times as long? (Figure 3, left)",
        run_longer,
        longer_settings,
        hours=2.3,
    ),
]
