"""Registers the operators for PyTorch's CUDA key, which ROCm uses too, and says which devices can run them.

Registration imports neither Triton nor the modules of the kernels; the first call of an operator does.
"""

import functools
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec

import torch

_LEAST_CAPABILITY = (8, 0)

# The module of each operator's function, which has the operator's name.
MODULES = {
    operator: module
    for module, operators in {
        "rope": "rope rope_ rotate",
        "rope_table": "rope_table",
        "dropout": "dropout",
        "rows": "linear linear_backward gelu gelu_backward norm norm_backward",
        "attention_forward": "attention_kernel",
        "attention_backward": "attention_kernel_backward",
        "linear_attention": "linear_attention_kernel linear_attention_kernel_backward",
    }.items()
    for operator in operators.split()
}


@functools.cache
def _library(kind: str) -> torch.library.Library:
    return torch.library.Library("roformer", kind)


def register() -> None:
    """Registers every operator of ``MODULES``, and the answers that C++ asks for (rf/ops/kernels.h); call it once,
    after the operators' library was loaded."""
    _library("FRAGMENT").define("gpu_missing(Device device) -> str?")
    _library("FRAGMENT").impl("gpu_missing", lambda device: missing(device), "CompositeImplicitAutograd")
    compute_by_kernels("CUDA", MODULES)
    _library("IMPL").impl("linear", _deferred("rows", "linear_autocast"), "AutocastCUDA")


def compute_by_kernels(key: str, operators: Iterable[str], **options: bool) -> None:
    """Registers the functions of operators for a dispatch key; options: passed to ``torch.library.Library.impl``."""
    for operator in operators:
        _library("IMPL").impl(operator, _deferred(MODULES[operator], operator), key, **options)


def _deferred(module: str, name: str) -> Callable:
    def call(*args: object, **kwargs: object) -> object:
        return getattr(import_module(f".{module}", __package__), name)(*args, **kwargs)

    return call


@functools.cache
def missing(device: torch.device) -> str | None:
    """A requirement that ``device`` does not meet, as the end of a sentence "the kernel needs .."; None if the
    kernels run on it.

    With TRITON_INTERPRET=1 they run on CPU tensors, for tests. CUDA is initialised only if ``device`` is a CUDA device.
    """
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"a CUDA device, got {device}"
    if find_spec("triton") is None:
        return "the package triton, which is not installed"
    if device.type == "cuda" and torch.version.hip is None:
        capability = torch.cuda.get_device_capability(device)
        if capability < _LEAST_CAPABILITY:
            name, got = torch.cuda.get_device_name(device), ".".join(map(str, capability))
            return f"a GPU of compute capability 8.0 or newer, got {got} ({name})"
    return None
