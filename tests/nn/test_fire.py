"""FIRE (Li et al. 2024, Eq. 4-5) against loops in float64."""

import numpy as np
import pytest

from encoding_case import Case, parameter
from initial_values import equal, of_linear, one
from tolerances import T1_ATOL, T1_RTOL

REFUSED = {"fire": [
    ({"mlp_width": 0}, "mlp_width"),
    ({"init_c": 0}, r"init_c must be a number > 0 and <= 1000000000, got 0"),
    ({"init_L": -1}, r"init_L must be a number > 0 and <= 1000000000, got -1"),
    ({"shared": 1}, "shared"),
]}  # fmt: skip

SWEEP_KEYS = {"fire": {"init_L": 2.5}}
# Appendix A of the paper: c 0.1, and torch's linear layers of 1 and of 32 inputs.
STARTS = {
    "fire": {
        "c": equal(0.1),
        "L_multiplier": one,
        "mlp_0_weight": of_linear(1),
        "mlp_0_bias": of_linear(1),
        "mlp_2_weight": of_linear(32),
    }
}

LAYER, INIT_L = 1, 3.0
SCATTERED = [2, 0, 40, 1, 39, 7, 7]


def encoding_of(case, **keys):
    return case.encoding("fire", num_hidden_layers=2, mlp_width=5, init_L=INIT_L, **keys)


def interpolated(case, encoding, positions, prefix=f"layer.{LAYER}."):
    c, factor, u, t, v = (
        parameter(encoding, prefix + name)
        for name in ("c", "L_multiplier", "mlp_0_weight", "mlp_0_bias", "mlp_2_weight")
    )

    def psi(x):
        return np.log(np.abs(c[0]) * x + 1)

    def score(b, h, m, n):
        i, j = positions[m], positions[n]
        x = psi(abs(i - j)) / (psi(max(abs(factor[0] * INIT_L), i)) + 1e-6)
        bias = sum(v[h, w] * max(u[w, 0] * x + t[w], 0) for w in range(len(t)))
        return case.q(b, m, h) @ case.k(b, n, h) / np.sqrt(case.head_dim) + bias

    return score


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", [list(range(7)), SCATTERED], ids=["steps", "scattered"])
def test_scores_are_those_of_the_paper(positions, causal):
    case = Case(heads=3)
    encoding = encoding_of(case)
    case.check(encoding, interpolated(case, encoding, positions), positions, layer=LAYER, causal=causal)


def test_one_function_for_all_layers():
    case = Case()
    encoding = encoding_of(case, shared=True)
    assert all(not name.startswith("layer.") for name, _ in encoding.named_parameters())
    expected = case.loops(interpolated(case, encoding, SCATTERED, prefix=""))
    for layer in range(2):
        ours = case.attention(encoding, SCATTERED, layer=layer)
        np.testing.assert_allclose(ours, expected, atol=T1_ATOL, rtol=T1_RTOL)
