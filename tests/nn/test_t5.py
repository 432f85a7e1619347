"""T5's bias by buckets of distances (R-REL-04) against a loop over Eq. 8 and exact bucket arithmetic."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import normal

REFUSED = {"t5": [
    ({"relative_attention_num_buckets": 31}, "relative_attention_num_buckets must be even.*31"),
    ({"relative_attention_num_buckets": 2}, "relative_attention_num_buckets must be an integer from 4.*2"),
    ({"relative_attention_num_buckets": 1, "is_decoder": True}, "from 2 to 1024, got 1"),
    ({"relative_attention_max_distance": 8}, "relative_attention_max_distance must be an integer from 9.*8"),
    ({"relative_attention_max_distance": 2**21}, "relative_attention_max_distance must be.*2097152"),
    ({"scale": 0.5}, "scale must be one of none, sqrt, got 0.5"),
    ({"num_buckets": 32}, "num_buckets"),
]}  # fmt: skip

STARTS = {"t5": {"relative_attention_bias": normal}}

POSITIONS = [3, 0, 9, 40, 41, 200, 7]  # in no order, with gaps


def bucket(rel: int, *, both: bool, buckets: int = 32, max_distance: int = 128) -> int:
    """Spec R-REL-04 for rel = key - query; the logarithm's floor is the largest j with (n/e)^c >= (max/e)^j."""
    count = buckets // 2 if both else buckets
    offset, n = (count * (rel > 0), abs(rel)) if both else (0, max(0, -rel))
    exact = count // 2
    if n < exact:
        return offset + n
    steps = count - exact
    j = max(j for j in range(steps + 1) if n**steps * exact**j >= max_distance**j * exact**steps)
    return offset + min(count - 1, exact + j)


def buckets_by_distance(distances: range, **config) -> list[int]:
    """What the product takes: the bias is its bucket's number."""
    encoding = roformer_cpp.encoding("t5", **config)
    with torch.no_grad():
        encoding.relative_attention_bias.copy_(torch.arange(len(encoding.relative_attention_bias))[:, None])
    rows, lo, hi = encoding.terms(torch.arange(3)).bias
    return [int(rows[0, min(max(d, lo), hi) - lo]) for d in distances]


# With 1000 and 729 many distances are exactly on a threshold.
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (4, 729), (12, 1000), (64, 33)])
def test_buckets_are_exact(buckets, max_distance, causal):
    config = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": max_distance}
    distances = range(-1100, 1101, 1 if max_distance > 700 else 7)
    expected = [bucket(-d, both=not causal, buckets=buckets, max_distance=max_distance) for d in distances]
    assert buckets_by_distance(distances, is_decoder=causal, **config) == expected


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", ["none", "sqrt"])
def test_equation(causal, scale):
    case = Case()
    encoding = case.encoding("t5", is_decoder=causal, scale=scale)
    b = parameter(encoding, "relative_attention_bias")
    s = 1 if scale == "none" else 1 / np.sqrt(case.head_dim)

    def score(i, h, m, n):
        rel = POSITIONS[n] - POSITIONS[m]
        return s * case.q(i, m, h) @ case.k(i, n, h) + b[bucket(rel, both=not causal), h]

    case.check(encoding, score, POSITIONS, causal=causal)
