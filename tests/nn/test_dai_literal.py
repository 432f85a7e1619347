"""The printed step from Eq. 6 to Eq. 7 with the query's absolute position kept (R-REL-03), against loops over its four
terms in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import normal
from tolerances import T1_ATOL, T1_RTOL

STARTS = {"dai-literal": {"r_weight": normal}}

LAYER = 1
POSITIONS = [3, 0, 9, 40, 41, 200, 7]  # in no order, with gaps


def sinusoid(place: int, width: int) -> np.ndarray:
    angles = place * 10000.0 ** (-2 * np.arange(width // 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)])


def four_terms(case, encoding, queries, keys):
    w_r = parameter(encoding, f"layer.{LAYER}.r_weight")

    def score(b, h, m, n):
        w_q, own_key = case.head(case.w_q, h), case.k(b, n, h)
        relative = case.head(w_r, h) @ sinusoid(queries[m] - keys[n], case.width)
        p_m = sinusoid(queries[m], case.width)
        q = case.q(b, m, h)  # with its bias
        terms = [q @ own_key, q @ relative, p_m @ w_q.T @ own_key, p_m @ w_q.T @ relative]
        return sum(terms) / np.sqrt(case.head_dim)

    return score


@pytest.mark.parametrize("causal", [False, True])
def test_equation(causal):
    case = Case(heads=3, head_dim=8)
    encoding = case.encoding("dai-literal", num_hidden_layers=2, is_decoder=causal)
    case.check(encoding, four_terms(case, encoding, POSITIONS, POSITIONS), POSITIONS, layer=LAYER, causal=causal)


def test_other_keys_than_queries_and_positions_of_each_row():
    case = Case(tokens=3, keys=5)
    encoding = case.encoding("dai-literal", num_hidden_layers=2)
    queries, keys = [12, 10, 14], [10, 11, 12, 13, 14]
    expected = case.loops(four_terms(case, encoding, queries, keys))
    np.testing.assert_allclose(case.attention(encoding, queries, keys, layer=LAYER), expected, T1_RTOL, T1_ATOL)
    rows = [case.loops(four_terms(case, encoding, [p + 7 * b for p in queries], [p + 7 * b for p in keys]))[b]
            for b in range(2)]  # fmt: skip
    each = [torch.tensor([given, [p + 7 for p in given]]) for given in (queries, keys)]
    np.testing.assert_allclose(case.attention(encoding, *each, layer=LAYER), np.stack(rows), T1_RTOL, T1_ATOL)


def test_refuses():
    with pytest.raises(ValueError, match=r"hidden_size must be even for dai-literal .*, got 7"):
        roformer_cpp.encoding("dai-literal", hidden_size=7)
    encoding = roformer_cpp.encoding("dai-literal", num_attention_heads=2, head_dim=4, hidden_size=8)
    q = torch.zeros(1, 3, 2, 4)
    with pytest.raises(ValueError, match="the query projection of the layer must be given, got none"):
        encoding.terms(torch.arange(3), queries=q, keys=q)
