"""Gradients of roformer::rope, and the operator under torch.compile (spec R-ROPE-07)."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import roformer_cpp
import tolerances
from rotation_case import normal

DIRECTIONS = ["forward", "transpose", "inverse"]
POSITIONS = torch.tensor([0, 5, 911])


def leaf(*shape, dtype=torch.float64, seed=0):
    return normal(*shape, dtype=dtype, seed=seed).requires_grad_()


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("layout", "heads_first", "inplace"),
    [("pairs", False, False), ("pairs", True, True), ("halves", True, False), ("halves", False, True)],
)
def test_first_and_second_derivatives(layout, direction, heads_first, inplace):
    x = leaf(2, 2, 3, 6) if heads_first else leaf(2, 3, 2, 6)
    options = {"layout": layout, "direction": direction, "heads_first": heads_first, "scale": 1.7, "rotary_dim": 4}

    def function(x):  # nonlinear around it, so that the second derivative is not zero
        return roformer_cpp.rope(x.sin() if inplace else x, POSITIONS, **options, inplace=inplace).exp()

    assert gradcheck(function, x)
    assert gradgradcheck(function, x)


def test_in_place_on_a_slice_reaches_the_base():
    def function(x):
        qkv = x.sin()
        roformer_cpp.rope(qkv[:, :, 1:], POSITIONS, layout="pairs", scale=0.6, inplace=True)
        return qkv

    x = leaf(2, 3, 3, 4)
    assert gradcheck(function, x)
    assert gradgradcheck(function, x)


def test_in_place_on_a_leaf_is_refused_before_it_is_changed():
    x = leaf(3, 2, 8)
    before = x.detach().clone()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        roformer_cpp.rope(x, POSITIONS, layout="pairs", inplace=True)
    assert torch.equal(x.detach(), before)
    with torch.no_grad():
        roformer_cpp.rope(x, POSITIONS, layout="pairs", inplace=True)
    assert not torch.equal(x.detach(), before)


@pytest.mark.parametrize("tracked", [False, True])
def test_in_place_is_noticed_by_whoever_saved_the_value(tracked):
    w = leaf(3, 2, 8)
    x = w.exp() if tracked else w.detach().exp()
    y = x * w
    roformer_cpp.rope(x, POSITIONS, layout="pairs", inplace=True)
    assert x._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_inference_mode():
    with torch.inference_mode():
        x = torch.randn(3, 2, 8)
        expected = roformer_cpp.rope(x, POSITIONS, layout="pairs")
        assert torch.equal(roformer_cpp.rope(x, POSITIONS, layout="pairs", inplace=True), expected)


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
FREQS = torch.tensor([1.0, 0.3], dtype=torch.float64)
OPTIONS = [{"scale": 1.7}, {"freqs": FREQS, "direction": "inverse"}, {"rotary_dim": 4}]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_operator_contract(requires_grad, dtype):
    """Pairs of a dtype, an option, and whether a gradient is asked for; each takes seconds."""
    x, turn = leaf(2, 3, 2, 8, dtype=dtype).detach(), DTYPES.index(dtype) + requires_grad
    for i, (operator, layout) in enumerate(((torch.ops.roformer.rope, "pairs"), (torch.ops.roformer.rope_, "halves"))):
        given = x.clone().requires_grad_(requires_grad)
        options = {"layout": layout} | OPTIONS[(turn + i) % 3]
        torch.library.opcheck(operator.default, (given * 1 if i else given, POSITIONS), options)


def attention_like(q, k, positions, inplace):
    """Something around the operator on either side for the compiler to fuse."""
    q, k = q * 2, k.sin()
    q = roformer_cpp.rope(q, positions, layout="pairs", rotary_dim=4, inplace=inplace)
    k = roformer_cpp.rope(k, positions, layout="pairs", rotary_dim=4, inplace=inplace)
    return torch.einsum("bthd,bshd->bhts", q, k).softmax(-1)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    ("backend", "dynamic"),
    [("aot_eager", False), ("aot_eager", True), pytest.param("inductor", False, marks=pytest.mark.slow)],
)
def test_compiled_equals_eager(backend, dynamic, inplace):
    compiled = torch.compile(attention_like, fullgraph=True, backend=backend, dynamic=dynamic)
    for tokens in (3, 5):
        inputs = [leaf(2, tokens, 2, 6, seed=seed) for seed in (0, 1)]
        positions = torch.arange(tokens) * 3
        results = []
        for function in (attention_like, compiled):
            out = function(*inputs, positions, inplace)
            weight = torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape)
            results.append([out, *torch.autograd.grad((out * weight).sum(), inputs)])
        for eager, other in zip(*results, strict=True):
            torch.testing.assert_close(other, eager, atol=tolerances.T1_ATOL, rtol=tolerances.COMPILED_RTOL)


def test_compiled_in_place_changes_the_argument():
    def function(x):
        roformer_cpp.rope(x[:, :, 1:], POSITIONS, layout="halves", inplace=True)
        return x + 1

    x = leaf(2, 3, 3, 4).detach()
    eager, compiled = x.clone(), x.clone()
    expected = function(eager)
    out = torch.compile(function, fullgraph=True, backend="aot_eager")(compiled)
    assert torch.equal(out, expected) and torch.equal(compiled, eager)
