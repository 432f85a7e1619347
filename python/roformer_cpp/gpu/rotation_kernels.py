"""Triton kernels of rotations: rows of cosines and sines from positions, and the rotation of heads by rows.

Rotation: a program takes a few tokens of a sequence. It loads their rows once, then all heads of the tokens in blocks.
Heads are the slowest dimension of a tile, so that the rows stay in the registers of the threads that use them.

Rows: an angle is the product of a position and a frequency hi + lo. It is formed as the rounded product a and its error
b by Dekker's algorithm (1971), so that cos(a + b) = cos a cos b - sin a sin b has the accuracy of float64 at any
position, as in core/ref/rope.cpp. The kernel must be compiled without contraction to fused operations.
"""

import triton
import triton.language as tl
from torch import Tensor

from .launch import on_device
from .tiles import load_pairs, rotate_pairs, rotation_rows_of, rows_of

_TILE_BYTES = 8192  # of a rotation: four loads of 16 bytes for each of 128 threads
_TABLE_TILE = 256  # elements of a program that makes rows


@triton.jit
def _rotate_heads(
    x, y, batch, first_token, tokens, cos, sin,
    HEADS: tl.constexpr, PAIRS: tl.constexpr, COPIED: tl.constexpr, HALVES: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Rotates every head of the tokens of x (`Rows`) whose rows are ``cos`` and ``sin`` ``[BLOCK_T, BLOCK_P]``.

    The elements from 2 ``PAIRS`` to 2 ``PAIRS`` + ``COPIED`` are copied.
    """
    BLOCK_T: tl.constexpr = cos.shape[0]
    BLOCK_P: tl.constexpr = cos.shape[1]
    token = first_token + tl.arange(0, BLOCK_T)
    x_HTD = x.pointer + batch * x.stride_b + (token.to(tl.int64) * x.stride_t)[None, :, None]
    y_HTD = y.pointer + batch * y.stride_b + (token.to(tl.int64) * y.stride_t)[None, :, None]
    is_token = (token < tokens)[None, :, None]
    cos, sin = cos[None, :, :], sin[None, :, :]
    for first_head in range(0, HEADS, BLOCK_H):
        head = first_head + tl.arange(0, BLOCK_H)[:, None, None]
        x_row = x_HTD + head.to(tl.int64) * x.stride_h
        y_row = y_HTD + head.to(tl.int64) * y.stride_h
        is_row = is_token & (head < HEADS)
        if HALVES:
            pair = tl.arange(0, BLOCK_P)[None, None, :]
            inside = is_row & (pair < PAIRS)
            a = tl.load(x_row + pair, inside).to(cos.dtype)
            b = tl.load(x_row + PAIRS + pair, inside).to(cos.dtype)
            a, b = rotate_pairs(a, b, cos, sin)
            tl.store(y_row + pair, a.to(y.pointer.dtype.element_ty), inside)
            tl.store(y_row + PAIRS + pair, b.to(y.pointer.dtype.element_ty), inside)
        else:
            element = tl.arange(0, 2 * BLOCK_P)[None, None, :]
            inside = is_row & (element < 2 * PAIRS)
            x_tile = tl.load(x_row + element, inside).to(cos.dtype)
            a, b = tl.split(x_tile.reshape(BLOCK_H, BLOCK_T, BLOCK_P, 2))
            a, b = rotate_pairs(a, b, cos, sin)
            y_tile = tl.join(a, b).reshape(BLOCK_H, BLOCK_T, 2 * BLOCK_P)
            tl.store(y_row + element, y_tile.to(y.pointer.dtype.element_ty), inside)
        if COPIED > 0:
            rest = tl.arange(0, triton.next_power_of_2(COPIED))[None, None, :]
            inside = is_row & (rest < COPIED)
            tl.store(y_row + 2 * PAIRS + rest, tl.load(x_row + 2 * PAIRS + rest, inside), inside)


@triton.jit
def _rotate_kernel(
    x, y, key, key_out, rotation, batches, tokens,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, PAIRS: tl.constexpr, COPIED: tl.constexpr, HALVES: tl.constexpr,
    TRANSPOSE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Program: a block of tokens of one sequence; neighbours take the same tokens of other sequences, whose rows may be
    the same. ``key``: a second tensor, or None."""
    program = tl.program_id(0)
    batch = (program % batches).to(tl.int64)
    first_token = (program // batches) * BLOCK_T
    token = (first_token + tl.arange(0, BLOCK_T)).to(tl.int64)
    pair = tl.arange(0, BLOCK_P)
    cos, sin = load_pairs(rotation, batch, token, token < tokens, pair, pair < PAIRS)
    if TRANSPOSE:
        sin = -sin
    _rotate_heads(x, y, batch, first_token, tokens, cos, sin, HEADS, PAIRS, COPIED, HALVES, BLOCK_H)
    if key is not None:
        _rotate_heads(key, key_out, batch, first_token, tokens, cos, sin, KEY_HEADS, PAIRS, COPIED, HALVES, BLOCK_H)


def rotate_into(tensors: list[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor, layout: str, direction: str) -> None:
    """Rotates the first tensor of each of one or two pairs, [B, T, H, D], into the second in one launch.

    They may be the same; last dimensions are contiguous. ``cos``, ``sin``: contiguous ``[B or 1, T, R/2]``.
    """
    (x, y), (key, key_out) = tensors[0], tensors[1] if len(tensors) > 1 else (None, None)
    batches, tokens, heads, head_dim = x.shape
    pairs = cos.size(-1)
    block_p = triton.next_power_of_2(pairs)
    head_bytes = 2 * block_p * x.element_size()
    most_heads = triton.next_power_of_2(max(x.size(2) for x, _ in tensors))
    block_h = min(most_heads, 4)
    block_t = min(triton.next_power_of_2(tokens), max(1, _TILE_BYTES // (block_h * head_bytes)))
    block_h = min(most_heads, max(1, _TILE_BYTES // (block_t * head_bytes)))
    rows = [tensor if tensor is None else rows_of(tensor) for tensor in (x, y, key, key_out)]
    with on_device(x):
        _rotate_kernel[(batches * triton.cdiv(tokens, block_t),)](
            *rows, rotation_rows_of(cos, sin), batches, tokens, HEADS=heads,
            KEY_HEADS=0 if key is None else key.size(2), PAIRS=pairs,
            COPIED=0 if x.data_ptr() == y.data_ptr() else head_dim - 2 * pairs, HALVES=layout == "halves",
            TRANSPOSE=direction != "forward", BLOCK_T=block_t, BLOCK_H=block_h, BLOCK_P=block_p, enable_fp_fusion=True,
        )  # fmt: skip


@triton.jit
def _split(x):
    """Two float64 numbers of 26 bits whose sum is ``x`` (Veltkamp)."""
    scaled = x * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - x)
    return high, x - high


@triton.jit
def _rope_table_kernel(
    positions, freqs, freqs_lo, cos, sin, rows, rows_per_freqs,
    SCALE: tl.constexpr, PAIRS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Program: ``BLOCK_R`` rows. ``positions``: ``[rows]``; ``freqs``, ``freqs_lo``: float64 ``[.., PAIRS]``, one for
    ``rows_per_freqs`` rows; ``freqs_lo`` may be None. ``cos``, ``sin``: ``[rows, PAIRS]``."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    pair = tl.arange(0, BLOCK_P)[None, :]
    inside = (row < rows) & (pair < PAIRS)
    given = tl.load(positions + row, row < rows, other=0)
    position = given.to(tl.float64)
    place = row // rows_per_freqs * PAIRS + pair
    high = tl.load(freqs + place, inside, other=0.0)
    a = position * high
    position_1, position_2 = _split(position)
    high_1, high_2 = _split(high)
    b = ((position_1 * high_1 - a) + position_1 * high_2 + position_2 * high_1) + position_2 * high_2
    if freqs_lo is not None:
        b += position * tl.load(freqs_lo + place, inside, other=0.0)
    is_exact = tl.abs(a) <= 1152921504606846976.0  # 2^60
    if not given.dtype.is_floating():
        is_exact = is_exact & (tl.abs(position) <= 9007199254740992.0)  # 2^53
    c_a, s_a, c_b, s_b = tl.cos(a), tl.sin(a), tl.cos(b), tl.sin(b)
    c = tl.where(is_exact, (c_a * c_b - s_a * s_b) * SCALE, float("nan"))
    s = tl.where(is_exact, (s_a * c_b + c_a * s_b) * SCALE, float("nan"))
    out = row * PAIRS + pair
    tl.store(cos + out, c.to(cos.dtype.element_ty), inside)
    tl.store(sin + out, s.to(sin.dtype.element_ty), inside)


def fill_rows(
    positions: Tensor, freqs: Tensor, freqs_lo: Tensor | None, scale: float, cos: Tensor, sin: Tensor
) -> None:
    """Fills ``cos`` and ``sin``, contiguous ``[N, R/2]``, with rows of ``positions`` ``[N]``.

    ``freqs``, ``freqs_lo``: float64 ``[G, R/2]``, contiguous, each row for N / G consecutive positions.
    """
    rows, pairs = cos.shape
    block_p = triton.next_power_of_2(pairs)
    block_r = max(1, _TABLE_TILE // block_p)
    with on_device(cos):
        _rope_table_kernel[(triton.cdiv(rows, block_r),)](
            positions, freqs, freqs_lo, cos, sin, rows, rows // freqs.size(0),
            SCALE=scale, PAIRS=pairs, BLOCK_R=block_r, BLOCK_P=block_p, enable_fp_fusion=False,
        )  # fmt: skip
