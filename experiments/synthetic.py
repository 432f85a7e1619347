"""X-20: tests the expressiveness of each encoding of the table without language, on generated rows of symbols with an
answer at some of their tokens. Each task has its own causal model for each encoding and seed.

A row has a header and symbols of an alphabet of 32.

copy back: the header names an offset k; the answer at a token is the symbol k tokens before it. first occurrence: 32
symbols of a row are letters, at places drawn for each row, the others fillers; the answer at a letter is whether it is
there for the first time. count: the same with fewer letters; the answer is how often the letter was there before, up to
15.

A row has the same number of letters whatever its length, so long rows have the same distribution of answers as short
ones: only the distance between letters changes with the length. Ids: 0 is padding, then the symbols, then the headers.
The label of symbol or number i is i + 1. Rows are functions of task, seed and step, the same for every encoding.
Accuracy counts the second half of held-out rows, at the training length and at lengths whose second halves lie beyond
every row of training.
"""

import math

import numpy as np

from .encoding_arms import encoding_arms, parse_arm
from .rate_search import rate_search, rows_of_search, search_rate
from .run import Experiment, encodings, row, seeds_of

ALPHABET, PLACES, MAX_COUNT, NO_LABEL = 32, 32, 15, -1
FIRST_HEADER = 1 + ALPHABET
HELD_OUT_SEED = HELD_OUT_STEP = 0  # seeds of runs and their steps are above
LENGTHS = [64, 128, 256]
WIDTH, HEADS = 64, 2
TASKS = {"copy back": {"offsets": [1, 2, 4, 8, 16]}, "first occurrence": {"letters": 16}, "count": {"letters": 8}}
ACCURACY, CHANGE = "{}, accuracy at {} tokens", "{}, accuracy at {} tokens less that at {}"


