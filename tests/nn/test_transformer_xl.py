"""Transformer-XL, Eq. 7 as printed, and the step to it from Eq. 6 with the query's absolute position kept (R-REL-03)
against loops over the equations."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import normal

REFUSED = {"transformer-xl": [
    ({"untie_r": 1}, "untie_r must be true or false, got 1"),
    ({"clamp_len": -2}, "clamp_len must be an integer from -1.*-2"),
    ({"hidden_size": 7}, "hidden_size must be even.*7"),
    ({"clamp_length": 4}, "clamp_length"),
], "dai-literal": [({"hidden_size": 7}, r"hidden_size must be even for dai-literal .*, got 7")]}  # fmt: skip

XL = dict.fromkeys(("r_w_bias", "r_r_bias", "r_weight"), normal)
STARTS = {"transformer-xl": XL, "transformer-xl-literal": XL, "dai-literal": {"r_weight": normal}}

POSITIONS = [3, 0, 9, 40, 41, 200, 7]


def sinusoid(distance: int, width: int) -> np.ndarray:
    angles = distance * 10000.0 ** (-2 * np.arange(width // 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)])


def score_of(case: Case, w_r: np.ndarray, u: np.ndarray, v: np.ndarray, positions, clamp=10**9):
    """u, v: [H*D]."""

    def score(b, h, m, n):
        distance = max(-clamp, min(clamp, positions[m] - positions[n]))
        q, k = case.q(b, m, h), case.k(b, n, h)
        r = case.head(w_r @ sinusoid(distance, case.width), h)
        return ((q + case.head(u, h)) @ k + (q + case.head(v, h)) @ r) / np.sqrt(case.head_dim)

    return score


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("untie_r", [True, False])
@pytest.mark.parametrize("clamp", [-1, 5])
def test_equation(layer, untie_r, clamp):
    case = Case()
    encoding = case.encoding("transformer-xl", num_hidden_layers=2, untie_r=untie_r, clamp_len=clamp)
    of_bias = f"layer.{layer}." if untie_r else ""
    u, v = (parameter(encoding, of_bias + name).reshape(-1) for name in ("r_w_bias", "r_r_bias"))
    w_r = parameter(encoding, f"layer.{layer}.r_weight")
    score = score_of(case, w_r, u, v, POSITIONS, clamp=clamp if clamp > 0 else 10**9)
    case.check(encoding, score, POSITIONS, layer=layer)


def test_literal_equation():
    case = Case()
    encoding = case.encoding("transformer-xl-literal")
    u, v = (case.w_q @ parameter(encoding, "layer.0." + name) for name in ("r_w_bias", "r_r_bias"))
    score = score_of(case, parameter(encoding, "layer.0.r_weight"), u, v, POSITIONS)
    case.check(encoding, score, POSITIONS)


def test_span_of_the_table():
    encoding = roformer_cpp.encoding("transformer-xl", head_dim=2, hidden_size=2)
    key_table = encoding.terms(torch.tensor([100, 103]), torch.tensor([100, 101, 102, 103])).key_table
    assert key_table.rows.shape == (1, 7, 2)
    assert key_table[1:] == (-3, 3)
    one = encoding.terms(torch.tensor([7]), torch.arange(8)).key_table
    assert one[1:] == (0, 7)
    clamped = roformer_cpp.encoding("transformer-xl", head_dim=2, clamp_len=2)
    for far in (torch.arange(8), torch.tensor([0, 10**9])):
        assert clamped.terms(far).key_table[1:] == (-2, 2)


# ---- with the query's absolute position ----


def four_terms(case, encoding, queries, keys, layer=1):
    w_r = parameter(encoding, f"layer.{layer}.r_weight")

    def score(b, h, m, n):
        w_q, own_key = case.head(case.w_q, h), case.k(b, n, h)
        relative = case.head(w_r, h) @ sinusoid(queries[m] - keys[n], case.width)
        p_m = sinusoid(queries[m], case.width)
        q = case.q(b, m, h)  # with its bias
        terms = [q @ own_key, q @ relative, p_m @ w_q.T @ own_key, p_m @ w_q.T @ relative]
        return sum(terms) / np.sqrt(case.head_dim)

    return score


@pytest.mark.parametrize("causal", [False, True])
def test_absolute_queries(causal):
    case = Case(heads=3, head_dim=8)
    encoding = case.encoding("dai-literal", num_hidden_layers=2, is_decoder=causal)
    case.check(encoding, four_terms(case, encoding, POSITIONS, POSITIONS), POSITIONS, layer=1, causal=causal)


def test_absolute_queries_of_other_keys_and_positions_of_each_row():
    case = Case(tokens=3, keys=5)
    encoding = case.encoding("dai-literal", num_hidden_layers=2)
    of_rows = [[[p + 7 * b for p in given] for b in range(2)] for given in ([12, 10, 14], [10, 11, 12, 13, 14])]
    scores = [four_terms(case, encoding, *(side[b] for side in of_rows)) for b in range(2)]
    case.check(encoding, lambda b, h, m, n: scores[b](b, h, m, n), *of_rows, layer=1)


@pytest.mark.parametrize("name, words", [
    ("transformer-xl-literal", r"\[transformer-xl-literal\] .*projections"),
    ("dai-literal", "the query projection of the layer must be given, got none"),
])  # fmt: skip
def test_projections_must_be_given(name, words):
    q = torch.zeros(1, 3, 2, 4)
    encoding = roformer_cpp.encoding(name, num_attention_heads=2, head_dim=4, hidden_size=8)
    with pytest.raises(ValueError, match=words):
        encoding.terms(torch.arange(3), queries=q, keys=q)
