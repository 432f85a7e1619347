"""Sandwich (Chi et al. 2023): sinusoids of two positions multiplied, as the paper writes them, in NumPy."""

import numpy as np
import pytest
import torch

import roformer_cpp
from pair_loops import check_bias

REFUSED = {"sandwich": [
    ({"bar_d": 7}, "sandwich.bar_d must be even, a sine and a cosine for each frequency, got 7"),
    ({"bar_d": 0}, "sandwich.bar_d must be an integer from 2 .* got 0"),
]}  # fmt: skip

SCATTERED = torch.tensor([3, 0, 1, 400, 39])


def sinusoids(position, width):
    """[sines, cosines] of a position; their product is a sum of cosines of the distance."""
    angle = position / 10000.0 ** (2 * np.arange(width // 2) / width)
    return np.concatenate([np.sin(angle), np.cos(angle)])


@pytest.mark.parametrize(("heads", "bar_d", "is_causal"), [(1, 128, False), (3, 16, True), (8, 128, True)])
@pytest.mark.parametrize("positions", [torch.arange(5), SCATTERED], ids=["steps", "scattered"])
def test_pair_loops(positions, heads, bar_d, is_causal):
    """Ratios are 8/H, 16/H, .. 8. The softmax does not see the constant."""
    ratio = np.arange(1, heads + 1) * 8 / heads
    keys = {} if bar_d == 128 else {"bar_d": bar_d}
    encoding = roformer_cpp.encoding("sandwich", num_attention_heads=heads, head_dim=4, is_decoder=is_causal, **keys)
    bias = lambda h, m, n: sinusoids(m, bar_d) @ sinusoids(n, bar_d) / ratio[h]  # noqa: E731
    check_bias(encoding, bias, positions, heads=heads, is_causal=is_causal)


def test_a_token_has_no_bias_to_itself():
    bias = roformer_cpp.encoding("sandwich", num_attention_heads=2).terms(torch.arange(3)).bias
    assert (bias.lo, bias.hi) == (-2, 2)
    assert (bias.rows[:, 2] == 0).all() and (bias.rows[:, :2] < 0).all()
