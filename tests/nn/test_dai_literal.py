"""The printed step from Eq. 6 to Eq. 7 with the query's absolute position kept (R-REL-03), against loops over its four
terms in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, check_gradients, parameter
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
    expected = case.loops(four_terms(case, encoding, POSITIONS, POSITIONS), causal=causal)
    ours = case.attention(encoding, POSITIONS, layer=LAYER, causal=causal)
    np.testing.assert_allclose(ours, expected, T1_RTOL, T1_ATOL)


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


def test_without_the_query_position_it_is_transformer_xl_without_its_vectors():
    case = Case()
    encoding, other = case.encoding("dai-literal"), case.encoding("transformer-xl")
    with torch.no_grad():
        other.get_parameter("layer.0.r_weight").copy_(encoding.get_parameter("layer.0.r_weight"))
        for name in ("r_w_bias", "r_r_bias"):
            other.get_parameter(f"layer.0.{name}").zero_()
    given = {"projections": case.projections(), "queries": case.qkv()[0], "keys": case.qkv()[1], "dtype": torch.float64}
    ours, theirs = (each.terms(torch.arange(7), **given) for each in (encoding, other))
    torch.testing.assert_close(ours.key_table.rows, theirs.key_table.rows, rtol=T1_RTOL, atol=T1_ATOL)
    assert theirs.pair_bias is None and ours.pair_bias.abs().max() > 0.1


def test_gradients():
    case = Case(batch=1, tokens=4)
    encoding = case.encoding("dai-literal", num_hidden_layers=2)
    check_gradients(case, encoding, torch.tensor([0, 1, 7, 13]), layer=LAYER)
    x = torch.from_numpy(case.x).requires_grad_(True)
    weights = [w.requires_grad_(True) for w in case.projections()]

    def run(x, *weights):
        q, k, v = (
            (x @ w.T + b).unflatten(-1, (case.heads, case.head_dim))
            for w, b in zip(weights[:3], weights[3:], strict=True)
        )
        terms = encoding.terms(
            torch.arange(4), layer=LAYER, projections=weights, queries=q, keys=k, dtype=torch.float64
        )
        return roformer_cpp.attention(q, k, v, terms)

    assert torch.autograd.gradcheck(run, (x, *weights))


def test_refuses():
    with pytest.raises(ValueError, match=r"hidden_size must be even for dai-literal .*, got 7"):
        roformer_cpp.encoding("dai-literal", hidden_size=7)
    encoding = roformer_cpp.encoding("dai-literal", num_attention_heads=2, head_dim=4, hidden_size=8)
    q = torch.zeros(1, 3, 2, 4)
    with pytest.raises(ValueError, match="the query projection of the layer must be given, got none"):
        encoding.terms(torch.arange(3), queries=q, keys=q)