def settings(scale):
    tiny = scale == "tiny"
    arms = {arm: arm for arm in ("none", "alibi", "rope")}
    if not tiny:
        arms = encoding_arms(encodings(), WIDTH // HEADS, LENGTHS[0])
    run = {
        "model": {
            "hidden_size": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "intermediate_size": 4 * WIDTH,
            "max_position_embeddings": LENGTHS[0],
            "hidden_dropout_prob": 0,
            "attention_probs_dropout_prob": 0,
            "is_decoder": True,
        },
        "batch": 8 if tiny else 32,
        "steps": 8 if tiny else 1000,
        "warmup_steps": 2 if tiny else 50,
        "weight_decay": 0.01,
        "betas": [0.9, 0.999],
        "epsilon": 1e-8,
        "clip_norm": 1.0,
    }
    return {
        "seeds": seeds_of(scale),
        "arms": arms,
        "tasks": TASKS,
        "run": run,
        "lengths": LENGTHS,
        "held_out_rows": 8 if tiny else 256,
        "search": rate_search("tiny" if tiny else "small", 250, tiny_lower=1),  # there is nothing published
    }


def make_rows(task, seed, step, rows, tokens):
    """(ids, labels) [rows,tokens] of a task by its name."""
    drawn = np.random.default_rng([seed, step, list(TASKS).index(task)])
    make = _copy_rows if task == "copy back" else _letter_rows
    return make(task, drawn, rows, tokens)


def held_out_rows(task, rows, tokens):
    """Rows without the labels of their first half. In a row of twice the training length the others are at positions
    that no row had in training."""
    ids, labels = make_rows(task, HELD_OUT_SEED, HELD_OUT_STEP, rows, tokens)
    labels[:, : tokens // 2] = NO_LABEL
    return ids, labels


def _copy_rows(task, drawn, rows, tokens):
    offsets = np.array(TASKS[task]["offsets"])
    which = drawn.integers(len(offsets), size=rows)
    ids = drawn.integers(1, FIRST_HEADER, size=(rows, tokens))
    ids[:, 0] = FIRST_HEADER + which
    before = np.arange(tokens) - offsets[which][:, None]
    return ids, np.where(before > 0, np.take_along_axis(ids, np.maximum(before, 0), 1), NO_LABEL)


def _letter_rows(task, drawn, rows, tokens):
    letters = TASKS[task]["letters"]
    ids = drawn.integers(1 + letters, FIRST_HEADER, size=(rows, tokens))  # fillers
    ids[:, 0] = FIRST_HEADER
    labels = np.full((rows, tokens), NO_LABEL)
    for i in range(rows):
        places = 1 + np.sort(drawn.choice(tokens - 1, PLACES, replace=False))
        found = drawn.integers(letters, size=PLACES)
        before = np.array([np.sum(found[:j] == found[j]) for j in range(PLACES)])
        ids[i, places] = 1 + found
        labels[i, places] = 1 + (before == 0 if task == "first occurrence" else np.minimum(before, MAX_COUNT))
    return ids, labels


def vocabulary_size(task):
    return FIRST_HEADER + len(TASKS[task].get("offsets", [0]))


def run(context, settings):
    for task in settings["tasks"]:
        name = f"synthetic/{task.replace(' ', '-')}"
        arms = context.share(
            name, list(settings["arms"]), lambda arm, task=task: _arm_rows(context, settings, task, arm)
        )
        for rows in arms.values():
            yield from rows


def _arm_rows(context, settings, task, arm):
    """The rows of an encoding on a task, with the rate that is searched for."""
    search, run = settings["search"], settings["run"]
    folder = context.path("runs", "synthetic", task.replace(" ", "-"), arm)

    def scores(rate, seed, steps, name):
        about = {"arm": settings["arms"][arm], "task": task, "seed": seed, "rate": rate}
        about |= {"run": run | {"steps": steps}, "lengths": settings["lengths"], "asked": settings["held_out_rows"]}

        def make():
            context.note(f"{arm} on {task}, seed {seed}, rate {rate:g}")
            return train(**about)

        with context.recorded(folder / name, about) as record:
            return context.kept(folder / f"{name}.json", about, make), record

    def loss(*given):
        found, _ = scores(*given)
        return math.inf if found[0] is None else found[0]["loss"]

    # A seed decides much here: the seed that chooses a rate is not judged.
    rate, short, whole = search_rate(
        search,
        lambda rate: loss(rate, search["seed"], search["steps"], f"rate-{rate:g}"),
        lambda rate: loss(rate, search["seed"], run["steps"], f"{rate:g}/seed-{search['seed']}"),
    )
    rows = list(rows_of_search(f"{arm} on {task}", short, whole))
    for seed in settings["seeds"]:
        found, record = scores(rate, seed, run["steps"], f"{rate:g}/seed-{seed}")
        about = {"seed": seed, "learning_rate": rate, "task": task, "made": record}
        for tokens, score in zip(settings["lengths"], found, strict=True):
            if score is None:  # beyond a learned table, or diverged
                continue
            rows.append(row(ACCURACY.format(task, tokens), arm, score["accuracy"], **about))
            if tokens != settings["lengths"][0]:
                change = score["accuracy"] - found[0]["accuracy"]
                rows.append(row(CHANGE.format(task, tokens, settings["lengths"][0]), arm, change, **about))
    return rows


def train(arm, task, seed, rate, run, lengths, asked):
    """Trains a model and returns its score at each length by so many held-out rows, a dict of accuracy and loss; None
    beyond what the encoding reads, and everywhere if the run diverged."""
    import torch

    import roformer_cpp

    name, options = parse_arm(arm)
    config = run["model"] | {"position_encoding": {"type": name, **options}, "vocab_size": vocabulary_size(task)}
    network = roformer_cpp.build_model(config, "RfEncoderForCausalLM", seed=seed).train()
    groups = [{"params": [], "weight_decay": run["weight_decay"]}, {"params": [], "weight_decay": 0.0}]
    for key, parameter in network.named_parameters():
        groups[parameter.dim() < 2 or key.endswith(("bias", "gate"))]["params"].append(parameter)
    optimizer = torch.optim.AdamW(groups, betas=run["betas"], eps=run["epsilon"], fused=True)
    for step in range(1, run["steps"] + 1):
        optimizer.zero_grad()
        logits_NV, labels_N = _logits(network, *make_rows(task, seed, step, run["batch"], lengths[0]))
        torch.nn.functional.cross_entropy(logits_NV, labels_N).backward()
        if not torch.nn.utils.clip_grad_norm_(network.parameters(), run["clip_norm"]).isfinite():
            return [None] * len(lengths)
        for group in optimizer.param_groups:
            group["lr"] = rate * _part_of_rate(step, run["steps"], run["warmup_steps"])
        optimizer.step()
    network.eval()
    return [_score(network, *held_out_rows(task, asked, tokens)) for tokens in lengths]


def _part_of_rate(step, steps, warmup_steps):
    """Up to 1 in the warm-up, and then linearly to 0."""
    return step / warmup_steps if step <= warmup_steps else (steps - step) / (steps - warmup_steps)


def _logits(network, ids, labels):
    """The logits where there is a label, and the labels."""
    import torch

    asked = torch.from_numpy(labels != NO_LABEL)
    return network.masked_lm_logits(network.encode(torch.from_numpy(ids))[asked]), torch.from_numpy(labels)[asked]


def _score(network, ids, labels):
    import torch

    try:
        with torch.no_grad():
            pieces = zip(np.array_split(ids, 4), np.array_split(labels, 4), strict=True)
            logits, targets = zip(*(_logits(network, *piece) for piece in pieces), strict=True)
    except ValueError:  # beyond a learned table
        return None
    logits_NV, targets_N = torch.cat(logits).double(), torch.cat(targets)
    accuracy = (logits_NV.argmax(-1) == targets_N).double().mean().item()
    return {"accuracy": accuracy, "loss": torch.nn.functional.cross_entropy(logits_NV, targets_N).item()}


EXPERIMENTS = [
    Experiment(
        "synthetic",
        "What can each encoding express? Copying from an offset, first occurrences, counting",
        run,
        settings,
        shares_arms=True,
        hours=3.2,
        exceptions=("no publication has this battery: scale paper is scale small",),
    )
]
