"""roformer::rotate and roformer::rope_table: values against float64 loops and mpmath, gradients of any order, the
operators' contract and every bad argument (R-ROPE-04..07, R-ROPE-12)."""

import math
import re

import mpmath
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import roformer_cpp
import rope_reference
import tolerances
from rotation_case import check_rows, normal, rows_of, rows_of_any_strides, strided

LAYOUTS = ["pairs", "halves"]
FREQS = torch.tensor([1.0, 0.3, 0.01], dtype=torch.float64)


def leaf(*shape, seed=0):
    return normal(*shape, seed=seed).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("direction", ["forward", "transpose"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", ["", "ref"])
def test_values(set_target, target, layout, batch, direction, dtype):
    set_target(target)
    cos, sin = rows_of(batch, 5, 8, dtype)
    for x in strided(dtype):
        check_rows(roformer_cpp.rotate(x, cos, sin, layout=layout, direction=direction), x, cos, sin, layout, direction)


def test_rows_of_any_strides():
    x = normal(2, 5, 3, 8)
    for cos, sin in rows_of_any_strides():
        check_rows(roformer_cpp.rotate(x, cos, sin, layout="halves"), x, cos, sin, "halves")


@pytest.mark.parametrize("shape", [(0, 3, 2, 4), (2, 0, 2, 4), (2, 3, 0, 4)])
def test_empty(shape):
    rows = torch.zeros(1, shape[1], 2, requires_grad=True)
    x = torch.zeros(shape, requires_grad=True)
    y = roformer_cpp.rotate(x, rows, rows, layout="pairs")
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape and not rows.grad.any()
    table = roformer_cpp.rope_table(torch.zeros(2, 0, dtype=torch.int64), FREQS)
    assert all(each.shape == (2, 0, 3) for each in table)


@pytest.mark.parametrize("direction", ["forward", "transpose"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_first_and_second_derivatives(layout, batch, direction):
    x, cos, sin = leaf(2, 3, 2, 6), leaf(batch, 3, 2, seed=1), leaf(batch, 3, 2, seed=2)

    def function(x, cos, sin):  # nonlinear around it, so that no second derivative is zero
        return roformer_cpp.rotate(x, cos, sin, layout=layout, direction=direction).exp()

    assert gradcheck(function, (x, cos, sin))
    assert gradgradcheck(function, (x, cos, sin))
    for trained in range(3):
        assert gradcheck(function, [t if i == trained else t.detach() for i, t in enumerate((x, cos, sin))])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_rows_of_low_precision_data(dtype):
    """Sums over heads and sequences are float32 sums."""
    x, grad = normal(2, 3, 64, 4, dtype=dtype), normal(2, 3, 64, 4, dtype=dtype, seed=1)
    rows = [normal(1, 3, 2, dtype=torch.float32, seed=seed).requires_grad_() for seed in (2, 3)]
    roformer_cpp.rotate(x, *rows, layout="halves").backward(grad)
    (x_a, x_b), (g_a, g_b) = x.double().split(2, -1), grad.double().split(2, -1)
    limit = {"atol": tolerances.ROW_GRADIENT_ATOL, "rtol": tolerances.T2_RTOL}
    for row, expected in zip(rows, (x_a * g_a + x_b * g_b, x_a * g_b - x_b * g_a), strict=True):
        torch.testing.assert_close(row.grad.double(), expected.sum((0, 2))[None], **limit)


def test_the_backward_without_trained_rows_is_one_rotation():
    x, cos, sin = leaf(2, 3, 2, 6), *normal(2, 1, 3, 2)
    y = roformer_cpp.rotate(x, cos, sin, layout="pairs")
    grad = normal(2, 3, 2, 6, seed=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        (dx,) = torch.autograd.grad(y, x, grad)
    calls = {event.key: event.count for event in profile.key_averages() if "::" in event.key}
    computing = {name for name in calls if "autograd::" not in name and name != "aten::empty"}
    assert computing == {"roformer::rotate"} and calls["roformer::rotate"] == 1, calls
    check_rows(dx, grad, cos, sin, "pairs", "transpose")


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize(
    ("positions_shape", "freqs_shape"),
    [((), (3,)), ((4,), (3,)), ((2, 4), (3,)), ((2, 4), (2, 1, 3)), ((2, 4), (1, 4, 3)), ((2, 4), (2, 4, 3)),
     ((2, 4), (1, 1, 3)), ((3, 2, 4), (3, 1, 1, 3)), ((3, 2, 4), (1, 2, 1, 3)), ((70, 30), (70, 30, 3)),
     ((2, 3000), (2, 1, 3))],
)  # fmt: skip
def test_frequencies_by_token(positions_shape, freqs_shape, low):
    """Frequencies that differ from token to token give the rows that each would give alone."""
    positions = torch.arange(math.prod(positions_shape)).reshape(positions_shape) * 7
    freqs = normal(*freqs_shape).abs()
    freqs_lo = freqs * 2.0**-55 if low else None
    cos, sin = roformer_cpp.rope_table(positions, freqs, freqs_lo, scale=0.7, dtype=torch.float64)
    # Angles to 1.5e4: the float64 product is off by their half ulp, the low part by less.
    angle = positions.numpy()[..., None] * np.broadcast_to(freqs.numpy(), (*positions_shape, 3))
    atol = tolerances.TABLE_F64 * (angle.max(initial=1) + 1)
    np.testing.assert_allclose(cos.numpy(), 0.7 * np.cos(angle), rtol=0, atol=atol)
    np.testing.assert_allclose(sin.numpy(), 0.7 * np.sin(angle), rtol=0, atol=atol)


def test_low_parts_by_token_are_used():
    freqs, positions = torch.ones(2, 1, 1, dtype=torch.float64), torch.full((2, 1), 2**31)
    freqs_lo = torch.tensor([0.0, 2.0**-53], dtype=torch.float64).reshape(2, 1, 1)
    cos, _ = roformer_cpp.rope_table(positions, freqs, freqs_lo, dtype=torch.float64)
    with mpmath.workdps(50):
        for row, low in zip(cos.flatten().tolist(), (0, mpmath.mpf(2) ** -53), strict=True):
            assert abs(mpmath.cos(2**31 * (1 + low)) - row) <= tolerances.TABLE_F64


@pytest.mark.parametrize("freqs_shape", [(3,), (2, 1, 3), (1, 4, 3), (2, 4, 3)])
def test_derivatives_of_the_table(freqs_shape):
    positions = torch.tensor([[0, 1, 5, 2], [3, 3, 9, 0]])
    freqs = leaf(*freqs_shape)

    def function(freqs):
        return roformer_cpp.rope_table(positions, freqs, scale=1.3, dtype=torch.float64)

    assert gradcheck(function, freqs)
    assert gradgradcheck(function, freqs)
    assert gradcheck(lambda freqs: function(freqs)[1], freqs)


def test_derivative_of_a_float32_table():
    freqs, positions = FREQS.clone().requires_grad_(), torch.tensor([0, 3, 1000])
    weights = normal(2, 3, 3, dtype=torch.float32)
    cos, sin = roformer_cpp.rope_table(positions, freqs, scale=2.0)
    (cos * weights[0] + sin * weights[1]).sum().backward()
    angle = positions.double()[:, None] * FREQS
    expected = 2 * positions[:, None] * (weights[1] * angle.cos() - weights[0] * angle.sin())
    torch.testing.assert_close(freqs.grad, expected.sum(0), atol=0, rtol=tolerances.T2_RTOL)


TRAINED = [("pairs", (3, 2, 8), False, "transpose"), ("halves", (2, 3, 2, 8), False, "forward")]
TRAINED += [("pairs", (2, 3, 2, 8), False, "inverse"), ("halves", (2, 2, 3, 8), True, "inverse")]
TRAINED += [("pairs", (2, 2, 3, 8), True, "forward"), ("halves", (1, 2, 3, 2, 8), False, "transpose")]


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(("layout", "shape", "heads_first", "direction"), TRAINED)
def test_rope_trains_its_frequencies(layout, shape, heads_first, direction, inplace):
    """R-ROPE-12: the values are those of fixed frequencies, and gradients reach x and freqs."""
    x, freqs = leaf(*shape), FREQS.clone().requires_grad_()
    positions = torch.tensor([[0, 2, 7], [1, 1, 30]]) if math.prod(shape[:-3]) == 2 else torch.tensor([0, 2, 7])
    options = {"layout": layout, "heads_first": heads_first, "direction": direction, "scale": 1.7}

    def function(x, freqs):
        x = x.sin() if inplace else x
        return roformer_cpp.rope(x, positions, freqs=freqs, inplace=inplace, **options).exp()

    assert gradcheck(function, (x, freqs))
    if shape == (2, 3, 2, 8):
        assert gradgradcheck(function, (x, freqs))
    y = roformer_cpp.rope(x, positions, freqs=freqs, **options)
    assert y.is_contiguous() and y.requires_grad
    expected = rope_reference.rope(x.detach(), positions, freqs=FREQS.tolist(), **options)
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)


def test_rope_keeps_its_errors_with_trained_frequencies():
    x, freqs = torch.zeros(2, 3, 2, 8), FREQS.clone().requires_grad_()
    with pytest.raises(ValueError, match=re.escape("[rope] freqs must be at most head_dim/2 = 4 numbers, got 6")):
        roformer_cpp.rope(x, torch.arange(3), layout="pairs", freqs=freqs.repeat(2))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        roformer_cpp.rope(x.requires_grad_(), torch.arange(3), layout="pairs", freqs=freqs, inplace=True)


@pytest.mark.parametrize(
    ("dtype", "trained"), [(torch.float32, ()), (torch.bfloat16, (1, 2)), (torch.float32, (0, 1, 2))]
)
def test_operator_contract(dtype, trained):
    x, cos, sin = (
        normal(*shape, dtype=kind, seed=seed).requires_grad_(seed in trained)
        for seed, (shape, kind) in enumerate([((2, 3, 2, 6), dtype), *[((1, 3, 2), torch.float32)] * 2])
    )
    torch.library.opcheck(torch.ops.roformer.rotate.default, (x, cos, sin, "pairs"), {"direction": "transpose"})
    freqs = FREQS.clone().requires_grad_(0 in trained)
    positions = torch.tensor([[0, 5], [3, 9]])
    table = torch.ops.roformer.rope_table.default
    torch.library.opcheck(table, (positions, freqs, FREQS * 2.0**-55), {"scale": 0.5, "dtype": torch.float64})
    torch.library.opcheck(table, (positions.double(), freqs.expand(2, 1, 3)))
    torch.library.opcheck(torch.ops.roformer.rope.default, (x, positions[:, :1].expand(2, 3)),
                          {"layout": "halves", "freqs": freqs, "direction": "inverse", "scale": 1.7})  # fmt: skip
    torch.library.opcheck(torch.ops.roformer.rope_.default, (x * 1, torch.arange(3)),
                          {"layout": "pairs", "freqs": freqs})  # fmt: skip


X, ROWS = torch.zeros(2, 3, 2, 8), torch.zeros(1, 3, 4)
ROTATE_ERRORS = [
    ({"layout": "interleaved"}, 'layout must be "pairs" (RoFormer, GPT-J) or "halves"', 'got "interleaved"'),
    ({"direction": "inverse"}, 'direction must be "forward" or "transpose"', 'got "inverse"'),
    ({"x": X.long()}, "x must be float32, float64, bfloat16 or float16", "got Long"),
    ({"x": X[0]}, "x must be [batch, tokens, heads, head_dim]", "got a tensor of 3 dimensions"),
    ({"x": X.double()}, "cos must be Double for x of Double", "got Float"),
    ({"x": X.half(), "sin": ROWS.half()}, "sin must be Float for x of Half", "got Half"),
    ({"cos": ROWS[0]}, "cos must be [batch or 1, tokens, rotary_dim/2], here [2 or 1, 3, ..]", "got [3, 4]"),
    ({"cos": ROWS.expand(3, 3, 4)}, "cos must be [batch or 1, tokens, rotary_dim/2]", "got [3, 3, 4]"),
    ({"sin": ROWS[:, :2]}, "sin must be [batch or 1, tokens, rotary_dim/2]", "got [1, 2, 4]"),
    ({"sin": ROWS.expand(2, 3, 4)}, "cos and sin must have one shape", "got [1, 3, 4] and [2, 3, 4]"),
    ({"x": X[..., :7]}, "cos and sin must have 1 to head_dim/2 = 3 numbers per token", "got 4"),
    ({"cos": ROWS[..., :0], "sin": ROWS[..., :0]}, "cos and sin must have 1 to head_dim/2 = 4", "got 0"),
]
P = torch.zeros(2, 4, dtype=torch.int64)
TABLE_ERRORS = [
    ({"positions": P.float()}, "positions must be integers or float64", "got Float"),
    ({"positions": P.bool()}, "positions must be integers or float64", "got Bool"),
    ({"positions": P + 2**53 + 1}, "positions must be within 2^53", f"got {2**53 + 1}"),
    ({"positions": P.double() + float("nan")}, "positions must be finite", "got nan"),
    ({"freqs": FREQS.float()}, "freqs must be float64 of shape [rotary_dim/2], or", "got Float of shape [3]"),
    ({"freqs": FREQS.expand(4, 3)}, "with the dimensions of positions [2, 4] or 1", "got Double of shape [4, 3]"),
    ({"freqs": FREQS.expand(2, 3, 3)}, "with the dimensions of positions [2, 4] or 1", "of shape [2, 3, 3]"),
    ({"freqs": FREQS[:0]}, "freqs must be float64 of shape [rotary_dim/2]", "got Double of shape [0]"),
    ({"freqs": FREQS[0]}, "freqs must be float64 of shape [rotary_dim/2]", "got Double of shape []"),
    ({"freqs_lo": FREQS.float()}, "freqs_lo must be float64", "got Float"),
    ({"freqs_lo": FREQS[:2] * 0}, "freqs_lo must have the shape of freqs, [3]", "got [2]"),
    ({"freqs_lo": FREQS * 2}, "lo must not exceed hi in magnitude", "got 2"),
    ({"freqs": FREQS.to("meta")}, "freqs must be on the device of positions, cpu", "got meta"),
    ({"scale": 0.0}, "scale must be finite and not 0", "got 0"),
    ({"dtype": torch.bfloat16}, "dtype must be float32 or float64", "got BFloat16"),
]


ROTATE = {"x": X, "cos": ROWS, "sin": ROWS, "layout": "pairs"}
CALLS = [(roformer_cpp.rotate, ROTATE, "rotate", ROTATE_ERRORS)]
CALLS += [(roformer_cpp.rope_table, {"positions": P, "freqs": FREQS}, "rope|rope_table", TABLE_ERRORS)]
ERRORS = [(call, given | changes, where, *said) for call, given, where, errors in CALLS for changes, *said in errors]


@pytest.mark.parametrize(("call", "arguments", "where", "rule", "value"), ERRORS)
def test_errors(call, arguments, where, rule, value):
    with pytest.raises(ValueError, match=rf"^\[({where})\] ") as error:
        call(**arguments)
    message = str(error.value)
    assert rule in message and value in message, message
    assert len(message.splitlines()) == 1, "one line, no stack"


def test_what_has_no_derivative_is_refused():
    for name, call in [
        ("positions", lambda: roformer_cpp.rope_table(P.double().requires_grad_(), FREQS)),
        ("freqs_lo", lambda: roformer_cpp.rope_table(P, FREQS, (FREQS * 0).requires_grad_())),
    ]:
        with pytest.raises(NotImplementedError, match=re.escape(f"[rope_table] {name} must not require grad")):
            call()
    with forward_ad.dual_level():
        dual = {t: forward_ad.make_dual(t, torch.ones_like(t)) for t in (X, ROWS, FREQS)}
        for name, call in [
            ("[rotate] x", lambda: roformer_cpp.rotate(dual[X], ROWS, ROWS, layout="pairs")),
            ("[rotate] cos", lambda: roformer_cpp.rotate(X, dual[ROWS], ROWS, layout="pairs")),
            ("[rotate] sin", lambda: roformer_cpp.rotate(X, ROWS, dual[ROWS], layout="pairs")),
            ("[rope_table] freqs", lambda: roformer_cpp.rope_table(P, dual[FREQS])),
        ]:
            with pytest.raises(NotImplementedError, match=re.escape(f"{name} must not carry a tangent")):
                call()


def test_shapes_are_checked_without_data():
    rows = ROWS.to("meta")
    y = roformer_cpp.rotate(X.to("meta"), rows, rows, layout="pairs")
    assert y.shape == X.shape and y.device.type == "meta"
    with pytest.raises(ValueError, match=re.escape("got [1, 3, 4]")):
        roformer_cpp.rotate(torch.zeros(2, 4, 2, 8, device="meta"), rows, rows, layout="pairs")
    cos, sin = roformer_cpp.rope_table(P.to("meta"), FREQS.to("meta"), dtype=torch.float64)
    assert cos.shape == sin.shape == (2, 4, 3) and cos.dtype == torch.float64
