"""Rotation of queries and keys: ``roformer::rotate``, ``rope`` and ``rope_`` (core/include/rf/rope.h has the equation).

A program rotates a few tokens of a sequence: it loads their rows of cosines and sines once, then all heads of the
tokens in blocks. Heads are the slowest dimension of a tile, so that the rows stay in the registers of the threads that
use them. Arithmetic is in the dtype of the rows, and a result is rounded once.

``rope`` computes its rows from the positions at every call and keeps none. Compiled code and CUDA graphs overwrite
positions without a trace that a cache could follow. Callers that use positions often make the rows once with
``rope_table`` and call ``rotate``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import checked_results, on_device
from .rope_table import frequencies, rope_table
from .tiles import rotate_pairs

_TILE_BYTES = 8192  # four loads of 16 bytes for each of 128 threads


@triton.jit
def _rotate_heads(
    x,
    y,
    x_strides,
    y_strides,
    batch,
    first_token,
    tokens,
    cos,
    sin,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    COPIED: tl.constexpr,
    HALVES: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """Rotates every head of the tokens whose rows are ``cos`` and ``sin`` ``[BLOCK_T, BLOCK_P]``.

    ``x``, ``y``: pointers to ``[B, T, H, D]``; strides of B, T and H. The elements from 2 ``PAIRS`` to 2 ``PAIRS`` +
    ``COPIED`` are copied.
    """
    BLOCK_T: tl.constexpr = cos.shape[0]
    BLOCK_P: tl.constexpr = cos.shape[1]
    token = first_token + tl.arange(0, BLOCK_T)
    x_HTD = x + batch * x_strides[0] + (token.to(tl.int64) * x_strides[1])[None, :, None]
    y_HTD = y + batch * y_strides[0] + (token.to(tl.int64) * y_strides[1])[None, :, None]
    is_token = (token < tokens)[None, :, None]
    cos, sin = cos[None, :, :], sin[None, :, :]
    for first_head in range(0, HEADS, BLOCK_H):
        head = first_head + tl.arange(0, BLOCK_H)[:, None, None]
        x_row = x_HTD + head.to(tl.int64) * x_strides[2]
        y_row = y_HTD + head.to(tl.int64) * y_strides[2]
        is_row = is_token & (head < HEADS)
        if HALVES:
            pair = tl.arange(0, BLOCK_P)[None, None, :]
            inside = is_row & (pair < PAIRS)
            a = tl.load(x_row + pair, inside).to(cos.dtype)
            b = tl.load(x_row + PAIRS + pair, inside).to(cos.dtype)
            a, b = rotate_pairs(a, b, cos, sin)
            tl.store(y_row + pair, a.to(y.dtype.element_ty), inside)
            tl.store(y_row + PAIRS + pair, b.to(y.dtype.element_ty), inside)
        else:
            element = tl.arange(0, 2 * BLOCK_P)[None, None, :]
            inside = is_row & (element < 2 * PAIRS)
            x_tile = tl.load(x_row + element, inside).to(cos.dtype)
            a, b = tl.split(x_tile.reshape(BLOCK_H, BLOCK_T, BLOCK_P, 2))
            a, b = rotate_pairs(a, b, cos, sin)
            y_tile = tl.join(a, b).reshape(BLOCK_H, BLOCK_T, 2 * BLOCK_P)
            tl.store(y_row + element, y_tile.to(y.dtype.element_ty), inside)
        if COPIED > 0:
            rest = tl.arange(0, triton.next_power_of_2(COPIED))[None, None, :]
            inside = is_row & (rest < COPIED)
            tl.store(y_row + 2 * PAIRS + rest, tl.load(x_row + 2 * PAIRS + rest, inside), inside)


@triton.jit
def _rotate_kernel(
    x,
    y,
    key,
    key_out,
    cos,
    sin,
    x_strides,
    y_strides,
    key_strides,
    key_out_strides,
    row_strides,
    batches,
    tokens,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    COPIED: tl.constexpr,
    HALVES: tl.constexpr,
    TRANSPOSE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """Program: a block of tokens of one sequence; neighbours take the same tokens of other sequences, whose rows may be
    the same. ``cos``, ``sin``: ``[B, T, PAIRS]`` with strides of B and T. ``key``: a second tensor, or None."""
    program = tl.program_id(0)
    batch = (program % batches).to(tl.int64)
    first_token = (program // batches) * BLOCK_T
    token = first_token + tl.arange(0, BLOCK_T)[:, None]
    pair = tl.arange(0, BLOCK_P)[None, :]
    row = batch * row_strides[0] + token.to(tl.int64) * row_strides[1] + pair
    inside = (token < tokens) & (pair < PAIRS)
    c = tl.load(cos + row, inside)
    s = tl.load(sin + row, inside)
    if TRANSPOSE:
        s = -s
    _rotate_heads(
        x, y, x_strides, y_strides, batch, first_token, tokens, c, s, HEADS, PAIRS, COPIED, HALVES, BLOCK_H
    )  # fmt: skip
    if key is not None:
        _rotate_heads(
            key, key_out, key_strides, key_out_strides, batch, first_token, tokens, c, s, KEY_HEADS, PAIRS, COPIED,
            HALVES, BLOCK_H,
        )  # fmt: skip


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: str, *, direction: str = "forward") -> Tensor:
    """``roformer::rotate``."""
    y = checked_results("rotate", x, cos, sin, layout, direction=direction)
    _launch([(x, y)], cos, sin, layout, direction)
    return y


def rotate_pair(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: str, *, direction: str = "forward", inplace: bool = False
) -> tuple[Tensor, Tensor]:
    """``rotate`` of queries and keys in one launch.

    Args:
        q, k: ``[B, T, H, D]`` and ``[B, T, Hk, D]`` of one dtype.
        cos, sin, layout, direction: as for ``rotate``.
        inplace: overwrite ``q`` and ``k``, whose last dimensions must be contiguous, and return them.
    """
    if q.dtype != k.dtype or q.size(-1) != k.size(-1):
        raise ValueError(
            f"[rotate] k must have the dtype and head_dim of q, {q.dtype} and {q.size(-1)}, got {k.dtype} and "
            f"{k.size(-1)}"
        )
    results = [checked_results("rotate", x, cos, sin, layout, direction=direction) for x in (q, k)]
    if inplace:
        for name, x in (("q", q), ("k", k)):
            if x.stride(-1) != 1:
                raise ValueError(f"[rotate] {name} must be contiguous in its last dimension, got stride {x.stride(-1)}")
            _check_no_overlap("rotate", name, x)
        results = [q, k]
    _launch([(q, results[0]), (k, results[1])], cos, sin, layout, direction)
    return results[0], results[1]


def rope(
    x: Tensor,
    positions: Tensor,
    *,
    layout: str,
    base: float = 10000.0,
    freqs: Tensor | None = None,
    scale: float = 1.0,
    rotary_dim: int | None = None,
    heads_first: bool = False,
    direction: str = "forward",
) -> Tensor:
    """``roformer::rope``. Positions beyond 2^53, which the CPU refuses, give results that are not numbers."""
    options = dict(layout=layout, base=base, freqs=freqs, scale=scale, rotary_dim=rotary_dim)
    y = checked_results("rope", x, positions, **options, heads_first=heads_first, direction=direction)
    views = _as_BTHD(x, heads_first), _as_BTHD(y, heads_first)
    _rotate_by_positions(*views, positions, base, freqs, scale, rotary_dim, layout, direction)
    return y


def rope_(
    x: Tensor,
    positions: Tensor,
    *,
    layout: str,
    base: float = 10000.0,
    freqs: Tensor | None = None,
    scale: float = 1.0,
    rotary_dim: int | None = None,
    heads_first: bool = False,
    direction: str = "forward",
) -> None:
    """``roformer::rope_``, with the rule of ``rope`` for positions."""
    options = dict(layout=layout, base=base, freqs=freqs, scale=scale, rotary_dim=rotary_dim)
    checked_results("rope_", x, positions, **options, heads_first=heads_first, direction=direction)
    _check_no_overlap("rope", "x", x)
    view = _as_BTHD(x, heads_first)
    _rotate_by_positions(view, view, positions, base, freqs, scale, rotary_dim, layout, direction)
    if view.data_ptr() != x.data_ptr():
        x.copy_((view.transpose(1, 2) if heads_first else view).reshape(x.shape))


def _rotate_by_positions(
    x: Tensor,
    y: Tensor,
    positions: Tensor,
    base: float,
    freqs: Tensor | None,
    scale: float,
    rotary_dim: int | None,
    layout: str,
    direction: str,
) -> None:
    """Rotates ``x`` [B, T, H, D] into ``y``, whose last dimension is contiguous."""
    if freqs is None:
        high, low = frequencies(base, x.size(-1) if rotary_dim is None else rotary_dim, x.device)
    else:
        high, low = freqs, None
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    row_scale = 1 / scale if direction == "inverse" else scale
    positions_BT = positions if positions.dim() == 2 else positions[None]
    cos, sin = rope_table(positions_BT, high, low, row_scale, dtype)
    _launch([(x, y)], cos, sin, layout, direction)


def _launch(tensors: list[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor, layout: str, direction: str) -> None:
    """Rotates the first tensor of every pair into the second; the rules have been checked."""
    if not any(x.numel() for x, _ in tensors):
        return
    tensors = [(x if x.stride(-1) == 1 else x.contiguous(), y) for x, y in tensors]
    cos, sin = cos.contiguous(), sin.contiguous()
    (x, y), (key, key_out) = tensors[0], tensors[1] if len(tensors) > 1 else (None, None)
    batches, tokens, heads, head_dim = x.shape
    pairs = cos.size(-1)
    block_p = triton.next_power_of_2(pairs)
    head_bytes = 2 * block_p * x.element_size()
    most_heads = triton.next_power_of_2(max(x.size(2) for x, _ in tensors))
    block_h = min(most_heads, 4)
    block_t = min(triton.next_power_of_2(tokens), max(1, _TILE_BYTES // (block_h * head_bytes)))
    block_h = min(most_heads, max(1, _TILE_BYTES // (block_t * head_bytes)))
    strides = [tensor.stride()[:3] if tensor is not None else None for tensor in (x, y, key, key_out)]
    with on_device(x):
        _rotate_kernel[(batches * triton.cdiv(tokens, block_t),)](
            x,
            y,
            key,
            key_out,
            cos,
            sin,
            *strides,
            (0 if cos.size(0) == 1 else cos.stride(0), cos.stride(1)),
            batches,
            tokens,
            HEADS=heads,
            KEY_HEADS=0 if key is None else key.size(2),
            PAIRS=pairs,
            COPIED=0 if x.data_ptr() == y.data_ptr() else head_dim - 2 * pairs,
            HALVES=layout == "halves",
            TRANSPOSE=direction != "forward",
            BLOCK_T=block_t,
            BLOCK_H=block_h,
            BLOCK_P=block_p,
            enable_fp_fusion=True,
        )


def _as_BTHD(x: Tensor, heads_first: bool) -> Tensor:
    """[.., T, H, D] or [.., H, T, D] as [B, T, H, D] with a contiguous last dimension, a view where strides allow."""
    rows = x if x.stride(-1) == 1 else x.contiguous()
    flat = rows.reshape(-1 if x.numel() else 0, *x.shape[-3:])
    return flat.transpose(1, 2) if heads_first else flat


def _check_no_overlap(where: str, name: str, x: Tensor) -> None:
    if torch._debug_has_internal_overlap(x) == 1:
        raise RuntimeError(
            f"[{where}] {name} must not refer to one memory location more than once, got an expanded tensor"
        )
