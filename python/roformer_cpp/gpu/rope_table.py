"""The rows of a rotation from exact angles: ``roformer::rope_table``.

Not checked, because it would wait for the device: positions beyond 2^53 and angles beyond 2^60 give rows that are not
numbers.
"""

import decimal
import functools

import torch
from torch import Tensor

from .launch import checked_results, implementation


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
    pairs = freqs.size(-1)
    high, low = (x if x is None else x.expand(shape).reshape(-1, pairs).contiguous() for x in (freqs, freqs_lo))
    fill_rows = implementation(positions, "rotation_kernels").fill_rows
    fill_rows(positions.reshape(-1).contiguous(), high, low, scale, cos.view(-1, pairs), sin.view(-1, pairs))
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
