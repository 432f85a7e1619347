"""Shared by all operators: argument checks, memory for the results, the choice of the kernels, and the device."""

import functools
import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from . import library

_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)


def checked_results(operator: str, *args: Any, **kwargs: Any) -> Any:
    """Checks the arguments of ``roformer::<operator>`` and allocates its results, uninitialised.

    The operator's Meta kernel does both. Given tensors that have memory, it allocates on their device.

    Raises:
        ValueError: ``[operator] rule, got value``, as on the CPU.
    """
    return getattr(torch.ops.roformer, operator).default.redispatch(_META, *args, **kwargs)


def implementation(x: Tensor, kernels: str) -> ModuleType:
    """The module ``kernels``, or ``explicit``, which has the same functions, where kernels do not run on the device."""
    return import_module(f".{kernels if _runs_kernels(x.device) else 'explicit'}", __package__)


@functools.cache
def _runs_kernels(device: torch.device) -> bool:
    missing = library.missing(device)
    if missing is not None:
        warnings.warn(
            f"[roformer_cpp] the kernels for GPUs need {missing}; PyTorch's operations compute instead, more slowly",
            RuntimeWarning,
            stacklevel=3,
        )
    return missing is None


def on_device(x: Tensor) -> AbstractContextManager:
    """Makes the device of ``x`` the current one, on which Triton launches."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
