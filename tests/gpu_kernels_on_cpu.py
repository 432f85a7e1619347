"""A plugin of pytest: the operators compute CPU tensors by the functions for GPUs, so that the tests of the operators
reach those through the dispatcher, with autograd and torch.compile (tests/gpu/test_dispatch.py)."""

import os

os.environ["TRITON_INTERPRET"] = "1"

from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu import library

_OPERATORS = [operator for operator in library.MODULES if "attention" not in operator]
library.compute_by_kernels("CPU", _OPERATORS, allow_override=True)
