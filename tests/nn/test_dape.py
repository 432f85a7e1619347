"""DAPE (Zheng et al. 2024, section 3.2; R-REL-17) against loops in float64."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import HEADS, of_linear, of_log
from tolerances import T1_ATOL, T1_RTOL

REFUSED = {"dape": [
    ({"bias": "rope"}, 'dape.bias must be one of alibi, .*fire, got "rope"'),
    ({"bias": "kerple"}, 'must be one of .*, got "kerple"'),
    ({"bias": 3}, "dape.bias"),
    ({"mlp_width": 0}, "mlp_width"),
]}  # fmt: skip

SWEEP_KEYS = {"dape": {"mlp_width": 3}}
# The authors' program: torch's linear layers of scores and biases of the heads.
STARTS = {
    "dape": {
        "bias.log_r1": of_log(2),
        "bias.log_r2": of_log(1),
        **{f"mlp2_0_{part}": of_linear(2 * HEADS) for part in ("weight", "bias")},
        **{f"mlp2_2_{part}": of_linear(32) for part in ("weight", "bias")},
    }
}

LAYER, WIDTH = 1, 5
POSITIONS = torch.tensor([[0, 1, 2, 5, 6, 40, 7], [3, 9, 4, 0, 50, 1, 2]])  # of each row


def encoding_of(case, bias):
    return case.encoding("dape", num_hidden_layers=2, mlp_width=WIDTH, bias=bias)


def kerple(encoding, distance):
    r1, r2 = (np.exp(parameter(encoding, f"bias.log_{name}")) for name in ("r1", "r2"))
    return -r1 * np.log1p(r2 * abs(distance))


def alibi(encoding, distance):
    """Of a power of two heads (Press et al. 2022)."""
    return -abs(distance) * 2.0 ** (-8 * np.arange(1, 5) / 4)


def adapted(case, encoding, bias):
    names = ("mlp2_0_weight", "mlp2_0_bias", "mlp2_2_weight", "mlp2_2_bias")
    w_1, b_1, w_2, b_2 = (parameter(encoding, f"layer.{LAYER}.{name}") for name in names)

    def score(b, h, m, n):
        heads = range(case.heads)
        scores = np.array([case.q(b, m, each) @ case.k(b, n, each) for each in heads]) / math.sqrt(case.head_dim)
        by_distance = bias(encoding, (POSITIONS[b, m] - POSITIONS[b, n]).item())
        inner = w_1 @ np.concatenate([scores, by_distance]) + b_1
        return (scores + by_distance + w_2 @ np.where(inner > 0, inner, 0.01 * inner) + b_2)[h]

    return score


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("name", "bias"), [("kerple-log", kerple), ("alibi", alibi)])
def test_scores_are_those_of_the_paper(name, bias, causal):
    case = Case(heads=4, head_dim=8)
    encoding = encoding_of(case, name)
    case.check(encoding, adapted(case, encoding, bias), POSITIONS, layer=LAYER, causal=causal)


def test_fire_is_a_bias_too():
    """With weights of 0 the network adds nothing."""
    case = Case(heads=2, head_dim=8)
    fire = roformer_cpp.encoding("fire", num_attention_heads=2, is_decoder=True).double()
    encoding = roformer_cpp.encoding("dape", num_attention_heads=2, head_dim=8, bias="fire", is_decoder=True).double()
    with torch.no_grad():
        for name, value in encoding.named_parameters():
            value.copy_(fire.get_parameter(name.removeprefix("bias.")) if name.startswith("bias.") else 0)
    ours, theirs = (case.attention(each, POSITIONS.sort().values, causal=True) for each in (encoding, fire))
    np.testing.assert_allclose(ours, theirs, atol=T1_ATOL, rtol=T1_RTOL)


def test_refuses_other_heads_and_rows():
    encoding = roformer_cpp.encoding("dape", num_attention_heads=4, head_dim=8)
    for x, positions, words in (
        (torch.zeros(1, 5, 2, 8), torch.arange(5), r"\[dape\] queries must have 4 heads, got 2"),
        (torch.zeros(3, 5, 4, 8), torch.zeros(2, 5).long(), "positions must be those of the 3 rows of queries, got 2"),
    ):
        with pytest.raises(ValueError, match=words):
            encoding.terms(positions, queries=x, keys=x)
