"""FLOATER (Liu et al. 2020; R-ABS-11) by Runge-Kutta steps in NumPy."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import TINY_IDS, TINY_MODEL, parameter
from initial_values import WIDTH, normal, zero
from tolerances import T1_ATOL, T1_RTOL, T4_MAX

REFUSED = {"floater": [
    ({"time_step": 0}, "floater.time_step must be .* got 0"),
    ({"time_step": float("inf")}, "options must be finite numbers"),
    ({"time_step": "slow"}, "floater.time_step must be"),
    ({"steps": 0}, "floater.steps must be .* got 0"),
    ({"steps": 1.5}, "floater.steps must be"),
]}  # fmt: skip

SWEEP_KEYS = {"floater": {"time_step": 0.05}}
# The authors' program: Xavier's normal draw, and biases 0.
STARTS = {
    "floater": {
        "start": normal,
        **{f"h.{i}.weight": partial(normal, deviation=math.sqrt(2 / (2 * WIDTH + 1))) for i in (0, 1)},
        **{f"h.{i}.bias": zero for i in (0, 1)},
    }
}

C, LAYERS, DT = 6, 2, 0.25
AT = [0, 1, 2, 5, 3, 0]


def encoding_of(**options):
    return roformer_cpp.encoding("floater", hidden_size=C, num_hidden_layers=LAYERS, **{"time_step": DT} | options)


def drawn(**options):
    encoding = encoding_of(**options).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for each in encoding.parameters():
            each.normal_(0, 0.5, generator=generator)
    return encoding


def network(encoding):
    w_1, b_1, w_2, b_2 = (parameter(encoding, f"h.{i}.{what}") for i in (0, 1) for what in ("weight", "bias"))

    def h(t, p):
        inner = np.maximum(w_1 @ np.append(p, t) + b_1, 0)
        return w_2 @ np.append(inner, t) + b_2

    return h


def runge_kutta(h, p, positions, time_step, steps):
    """The solution at positions 0, 1, .."""
    rows, t, dt = [p], 0.0, time_step / steps
    for _ in range(positions - 1):
        for _ in range(steps):
            a = h(t, p)
            b = h(t + dt / 2, p + dt / 2 * a)
            c = h(t + dt / 2, p + dt / 2 * b)
            d = h(t + dt, p + dt * c)
            p, t = p + dt * (a + 2 * b + 2 * c + d) / 6, t + dt
        rows.append(p)
    return np.array(rows)


def layer_input(encoding, positions, layer):
    return encoding.layer_input(torch.as_tensor(positions), layer=layer, dtype=torch.float64).detach().numpy()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("layer", range(LAYERS))
def test_vectors_are_those_of_the_equation(layer, steps):
    encoding = drawn(steps=steps)
    rows = runge_kutta(network(encoding), parameter(encoding, f"layer.{layer}.start"), 6, DT, steps)
    np.testing.assert_allclose(layer_input(encoding, AT, layer)[0], rows[AT], atol=T1_ATOL, rtol=T1_RTOL)
    assert np.abs(np.diff(rows, axis=0)).max(1).min() > 0.01
    batch = layer_input(encoding, [AT, AT[::-1]], layer)
    np.testing.assert_allclose(batch, rows[[AT, AT[::-1]]], atol=T1_ATOL, rtol=T1_RTOL)


def test_a_model_projects_the_sum():
    """With all tokens at one position, W (x + p) + b is a model without positions whose biases are b + W p."""
    torch.manual_seed(0)
    floater = {"type": "floater", "time_step": DT}
    ours = roformer_cpp.build_model(TINY_MODEL | {"position_encoding": floater})
    with torch.no_grad():
        for each in ours.parameters():
            each.add_(0.3 * torch.randn(each.shape))
    state = {name: value.clone() for name, value in ours.state_dict().items()}
    of_encoding = {
        name.split("position_encoding.")[1]: state.pop(name) for name in list(state) if "position_enc" in name
    }
    encoding = roformer_cpp.encoding("floater", hidden_size=16, num_hidden_layers=2, time_step=DT)
    encoding.load_state_dict(of_encoding)
    plain = roformer_cpp.build_model(TINY_MODEL | {"position_encoding": "none"})
    results = []
    for at in (0, 3):
        shifted = dict(state)
        for layer in range(2):
            rows = runge_kutta(network(encoding.double()), parameter(encoding, f"layer.{layer}.start"), at + 1, DT, 1)
            for side in ("query", "key", "value"):
                (name,) = (n for n in state if n.endswith(f"layer.{layer}.attention.self.{side}.weight"))
                bias = name.replace("weight", "bias")
                shifted[bias] = (state[bias].double() + state[name].double() @ torch.from_numpy(rows[at])).float()
        plain.load_state_dict(shifted)
        with torch.no_grad():
            got = ours.encode(TINY_IDS, positions=torch.full_like(TINY_IDS, at))
            expected = plain.encode(TINY_IDS)
        assert (got - expected).abs().max() <= T4_MAX * expected.abs().max()
        results.append(got)
    assert (results[0] - results[1]).abs().max() > 0.01


def test_combined_vectors_are_added():
    parts = [encoding_of(), roformer_cpp.encoding("sinusoidal", embedding_size=C, num_hidden_layers=2), encoding_of()]
    combined, at = roformer_cpp.combine_encodings(parts), torch.arange(4)
    expected = parts[0].layer_input(at, layer=1) + parts[2].layer_input(at, layer=1)
    assert torch.equal(combined.layer_input(at, layer=1), expected)
    assert torch.equal(combined.input(at), parts[1].input(at)) and parts[1].layer_input(at) is None


@pytest.mark.parametrize("position", [-1, 65536])
def test_refuses_positions(position):
    message = rf"\[floater\] positions must be in 0..65535, up to which the equation is solved, got {position}"
    with pytest.raises(ValueError, match=message):
        encoding_of().layer_input(torch.tensor([0, position]))
