"""X-05: the body of X-03 with one encoding after another; C-10, C-12 and C-13 are judged from its rows."""

from . import corpus
from .language_models import design, masked_run, rows_of_runs, settings_of, train
from .rate_search import rate_search
from .run import Experiment, seeds_of

CLIPS = [f"shaw:max_relative_position={clip}" for clip in (4, 16, 64)]
ONE_MIDDLE_TERM = ['deberta:pos_att_type=["c2p"]', 'deberta:pos_att_type=["p2c"]']
HUANG = ["huang-m1", "huang-m2", "huang-m3", "huang-m4"]


def settings(scale):
    arms = ["none", "learned", "rope", "deberta", *CLIPS, *ONE_MIDDLE_TERM, *HUANG]
    # Half the rows of X-03's batches, so that 5,000 steps take hours and not a day.
    body = masked_run(scale, 5000, batch=16 if scale == "small" else 32)
    text, search = corpus.books(scale), rate_search(scale, 1000)
    designs = [design("encodings", text, seeds_of(scale), arms, body, search=search)]
    if scale == "small":
        # Three seeds gave 0.038 [-0.058, 0.135] nats for C-10. Three more were planned before they ran, at the rate of
        # the body, which the search had chosen for each of these arms.
        designs.append(design("clipping", text, [4, 5, 6], ["none", *CLIPS], body))
    return settings_of(*designs)


def run(context, settings):
    for each in settings["designs"].values():
        runs, rates = train(context, each)
        yield from rates
        yield from rows_of_runs(runs)


EXPERIMENTS = [
    Experiment(
        "encodings",
        "One body, one position encoding after another",
        run,
        settings,
        shares_arms=True,
        hours=7.6,
        exceptions=("no publication compares these encodings; the body and the schedule are those of convergence",),
    )
]
