"""X-19: every encoding of the table in a small language model of bytes, read at multiples of its training length, and
the time of attention with it. This experiment does not judge a claim, so claims.yaml does not have a rule for it.

Each encoding has its own comparison, <scale>/runs/atlas/<encoding>, so adding one to the table leaves the results of
the others unchanged.
"""

from . import corpus
from .encoding_arms import encoding_arms, parse_arm
from .language_models import design, rows_of_runs, settings_of, small_body, train
from .rate_search import rate_search
from .run import Experiment, encodings, row, seeds_of
from .timing import seconds_by_round

WIDTH, HEADS, LENGTH = 128, 4, 128
LOSS, TIME = "loss at {} tokens, nats per token", "time of attention at {} tokens, of rope's"


def atlas_arms():
    arms = encoding_arms(encodings(), WIDTH // HEADS, LENGTH)
    return {name: arm for key in arms for name, arm in [(key, arms[key])] + [("t5:scale=sqrt",) * 2] * (key == "t5")}


def settings(scale):
    tiny = scale == "tiny"
    text = corpus.book_bytes(scale)
    run = {
        "objective": "causal",
        "model": small_body(LENGTH, layers=2, width=WIDTH),
        "schedule": {"kind": "linear", "learning_rate": 1e-3, "warmup_steps": 2 if tiny else 100},
        "evaluate_batches": 2 if tiny else 40,
        "log_every_steps": 2 if tiny else 10,
        "stages": [{"max_length": LENGTH, "batch": 4 if tiny else 16, "steps": 6 if tiny else 2000}],
    }
    arms = {arm: arm for arm in ("none", "alibi", "rope")} if tiny else atlas_arms()
    search = rate_search("tiny" if tiny else "small", 400, tiny_lower=1)  # there is nothing published
    of_arms = [
        design(f"atlas/{name}", text, seeds_of(scale), {name: arm}, run, [1, 2, 4, 8], search)
        for name, arm in arms.items()
    ]
    timing = {"tokens": [128], "rounds": 3, "window_seconds": 0.02}
    if not tiny:
        timing = {"tokens": [256, 1024], "rounds": 5, "window_seconds": 0.1}
    return settings_of(*of_arms, timing=timing)


def run(context, settings):
    designs = {of_design["runs"]: of_design for of_design in settings["designs"].values()}
    trained = context.share("atlas", list(designs), lambda runs: train(context, designs[runs]))
    for runs, of_design in designs.items():
        of_arm, rates = trained[runs]
        yield from rates
        yield from rows_of_runs(of_arm)
        length = of_design["run"]["stages"][-1]["max_length"]
        for run in of_arm:
            for factor, loss in zip(of_design["lengths"], run.losses, strict=True):
                yield row(LOSS.format(factor * length), run.arm, loss, seed=run.seed, made=run.record)
    arms = {name: arm for of_design in designs.values() for name, arm in of_design["arms"].items()}
    times = context.share("atlas", ["timing"], lambda _: relative_times(arms, **settings["timing"]))  # undisturbed
    yield from times["timing"]


def relative_times(arms, tokens, rounds, window_seconds):
    """The time of forward and backward through the terms of one layer and its attention, of that with rope: float32,
    causal, one row; by round, which the seed numbers."""
    found = []
    for name, arm in arms.items():
        for length in tokens:
            own, reference = seconds_by_round([_layer(arm, length), _layer("rope", length)], rounds, window_seconds)
            pairs = enumerate(zip(own, reference, strict=True), 1)
            found += [row(TIME.format(length), name, one / other, seed=number) for number, (one, other) in pairs]
    return found


def _layer(arm, tokens):
    """A call of forward and backward."""
    import torch

    import roformer_cpp

    name, options = parse_arm(arm)
    torch.manual_seed(1)
    sizes = {"num_attention_heads": HEADS, "head_dim": WIDTH // HEADS, "max_position_embeddings": tokens}
    encoding = roformer_cpp.encoding(name, **sizes, is_decoder=True, vocab_size=1, **options)
    q, k, v = (torch.randn(1, tokens, HEADS, WIDTH // HEADS, requires_grad=True) for _ in range(3))
    hidden = torch.randn(1, tokens, WIDTH, requires_grad=True)
    weights = [(torch.randn(WIDTH, WIDTH) * 0.05).requires_grad_() for _ in range(3)]
    weights += [(torch.randn(WIDTH) * 0.05).requires_grad_() for _ in range(3)]
    reads = next(each["reads"] for each in roformer_cpp.encodings() if each["name"] == name)
    given = {"hidden_states": hidden} if "tokens" in reads else {}
    given |= {"queries": q, "keys": k} if {"queries", "keys"} & set(reads) else {}
    positions = torch.arange(tokens)

    def call():
        terms = encoding.terms(positions, projections=tuple(weights), **given)
        roformer_cpp.attention(q, k, v, terms, is_causal=True).sum().backward()

    return call


EXPERIMENTS = [
    Experiment(
        "atlas",
        "The atlas of position encodings",
        run,
        settings,
        shares_arms=True,
        hours=5.0,
        exceptions=("no publication compares these encodings: scale paper is scale small",),
    )
]
