"""The operators of models on GPUs that the kernels do not run on (``library.missing``).

A rotation is torch's operations. The numbers that must be exact, of angles and of dropout, are made on the CPU and
copied, so results are those of any other device, but such a GPU waits for them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .launch import checked_results


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: str, *, direction: str = "forward") -> Tensor:
    """``roformer::rotate``."""
    y = checked_results("rotate", x, cos, sin, layout, direction=direction)
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2) if direction == "forward" else -sin.unsqueeze(2)
    pairs = cos.size(-1)
    first, second = slice(pairs), slice(pairs, 2 * pairs)
    if layout == "pairs":
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = x[..., first].to(cos.dtype), x[..., second].to(cos.dtype)
    y.copy_(x)
    y[..., first] = (a * cos - b * sin).to(x.dtype)
    y[..., second] = (a * sin + b * cos).to(x.dtype)
    return y


def dropout(x: Tensor, p: float, seed: int, stream: int) -> Tensor:
    """``roformer::dropout``."""
    factors = torch.ops.roformer.dropout(torch.ones(x.shape, dtype=x.dtype), p, seed, stream)
    return x * factors.to(x.device)


def _by_cpu(operator: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        device = args[0].device

        def moved(value: Any, to: torch.device | str) -> Any:
            if isinstance(value, tuple):
                return tuple(moved(each, to) for each in value)
            return value.to(to) if isinstance(value, Tensor) else value

        given = [moved(value, "cpu") for value in args]
        options = {name: moved(value, "cpu") for name, value in kwargs.items()}
        result = getattr(torch.ops.roformer, operator)(*given, **options)
        if result is None:  # in place
            args[0].copy_(given[0])
        return moved(result, device)

    return call


rope, rope_, rope_table = _by_cpu("rope"), _by_cpu("rope_"), _by_cpu("rope_table")
