"""Runs a script that compiles kernels (kernel_compiler.py) in a process without Triton's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def compiled_by(script, cache, *arguments):
    """The JSON that the script prints. cache: the folder of Triton's cache."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = [str(TESTS.parent / "python"), str(TESTS), environment.get("PYTHONPATH", "")]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", script, *arguments]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)
