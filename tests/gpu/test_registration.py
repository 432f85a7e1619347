"""The operators of the CUDA key: all are registered, without CUDA and without Triton, and each has its function."""

import functools
import inspect
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode

from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu import launch, library
from roformer_cpp.gpu.rope import rotate

ops = torch.ops.roformer


def test_every_operator_with_tensors_is_registered():
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("roformer::")]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert {name for name in names if has_kernel(name, "CPU")} == {f"roformer::{name}" for name in library.MODULES}
    assert all(has_kernel(f"roformer::{name}", "CUDA") for name in library.MODULES)
    assert has_kernel("roformer::linear", "AutocastCUDA")


@pytest.mark.parametrize(("operator", "module"), library.MODULES.items())
def test_every_operator_has_a_function_of_its_schema(operator, module):
    """The dispatcher gives keyword arguments by name, and leaves out those that have the schema's defaults."""
    signature = inspect.signature(getattr(import_module(f"roformer_cpp.gpu.{module}"), operator))
    arguments = getattr(ops, operator).default._schema.arguments
    for given in (arguments, [each for each in arguments if not each.has_default_value()]):
        by_name = {each.name: each.name for each in given if each.kwarg_only}
        bound = signature.bind(*(each.name for each in given if not each.kwarg_only), **by_name).arguments
        assert all(bound[name] == name for name in bound if name not in ("args", "kwargs", "options"))


def test_import_loads_neither_triton_nor_cuda():
    code = (
        "import sys, torch, roformer_cpp; roformer_cpp.rope;"
        "assert not torch.cuda.is_initialized(); assert 'triton' not in sys.modules;"
        "assert [n for n in sys.modules if n.startswith('roformer_cpp.gpu')] == "
        "['roformer_cpp.gpu', 'roformer_cpp.gpu.library']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(library.__file__).parents[2])


def test_shapes_under_fake_tensors():
    with FakeTensorMode():
        x, rows = (torch.empty(shape, device="cuda", dtype=torch.float32) for shape in ((2, 5, 3, 8), (1, 5, 4)))
        positions = torch.arange(5, device="cuda")
        results = [ops.rotate(x, rows, rows, "pairs"), ops.rope(x, positions, layout="halves"), ops.gelu(x)]
        results += [ops.dropout(x, 0.3, 1, 2), ops.norm(x, None, None, None, None)]
        table = ops.rope_table(positions, torch.empty(4, device="cuda", dtype=torch.float64))
    assert all(y.shape == (2, 5, 3, 8) and y.device.type == "cuda" for y in results)
    assert all(y.shape == (5, 4) and y.device.type == "cuda" for y in table)


def test_what_a_device_lacks(monkeypatch):
    missing = library.missing.__wrapped__
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 1)
    assert missing(cpu) is None  # in the interpreter
    monkeypatch.delenv("TRITON_INTERPRET")
    assert missing(cpu) == "a CUDA device, got cpu"
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    assert missing(cuda) == "the package triton, which is not installed"
    monkeypatch.setattr(library, "find_spec", find_spec)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert missing(cuda) == "a GPU of compute capability 8.0 or newer, got 7.5 (Tesla T4)"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert missing(cuda) is None


def test_a_device_without_support_gets_one_warning(monkeypatch):
    monkeypatch.setattr(library, "missing", lambda device: "a better GPU")
    monkeypatch.setattr(launch, "_runs_kernels", functools.cache(launch._runs_kernels.__wrapped__))
    x, rows = torch.ones(1, 1, 1, 2), torch.zeros(1, 1, 1)
    with pytest.warns(RuntimeWarning, match=r"\[roformer_cpp\] the kernels for GPUs need a better GPU; ") as warnings:
        assert not rotate(x, rows, rows, "pairs").any() and not rotate(x, rows, rows, "pairs").any()
    assert len(warnings) == 1
