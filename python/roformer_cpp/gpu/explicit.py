"""The functions of the Triton kernels by operations of PyTorch, for devices that cannot run the kernels."""

import torch
from torch import Tensor

from .rope import elements_of_pairs

_UINT32 = 0xFFFFFFFF


def rotate_into(tensors: list[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor, layout: str, direction: str) -> None:
    """As in ``rotation_kernels``."""
    pairs = cos.size(-1)
    c, s = cos.unsqueeze(2), (sin if direction == "forward" else -sin).unsqueeze(2)
    for x, y in tensors:
        a, b = (each.to(cos.dtype) for each in elements_of_pairs(x, pairs, layout))
        turned = a * c - b * s, a * s + b * c
        for elements, result in zip(elements_of_pairs(y, pairs, layout), turned, strict=True):
            elements.copy_(result)
        if y.data_ptr() != x.data_ptr():
            y[..., 2 * pairs :] = x[..., 2 * pairs :]


def fill_rows(
    positions: Tensor, freqs: Tensor, freqs_lo: Tensor | None, scale: float, cos: Tensor, sin: Tensor
) -> None:
    """As in ``rotation_kernels``."""
    position = positions.double().reshape(freqs.size(0), -1, 1)
    high = freqs.unsqueeze(1)
    a = position * high
    (p1, p2), (h1, h2) = _split(position), _split(high)
    b = ((p1 * h1 - a) + p1 * h2 + p2 * h1) + p2 * h2
    if freqs_lo is not None:
        b += position * freqs_lo.unsqueeze(1)
    is_exact = a.abs() <= 2.0**60
    if not positions.is_floating_point():
        is_exact &= position.abs() <= 2.0**53
    rows = a.cos() * b.cos() - a.sin() * b.sin(), a.sin() * b.cos() + a.cos() * b.sin()
    for out, row in zip((cos, sin), rows, strict=True):
        out.copy_(torch.where(is_exact, row * scale, float("nan")).reshape(out.shape))


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two float64 numbers of 26 bits whose sum is ``x`` (Veltkamp)."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def drop_into(x: Tensor, y: Tensor, threshold: int, scale: float, seed: int, stream: int) -> None:
    """As in ``dropout_kernels``."""
    block = torch.arange((x.numel() + 7) // 8, device=x.device)
    key = [seed & _UINT32, seed >> 32 & _UINT32]
    low, high = stream & _UINT32, stream >> 32 & _UINT32
    words = [block & _UINT32, block >> 32, torch.full_like(block, low), torch.full_like(block, high)]
    for _ in range(10):  # of Philox; a 64-bit product wraps around, and its halves equal the unsigned product's
        product0, product1 = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [
            (product1 >> 32 & _UINT32) ^ words[1] ^ key[0],
            product1 & _UINT32,
            (product0 >> 32 & _UINT32) ^ words[3] ^ key[1],
            product0 & _UINT32,
        ]
        key = [key[0] + 0x9E3779B9 & _UINT32, key[1] + 0xBB67AE85 & _UINT32]
    numbers = torch.stack([half for word in words for half in (word & 0xFFFF, word >> 16)], -1).flatten()
    keep = (numbers[: x.numel()] >= threshold).reshape(x.shape)
    scaled = (x if x.dtype == torch.float64 else x.float()) * scale
    y.copy_(torch.where(keep, scaled, 0.0))
