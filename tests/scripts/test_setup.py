"""What scripts/setup.sh leaves in the environment of a checkout."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_pip_knows_the_package():
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("another environment than that of setup.sh")
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "show", "roformer-cpp"], capture_output=True, text=True, check=True
    ).stdout
    assert f"Version: {metadata.version('roformer-cpp')}" in shown
    assert f"Editable project location: {ROOT}" in shown
