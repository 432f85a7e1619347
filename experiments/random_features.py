"""X-17: how far attention by FAVOR+'s random features is from softmax attention, by their number m, for independent and
for orthogonal vectors."""

import numpy as np

from .run import Experiment, row

ERROR, POWER = "relative error of attention", "power of m with which the error grows"


def settings(scale):
    sizes = {"tokens": 64, "heads": 4, "head_dim": 16, "input_std": 0.5, "features": [16, 32, 64, 128, 256, 512, 1024]}
    return sizes | ({"draws": 8, "seeds": [1]} if scale == "tiny" else {"draws": 20, "seeds": [1, 2, 3, 4, 5]})


def run(_, settings):
    kinds = {"independent": False, "orthogonal": True}
    errors = {kind: np.zeros((len(settings["seeds"]), len(settings["features"]))) for kind in kinds}
    for i, seed in enumerate(settings["seeds"]):
        qkv, exact = inputs(seed, settings)
        for kind, orthogonal in kinds.items():
            for j, features in enumerate(settings["features"]):
                errors[kind][i, j] = mean_error(qkv, exact, features, orthogonal, seed, settings)
                yield row(ERROR, kind, errors[kind][i, j], seed=seed, step=features)
            power, _ = np.polyfit(np.log(settings["features"]), np.log(errors[kind][i]), 1)
            yield row(POWER, kind, power, seed=seed)
    worst = np.max(errors["orthogonal"].mean(0) - errors["independent"].mean(0))
    yield row(f"{ERROR}: largest difference over m from independent ones", "orthogonal", worst)


def inputs(seed, settings):
    """Queries, keys and values, and their softmax attention."""
    import torch

    import roformer_cpp

    torch.manual_seed(seed)
    sizes = settings["tokens"], settings["heads"], settings["head_dim"]
    qkv = settings["input_std"] * torch.randn(3, 1, *sizes, dtype=torch.float64)
    return qkv, roformer_cpp.attention(*qkv)


def mean_error(qkv, exact, features, orthogonal, seed, settings):
    """Mean over draws of the random vectors."""
    import roformer_cpp

    found = []
    for draw in range(settings["draws"]):
        how = {"orthogonal": orthogonal, "redraw": draw}
        projection_FD = roformer_cpp.orthogonal_features(features, settings["head_dim"], seed, **how)
        outputs = roformer_cpp.linear_attention(*qkv, "favor", projection=projection_FD, feature_eps=0)
        found.append(((outputs - exact).norm() / exact.norm()).item())
    return np.mean(found)


EXPERIMENTS = [Experiment("random-features", "The error of Performer's random features", run, settings)]
