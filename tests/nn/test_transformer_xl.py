"""Transformer-XL and Eq. 7 as printed (R-REL-03) against loops over the equations."""

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
]}  # fmt: skip

STARTS = {
    name: {"r_w_bias": normal, "r_r_bias": normal, "r_weight": normal}
    for name in ("transformer-xl", "transformer-xl-literal")
}

POSITIONS = [3, 0, 9, 40, 41, 200, 7]


def sinusoid(distance: int, width: int) -> np.ndarray:
    angles = [distance * 10000.0 ** (-2 * t / width) for t in range(width // 2)]
    return np.array([np.sin(a) for a in angles] + [np.cos(a) for a in angles])


def score_of(case: Case, w_r: np.ndarray, u: np.ndarray, v: np.ndarray, positions, key_positions=None, clamp=10**9):
    """u, v: [H*D]."""
    keys = positions if key_positions is None else key_positions

    def score(b, h, m, n):
        distance = max(-clamp, min(clamp, positions[m] - keys[n]))
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


def test_other_keys_than_queries():
    """Continuing after earlier keys: more keys than queries, distances of both signs."""
    case = Case(tokens=3, keys=5)
    encoding = case.encoding("transformer-xl")
    queries, keys = [12, 10, 14], [10, 11, 12, 13, 14]
    u, v = (parameter(encoding, f"layer.0.{name}").reshape(-1) for name in ("r_w_bias", "r_r_bias"))
    score = score_of(case, parameter(encoding, "layer.0.r_weight"), u, v, queries, keys)
    case.check(encoding, score, queries, keys)


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


def test_literal_needs_projections():
    with pytest.raises(ValueError, match=r"\[transformer-xl-literal\] .*projections"):
        roformer_cpp.encoding("transformer-xl-literal").terms(torch.arange(3))
