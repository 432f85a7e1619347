"""roformer::linear, norm and gelu for GPUs, which call ATen, on CPU tensors, against the float64 loops of core/ref."""

import pytest
import torch

import tolerances
from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu import rows
from rotation_case import normal

OPERATORS = torch.ops.roformer
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def double(x):
    return x.double() if isinstance(x, torch.Tensor) else x


def check(operator, *args, terms=1, **kwargs):
    """A function of ``rows`` gives the shapes and dtypes of the CPU's operator, and the numbers of that in float64.

    ``terms``: the length of the longest sum. Results are rounded at most twice to the dtype of the first argument, and
    once to their own.
    """
    ours = getattr(rows, operator)(*args, **kwargs)
    like = getattr(OPERATORS, operator)(*args, **kwargs)
    expected = getattr(OPERATORS, operator)(*(double(x) for x in args), **kwargs)
    if isinstance(ours, torch.Tensor):
        ours, like, expected = [ours], [like], [expected]
    assert len(ours) == len(like) > 0
    for mine, theirs, exact in zip(ours, like, expected, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        bound = tolerances.ROWS_F64 if mine.dtype == torch.float64 else tolerances.ROWS_F32
        rounding = max((2 * torch.finfo(x.dtype).eps for x in (args[0], mine) if x.dtype.itemsize == 2), default=0)
        scale = exact.abs().max() if exact.numel() else 0
        torch.testing.assert_close(mine.double(), exact, rtol=bound + rounding, atol=(bound * terms + rounding) * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("activation", ["none", "gelu_erf", "gelu_tanh"])
def test_linear(activation, wide, dtype):
    """Weights of the dtype of x, and float32 weights, whose gradients are float32. Their numbers have 16 bits, because
    both are rounded to the dtype of x."""
    parameter = torch.float32 if wide and dtype != torch.float64 else dtype
    x = normal(2, 3, 10, dtype=dtype)[..., :7]
    weight, bias = (normal(*shape, dtype=dtype, seed=1).to(parameter) for shape in ((5, 7), (5,)))
    check("linear", x, weight, bias, activation=activation, terms=7)
    check("linear", x, weight, terms=7)
    grad = normal(2, 3, 5, dtype=dtype, seed=3)
    for wanted in ([True, True, True], [True, False, False], [False, False, True]):
        check("linear_backward", grad, wanted, x, weight, terms=7)


def test_linear_under_autocast(monkeypatch):
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    x, weight, bias = normal(3, 7, dtype=torch.float32), normal(5, 7, dtype=torch.float32), normal(5)
    expected = OPERATORS.linear(x.bfloat16(), weight, bias, activation="gelu_erf")
    assert torch.equal(rows.linear_autocast(x, weight, bias, activation="gelu_erf"), expected)
    assert rows.linear_autocast(x.double(), weight.double()).dtype == torch.float64
    half = rows.linear_autocast(x.half(), weight.half())
    assert torch.equal(half, OPERATORS.linear(x.half().bfloat16(), weight.half().bfloat16()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["erf", "tanh"])
def test_gelu(form, dtype):
    x, grad = normal(2, 3, 10, dtype=dtype)[..., :7], normal(2, 3, 7, dtype=dtype, seed=1)
    for bias in (None, normal(7, dtype=torch.float32, seed=2)):
        check("gelu", x, bias, form=form)
        check("gelu_backward", grad, [True, bias is not None], x, bias, form=form, terms=6)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize(("given", "columns"), [("x", 7), ("parameters", 40), ("residual", 7), ("all", 40), ("all", 7)])
def test_values_of_norms(given, columns, kind, dtype):
    x = normal(2, 3, 50, dtype=dtype)[..., :columns]
    bias = gamma = beta = residual = None
    if given in ("parameters", "all"):
        bias, gamma, beta = (normal(columns, dtype=torch.float32, seed=seed) for seed in (1, 2, 3))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if given in ("residual", "all"):
        residual = normal(2, 3, columns, dtype=wide if given == "all" else dtype, seed=4)
    options = dict(kind=kind, eps=1e-5, dropout=0.3 if given == "all" else 0.0, seed=-5, stream=6)
    check("norm", x, bias, residual, gamma, beta, **options, terms=columns)
    grad = normal(2, 3, columns, dtype=x.dtype if residual is None else residual.dtype, seed=7)
    wanted = [tensor is not None for tensor in (x, bias, residual, gamma, beta)]
    check("norm_backward", grad, wanted, x, bias, residual, gamma, beta, **options, terms=columns)
    check("norm_backward", grad, [True, *[False] * 4], x, bias, residual, gamma, beta, **options, terms=columns)


def test_gradients_of_norm_have_their_own_memory():
    x = normal(3, 7)
    grad, wanted = normal(3, 7, seed=1), [True, False, True, False, False]
    dx, dresidual = rows.norm_backward(grad, wanted, x, None, x, None, None, eps=1e-5)
    assert torch.equal(dx, dresidual) and dx.data_ptr() != dresidual.data_ptr()


@pytest.mark.parametrize("shape", [(0, 7), (2, 3, 0), (0,)])
def test_empty(shape):
    x, size = torch.zeros(shape), shape[-1]
    vector, weight = torch.zeros(size), torch.zeros(5, size)
    grad = torch.zeros(*shape[:-1], 5)
    check("linear", x, weight)
    check("linear_backward", grad, [True] * 3, x, weight)
    check("gelu", x, vector)
    check("gelu_backward", x, [True] * 2, x, vector)
    for kind in ("layer", "rms"):
        check("norm", x, vector, x, vector, vector, kind=kind)
        check("norm_backward", x, [True] * 5, x, vector, x, vector, vector, kind=kind)


def test_bad_arguments():
    x = torch.zeros(0, 7)
    for message, call in [
        (r"\[linear\] activation must be", lambda: rows.linear(x, torch.zeros(5, 7), activation="relu")),
        (r"\[gelu\] form must be", lambda: rows.gelu(x, form="fast")),
        (r"\[gelu\] grad must be", lambda: rows.gelu_backward(torch.zeros(1, 7), [True, False], x, None)),
        (r"\[norm\] eps must be", lambda: rows.norm(x, None, None, None, None, eps=-1.0)),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
