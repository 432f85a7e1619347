"""Importing roformer_cpp: where the libraries are looked for, and what a missing one says."""

import os
import subprocess
import sys
from pathlib import Path

import roformer_cpp

PYTHON_DIR = Path(roformer_cpp.__file__).parents[1]


def import_with(folder):
    environment = {**os.environ, "ROFORMER_LIB_DIR": str(folder), "PYTHONPATH": str(PYTHON_DIR)}
    command = [sys.executable, "-c", "import roformer_cpp"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_missing_library_says_how_to_build(tmp_path):
    result = import_with(tmp_path)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: [roformer_cpp] libroformer_ops.so must be built")
    assert f"got none in {tmp_path}" in last and "cmake --preset release" in last and "ROFORMER_LIB_DIR" in last


def test_a_damaged_library_is_named(tmp_path):
    (tmp_path / "libroformer_ops.so").write_bytes(b"not a library")
    result = import_with(tmp_path)
    assert result.returncode == 1
    assert f"ImportError: [roformer_cpp] {tmp_path / 'libroformer_ops.so'} must be built against" in result.stderr


def test_target_names_an_instruction_set():
    assert roformer_cpp.target()
