"""Triton kernels of ``roformer::norm`` (core/include/rf/rows.h has the equations), forward and backward.

A program holds a row in registers. Arithmetic is float32, or float64 for float64 rows. The backward computes the sum
before the norm, its mean and its variance again; every program adds the gradients of the parameters over its rows in
order, and PyTorch adds those of the programs, so results have the same bits in every run.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import on_device
from .tiles import dropout_numbers

_PROGRAMS = 1024  # of the backward, at most


@triton.jit
def _load_row(row, column, inside, ACC: tl.constexpr):
    return tl.load(row + column, inside, other=0.0).to(ACC)


@triton.jit
def _keep(row, seed, stream, THRESHOLD: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Which elements of a row dropout keeps; ``COLUMNS`` is a multiple of eight."""
    block = row * (COLUMNS // 8) + tl.arange(0, BLOCK // 8)
    return (dropout_numbers(seed, stream, block) >= THRESHOLD).reshape(BLOCK)


@triton.jit
def _normalized(
    x,
    bias,
    residual,
    keep,
    column,
    inside,
    SCALE: tl.constexpr,
    IS_LAYER: tl.constexpr,
    EPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACC: tl.constexpr,
):
    """(s - m) / sqrt(v + eps), 0 outside, and 1 / sqrt(v + eps), of s = residual + dropout(x + bias). ``x`` and
    ``residual`` point to a row; ``bias``, ``residual`` and ``keep`` may be None."""
    total = _load_row(x, column, inside, ACC)
    if bias is not None:
        total += _load_row(bias, column, inside, ACC)
    if keep is not None:
        total = tl.where(keep, total * SCALE, 0.0)
    if residual is not None:
        total += _load_row(residual, column, inside, ACC)
    if IS_LAYER:
        total = tl.where(inside, total - tl.sum(total) / COLUMNS, 0.0)
    reciprocal = tl.rsqrt(tl.sum(total * total) / COLUMNS + EPS)
    return total * reciprocal, reciprocal


@triton.jit(do_not_specialize=["seed", "stream"])
def _norm_kernel(
    x,
    bias,
    residual,
    gamma,
    beta,
    y,
    x_stride,
    residual_stride,
    seed: tl.int64,
    stream: tl.int64,
    THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
    IS_LAYER: tl.constexpr,
    EPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program: a row. ``x``, ``residual``: ``[N, COLUMNS]`` with a stride of rows; ``y`` is contiguous."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    if residual is not None:
        residual += row * residual_stride
    keep = None
    if THRESHOLD > 0:
        keep = _keep(row, seed, stream, THRESHOLD, COLUMNS, BLOCK)
    x += row * x_stride
    result, _ = _normalized(x, bias, residual, keep, column, inside, SCALE, IS_LAYER, EPS, COLUMNS, ACC)
    if gamma is not None:
        result *= _load_row(gamma, column, inside, ACC)
    if beta is not None:
        result += _load_row(beta, column, inside, ACC)
    tl.store(y + row * COLUMNS + column, result.to(y.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["seed", "stream"])
def _norm_backward_kernel(
    grad,
    x,
    bias,
    residual,
    gamma,
    dx,
    dresidual,
    sums,
    rows,
    rows_per_program,
    grad_stride,
    x_stride,
    residual_stride,
    seed: tl.int64,
    stream: tl.int64,
    THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
    IS_LAYER: tl.constexpr,
    EPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program: consecutive rows. With n = (s - m) r, r = 1 / sqrt(v + eps) and g = gamma grad:

    ds = r (g - mean(g) - n mean(g n)), without mean(g) for the root mean square

    ``dx``, ``dresidual``: contiguous, or None. ``sums``: ``[programs, 3, COLUMNS]``, gradients of bias, gamma and beta.
    """
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    dbias = tl.zeros([BLOCK], ACC)
    dgamma = tl.zeros([BLOCK], ACC)
    dbeta = tl.zeros([BLOCK], ACC)
    first = program.to(tl.int64) * rows_per_program
    for row in range(first, tl.minimum(first + rows_per_program, rows)):
        residual_row = None
        if residual is not None:
            residual_row = residual + row * residual_stride
        keep = None
        if THRESHOLD > 0:
            keep = _keep(row, seed, stream, THRESHOLD, COLUMNS, BLOCK)
        normalized, reciprocal = _normalized(
            x + row * x_stride, bias, residual_row, keep, column, inside, SCALE, IS_LAYER, EPS, COLUMNS, ACC
        )
        g = _load_row(grad + row * grad_stride, column, inside, ACC)
        dgamma += g * normalized
        dbeta += g
        if gamma is not None:
            g *= _load_row(gamma, column, inside, ACC)
        ds = g - normalized * (tl.sum(g * normalized) / COLUMNS)
        if IS_LAYER:
            ds -= tl.sum(g) / COLUMNS
        ds *= reciprocal
        if dresidual is not None:
            tl.store(dresidual + row * COLUMNS + column, ds.to(dresidual.dtype.element_ty), inside)
        if THRESHOLD > 0:
            ds = tl.where(keep, ds * SCALE, 0.0)
        dbias += ds
        if dx is not None:
            tl.store(dx + row * COLUMNS + column, ds.to(dx.dtype.element_ty), inside)
    out = sums + program.to(tl.int64) * (3 * COLUMNS) + column
    tl.store(out, dbias, inside)
    tl.store(out + COLUMNS, dgamma, inside)
    tl.store(out + 2 * COLUMNS, dbeta, inside)


def norm_into(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, gamma: Tensor | None, beta: Tensor | None, y: Tensor,
    *, seed: int, stream: int, **options: object,
) -> None:  # fmt: skip
    """Writes the norm of the rows of ``x`` and ``residual``, ``[N, C]`` with contiguous rows, to ``y``, contiguous.

    ``bias``, ``gamma``, ``beta``: contiguous ``[C]``. options: as for ``norm_backward_into``.
    """
    with on_device(x):
        _norm_kernel[(x.size(0),)](
            x, bias, residual, gamma, beta, y, x.stride(0), _stride(residual), seed, stream, **_constants(x, **options)
        )  # fmt: skip


def norm_backward_into(
    grad: Tensor, x: Tensor, bias: Tensor | None, residual: Tensor | None, gamma: Tensor | None, dx: Tensor | None,
    dresidual: Tensor | None, *, seed: int, stream: int, **options: object,
) -> Tensor:  # fmt: skip
    """Writes the gradients of ``x`` and ``residual``, contiguous ``[N, C]``.

    Args:
        seed, stream: of dropout.
        options: ``is_layer``, ``eps``, and ``threshold`` and ``scale`` of dropout.

    Returns:
        ``[3, C]``: the gradients of bias, gamma and beta, in the dtype of arithmetic.
    """
    rows, columns = x.shape
    rows_per_program = triton.cdiv(rows, _PROGRAMS)
    programs = triton.cdiv(rows, rows_per_program)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    sums = torch.empty(programs, 3, columns, dtype=dtype, device=x.device)
    strides = grad.stride(0), x.stride(0), _stride(residual)
    with on_device(x):
        _norm_backward_kernel[(programs,)](
            grad, x, bias, residual, gamma, dx, dresidual, sums, rows, rows_per_program, *strides, seed,
            stream, **_constants(x, **options),
        )  # fmt: skip
    return sums.sum(0)


def _stride(x: Tensor | None) -> int:
    return 0 if x is None else x.stride(0)


def _constants(x: Tensor, is_layer: bool, eps: float, threshold: int, scale: float) -> dict[str, object]:
    block = max(16, triton.next_power_of_2(x.size(1)))
    return dict(
        THRESHOLD=threshold,
        SCALE=scale,
        IS_LAYER=is_layer,
        EPS=eps,
        COLUMNS=x.size(1),
        ACC=tl.float64 if x.dtype == torch.float64 else tl.float32,
        BLOCK=block,
        num_warps=min(8, max(1, block // 256)),
        enable_fp_fusion=True,
    )
