"""The rows of a rotation from exact angles: ``roformer::rope_table``.

An angle is the product of a position and a frequency hi + lo. It is formed as the rounded product a and its error b,
by Dekker's algorithm (1971), so cos(a + b) = cos a cos b - sin a sin b has the accuracy of float64 at any position
(core/ref/rope.cpp does the same). The kernel is compiled without contraction to fused operations, which Dekker's
algorithm excludes.

Not checked, because it would wait for the device: positions beyond 2^53 and angles beyond 2^60 give rows that are not
numbers.
"""

import decimal
import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import checked_results, on_device

_TILE = 512  # elements of a program


@triton.jit
def _split(x):
    """Two float64 numbers of 26 bits whose sum is ``x`` (Veltkamp)."""
    scaled = x * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - x)
    return high, x - high


@triton.jit
def _rope_table_kernel(
    positions,
    freqs,
    freqs_lo,
    cos,
    sin,
    rows,
    rows_per_freqs,
    SCALE: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
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


def rope_table(
    positions: Tensor,
    freqs: Tensor,
    freqs_lo: Tensor | None = None,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """``roformer::rope_table``."""
    cos, sin = checked_results("rope_table", positions, freqs, freqs_lo, scale, dtype)
    if cos.numel() == 0:
        return cos, sin
    outer = freqs.dim() - 1  # dimensions of positions in which frequencies differ
    while outer > 0 and freqs.size(outer - 1) == 1:
        outer -= 1
    shape = (*positions.shape[:outer], *freqs.shape[outer:])
    high, low = (x if x is None else x.expand(shape).contiguous() for x in (freqs, freqs_lo))
    pairs = freqs.size(-1)
    block_p = triton.next_power_of_2(pairs)
    block_r = max(1, _TILE // block_p)
    with on_device(positions):
        _rope_table_kernel[(triton.cdiv(positions.numel(), block_r),)](
            positions.contiguous(),
            high,
            low,
            cos,
            sin,
            positions.numel(),
            positions[(0,) * outer].numel(),
            SCALE=scale,
            PAIRS=pairs,
            BLOCK_R=block_r,
            BLOCK_P=block_p,
            enable_fp_fusion=False,
        )
    return cos, sin


@functools.lru_cache(maxsize=64)
def _frequencies(base: float, rotary_dim: int) -> Tensor:
    high, low = [], []
    with decimal.localcontext(prec=50):
        for i in range(rotary_dim // 2):
            exact = decimal.Decimal(base) ** (decimal.Decimal(-2 * i) / rotary_dim)
            high.append(float(exact))
            low.append(float(exact - decimal.Decimal(high[-1])))
    return torch.tensor([high, low], dtype=torch.float64, pin_memory=torch.cuda.is_available())


def frequencies(base: float, rotary_dim: int, device: torch.device) -> Tensor:
    """theta_i = base^(-2i/rotary_dim) as unevaluated sums of two numbers, float64 ``[2, rotary_dim/2]``.

    They are kept on the host and copied at every call: a tensor on the device that outlives a call might belong to the
    memory of a CUDA graph. The copy reads pinned memory, so it can be captured and does not wait.
    """
    return _frequencies(base, rotary_dim).to(device, non_blocking=True)
