"""Rotated tensors, on CPUs and GPUs, beside complex multiplication in float64 (rope_reference.py)."""

import numpy as np
import torch

import rope_reference
import tolerances


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def rows_of(batch, tokens, pairs, dtype):
    row_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    return [normal(batch, tokens, pairs, dtype=row_dtype, seed=seed) for seed in (1, 2)]


def strided(dtype):
    """[2, 5, 3, 22]: a slice of a fused projection, heads first in memory, and the last dimension strided."""
    qkv = normal(2, 5, 3, 3, 22, dtype=dtype)
    heads_first, last_strided = (
        qkv[:, :, i].transpose(*dims).contiguous().transpose(*dims) for i, dims in enumerate(((1, 2), (-1, -2)))
    )
    return [qkv[:, :, 2], heads_first, last_strided]


def rows_of_any_strides():
    rows = normal(2, 5, 8)
    return [
        (rows[..., :4], rows[..., 4:]),
        (rows[..., ::2], rows[..., 1::2]),
        (rows[:1, :, :4].expand(2, 5, 4), rows[..., 4:]),
        (rows[:1, :1, :4].expand(1, 5, 4), rows[:1, :1, 4:].expand(1, 5, 4)),
    ]


def check(y, x, expected, layout, rotary_dim, largest):
    """``y`` is within the bound of its dtype; elements past ``rotary_dim`` are those of ``x``."""
    assert y.dtype == x.dtype and y.shape == x.shape
    size = rope_reference.magnitude(x.double().numpy(), layout=layout, rotary_dim=rotary_dim)
    bound = tolerances.ROPE_EPS_FACTOR * torch.finfo(y.dtype).eps * max(largest, 1.0) * size
    error = np.abs(y.double().numpy() - expected)
    worst = np.argmax(error - bound)
    assert (error <= bound).all(), f"error {error.flat[worst]:.3g}, allowed {bound.flat[worst]:.3g}"
    assert torch.equal(y[..., rotary_dim:], x[..., rotary_dim:])


def check_rows(y, x, cos, sin, layout, direction="forward"):
    assert y.is_contiguous()
    y, x, cos, sin = (each.detach() for each in (y, x, cos.double(), sin.double()))
    factors = cos.numpy(), (sin if direction == "forward" else -sin).numpy()
    expected = rope_reference.turned(x.double().numpy(), factors, layout)
    check(y, x, expected, layout, 2 * cos.size(-1), float(torch.stack([cos, sin]).abs().max()))


def check_positions(y, x, positions, **arguments):
    """y = rope(x, positions, ..)"""
    expected = rope_reference.rope(x.double().numpy(), positions.numpy(), **arguments)
    freqs, scale = arguments.get("freqs"), abs(arguments.get("scale", 1.0))
    rotary_dim = 2 * len(freqs) if freqs is not None else arguments.get("rotary_dim") or x.shape[-1]
    largest = 1 / scale if arguments.get("direction") == "inverse" else scale
    check(y, x, expected, arguments["layout"], rotary_dim, largest)
