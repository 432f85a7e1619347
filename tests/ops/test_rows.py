"""roformer::norm, gelu and linear (ops/src): values and gradients against torch in float64,
operator contracts, bad input. The kernels themselves are compared with the formulas in tests/core.
"""

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
    check(
        lambda x, bias: ops.gelu(x, bias, form=form),
        lambda x, bias: F.gelu(x + bias, approximate=approximate),
        {"x": x, "bias": bias},
        terms=rows,
    )


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
    torch.testing.assert_close(
        trained.double(), expected, rtol=4 * rtol, atol=40 * rtol if dtype not in NARROW else 4 * rtol
    )
    (trained.sum()).backward()
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


def calls():
    x = torch.randn(4, 6, requires_grad=True)
    parameter = torch.randn(6, requires_grad=True)
    residual = torch.randn(4, 6, requires_grad=True)
    yield "norm", ops.norm.default, (x, parameter, residual, parameter, parameter), {"dropout": 0.2, "seed": 1}
    yield "norm_alone", ops.norm.default, (x, None, None, None, None), {"kind": "rms"}
    yield "gelu", ops.gelu.default, (x, parameter), {"form": "tanh"}
    yield "linear", ops.linear.default, (x, torch.randn(3, 6, requires_grad=True), torch.randn(3)), {}
    given = torch.randn(4, 6)
    plain = [t.detach() for t in (x, parameter, residual)]
    every = [True] * 5
    yield "norm_backward", ops.norm_backward.default, (given, every, plain[0], plain[1], plain[2], *[plain[1]] * 2), {}
    yield "gelu_backward", ops.gelu_backward.default, (given, [True, True], plain[0], plain[1]), {}
    yield (
        "linear_backward",
        ops.linear_backward.default,
        (torch.randn(4, 3), [True] * 3, plain[0], torch.randn(3, 6)),
        {},
    )


@pytest.mark.parametrize(("operator", "arguments", "options"), [c[1:] for c in calls()], ids=[c[0] for c in calls()])
def test_operator_contract(operator, arguments, options):
    opcheck(operator, arguments, options)


X, P = torch.zeros(2, 6), torch.zeros(6)
BAD = {
    "norm_dtype": (lambda: norm(X.int()), "[norm] x must be float32, float64, bfloat16 or float16, got Int"),
    "norm_scalar": (lambda: norm(torch.tensor(1.0)), "[norm] x must have a last dimension, got a scalar"),
    "norm_residual": (lambda: norm(X, residual=P), "[norm] residual must be [2, 6], got [6]"),
    "norm_stream": (
        lambda: norm(X, residual=X.bfloat16()),
        "[norm] residual must have the dtype of x or float32, got BFloat16 for x of Float",
    ),
    "norm_gamma": (lambda: norm(X, gamma=P[:5]), "[norm] gamma must be [6], got [5]"),
    "norm_beta": (lambda: norm(X, beta=P.int()), "[norm] beta must be floating-point, got Int"),
    "norm_kind": (lambda: norm(X, kind="batch"), '[norm] kind must be "layer" or "rms", got "batch"'),
    "norm_p": (lambda: norm(X, dropout=1.0), "[norm] dropout must be in [0, 1 - 2^-17), got 1"),
    "norm_eps": (lambda: ops.norm(X, None, None, None, None, eps=-1.0), "[norm] eps must be >= 0 and finite, got -1"),
    "gelu_form": (lambda: ops.gelu(X, form="relu"), '[gelu] form must be "erf" or "tanh", got "relu"'),
    "gelu_bias": (lambda: ops.gelu(X, X), "[gelu] bias must be [6], got [2, 6]"),
    "norm_meta": (lambda: norm(X.to("meta"), dropout=2.0), "[norm] dropout must be in [0, 1 - 2^-17), got 2"),
    "linear_weight": (lambda: ops.linear(X, torch.zeros(3, 5)), "[linear] weight must be [out, 6], got [3, 5]"),
    "linear_dtype": (
        lambda: ops.linear(X, torch.zeros(3, 6).half()),
        "[linear] weight must have the dtype of x or float32, got Half for x of Float",
    ),
    "linear_bias": (lambda: ops.linear(X, torch.zeros(3, 6), P), "[linear] bias must be [3], got [6]"),
    "linear_activation": (
        lambda: ops.linear(X, torch.zeros(3, 6), activation="relu"),
        '[linear] activation must be "none", "gelu_erf" or "gelu_tanh", got "relu"',
    ),
}


BAD |= {
    f"{message} on meta": (call, f"[{message} must be on cpu, got meta")
    for message, call in {
        "norm] residual": lambda: norm(X, residual=X.to("meta")),
        "norm] gamma": lambda: norm(X, gamma=P.to("meta")),
        "norm] beta": lambda: norm(X, beta=P.to("meta")),
        "gelu] bias": lambda: ops.gelu(X, P.to("meta")),
        "linear] weight": lambda: ops.linear(X, torch.zeros(3, 6, device="meta")),
        "linear] bias": lambda: ops.linear(X, torch.zeros(3, 6), torch.zeros(3, device="meta")),
    }.items()
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match="^" + message.translate({ord(c): "\\" + c for c in "[]().^-"})):
        call()


def test_second_derivatives_are_refused():
    trained = torch.randn(3, 4, requires_grad=True)
    weight = torch.randn(5, 4, requires_grad=True)
    results = [norm(trained), ops.gelu(trained), ops.linear(trained, weight)]
    for y in results:
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
