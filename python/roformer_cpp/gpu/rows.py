"""``roformer::linear``, ``norm``, ``gelu`` and their backwards (ops/include/rf/ops/rows.h). Norms have kernels, because
PyTorch would write the sums before them to memory; the others are calls of ATen.

As on the CPU, sums over 16-bit numbers are float32, and gradients of parameters are computed in float32, or float64 for
float64 data. Unlike the CPU, ``linear`` rounds a float32 bias to the dtype of ``x``.
"""

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from . import explicit
from .dropout import threshold_of
from .launch import checked_results, implementation

_ATEN = torch.ops.aten
_MAX_COLUMNS = 16384  # of a row that a kernel keeps in registers
_FORMS = {"erf": "none", "tanh": "tanh"}
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def _arithmetic(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _rows(x: Tensor) -> Tensor:
    """``[.., C]`` as ``[N, C]``, of which any extent may be 0."""
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


def norm(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    *,
    kind: str = "layer",
    eps: float = 1e-12,
    dropout: float = 0.0,
    seed: int = 0,
    stream: int = 0,
) -> Tensor:
    """``roformer::norm``."""
    options = dict(kind=kind, eps=eps, dropout=dropout, seed=seed, stream=stream)
    y = checked_results("norm", x, bias, residual, gamma, beta, **options)
    if y.numel() > 0:
        kernels = _norm_kernels(x, dropout)
        kernels.norm_into(
            _ready_rows(x), _ready(bias), _ready_rows(residual), _ready(gamma), _ready(beta), _rows(y),
            **_norm_options(kind, eps, dropout, seed, stream),
        )  # fmt: skip
    return y


def norm_backward(
    grad: Tensor,
    wanted: Sequence[bool],
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    *,
    kind: str = "layer",
    eps: float = 1e-12,
    dropout: float = 0.0,
    seed: int = 0,
    stream: int = 0,
) -> list[Tensor]:
    """``roformer::norm_backward``: as on the CPU, the sum and its mean and variance are computed again."""
    options = dict(kind=kind, eps=eps, dropout=dropout, seed=seed, stream=stream)
    results = checked_results("norm_backward", grad, wanted, x, bias, residual, gamma, beta, **options)
    if x.numel() == 0:
        return [result.zero_() for result in results]
    names = ["x", "bias", "residual", "gamma", "beta"]
    grads = dict(zip((name for name, flag in zip(names, wanted, strict=True) if flag), results, strict=True))
    sums = _norm_kernels(x, dropout).norm_backward_into(
        _ready_rows(grad), _ready_rows(x), _ready(bias), _ready_rows(residual), _ready(gamma),
        *(_rows(grads[name]) if name in grads else None for name in ("x", "residual")),
        **_norm_options(kind, eps, dropout, seed, stream),
    )  # fmt: skip
    for name, total in zip(("bias", "gamma", "beta"), sums, strict=True):
        if name in grads:
            grads[name].copy_(total)
    return results


def _norm_kernels(x: Tensor, dropout: float) -> ModuleType:
    """The kernels need whole groups of eight elements where they draw a mask."""
    fits = x.size(-1) <= _MAX_COLUMNS and (dropout == 0 or x.size(-1) % 8 == 0)
    return implementation(x, "norm_kernels") if fits else explicit


def _norm_options(kind: str, eps: float, dropout: float, seed: int, stream: int) -> dict[str, object]:
    threshold = threshold_of(dropout)
    scale = 65536 / (65536 - threshold)
    return dict(is_layer=kind == "layer", eps=eps, threshold=threshold, scale=scale, seed=seed, stream=stream)


def _ready(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.contiguous()


def _ready_rows(x: Tensor | None) -> Tensor | None:
    """``[N, C]`` with contiguous rows."""
    if x is None:
        return None
    rows = _rows(x)
    return rows if rows.stride(1) == 1 else rows.contiguous()
