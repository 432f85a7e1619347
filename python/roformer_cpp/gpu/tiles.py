"""Functions of tiles that several kernels share."""

import triton
import triton.language as tl


@triton.jit
def rotate_pairs(a, b, cos, sin):
    """Elements a and b of every pair, turned counter-clockwise; the shapes broadcast (core/include/rf/rope.h)."""
    return a * cos - b * sin, a * sin + b * cos


@triton.jit
def dropout_numbers(seed, stream, block):
    """The numbers that decide which elements dropout drops (core/include/rf/dropout.h).

    Args:
        seed, stream: int64 scalars.
        block: int64 ``[N]``, each for eight consecutive elements.

    Returns:
        uint32 ``[N, 8]`` from 0 to 65535; an element is dropped if its number is below round(65536 p).
    """
    block = block.to(tl.uint64)
    zero = block * 0
    stream = stream.to(tl.uint64) + zero
    word0, word1, word2, word3 = tl.philox(
        seed, block.to(tl.uint32), (block >> 32).to(tl.uint32), stream.to(tl.uint32), (stream >> 32).to(tl.uint32)
    )
    words = tl.join(tl.join(word0, word2), tl.join(word1, word3))
    return tl.join(words & 0xFFFF, words >> 16).reshape(block.shape[0], 8)
