"""The values of the kernels in the interpreter of Triton 3.6, the version of PyTorch 2.11."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRITON = ROOT / "build" / "triton-3.6"


@pytest.mark.skipif(not TRITON.exists(), reason=f"{TRITON} is missing. Hint: scripts/setup.sh --tests")
def test_values():
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(TRITON), str(ROOT / "python")]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k"]
    command += ["(test_values and not explicit and not gradients) or (gradients and (plain or Q or window))"]
    command += ["--deselect", f"{Path(__file__).relative_to(ROOT)}::test_values", "tests/gpu"]
    version = "import triton, numpy; assert triton.__version__ == '3.6.0' and numpy.__version__ < '2.4'"
    subprocess.run([sys.executable, "-c", version], env=environment, check=True)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
