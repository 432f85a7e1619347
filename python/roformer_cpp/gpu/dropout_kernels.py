"""The Triton kernel of dropout by a counter-based generator (core/include/rf/dropout.h)."""

import triton
import triton.language as tl
from torch import Tensor

from .launch import on_device
from .tiles import dropout_numbers

_BLOCK = 512  # draws of a program, each for eight elements


@triton.jit(do_not_specialize=["seed", "stream"])
def _dropout_kernel(
    x, y, count, seed: tl.int64, stream: tl.int64,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``y[i] = keep(i) ? x[i] SCALE : 0``, the product in float32, or float64 for float64 ``x``. ``EVEN``: ``count`` is
    a multiple of eight."""
    block = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    element = block[:, None] * 8 + tl.arange(0, 8)[None, :]
    inside = (block[:, None] * 8 < count) if EVEN else (element < count)  # the former permits wide accesses
    keep = dropout_numbers(seed, stream, block) >= THRESHOLD
    given = tl.load(x + element, inside)
    scaled = given.to(tl.float64 if given.dtype == tl.float64 else tl.float32) * SCALE
    tl.store(y + element, tl.where(keep, scaled, 0.0).to(y.dtype.element_ty), inside)


def drop_into(x: Tensor, y: Tensor, threshold: int, scale: float, seed: int, stream: int) -> None:
    """Writes ``x`` [..] to ``y``, both contiguous: times ``scale``, or 0 where the number of an element is below
    ``threshold``."""
    with on_device(x):
        _dropout_kernel[(triton.cdiv(x.numel(), 8 * _BLOCK),)](
            x, y, x.numel(), seed, stream,
            THRESHOLD=threshold, SCALE=scale, EVEN=x.numel() % 8 == 0, BLOCK=_BLOCK, enable_fp_fusion=True,
        )  # fmt: skip
