"""The functions for GPUs behind the dispatcher, by the operators' own tests on CPU tensors: their results agree with
the schema and with the shapes under torch.compile, and autograd reaches them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["test_rope_gradients.py", "test_rotate.py", "test_dropout.py", "test_rows.py"]
SELECTION = "(contract and not (dtype1 or dtype2 or dtype3)) or compiled_in_place"  # one dtype, to save time


def test_operators():
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    plugins = ["-p", "no:cacheprovider", "-p", "gpu_kernels_on_cpu"]
    files = [f"tests/ops/{name}" for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-k", SELECTION, *files]
    environment = dict(os.environ, PYTHONPATH=path)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
