"""`python -m pip install .` says in one sentence what to do instead."""

import subprocess
import sys

import pytest

from cli_support import ROOT


@pytest.mark.parametrize("what", [["."], ["--editable", "."]], ids=["install", "editable"])
def test_pip_install_refuses_with_a_sentence(what, tmp_path):
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", tmp_path / "site", *what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1 and not (tmp_path / "site").exists()
    assert done.stderr.count("[roformer_cpp] the package must be built by scripts/setup.sh, got pip") == 1
    assert "Traceback" not in done.stderr
