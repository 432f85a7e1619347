"""RoPE-Mixed (Heo et al. 2024, section 3.2) against loops in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import check_uniform
from tolerances import T1_ATOL, T1_RTOL, T2_RTOL

REFUSED = {"rope-mixed": [
    ({}, "rope-mixed.grid_width must be given, got none"),
    ({"grid_width": 0}, "grid_width"),
    ({"grid_width": 3, "head_dim": 6}, "head_dim must be a multiple of 4 for rope-mixed, got 6"),
    ({"grid_width": 3, "rope_theta": 0}, "rope_theta"),
]}  # fmt: skip

SWEEP_KEYS = {"rope-mixed": {"grid_width": 3}}


def mixed_start(values, name):
    """[2, H, D/2], as the authors' program with base 10: each head has a direction of uniform angle, and the second
    half of its pairs is at a right angle."""
    x, y = values
    pairs = x + 1j * y
    np.testing.assert_allclose(np.abs(pairs), np.tile([1, 10.0**-0.5], (len(x), 2)), rtol=T2_RTOL, err_msg=name)
    np.testing.assert_allclose(pairs[:, 2:], 1j * pairs[:, :2], atol=T2_RTOL, err_msg=name)
    check_uniform(np.angle(pairs[:, 0]) % (2 * np.pi), name, 0, 2 * np.pi)


STARTS = {"rope-mixed": {"freqs": mixed_start}}

LAYER, WIDTH = 1, 5
AXES = torch.tensor([[[0, 0], [0, 1], [3, 2], [7, 0], [2, 4], [6, 3], [1, 1]]])  # row and column


def encoding_of(case):
    return case.encoding("rope-mixed", num_hidden_layers=2, grid_width=WIDTH)


def rotated(x, angle):
    """Pairs (2i, 2i + 1) as complex numbers."""
    return ((x[0::2] + 1j * x[1::2]) * np.exp(1j * angle)).view(float)


def mixed(case, encoding, axes):
    freqs_x, freqs_y = parameter(encoding, f"layer.{LAYER}.freqs")

    def score(b, h, m, n):
        q, k = (
            rotated(vector, axes[at][1] * freqs_x[h] + axes[at][0] * freqs_y[h])
            for vector, at in ((case.q(b, m, h), m), (case.k(b, n, h), n))
        )
        return q @ k / np.sqrt(case.head_dim)

    return score


@pytest.mark.parametrize("flat", [False, True])
def test_scores_are_those_of_the_paper(flat):
    case = Case(heads=3, head_dim=8)
    encoding = encoding_of(case)
    positions = AXES[..., 0] * WIDTH + AXES[..., 1] if flat else AXES
    case.check(encoding, mixed(case, encoding, AXES[0].tolist()), positions, layer=LAYER)


def test_linear_attention_takes_rows_for_each_head():
    case = Case()
    encoding = encoding_of(case)
    terms = encoding.terms(AXES, layer=LAYER, dtype=torch.float64)
    q, k, v = case.qkv()
    ours = roformer_cpp.linear_attention(q, k, v, terms=terms)
    for h in range(case.heads):
        part = slice(h, h + 1)
        rows = roformer_cpp.Rotation(terms.query.cos[:, :, h], terms.query.sin[:, :, h])
        alone = roformer_cpp.linear_attention(
            q[:, :, part], k[:, :, part], v[:, :, part], terms=roformer_cpp.Terms(query=rows, key=rows)
        )
        torch.testing.assert_close(ours[:, :, part], alone, atol=T1_ATOL, rtol=T1_RTOL)
    with pytest.raises(ValueError, match="kernel fused needs rotations after the map that all heads share, got rows"):
        data = (x.float() for x in (q, k, v))
        roformer_cpp.linear_attention(*data, terms=encoding.float().terms(AXES, layer=LAYER), kernel="fused")


def test_refuses_other_axes():
    with pytest.raises(ValueError, match=r"\[rope-mixed\] positions must be flat or have 2 axes, got 3"):
        roformer_cpp.encoding("rope-mixed", grid_width=3).terms(torch.zeros(1, 4, 3, dtype=torch.long))
