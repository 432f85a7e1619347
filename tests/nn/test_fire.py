"""FIRE's bias (Li et al. 2024, Eq. 4-5) and gradients, computed from the pieces of its function, against the formula in
torch's float64."""

import pytest
import torch

import roformer_cpp
from initial_values import equal, of_linear, one
from tolerances import COMPILED_GRADIENT_F32, FIRE_GRADIENT_F32, T1_ATOL, T1_RTOL, T2_ATOL, T2_RTOL

REFUSED = {"fire": [
    ({"mlp_width": 0}, "mlp_width"),
    ({"init_c": 0}, r"init_c must be a number > 0 and <= 1000000000, got 0"),
    ({"init_L": -1}, r"init_L must be a number > 0 and <= 1000000000, got -1"),
    ({"shared": 1}, "shared"),
]}  # fmt: skip

SWEEP_KEYS = {"fire": {"init_L": 2.5}}
# Appendix A of the paper: c 0.1, and torch's linear layers of 1 and of 32 inputs.
STARTS = {"fire": {"c": equal(0.1), "L_multiplier": one, "mlp_2_weight": of_linear(32)}}
STARTS["fire"] |= {"mlp_0_weight": of_linear(1), "mlp_0_bias": of_linear(1)}

HEADS, INIT_L, LAYER = 3, 7.0, 1
NAMES = ["c", "L_multiplier", "mlp_0_weight", "mlp_0_bias", "mlp_2_weight"]
# Units that never bend (u = 0, t of either sign and 0), that bend at the same x, at x = 0, at x < 0 and at x > 1, that
# rise and that fall.
U = [0.0, 0.0, 0.0, 1.0, 2.0, -1.0, 1.0, -1.0, 0.7, -0.5, 1e-3, -3.0, 0.9]
T = [0.5, -0.5, 0.0, -0.25, -0.5, 0.25, 0.0, 0.0, 0.3, 0.9, -2.0, 0.6, -0.6]

UP, DOWN = torch.arange(24), torch.arange(23, -1, -1)
POSITIONS = {
    "steps": (torch.arange(33), torch.arange(33)),
    "later queries": (torch.arange(20, 33), torch.arange(33)),
    "keys after all queries": (torch.arange(4), torch.arange(9, 40)),
    "one query": (torch.tensor([40]), torch.arange(41)),
    "scattered": (torch.tensor([5, 0, 31, 7, 7]), torch.tensor([2, 30, 1, 31, 7, 7, 0])),
    "packed": (torch.cat([torch.arange(9), torch.arange(17)]),) * 2,
    "far apart": (torch.tensor([3, 10**6, 2**40]), torch.tensor([0, 2**40 - 5, 77])),
    "batch of keys": (torch.arange(12), torch.stack([torch.arange(12), torch.arange(12).flip(0)])),
    "mixed batch": (torch.tensor([[3], [20], [20]]), torch.stack([UP, DOWN, UP])),
    "batch": (torch.stack([torch.arange(12), torch.arange(3, 15)]),) * 2,
}


