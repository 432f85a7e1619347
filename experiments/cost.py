"""The cost of rotations and attention on this machine; the seed of a row is the round in which it was timed.

rotation-cost (C-07): the sparse form of R (Eq. 34) compared with the matrix product with R, an addition of the same
size, and a whole layer, for [tokens, batch, heads, head size] as in EleutherAI's post. attention-time (C-09): attention
and linear attention by the number of tokens.
"""

import numpy as np

from .run import Experiment, row
from .timing import seconds_by_round

SHARE = "time of rotating queries and keys, of a layer's forward pass"
POWER = "power of the number of tokens with which time grows"


def rotation_settings(scale):
    sizes = {"tokens": 256, "batch": 2, "rounds": 3} if scale == "tiny" else {"tokens": 2048, "batch": 16, "rounds": 9}
    return sizes | {"heads": 12, "head_dim": 64, "window_seconds": 0.05, "seeds": [1]}


def run_rotation(_, settings):
    import torch

    import roformer_cpp

    from .vectors import frequencies, largest, rotated

    tokens, batch, heads, dim = (settings[key] for key in ("tokens", "batch", "heads", "head_dim"))
    torch.manual_seed(settings["seeds"][0])
    x_BTHD, positions = torch.randn(batch, tokens, heads, dim), torch.arange(tokens)
    cos, sin = (x[None] for x in roformer_cpp.rope_table(positions, frequencies(dim)))
    added_T1D = torch.randn(tokens, 1, dim)
    # R of each position as a matrix: its columns are the rotated basis.
    transposed_TDD = rotated(torch.eye(dim).expand(tokens, dim, dim).contiguous(), positions)
    x_TND = x_BTHD.transpose(0, 1).reshape(tokens, batch * heads, dim)
    width = heads * dim
    config = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads}
    config |= {"num_hidden_layers": 1, "vocab_size": 1000, "max_position_embeddings": tokens}
    layer, ids_BT = roformer_cpp.build_model(config), torch.arange(batch * tokens).view(batch, tokens) % 1000
    works = {
        "rotation": lambda: roformer_cpp.rotate(x_BTHD, cos, sin, layout="pairs"),
        "addition of positions": lambda: x_BTHD + added_T1D,
        "product with the matrix R": lambda: torch.bmm(x_TND, transposed_TDD),
        "a layer, forward": lambda: layer.encode(ids_BT),
    }
    with torch.no_grad():
        found = seconds_by_round(list(works.values()), settings["rounds"], settings["window_seconds"])
        product = works["product with the matrix R"]().view(tokens, batch, heads, dim).transpose(0, 1)
        error = largest(product - works["rotation"]())
    times = {name: np.array(seconds) for name, seconds in zip(works, found, strict=True)}
    rope, added, dense, whole = times.values()
    for name, seconds in times.items():
        yield from _by_round("milliseconds", name, 1000 * seconds)
    yield from _by_round("time, of that of the rotation", "product with the matrix R", dense / rope)
    yield from _by_round("time, of that of an addition", "rotation", rope / added)
    yield from _by_round(SHARE, "rotation", 2 * rope / whole)
    yield row("difference of the product from the rotation", "product with the matrix R", error)


def _by_round(measure, arm, values, **about):
    return (row(measure, arm, value, seed=number, **about) for number, value in enumerate(values, 1))


def attention_settings(scale):
    if scale == "tiny":
        sizes = {"tokens": [128, 256, 512, 1024], "power_from": 256, "rounds": 3}
    else:
        sizes = {"tokens": [256, 512, 1024, 2048, 4096, 8192], "power_from": 1024, "rounds": 5}
    return sizes | {"heads": 4, "head_dim": 64, "window_seconds": 0.05, "seeds": [1]}


def run_attention(_, settings):
    import torch

    import roformer_cpp

    torch.manual_seed(settings["seeds"][0])
    lengths, times = settings["tokens"], {"softmax": [], "linear": []}
    for tokens in lengths:
        qkv = torch.randn(3, 1, tokens, settings["heads"], settings["head_dim"])
        calls = [lambda qkv=qkv: roformer_cpp.attention(*qkv), lambda qkv=qkv: roformer_cpp.linear_attention(*qkv)]
        with torch.no_grad():
            found = seconds_by_round(calls, settings["rounds"], settings["window_seconds"])
        for (arm, of_arm), seconds in zip(times.items(), found, strict=True):
            of_arm.append(seconds)
            yield from _by_round("milliseconds by tokens", arm, 1000 * np.array(seconds), step=tokens)
    counted = [tokens >= settings["power_from"] for tokens in lengths]  # with fewer, constant costs matter too
    for arm, seconds in times.items():
        of_lengths = np.log(np.array(seconds)[counted])
        powers, _ = np.polyfit(np.log(np.array(lengths)[counted]), of_lengths, 1)
        yield from _by_round(POWER, arm, powers)


EXPERIMENTS = [
    Experiment("rotation-cost", "What the rotation costs", run_rotation, rotation_settings),
    Experiment("attention-time", "Time of attention by the number of tokens", run_attention, attention_settings),
]
