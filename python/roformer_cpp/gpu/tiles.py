"""Functions of tiles that several kernels share.

A tile has a row for each of its tokens and a column for each element of a vector.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rotate_pairs(a, b, cos, sin):
    """Elements a and b of every pair, turned counter-clockwise; the shapes broadcast (core/include/rf/rope.h)."""
    return a * cos - b * sin, a * sin + b * cos


@triton.jit
def dropout_words(seed, stream, block):
    """A draw of Philox for each block of eight elements (core/include/rf/dropout.h): four uint32 of the shape of block.

    seed, stream: int64 scalars; block: int64.
    """
    block = block.to(tl.uint64)
    stream = stream.to(tl.uint64) + block * 0
    return tl.philox(
        seed, block.to(tl.uint32), (block >> 32).to(tl.uint32), stream.to(tl.uint32), (stream >> 32).to(tl.uint32)
    )


@triton.jit
def dropout_numbers(seed, stream, block):
    """The numbers of the elements of blocks ``[N]``: uint32 ``[N, 8]`` from 0 to 65535.

    An element is dropped if its number is below round(65536 p).
    """
    word0, word1, word2, word3 = dropout_words(seed, stream, block)
    words = tl.join(tl.join(word0, word2), tl.join(word1, word3))
    return tl.join(words & 0xFFFF, words >> 16).reshape(block.shape[0], 8)


def padded(size: int) -> int:
    """The width of a tile for ``size`` columns: a power of 2, and at least 16, which products need."""
    return max(16, triton.next_power_of_2(size))


def blocks_of(lengths: Tensor, tokens: int, size: int) -> tuple[Tensor, Tensor]:
    """Blocks of ``size`` tokens of packed sequences, whose lengths stay on the device.

    Args:
        lengths: int ``[sequences]``, at least one sequence.
        tokens: at least their sum.

    Returns:
        The first block of each sequence and the end, ``[sequences + 1]``; and the sequence of each block. There are as
        many blocks as any lengths can need; blocks beyond the end come last and belong to the last sequence.
    """
    first = torch.nn.functional.pad(((lengths + size - 1) // size).cumsum(0), (1, 0))
    block = torch.arange(tokens // size + len(lengths), device=first.device)
    return first, torch.searchsorted(first[1:], block, right=True).clamp(max=len(lengths) - 1)


class Rows(NamedTuple):
    """A tensor ``[B, T, H, D]`` whose last dimension is contiguous; strides in elements, 0 of one shared entry."""

    pointer: Tensor
    stride_b: int
    stride_t: int
    stride_h: int


class RotationRows(NamedTuple):
    """Cosines and sines ``[1 or B, T, pairs]``, contiguous; ``stride_b`` is 0 where the batch shares them.

    Both are None without a rotation. A kernel asks ``rotation.cos is None``: it cannot compare a tuple with None.
    """

    cos: Tensor | None
    sin: Tensor | None
    stride_b: int
    pairs: int


def rows_of(x: Tensor) -> Rows:
    """The rows of ``[B, T, H, D]``, copied if the last dimension is not contiguous."""
    x = x if x.stride(-1) == 1 or x.size(-1) == 1 else x.contiguous()
    return Rows(x, 0 if x.size(0) == 1 else x.stride(0), x.stride(1), x.stride(2))


def rotation_rows_of(cos: Tensor | None, sin: Tensor | None) -> RotationRows:
    if cos is None:
        return RotationRows(None, None, 0, 0)
    stride_b = 0 if cos.size(0) == 1 else cos.size(1) * cos.size(2)
    return RotationRows(cos.contiguous(), sin.contiguous(), stride_b, cos.size(2))


@triton.jit
def row_pointers(x, entry, head, tokens, columns):
    rows = entry * x.stride_b + tl.cast(head, tl.int64) * x.stride_h + tokens * x.stride_t
    return x.pointer + rows[:, None] + columns[None, :]


@triton.jit
def load_rows(x, entry, head, tokens, valid, columns, width):
    """Columns of rows, 0 outside of ``valid`` rows and ``width``; ``entry`` and ``tokens`` are int64."""
    mask = valid[:, None] & (columns < width)[None, :]
    return tl.load(row_pointers(x, entry, head, tokens, columns), mask=mask, other=0.0)


@triton.jit
def store_rows(x, entry, head, tokens, valid, columns, width, values):
    mask = valid[:, None] & (columns < width)[None, :]
    values = values.to(x.pointer.dtype.element_ty)
    tl.store(row_pointers(x, entry, head, tokens, columns), values, mask=mask)


@triton.jit
def pair_partners(columns, pairs):
    """Of the layout "halves": the column that is rotated with each column, itself where none is."""
    return tl.where(columns < pairs, columns + pairs, tl.where(columns < 2 * pairs, columns - pairs, columns))


@triton.jit
def swap_pairs(x):
    """Of the layout "pairs": columns 2i and 2i + 1 exchanged."""
    first, second = tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))
    return tl.reshape(tl.join(second, first), x.shape)


@triton.jit
def load_pairs_rotation(rotation, entry, tokens, valid, first, BLOCK: tl.constexpr):
    """Of the layout "pairs" and the columns from ``first`` on, which is even: as ``load_halves_rotation``."""
    pair = first // 2 + tl.arange(0, BLOCK // 2)
    cos, sin = load_pairs(rotation, entry, tokens, valid, pair, pair < rotation.pairs)
    shape: tl.constexpr = [valid.shape[0], BLOCK]
    return tl.reshape(tl.join(cos, cos), shape), tl.reshape(tl.join(-sin, sin), shape)


@triton.jit
def load_halves_rotation(rotation, entry, tokens, valid, columns):
    """``(cos, sin)`` for ``R x = cos x + sin partner(x)`` and ``R^T x = cos x - sin partner(x)``.

    The sine of a pair's first column is negative. Columns that are not rotated have 1 and 0.
    """
    is_second = columns >= rotation.pairs
    pair = tl.where(is_second, columns - rotation.pairs, columns)
    cos, sin = load_pairs(rotation, entry, tokens, valid, pair, columns < 2 * rotation.pairs)
    return cos, tl.where(is_second[None, :], sin, -sin)


@triton.jit
def load_pairs(rotation, entry, tokens, valid, pair, is_rotated):
    """The cosines and sines ``[tokens, pairs]`` of pairs that are rotated, 1 and 0 elsewhere; int64 tokens."""
    at = (entry * rotation.stride_b + tokens * rotation.pairs)[:, None] + pair[None, :]
    mask = valid[:, None] & is_rotated[None, :]
    return tl.load(rotation.cos + at, mask=mask, other=1.0), tl.load(rotation.sin + at, mask=mask, other=0.0)
