"""What every launch of a kernel needs: argument checks, memory for the results, and the device."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)


def checked_results(operator: str, *args: Any, **kwargs: Any) -> Any:
    """Checks the arguments of ``roformer::<operator>`` and allocates its results, uninitialised.

    The operator's Meta kernel does both. Given tensors that have memory, it allocates on their device.

    Raises:
        ValueError: ``[operator] rule, got value``, as on the CPU.
    """
    return getattr(torch.ops.roformer, operator).default.redispatch(_META, *args, **kwargs)


def on_device(x: Tensor) -> AbstractContextManager:
    """Makes the device of ``x`` the current one, on which Triton launches."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
