"""Huang et al. 2020, methods 1 to 4: R-REL-08."""

from functools import partial

import numpy as np
import pytest
import torch

import roformer_cpp
from initial_values import normal
from pair_loops import array, assert_t1, draw_qkv, pair_loops, perturb

REFUSED = {
    "huang-m1": [({"max_relative_position": -2}, r"max_relative_position must be an integer from 0 to \d+, got -2")]
}

# Gates of 1 leave scores as they are.
STARTS = {f"huang-m{i}": {"gate": partial(normal, mean=1)} for i in (1, 2, 3)} | {"huang-m4": {"key_query": normal}}

H, D, T, CLIP = 2, 6, 7, 3


def huang(method, about):
    shape = {"num_hidden_layers": 2, "num_attention_heads": H, "head_dim": D, "max_relative_position": CLIP}
    return perturb(roformer_cpp.encoding(f"huang-m{method}", **shape), about)


def clipped(i, j):
    return min(max(j - i, -CLIP), CLIP)


SCORES = {
    1: lambda a, h, i, j, q, k: a[h, abs(clipped(i, j)), 0] * (q @ k),
    2: lambda a, h, i, j, q, k: a[h, clipped(i, j) + CLIP, 0] * (q @ k),
    3: lambda a, h, i, j, q, k: sum(q[c] * a[h, clipped(i, j) + CLIP, c] * k[c] for c in range(D)),
    4: lambda a, h, i, j, q, k: q @ k + q @ a[clipped(i, j) + CLIP] + k @ a[clipped(i, j) + CLIP],
}


@pytest.mark.parametrize("method", SCORES)
def test_pair_loops(method):
    torch.manual_seed(0)
    q, k, v = draw_qkv(T, H, D)
    encoding = huang(method, 1.0 if method < 4 else 0.0)
    (a,) = (array(rows) for name, rows in encoding.state_dict().items() if name.startswith("layer.1."))
    expected = pair_loops(q, k, v, lambda h, i, j, q_i, k_j: SCORES[method](a, h, i, j, q_i, k_j) / np.sqrt(D))
    terms = encoding.terms(torch.arange(T), layer=1, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms), expected)


def test_nothing_is_clipped_by_default():
    encoding = roformer_cpp.encoding("huang-m4", head_dim=4, max_position_embeddings=9)
    assert encoding.state_dict()["layer.0.key_query"].shape == (2 * 8 + 1, 4)
