"""roformer::norm, gelu and linear (ops/src): values and gradients against torch in float64,
operator contracts, bad input. The kernels themselves are compared with the formulas in tests/core.
"""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.library import opcheck

import tolerances as tol
from roformer_cpp import attention  # noqa: F401 - registers the operators

ops = torch.ops.roformer
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
NORM_EPS = 1e-2  # rows of one column have no variance, and gradients of order 1 / eps
NARROW = [torch.bfloat16, torch.float16]
SHAPES = [(7,), (2, 3, 33), (0, 4), (2, 0)]
CASES = [(torch.float32, shape) for shape in SHAPES] + [(dtype, SHAPES[1]) for dtype in DTYPES[1:]]


def numbers(shape, seed, dtype=torch.float64, scale=1.0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    return x.to(dtype)


def check(compute, exact, arguments, terms=1.0):
    """compute(arguments) and its gradients against exact(arguments in float64). terms: the length of sums."""
    ours = {k: x.clone().requires_grad_() for k, x in arguments.items()}
    truth = {k: x.clone().double().requires_grad_() for k, x in arguments.items()}
    y, expected = compute(**ours), exact(**truth)
    given = numbers(expected.shape, 99).to(y.dtype)
    y.backward(given)
    expected.backward(given.double())
    assert y.shape == expected.shape
    pairs = {"y": (y, expected)} | {f"d{k}": (ours[k].grad, truth[k].grad) for k in arguments}
    for name, (got, want) in pairs.items():
        narrow = min(torch.finfo(x.dtype).bits for x in [got, *ours.values(), y]) == 16
        rtol = torch.finfo(got.dtype).eps if narrow else 0.0
        atol = terms * (tol.ROWS_F64 if got.dtype == torch.float64 else tol.ROWS_F32)
        torch.testing.assert_close(got.double(), want, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def exact_norm(kind, x, bias=None, residual=None, gamma=None, beta=None):
    s = x if bias is None else x + bias
    s = s if residual is None else s + residual
    s = s - s.mean(-1, keepdim=True) if kind == "layer" else s
    y = s / (s.square().mean(-1, keepdim=True) + NORM_EPS).sqrt()
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def norm(x, bias=None, residual=None, gamma=None, beta=None, **options):
    return ops.norm(x, bias, residual, gamma, beta, eps=NORM_EPS, **options)


@pytest.mark.parametrize(("dtype", "shape"), CASES)
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norm(kind, dtype, shape):
    size = shape[-1:]
    parameters = torch.float64 if dtype == torch.float64 else torch.float32
    arguments = {
        "x": numbers(shape, 1, dtype),
        "bias": numbers(size, 2, parameters),
        "residual": numbers(shape, 3, dtype),
        "gamma": 1 + numbers(size, 4, parameters),
        "beta": numbers(size, 5, parameters),
    }
    for present in [("x",), ("x", "gamma", "beta"), ("x", "residual", "gamma"), tuple(arguments)]:
        some = {name: arguments[name] for name in present}
        rows = 1 + arguments["x"].numel() // max(1, shape[-1])
        check(lambda **a: norm(kind=kind, **a), lambda **a: exact_norm(kind, **a), some, terms=rows)


@pytest.mark.parametrize("dtype", NARROW)
def test_norm_with_a_float32_stream(dtype):
    arguments = {"x": numbers((5, 40), 1, dtype), "residual": numbers((5, 40), 2, torch.float32)}
    assert norm(**arguments).dtype == torch.float32
    check(norm, lambda **a: exact_norm("layer", **a), arguments)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_drops_what_dropout_drops(dtype):
    x, residual = numbers((9, 21), 1, dtype), numbers((9, 21), 2, dtype)
    given = numbers((9, 21), 3, dtype)
    leaves = [t.clone().requires_grad_() for t in (x, residual)]
    y = ops.norm(leaves[0], None, leaves[1], None, None, eps=NORM_EPS, dropout=0.4, seed=5, stream=6)
    y.backward(given)
    truth = [t.clone().double().requires_grad_() for t in (x, residual)]
    expected = exact_norm("layer", ops.dropout(truth[0], 0.4, 5, 6), residual=truth[1])
    expected.backward(given.double())
    eps = torch.finfo(dtype).eps
    for got, want in zip((y, leaves[0].grad, leaves[1].grad), (expected, truth[0].grad, truth[1].grad), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=eps, atol=tol.ROWS_F32)
    assert torch.equal(leaves[0].grad == 0, truth[0].grad == 0)


@pytest.mark.parametrize(("dtype", "shape"), CASES)
@pytest.mark.parametrize("form", ["erf", "tanh"])
def test_gelu(form, dtype, shape):
    approximate = "none" if form == "erf" else "tanh"
    bias = numbers(shape[-1:], 2, torch.float64 if dtype == torch.float64 else torch.float32)
    x = numbers(shape, 1, dtype, scale=3)
    rows = 1 + x.numel() // max(1, shape[-1])
    check(lambda x: ops.gelu(x, form=form), lambda x: F.gelu(x, approximate=approximate), {"x": x})
    biased = (lambda x, bias: ops.gelu(x, bias, form=form)), lambda x, bias: F.gelu(x + bias, approximate=approximate)
    check(*biased, {"x": x, "bias": bias}, terms=rows)


@pytest.mark.parametrize(("dtype", "shape"), CASES[1:])
@pytest.mark.parametrize("out", [1, 70])
def test_linear(dtype, shape, out):
    parameters = torch.float64 if dtype == torch.float64 else torch.float32
    arguments = {
        "x": numbers(shape, 1, dtype),
        "weight": numbers((out, shape[-1]), 2, torch.bfloat16).to(dtype),
        "bias": numbers((out,), 3, parameters),
    }
    terms = 1 + max(shape[-1], out, arguments["x"].numel() // max(1, shape[-1]))
    check(ops.linear, F.linear, arguments, terms)
    check(lambda x, weight: ops.linear(x, weight), F.linear, {k: arguments[k] for k in ("x", "weight")}, terms)
    if dtype in NARROW:
        check(ops.linear, F.linear, arguments | {"weight": arguments["weight"].float()}, terms)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "approximate"), [("gelu_erf", "none"), ("gelu_tanh", "tanh")])
def test_linear_with_an_activation(dtype, activation, approximate):
    x, weight = numbers((20, 33), 1, dtype), numbers((40, 33), 2, dtype)
    expected = F.gelu(F.linear(x.double(), weight.double()), approximate=approximate)
    rtol = torch.finfo(dtype).eps
    with torch.no_grad():
        alone = ops.linear(x, weight, activation=activation)
    torch.testing.assert_close(alone.double(), expected, rtol=rtol, atol=tol.ROWS_F32 * 33)
    trained = ops.linear(x.requires_grad_(), weight, activation=activation)  # rounded before the activation too
    atol = (4 if dtype in NARROW else 40) * rtol
    torch.testing.assert_close(trained.double(), expected, rtol=4 * rtol, atol=atol)
    trained.sum().backward()
    leaf = x.detach().double().requires_grad_()
    F.gelu(F.linear(leaf, weight.double()), approximate=approximate).sum().backward()
    torch.testing.assert_close(x.grad.double(), leaf.grad, rtol=8 * rtol, atol=40 * rtol)


def test_linear_under_autocast_keeps_weights_in_float32():
    x, weight, bias = numbers((20, 33), 1, torch.float32), numbers((40, 33), 2, torch.float32), torch.ones(40)
    leaf = weight.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = ops.linear(x, leaf, bias)
        double = ops.linear(x.double(), weight.double())
    assert y.dtype == torch.bfloat16
    assert double.dtype == torch.float64
    given = numbers(y.shape, 3, torch.bfloat16)
    y.backward(given)
    expected = given.double().T @ x.bfloat16().double()
    assert leaf.grad.dtype == torch.float32
    torch.testing.assert_close(leaf.grad.double(), expected, rtol=0, atol=tol.ROWS_F32 * 33)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slices_are_read_as_they_are(dtype):
    wide = numbers((6, 5, 48), 1, dtype)
    for x in (wide[..., 16:32], wide.transpose(0, 1)[..., :16], wide[::2, 1:3, :16], wide[:, :, ::3]):
        assert torch.equal(ops.gelu(x), ops.gelu(x.contiguous()))
        assert torch.equal(norm(x, residual=x), norm(x.contiguous(), residual=x.contiguous()))
        weight = numbers((7, 2 * x.size(-1)), 2, dtype)[:, ::2]
        assert torch.equal(ops.linear(x, weight), ops.linear(x.contiguous(), weight.contiguous()))


def test_only_wanted_gradients_are_made():
    x, weight, bias = torch.randn(3, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)
    ops.linear(x, weight, bias).sum().backward()
    assert x.grad is None and bias.grad is None and weight.grad is not None
    residual = torch.randn(3, 4, requires_grad=True)
    norm(x, residual=residual).sum().backward()
    assert x.grad is None and residual.grad is not None


ROWS, ROW, GRAD = torch.randn(4, 6), torch.randn(6), torch.randn(4, 6)
TRAINED, PARAMETER, RESIDUAL = (x.clone().requires_grad_() for x in (ROWS, ROW, GRAD))
WEIGHT = torch.randn(3, 6, requires_grad=True)
CONTRACTS = {
    "norm": ((TRAINED, PARAMETER, RESIDUAL, PARAMETER, PARAMETER), {"dropout": 0.2, "seed": 1}),
    "norm alone": ((TRAINED, None, None, None, None), {"kind": "rms"}),
    "gelu": ((TRAINED, PARAMETER), {"form": "tanh"}),
    "linear": ((TRAINED, WEIGHT, torch.randn(3)), {}),
    "norm_backward": ((GRAD, [True] * 5, ROWS, ROW, ROWS, ROW, ROW), {}),
    "gelu_backward": ((GRAD, [True, True], ROWS, ROW), {}),
    "linear_backward": ((torch.randn(4, 3), [True] * 3, ROWS, torch.randn(3, 6)), {}),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_operator_contract(name):
    opcheck(getattr(ops, name.split()[0]).default, *CONTRACTS[name])


X, P, W = torch.zeros(2, 6), torch.zeros(6), torch.zeros(3, 6)
BAD = [
    (lambda: norm(X.int()), "[norm] x must be float32, float64, bfloat16 or float16, got Int"),
    (lambda: norm(torch.tensor(1.0)), "[norm] x must have a last dimension, got a scalar"),
    (lambda: norm(X, residual=P), "[norm] residual must be [2, 6], got [6]"),
    (
        lambda: norm(X, residual=X.half()),
        "[norm] residual must have the dtype of x or float32, got Half for x of Float",
    ),
    (lambda: norm(X, gamma=P[:5]), "[norm] gamma must be [6], got [5]"),
    (lambda: norm(X, beta=P.int()), "[norm] beta must be floating-point, got Int"),
    (lambda: norm(X, kind="batch"), '[norm] kind must be "layer" or "rms", got "batch"'),
    (lambda: norm(X, dropout=1.0), "[norm] dropout must be in [0, 1 - 2^-17), got 1"),
    (lambda: norm(X.to("meta"), dropout=2.0), "[norm] dropout must be in [0, 1 - 2^-17), got 2"),
    (lambda: ops.norm(X, None, None, None, None, eps=-1.0), "[norm] eps must be >= 0 and finite, got -1"),
    (lambda: ops.gelu(X, form="relu"), '[gelu] form must be "erf" or "tanh", got "relu"'),
    (lambda: ops.gelu(X, X), "[gelu] bias must be [6], got [2, 6]"),
    (lambda: ops.linear(X, W[:, :5]), "[linear] weight must be [out, 6], got [3, 5]"),
    (lambda: ops.linear(X, W.half()), "[linear] weight must have the dtype of x or float32, got Half for x of Float"),
    (lambda: ops.linear(X, W, P), "[linear] bias must be [3], got [6]"),
    (lambda: ops.linear(X, W, activation="relu"), '[linear] activation must be "none", "gelu_erf" or "gelu_tanh", got'),
    (lambda: norm(X, residual=X.to("meta")), "[norm] residual must be on cpu, got meta"),
    (lambda: norm(X, gamma=P.to("meta")), "[norm] gamma must be on cpu, got meta"),
    (lambda: norm(X, beta=P.to("meta")), "[norm] beta must be on cpu, got meta"),
    (lambda: ops.gelu(X, P.to("meta")), "[gelu] bias must be on cpu, got meta"),
    (lambda: ops.linear(X, W.to("meta")), "[linear] weight must be on cpu, got meta"),
    (lambda: ops.linear(X, W, P[:3].to("meta")), "[linear] bias must be on cpu, got meta"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input(call, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        call()


def test_second_derivatives_are_refused():
    trained = torch.randn(3, 4, requires_grad=True)
    weight = torch.randn(5, 4, requires_grad=True)
    for y in (norm(trained), ops.gelu(trained), ops.linear(trained, weight)):
        with pytest.raises(NotImplementedError, match="create_graph must be false"):
            torch.autograd.grad(y.sum(), trained, create_graph=True)


def test_only_what_the_gradient_needs_is_kept():
    x, weight = torch.randn(8, 4), torch.randn(5, 4)
    frozen, leaf = weight.clone(), (x * 1).requires_grad_()
    other = leaf * 1
    y = ops.linear(other, frozen)
    with torch.no_grad():
        other.mul_(2)
    y.sum().backward()
    torch.testing.assert_close(leaf.grad, weight.sum(0).expand(8, 4), rtol=0, atol=tol.ROWS_F32 * 5)
