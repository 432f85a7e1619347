"""One call of attention from a patched model, and the warning where transformers computes it."""

import warnings
from functools import cache

import torch
from torch import Tensor

from ..attention import attention
from ..gpu import library
from .masks import MaskForm

# Tiles of the kernel have many queries: for fewer than these, as in a step of generation, torch's attention is faster.
MIN_QUERIES = 16


def missing(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> str | None:
    """The reason why `attend` cannot compute a call, ``[B, T, H, D]``; None: it computes the call."""
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        return "queries, keys and values of other than four dimensions"
    if q.device.type != "cpu" and (lack := library.missing(q.device)):
        return f"tensors on {q.device.type}, because the kernel needs {lack}"
    if not k.device == v.device == q.device:
        return f"queries on {q.device} and keys on {k.device}"
    if not torch.is_autocast_enabled(q.device.type) and not q.dtype == k.dtype == v.dtype:
        return "queries, keys and values of different dtypes"
    if k.shape[0] != q.shape[0] or k.shape[:3] != v.shape[:3] or k.shape[2] == 0 or q.shape[2] % k.shape[2] != 0:
        return "keys that are not shared by groups of queries"
    if dropout >= 1:
        return "dropout of all weights"
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, form: MaskForm, **options) -> Tensor:
    """Attention of ``[B, T, H, D]``, for a call that `missing` accepts; options: terms, scale and dropout."""
    return attention(q, k, v, mask=form.attend, window=form.window, **options)


@cache
def _say(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def say_once(module: torch.nn.Module, what: str) -> None:
    """Warns that transformers computes attention: once for each class and reason."""
    if not torch.compiler.is_compiling():
        _say(f"[patch] {_name(module)}: transformers computes {what}")


def _name(module: torch.nn.Module) -> str:
    """The name of its class in transformers."""
    return next(cls.__name__ for cls in type(module).__mro__ if not cls.__module__.startswith(__package__))
