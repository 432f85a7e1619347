"""NEZHA's fixed relative vectors: R-REL-09 (the sinusoid is of the shifted index)."""

import mpmath
import numpy as np
import pytest
import torch

import roformer_cpp
from pair_loops import assert_t1, draw_qkv, pair_loops

H, D, T = 2, 6, 9


def table(clip):
    """T[c, 2t] = sin(c 10000^(-2t/d)), T[c, 2t + 1] = cos of the same, c = 0..2 clip."""
    rows = np.zeros((2 * clip + 1, D))
    for c, i in np.ndindex(rows.shape):
        angle = c * mpmath.mpf(10000) ** (-mpmath.mpf(i - i % 2) / D)
        rows[c, i] = mpmath.cos(angle) if i % 2 else mpmath.sin(angle)
    return rows


@pytest.mark.parametrize("clip", [3, 64])
def test_pair_loops(clip):
    """s = (q.k + q.T) / sqrt(d), o = sum a (v + T), T = T[clip(j - i, -k, k) + k]."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(T, H, D)
    config = {} if clip == 64 else {"max_relative_position": clip}
    encoding = roformer_cpp.encoding("nezha", num_attention_heads=H, head_dim=D, **config)
    rows = table(clip)

    def row(i, j):
        return rows[min(max(j - i, -clip), clip) + clip]

    expected = pair_loops(
        q, k, v, lambda h, i, j, q_i, k_j: q_i @ (k_j + row(i, j)) / np.sqrt(D), lambda h, i, j, v_j: v_j + row(i, j)
    )
    terms = encoding.terms(torch.arange(T), dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms), expected)
    assert list(encoding.parameters()) == []
