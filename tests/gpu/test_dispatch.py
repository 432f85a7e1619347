"""The kernels in processes of their own: behind the dispatcher, by the operators' own tests on CPU tensors (results
agree with the schema and with the shapes under torch.compile, and autograd reaches them); and by an older Triton."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRITON = ROOT / "build" / "triton-3.6"
OPERATORS = [f"tests/ops/test_{name}.py" for name in ("rope_gradients", "rotate", "dropout", "rows")]


def run(*arguments, paths):
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    environment, command = dict(os.environ, PYTHONPATH=path), [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr


def test_operators():
    selection = "(contract and not (dtype1 or dtype2 or dtype3 or False)) or compiled_in_place"  # to save time
    plugins = ["-p", "no:cacheprovider", "-p", "gpu_kernels_on_cpu"]
    run("-m", "pytest", "-q", *plugins, "-k", selection, *OPERATORS, paths=[ROOT / "python", ROOT / "tests"])


@pytest.mark.skipif(not TRITON.exists(), reason=f"{TRITON} is missing. Hint: scripts/setup.sh --tests")
def test_oldest_triton():
    """Triton 3.6, the version of PyTorch 2.11: values, and some gradients of attention."""
    selection = "test_values and not (explicit or gradients or inverse or transpose)"
    selection += " or gradients and (plain or Q or left)"
    options = ["-q", "-p", "no:cacheprovider", "-k", selection, "tests/gpu"]
    versions = "triton.__version__ == '3.6.0' and numpy.__version__ < '2.4'"
    code = f"import numpy, pytest, triton; assert {versions}; raise SystemExit(pytest.main({options}))"
    run("-c", code, paths=[TRITON, ROOT / "python"])
