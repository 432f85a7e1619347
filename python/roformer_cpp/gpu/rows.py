"""``roformer::linear``, ``norm``, ``gelu`` and their backwards (ops/include/rf/ops/rows.h), by calls of ATen.

As on the CPU, sums over 16-bit numbers are float32, and gradients of parameters are computed in float32, or float64 for
float64 data. Unlike the CPU, ``linear`` rounds a float32 bias to the dtype of ``x``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .dropout import dropout as dropped
from .launch import checked_results

_ATEN = torch.ops.aten
_FORMS = {"erf": "none", "tanh": "tanh"}
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def _arithmetic(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _rows(x: Tensor) -> Tensor:
    """``[.., C]`` as ``[N, C]``; any extent may be 0."""
    return x.reshape(x.shape[:-1].numel(), x.size(-1))


def _sum_of_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    return _rows(x).sum(0, dtype=dtype)


def _cast(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if x is None else x.to(dtype)


# ---- linear ----


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str = "none") -> Tensor:
    """``roformer::linear``."""
    checked_results("linear", x, weight, bias, activation=activation)
    y = functional.linear(x, weight.to(x.dtype), _cast(bias, x.dtype))
    return y if activation == "none" else functional.gelu(y, approximate=_FORMS[activation.removeprefix("gelu_")])


def linear_backward(grad: Tensor, wanted: Sequence[bool], x: Tensor, weight: Tensor) -> list[Tensor]:
    """``roformer::linear_backward``."""
    checked_results("linear_backward", grad, wanted, x, weight)
    dy = _rows(grad).to(x.dtype)
    grads = []
    if wanted[0]:
        grads.append((dy @ weight.to(x.dtype)).reshape(x.shape))
    if wanted[1]:
        grads.append(_product(dy.T, _rows(x), weight.dtype))
    if wanted[2]:
        grads.append(_sum_of_rows(dy, _arithmetic(x)))
    return grads


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """``a @ b`` in ``dtype``, without a rounding to 16 bits in between where PyTorch has such a product."""
    return torch.mm(a, b, out_dtype=dtype) if a.is_cuda and a.dtype != dtype else (a @ b).to(dtype)


def linear_autocast(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str = "none") -> Tensor:
    """``roformer::linear`` under autocast: as PyTorch's linear, but float32 weights, which the kernel rounds, and bias
    keep their dtypes."""
    dtype = torch.get_autocast_dtype("cuda")

    def cast(tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype == torch.float64 or not tensor.is_floating_point() else tensor.to(dtype)

    x = cast(x)
    if weight.dtype != torch.float32 or x.dtype != dtype:
        weight = cast(weight)
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return torch.ops.roformer.linear(x, weight, bias, activation=activation)


# ---- GELU ----


def gelu(x: Tensor, bias: Tensor | None = None, *, form: str = "erf") -> Tensor:
    """``roformer::gelu``."""
    checked_results("gelu", x, bias, form=form)
    return functional.gelu(_with_bias(x, bias), approximate=_FORMS[form]).to(x.dtype).contiguous()


def gelu_backward(
    grad: Tensor, wanted: Sequence[bool], x: Tensor, bias: Tensor | None, *, form: str = "erf"
) -> list[Tensor]:
    """``roformer::gelu_backward``."""
    checked_results("gelu_backward", grad, wanted, x, bias, form=form)
    given = _with_bias(x, bias)
    dx = _ATEN.gelu_backward(grad.to(given.dtype), given, approximate=_FORMS[form])
    grads = [dx.to(x.dtype).contiguous()] if wanted[0] else []
    return [*grads, _sum_of_rows(dx, _arithmetic(x)).to(bias.dtype)] if wanted[1] else grads


def _with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """x + bias in the dtype of arithmetic; ``x`` itself without a bias, because ATen's GELU is computed in it."""
    return x if bias is None else x.to(_arithmetic(x)) + bias.to(_arithmetic(x))


# ---- norms ----


class _Norm(NamedTuple):
    """The arguments of ``norm``, which ``norm_backward`` has too."""

    x: Tensor
    bias: Tensor | None
    residual: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    kind: str = "layer"
    eps: float = 1e-12
    dropout: float = 0.0
    seed: int = 0
    stream: int = 0

    def total(self) -> Tensor:
        """residual + dropout(x + bias) in the dtype of arithmetic, contiguous."""
        total = self.x.to(_arithmetic(self.x)).contiguous()
        if self.bias is not None:
            total = total + self.bias.to(total.dtype)
        total = self.dropped(total)
        return total if self.residual is None else total + self.residual.to(total.dtype)

    def dropped(self, x: Tensor) -> Tensor:
        return x if self.dropout == 0 else dropped(x, self.dropout, self.seed, self.stream)


def norm(*args: Tensor | None, **options: object) -> Tensor:
    """``roformer::norm``."""
    call = _Norm(*args, **options)
    y = checked_results("norm", *args, **options)
    total = call.total()
    weight, shift = _cast(call.gamma, total.dtype), _cast(call.beta, total.dtype)
    if total.numel() > 0:
        if call.kind == "layer":
            y.copy_(functional.layer_norm(total, total.shape[-1:], weight, shift, call.eps))
        else:
            result = total * _reciprocal(total, call.eps)
            result = result if weight is None else result * weight
            y.copy_(result if shift is None else result + shift)
    return y


def norm_backward(grad: Tensor, wanted: Sequence[bool], *args: Tensor | None, **options: object) -> list[Tensor]:
    """``roformer::norm_backward``: as on the CPU, the sum and its mean and variance are computed again."""
    call = _Norm(*args, **options)
    results = checked_results("norm_backward", grad, wanted, *args, **options)
    if call.x.numel() == 0:
        return [result.zero_() for result in results]
    total = call.total()
    dy, weight = grad.to(total.dtype), _cast(call.gamma, total.dtype)
    if call.kind == "layer":
        _, mean, reciprocal = torch.native_layer_norm(total, total.shape[-1:], None, None, call.eps)
        normalized = (total - mean) * reciprocal
    else:
        reciprocal = _reciprocal(total, call.eps)
        normalized = total * reciprocal
    g = dy if weight is None else dy * weight
    dtotal = g - normalized * (g * normalized).mean(-1, keepdim=True)
    if call.kind == "layer":
        dtotal -= g.mean(-1, keepdim=True)
    dtotal *= reciprocal
    dx = call.dropped(dtotal)
    gradients = (
        lambda: dx,
        lambda: _rows(dx).sum(0),
        lambda: dtotal,
        lambda: _rows(dy * normalized).sum(0),
        lambda: _rows(dy).sum(0),
    )
    chosen = (gradient for gradient, is_wanted in zip(gradients, wanted, strict=True) if is_wanted)
    for result, gradient in zip(results, chosen, strict=True):
        result.copy_(gradient())
    return results


def _reciprocal(total: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean of squares + eps), [.., 1]."""
    return torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
