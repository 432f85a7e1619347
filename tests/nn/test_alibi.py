"""ALiBi's slopes and penalties (Press et al. 2022, section 3)."""

import numpy as np
import pytest
import torch

import roformer_cpp
from pair_loops import assert_t1, draw_qkv, pair_loops

# For 8 heads the paper prints 1/2, 1/4, .., 1/256; for 16 it interpolates geometrically: 1/2^0.5, 1/2, 1/2^1.5, ...
# Twelve heads take the eight, then every second of the sixteen.
SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    8: [2**-x for x in range(1, 9)],
    12: [2**-x for x in range(1, 9)] + [2**-x for x in (0.5, 1.5, 2.5, 3.5)],
    16: [2 ** -(x / 2) for x in range(1, 17)],
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("heads", SLOPES)
def test_pair_loops(heads, is_causal):
    """softmax(q_i k_j / sqrt(D) - slope |i - j|): the penalty is outside the scale."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(5, heads, 4, batch=1)
    encoding = roformer_cpp.encoding("alibi", num_attention_heads=heads, head_dim=4, is_decoder=is_causal)
    slopes = SLOPES[heads]
    expected = pair_loops(
        q, k, v, lambda h, i, j, q_i, k_j: q_i @ k_j / np.sqrt(4) - slopes[h] * abs(i - j), is_causal=is_causal
    )
    terms = encoding.terms(torch.arange(5), dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, is_causal=is_causal), expected)


def test_rows_cover_every_distance():
    encoding = roformer_cpp.encoding("alibi", num_attention_heads=2)
    bias = encoding.terms(torch.tensor([1000, 1001]), torch.tensor([0, 1002])).bias
    assert (bias.lo, bias.hi) == (-2, 1001)
    assert bias.rows[0, -1].item() == pytest.approx(-1001 * 2**-4)


def test_too_many_distances():
    encoding = roformer_cpp.encoding("alibi")
    with pytest.raises(ValueError, match="distances must span at most 16777216 rows, got"):
        encoding.terms(torch.tensor([0, 1 << 24]))