def fire(dtype=torch.float64, shared=False, **values):
    shape = {"num_attention_heads": HEADS, "num_hidden_layers": 2, "mlp_width": len(U), "init_L": INIT_L}
    encoding = roformer_cpp.encoding("fire", **shape, shared=shared).to(dtype)
    v = torch.randn(HEADS, len(U), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chosen = {"c": 0.3, "L_multiplier": 1.0, "mlp_0_weight": U, "mlp_0_bias": T, "mlp_2_weight": v} | values
    with torch.no_grad():
        for name, value in chosen.items():
            p = encoding.get_parameter(name if shared else f"layer.{LAYER}.{name}")
            p.copy_(torch.as_tensor(value, dtype=dtype).reshape(p.shape))
    return encoding


def bias_of(encoding, query, key):
    dtype = next(iter(encoding.parameters())).dtype
    return encoding.terms(query, key, layer=LAYER, dtype=dtype).pair_bias


def parameters_of(encoding):
    return [encoding.get_parameter(f"layer.{LAYER}.{name}") for name in NAMES]


def formula(encoding, query, key):
    """Eq. 4-5 with torch's functions, in float64, and leaves for its gradients."""
    leaves = [parameter.detach().double().requires_grad_() for parameter in parameters_of(encoding)]
    c, factor, u, t, v = leaves
    query, key = (x if x.ndim == 2 else x[None] for x in (query, key))
    distance = (query[:, :, None] - key[:, None, :]).abs().double()
    farthest = torch.maximum(query.double(), (factor * INIT_L).abs())[:, :, None]
    x = torch.log(1 + c.abs() * distance) / (torch.log(1 + c.abs() * farthest) + 1e-6)
    hidden = torch.relu(x[..., None] * u[:, 0] + t)
    return (hidden @ v.T).permute(0, 3, 1, 2), leaves


def gradients(bias, leaves, **options):
    slopes = torch.randn(bias.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.autograd.grad((bias * slopes.to(bias.dtype)).sum(), leaves, **options)


@pytest.mark.parametrize("which", POSITIONS)
@pytest.mark.parametrize("values", [{}, {"c": -0.3, "L_multiplier": -1.5}, {"c": 0.0}], ids=["", "negative", "zero"])
def test_bias_and_gradients(which, values):
    """L is 7, the position of a query: of equal numbers the maximum has half the gradient each."""
    encoding = fire(**values)
    bias, (expected, leaves) = bias_of(encoding, *POSITIONS[which]), formula(encoding, *POSITIONS[which])
    torch.testing.assert_close(bias, expected, atol=T1_ATOL, rtol=T1_RTOL)
    ours = gradients(bias, parameters_of(encoding))
    for name, got, want in zip(NAMES, ours, gradients(expected, leaves), strict=True):
        scale = 1 + want.abs().max().item()
        torch.testing.assert_close(got, want, atol=T1_ATOL * scale, rtol=T1_RTOL, msg=lambda m, n=name: f"{n}: {m}")
        no_query_before_threshold = name == "L_multiplier" and POSITIONS[which][0].min() > INIT_L
        assert values or no_query_before_threshold or want.abs().max() > 0


def test_one_function_for_all_layers():
    alone, shared = fire(), fire(shared=True)
    assert sorted(name for name, _ in shared.named_parameters()) == sorted(NAMES)
    for layer in range(2):
        bias = shared.terms(*POSITIONS["scattered"], layer=layer, dtype=torch.float64).pair_bias
        assert torch.equal(bias, bias_of(alone, *POSITIONS["scattered"]))


@pytest.mark.parametrize("which", POSITIONS)
def test_float32(which):
    encoding = fire(torch.float32)
    bias, (expected, leaves) = bias_of(encoding, *POSITIONS[which]), formula(encoding, *POSITIONS[which])
    assert bias.dtype == torch.float32
    torch.testing.assert_close(bias.double(), expected, atol=T2_ATOL, rtol=T2_RTOL)
    for got, want in zip(gradients(bias, parameters_of(encoding)), gradients(expected, leaves), strict=True):
        atol = FIRE_GRADIENT_F32 * want.abs().max().item()
        torch.testing.assert_close(got.double(), want, **COMPILED_GRADIENT_F32 | {"atol": atol})


def test_same_bits_for_any_number_of_threads():
    encoding = fire(torch.float32)
    at, threads, results = torch.arange(200), torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            bias = bias_of(encoding, at, at)
            results.append([bias.detach(), *gradients(bias, parameters_of(encoding))])
    finally:
        torch.set_num_threads(threads)
    for same in zip(*results, strict=True):
        assert torch.equal(same[0], same[1]) and torch.equal(same[0], same[2])


def test_gradients_of_gradients():
    """Those of the formula; the first derivatives that they are taken of are the same as without them."""
    at = torch.arange(9)
    encoding = fire()
    bias, (expected, leaves) = bias_of(encoding, at, at), formula(encoding, at, at)
    parameters = parameters_of(encoding)
    first = gradients(bias, parameters, create_graph=True)
    for got, want in zip(first, gradients(bias_of(encoding, at, at), parameters), strict=True):
        torch.testing.assert_close(got, want, atol=T1_ATOL, rtol=10 * T1_RTOL)
    norm = sum((g * g).sum() for g in first)
    norm_expected = sum((g * g).sum() for g in gradients(expected, leaves, create_graph=True))
    second, want = torch.autograd.grad(norm, parameters), torch.autograd.grad(norm_expected, leaves)
    for a, b in zip(second, want, strict=True):
        torch.testing.assert_close(a, b, atol=T1_ATOL * (1 + b.abs().max().item()), rtol=T1_RTOL)


@pytest.mark.parametrize("which", ["steps", "scattered", "far apart"])
@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_that_is_not_a_number_shows(name, which):
    values = fire().get_parameter(f"layer.{LAYER}.{name}").detach().clone()
    values.view(-1)[0] = float("nan")
    encoding = fire(**{name: values})
    ours, expected = bias_of(encoding, *POSITIONS[which]), formula(encoding, *POSITIONS[which])[0]
    assert expected.isnan().any()
    assert torch.equal(ours.isnan(), expected.isnan())
    bias = bias_of(encoding, *POSITIONS[which])
    assert any(g.isnan().any() for g in torch.autograd.grad((bias * bias).sum(), parameters_of(encoding)))


def test_without_tokens():
    encoding = fire()
    bias = bias_of(encoding, torch.arange(0), torch.arange(0))
    assert bias.shape == (1, HEADS, 0, 0)
    assert all((g == 0).all() for g in torch.autograd.grad(bias.sum(), parameters_of(encoding)))
