"""Compiles the kernels that calls launch, for GPUs that this machine need not have; nothing is launched.

    PYTHONPATH=python:tests/gpu python -c "
    from kernel_compiler import compiled
    for kernel in compiled(90, lambda: roformer_cpp.gpu.rope.rotate(x, cos, sin, 'pairs')): print(kernel)"

Tensors are on the CPU. It must run in a process without TRITON_INTERPRET.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.runtime.jit import JITFunction


class Kernel(NamedTuple):
    """What the compiler reports about a kernel."""

    name: str
    registers: int  # of a thread
    spilled_bytes: int  # of a thread
    shared_bytes: int
    warps: int
    asm: dict[str, str | bytes]


def compiled(arch: int | str, call: Callable[[], object]) -> list[Kernel]:
    """The kernels that ``call`` launches, compiled for a compute capability (80, 90) or an AMD architecture
    ("gfx942")."""
    target = GPUTarget("cuda", arch, 32) if isinstance(arch, int) else GPUTarget("hip", arch, 64)
    kernels = []

    def run(function: JITFunction, *args: object, grid: object, warmup: bool, **kwargs: object) -> None:
        function.device_caches.clear()  # they do not distinguish targets
        kernels.append(launch(function, *args, grid=grid, warmup=True, **kwargs))

    launch = JITFunction.run
    of = dict(get_current_device=lambda: 0, get_current_stream=lambda device: 0, get_current_target=lambda: target)
    triton.runtime.driver.set_active(SimpleNamespace(**of))
    with mock.patch.object(JITFunction, "run", run):
        call()
    return [_kernel(kernel, arch) for kernel in kernels]


def _kernel(kernel: triton.compiler.CompiledKernel, arch: int | str) -> Kernel:
    registers, spilled = _nvidia(kernel.asm["ptx"], arch) if isinstance(arch, int) else _amd(kernel.asm["amdgcn"])
    metadata = kernel.metadata
    return Kernel(metadata.name, registers, spilled, metadata.shared, metadata.num_warps, dict(kernel.asm))


def _nvidia(ptx: str, arch: int) -> tuple[int, int]:
    """Registers and spilled bytes of a thread."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        gpu = f"sm_{arch}" + "a" * (arch >= 90)
        command = [get_ptxas(arch).path, "-v", f"--gpu-name={gpu}", source, "-o", source.with_suffix(".cubin")]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return _number(r"Used (\d+) registers", report), _number(r"(\d+) bytes spill stores", report)


def _amd(assembly: str) -> tuple[int, int]:
    return _number(r"\.vgpr_count: +(\d+)", assembly), 4 * _number(r"\.vgpr_spill_count: +(\d+)", assembly)


def _number(pattern: str, text: str) -> int:
    return int(re.search(pattern, text).group(1))
