"""ALiBi's slopes and penalties (Press et al. 2022, section 3)."""

import pytest
import torch

import roformer_cpp
from pair_loops import check_bias

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
    encoding = roformer_cpp.encoding("alibi", num_attention_heads=heads, head_dim=4, is_decoder=is_causal)
    bias = lambda h, m, n: -SLOPES[heads][h] * abs(m - n)  # noqa: E731
    check_bias(encoding, bias, torch.arange(5), heads=heads, is_causal=is_causal)


def test_rows_cover_every_distance():
    encoding = roformer_cpp.encoding("alibi", num_attention_heads=2)
    bias = encoding.terms(torch.tensor([1000, 1001]), torch.tensor([0, 1002])).bias
    assert (bias.lo, bias.hi) == (-2, 1001)
    assert bias.rows[0, -1].item() == pytest.approx(-1001 * 2**-4)
