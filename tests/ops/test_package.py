"""What the environment chooses, in a process of its own each time: where the libraries are looked for (a missing one
says how to build), and the kernels (RF_KERNEL, which is read once)."""

import os
import subprocess
import sys
from pathlib import Path

import roformer_cpp

PYTHON_DIR = Path(roformer_cpp.__file__).parents[1]


def run(code="", **environment):
    environment = {**os.environ, "PYTHONPATH": str(PYTHON_DIR), **environment}
    command = [sys.executable, "-c", f"import torch, roformer_cpp\n{code}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_missing_library_says_how_to_build(tmp_path):
    last = run(ROFORMER_LIB_DIR=str(tmp_path)).stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: [roformer_cpp] libroformer_ops.so must be built")
    assert f"got none in {tmp_path}" in last and "cmake --preset release" in last and "ROFORMER_LIB_DIR" in last


def test_a_damaged_library_is_named(tmp_path):
    (tmp_path / "libroformer_ops.so").write_bytes(b"not a library")
    said = run(ROFORMER_LIB_DIR=str(tmp_path)).stderr
    assert f"ImportError: [roformer_cpp] {tmp_path / 'libroformer_ops.so'} must be built against" in said


LOOPS = """
assert roformer_cpp.target() == "ref"
x = torch.randn(1, 9, 2, 4)
for attend in (roformer_cpp.attention, roformer_cpp.linear_attention):
    print(torch.equal(attend(x, x, x), attend(x, x, x, kernel="ref")))
    print(torch.equal(attend(x, x, x), attend(x, x, x, kernel="explicit")))
"""


def test_the_reference_loops():
    result = run(LOOPS, RF_KERNEL="ref")
    assert result.stdout.split() == ["True", "False"] * 2, result.stdout + result.stderr


EVERY_USE = """
for call in (
    roformer_cpp.target,
    lambda: roformer_cpp.set_target(""),
    lambda: roformer_cpp.rope(torch.ones(1, 1, 2), torch.arange(1), layout="pairs"),
    lambda: torch.ops.roformer.dropout(torch.ones(1), 0.5, 1, 2),
    lambda: roformer_cpp.attention(*[torch.ones(1, 1, 1, 2)] * 3),
    lambda: roformer_cpp.linear_attention(*[torch.ones(1, 1, 1, 2)] * 3),
):
    try:
        call()
    except ValueError as error:
        print(error)
"""


def test_an_unknown_choice_is_refused_by_every_use():
    result = run(EVERY_USE, RF_KERNEL="reference")
    message = "[target] RF_KERNEL must be ref, empty or not set, got reference"
    assert result.stdout.splitlines() == [message] * EVERY_USE.count("roformer"), result.stdout + result.stderr
