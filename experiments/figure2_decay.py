"""C-04 without training.

decay: the bound of Eq. 37, f(r) = mean over j = 1..D/2 of |S_j|, S_j = sum_{i<j} e^{i r theta_i} (the paper's Figure
2). The paper, which says "decays", names no window: means over 32 distances are ours. score-by-distance: the score
itself, of vectors of ones and of independent random ones, whose variance a rotation keeps, whatever models learn.
"""

import itertools

import numpy as np

from .run import Experiment, row

WINDOW = 32
RISE = "largest rise of the mean of f over 32 distances to the next, 0 to 256"
VARIANCE = "variance of random scores, of that without rotation"


def decay_settings():
    bases = [10, 100, 1000, 10000, 1000000]
    return {"head_dims": [64, 128, 256], "bases": bases, "bases_head_dim": 128} | {
        "near": 256,
        "far": 65536,
        "saturated_from": 512,
    }


def run_decay(_, settings):
    shapes = [(head_dim, 10000) for head_dim in settings["head_dims"]]
    shapes += [(settings["bases_head_dim"], base) for base in settings["bases"] if base != 10000]
    near, far = np.arange(settings["near"] + 1), spread_distances(settings["far"], 16)
    for head_dim, base in shapes:
        arm = f"head size {head_dim}" if base == 10000 else f"head size {head_dim}, base {base}"
        found, beyond = bound(near, head_dim, base), bound(far, head_dim, base)
        means = found[: len(found) // WINDOW * WINDOW].reshape(-1, WINDOW).mean(1)
        tail = beyond[far >= settings["saturated_from"]]
        yield row(RISE, arm, np.max(np.diff(means)))
        yield row("steps on which f rises", arm, np.sum(np.diff(found) > 0))
        yield row("lowest f beyond 512 tokens", arm, tail.min())
        yield row("highest f beyond 512 tokens", arm, tail.max())
        points = [*zip(near, found, strict=True), *((r, f) for r, f in zip(far, beyond, strict=True) if r > near[-1])]
        yield from (row("f by distance", arm, value, step=distance) for distance, value in points)


def bound(distances, head_dim, base):
    """f at each distance."""
    theta = base ** (-2 * np.arange(head_dim // 2) / head_dim)
    return np.abs(np.exp(1j * np.outer(distances, theta)).cumsum(1)).mean(1)


def spread_distances(longest, steps):
    """0, 1, 2, .., then about `steps` distances per factor of two, and the longest."""
    distances, r = [], 0.0
    while r < longest:
        distances.append(round(r))
        r = max(r + 1, r * 2 ** (1 / steps))
    return np.array([*distances, longest])


def score_settings():
    return {"head_dim": 64, "ones_to": 1024, "samples": 200000, "distances": [0, 1, 10, 100, 1000], "seeds": [1]}


def run_score(_, settings):
    import torch
    from scipy import stats

    from .vectors import rotated

    dim, distances = settings["head_dim"], torch.arange(settings["ones_to"] + 1)
    ones = rotated(torch.ones(len(distances), 1, dim, dtype=torch.float64), distances).sum(2)[:, 0].tolist()
    yield row("rank correlation of score and distance", "vectors of ones", stats.spearmanr(distances, ones).statistic)
    yield from (row("score by distance", "vectors of ones", score, step=r) for r, score in enumerate(ones))
    torch.manual_seed(settings["seeds"][0])
    found = [variance(distance, dim, settings["samples"]) for distance in settings["distances"]]
    yield from (
        row(VARIANCE, "independent vectors", v, step=r) for r, v in zip(settings["distances"], found, strict=True)
    )
    yield row(f"{VARIANCE}: largest distance from 1", "independent vectors", max(abs(v - 1) for v in found))


def variance(distance, dim, samples):
    import torch

    from .vectors import rotated

    scores = []
    for batch in itertools.repeat(20000, samples // 20000):
        query_1ND, key_ND = (
            torch.randn(1, batch, dim, dtype=torch.float64),
            torch.randn(batch, dim, dtype=torch.float64),
        )
        scores.append((rotated(query_1ND, torch.tensor([distance]))[0] * key_ND).sum(1))
    return torch.cat(scores).var(correction=0).item() / dim


EXPERIMENTS = [
    Experiment("decay", "The bound that decays with distance (Figure 2)", run_decay, decay_settings, has_scale=False),
    Experiment(
        "score-by-distance",
        "Do scores decay with distance? Vectors of ones, and random ones",
        run_score,
        score_settings,
        has_scale=False,
    ),
]
