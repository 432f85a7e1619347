"""Rotation of queries and keys: ``roformer::rotate``, ``rope`` and ``rope_`` (core/include/rf/rope.h has the equation).

Arithmetic is in the dtype of the rows, and a result is rounded once.

``rope`` computes its rows from the positions at every call and keeps none: compiled code and CUDA graphs overwrite the
memory of positions without a trace that a cache could follow. Callers that use positions often make the rows once with
``rope_table`` and call ``rotate``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .launch import checked_results, implementation
from .rope_table import frequencies, rope_table


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: str, *, direction: str = "forward") -> Tensor:
    """``roformer::rotate``."""
    y = checked_results("rotate", x, cos, sin, layout, direction=direction)
    _rotate_into([(x, y)], cos, sin, layout, direction)
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
    _rotate_into([(q, results[0]), (k, results[1])], cos, sin, layout, direction)
    return results[0], results[1]


class _Options(NamedTuple):
    """The options of ``rope`` and ``rope_``."""

    layout: str
    base: float = 10000.0
    freqs: Tensor | None = None
    scale: float = 1.0
    rotary_dim: int | None = None
    heads_first: bool = False
    direction: str = "forward"


def rope(x: Tensor, positions: Tensor, **options: object) -> Tensor:
    """``roformer::rope``. Positions beyond 2^53, which the CPU refuses, give results that are not numbers."""
    given = _Options(**options)
    y = checked_results("rope", x, positions, **options)
    views = _as_BTHD(x, given.heads_first), _as_BTHD(y, given.heads_first)
    _rotate_by_positions(*views, positions, given)
    return y


def rope_(x: Tensor, positions: Tensor, **options: object) -> None:
    """``roformer::rope_``, with the rule of ``rope`` for positions."""
    given = _Options(**options)
    checked_results("rope_", x, positions, **options)
    _check_no_overlap("rope", "x", x)
    view = _as_BTHD(x, given.heads_first)
    _rotate_by_positions(view, view, positions, given)
    if view.data_ptr() != x.data_ptr():
        x.copy_((view.transpose(1, 2) if given.heads_first else view).reshape(x.shape))


def _rotate_by_positions(x: Tensor, y: Tensor, positions: Tensor, options: _Options) -> None:
    """Rotates ``x`` [B, T, H, D] into ``y``, whose last dimension is contiguous."""
    if options.freqs is None:
        dims = x.size(-1) if options.rotary_dim is None else options.rotary_dim
        high, low = frequencies(options.base, dims, x.device)
    else:
        high, low = options.freqs, None
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    row_scale = 1 / options.scale if options.direction == "inverse" else options.scale
    positions_BT = positions if positions.dim() == 2 else positions[None]
    cos, sin = rope_table(positions_BT, high, low, row_scale, dtype)
    _rotate_into([(x, y)], cos, sin, options.layout, options.direction)


def _rotate_into(tensors: list[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor, layout: str, direction: str) -> None:
    """Rotates the first tensor of every pair into the second; the rules have been checked."""
    if any(x.numel() for x, _ in tensors):
        ready = [(x if x.stride(-1) == 1 else x.contiguous(), y) for x, y in tensors]
        rotate_into = implementation(cos, "rotation_kernels").rotate_into
        rotate_into(ready, cos.contiguous(), sin.contiguous(), layout, direction)


def elements_of_pairs(x: Tensor, pairs: int, layout: str) -> tuple[Tensor, Tensor]:
    """Views of the first and of the second elements of a rotation's pairs, each ``[.., pairs]``."""
    if layout == "pairs":
        return x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
    return x[..., :pairs], x[..., pairs : 2 * pairs]


def _as_BTHD(x: Tensor, heads_first: bool) -> Tensor:
    """[.., T, H, D] or [.., H, T, D] as [B, T, H, D] with a contiguous last dimension, a view where strides allow."""
    rows = x if x.stride(-1) == 1 else x.contiguous()
    flat = rows.reshape(-1 if x.numel() else 0, *x.shape[-3:])
    return flat.transpose(1, 2) if heads_first else flat


def _check_no_overlap(where: str, name: str, x: Tensor) -> None:
    if torch._debug_has_internal_overlap(x) == 1:
        raise RuntimeError(
            f"[{where}] {name} must not refer to a single memory location more than once, got an expanded tensor"
        )
