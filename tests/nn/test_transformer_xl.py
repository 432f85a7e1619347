"""Transformer-XL and Eq. 7 as printed (R-REL-03) against loops over the equations."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, check_gradients, parameter
from initial_values import normal
from tolerances import T1_ATOL, T1_RTOL

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
    ours = case.attention(encoding, POSITIONS, layer=layer)
    np.testing.assert_allclose(ours, case.loops(score), T1_RTOL, T1_ATOL)


def test_literal_equation():
    case = Case()
    encoding = case.encoding("transformer-xl-literal")
    u, v = (case.w_q @ parameter(encoding, "layer.0." + name) for name in ("r_w_bias", "r_r_bias"))
    score = score_of(case, parameter(encoding, "layer.0.r_weight"), u, v, POSITIONS)
    np.testing.assert_allclose(case.attention(encoding, POSITIONS), case.loops(score), T1_RTOL, T1_ATOL)


def test_literal_is_the_default_with_projected_biases():
    case = Case()
    literal, default = case.encoding("transformer-xl-literal"), case.encoding("transformer-xl")
    with torch.no_grad():
        default.get_parameter("layer.0.r_weight").copy_(literal.get_parameter("layer.0.r_weight"))
        for name in ("layer.0.r_w_bias", "layer.0.r_r_bias"):
            projected = torch.from_numpy(case.w_q) @ literal.get_parameter(name)
            default.get_parameter(name).copy_(projected.unflatten(0, (case.heads, case.head_dim)))
    expected = case.attention(default, POSITIONS)
    np.testing.assert_allclose(case.attention(literal, POSITIONS), expected, T1_RTOL, T1_ATOL)


def test_other_keys_than_queries():
    """Continuing after earlier keys: more keys than queries, distances of both signs."""
    case = Case(tokens=3, keys=5)
    encoding = case.encoding("transformer-xl")
    queries, keys = [12, 10, 14], [10, 11, 12, 13, 14]
    u, v = (parameter(encoding, f"layer.0.{name}").reshape(-1) for name in ("r_w_bias", "r_r_bias"))
    score = score_of(case, parameter(encoding, "layer.0.r_weight"), u, v, queries, keys)
    np.testing.assert_allclose(case.attention(encoding, queries, keys), case.loops(score), T1_RTOL, T1_ATOL)


def shift(products: np.ndarray) -> np.ndarray:
    """The paper's appendix: a column of zeros in front, rows and columns read anew, the first row dropped."""
    rows, columns = products.shape
    return np.pad(products, ((0, 0), (1, 0))).reshape(columns + 1, rows)[1:]


def test_relative_shift():
    """Shifting q_i . K[3 - column] is indexing K by distance, where key <= query."""
    expected = [[3, 0, 4, 5], [6, 7, 0, 8], [9, 10, 11, 0], [12, 13, 14, 15]]
    assert shift(np.arange(16).reshape(4, 4)).tolist() == expected
    products = np.random.default_rng(0).standard_normal((4, 4))
    table = roformer_cpp.DistanceTable(torch.eye(4, dtype=torch.float64).flip(0)[None], 0, 3)
    q = torch.from_numpy(products)[None, :, None, :]
    values = torch.eye(4, dtype=torch.float64)[None, :, None, :]
    terms = roformer_cpp.Terms(key_table=table, scale=1.0)
    out = roformer_cpp.attention(q, torch.zeros_like(q), values, terms, positions=torch.arange(4), is_causal=True)
    weights = np.tril(np.exp(shift(products)))
    np.testing.assert_allclose(out[0, :, 0].numpy(), weights / weights.sum(1, keepdims=True), T1_RTOL, T1_ATOL)


def test_span_of_the_table():
    encoding = roformer_cpp.encoding("transformer-xl", head_dim=2, hidden_size=2)
    key_table = encoding.terms(torch.tensor([100, 103]), torch.tensor([100, 101, 102, 103])).key_table
    assert key_table.rows.shape == (1, 7, 2)
    assert key_table[1:] == (-3, 3)
    one = encoding.terms(torch.tensor([7]), torch.arange(8)).key_table
    assert one[1:] == (0, 7)
    with pytest.raises(ValueError, match="at most 16777216 rows, got -10000000 to 10000000"):
        encoding.terms(torch.tensor([0, 10**7]))
    clamped = roformer_cpp.encoding("transformer-xl", head_dim=2, clamp_len=2)
    assert clamped.terms(torch.arange(8)).key_table[1:] == (-2, 2)


def test_clamping_bounds_the_table():
    encoding = roformer_cpp.encoding("transformer-xl", head_dim=2, clamp_len=2)
    assert encoding.terms(torch.tensor([0, 10**9])).key_table[1:] == (-2, 2)


@pytest.mark.parametrize("name", ["transformer-xl", "transformer-xl-literal"])
def test_gradients(name):
    case = Case(tokens=4)
    encoding = case.encoding(name, num_hidden_layers=2)
    check_gradients(case, encoding, torch.tensor([0, 3, 20, 6]), layer=1)


def test_parameters():
    shape = {"num_attention_heads": 2, "head_dim": 4, "hidden_size": 6, "num_hidden_layers": 2}
    for untie_r, name, bias in [(True, "transformer-xl", (2, 4)), (False, "transformer-xl-literal", (6,))]:
        encoding = roformer_cpp.encoding(name, untie_r=untie_r, **shape)
        found = {key: tuple(p.shape) for key, p in encoding.named_parameters()}
        expected = {f"layer.{i}.r_weight": (8, 6) for i in range(2)}
        for path in ["layer.0.", "layer.1."] if untie_r else [""]:
            expected |= {path + "r_w_bias": bias, path + "r_r_bias": bias}
        assert found == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"untie_r": 1}, "untie_r must be true or false, got 1"),
        ({"clamp_len": -2}, "clamp_len must be an integer from -1.*-2"),
        ({"hidden_size": 7}, "hidden_size must be even.*7"),
        ({"clamp_length": 4}, "clamp_length"),
    ],
)
def test_bad_config(config, message):
    with pytest.raises(ValueError, match=message):
        roformer_cpp.encoding("transformer-xl", **config)


def test_literal_needs_projections():
    with pytest.raises(ValueError, match=r"\[transformer-xl-literal\] .*projections"):
        roformer_cpp.encoding("transformer-xl-literal").terms(torch.arange(3))
