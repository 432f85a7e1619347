"""A plugin of pytest: the operators compute CPU tensors by the functions for GPUs, so that the tests of the operators
reach those through the dispatcher, with autograd and torch.compile (tests/gpu/test_dispatch.py)."""

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu import library

_LIBRARY = torch.library.Library("roformer", "IMPL")
for _operator, _module in library.MODULES.items():
    if "attention" not in _operator:
        _LIBRARY.impl(_operator, library._deferred(_module, _operator), "CPU", allow_override=True)
