"""Sandwich (Chi et al. 2023): sinusoids of two positions multiplied, as the paper writes them, in NumPy."""

import numpy as np
import pytest
import torch

import roformer_cpp
from pair_loops import assert_t1, draw_qkv, pair_loops

SCATTERED = torch.tensor([3, 0, 1, 400, 39])


def sinusoids(position, width):
    """[sines, cosines] of a position; their product is a sum of cosines of the distance."""
    angle = position / 10000.0 ** (2 * np.arange(width // 2) / width)
    return np.concatenate([np.sin(angle), np.cos(angle)])


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("heads, bar_d", [(1, 128), (3, 16), (8, 128)])
@pytest.mark.parametrize("positions", [torch.arange(5), SCATTERED], ids=["steps", "scattered"])
def test_pair_loops(positions, heads, bar_d, is_causal):
    """softmax(q_i k_j / sqrt(D) + p_i p_j / ratio_h), ratios 8/H, 16/H, .. 8. The softmax does not see the constant."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(5, heads, 4, batch=1)
    ratio = np.arange(1, heads + 1) * 8 / heads
    rows = [sinusoids(position, bar_d) for position in positions.tolist()]
    expected = pair_loops(
        q, k, v, lambda h, i, j, q_i, k_j: q_i @ k_j / np.sqrt(4) + rows[i] @ rows[j] / ratio[h], is_causal=is_causal
    )
    shape = {"num_attention_heads": heads, "head_dim": 4, "is_decoder": is_causal}
    keys = {} if bar_d == 128 else {"bar_d": bar_d}
    terms = roformer_cpp.encoding("sandwich", **shape, **keys).terms(positions, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, positions=positions, is_causal=is_causal), expected)


def test_a_token_has_no_bias_to_itself():
    bias = roformer_cpp.encoding("sandwich", num_attention_heads=2).terms(torch.arange(3)).bias
    assert (bias.lo, bias.hi) == (-2, 2)
    assert (bias.rows[:, 2] == 0).all() and (bias.rows[:, :2] < 0).all()


@pytest.mark.parametrize("keys, words", [
    ({"bar_d": 7}, "sandwich.bar_d must be even, a sine and a cosine for each frequency, got 7"),
    ({"bar_d": 0}, "sandwich.bar_d must be an integer from 2 .* got 0"),
])  # fmt: skip
def test_refuses(keys, words):
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding("sandwich", **keys)
