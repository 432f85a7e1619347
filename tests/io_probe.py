"""Runs io_probe, which shows what the C++ rooms io and model make of a file (tests/io/io_probe.cpp)."""

import json
import subprocess

from cli_support import PROGRAM

PROBE = PROGRAM.parent / "tests" / "io_probe"


class ProbeError(Exception):
    """The message of an rf::Error."""


def io_probe(*arguments):
    """The JSON that a command prints; ProbeError when it refuses its input."""
    done = subprocess.run([PROBE, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 1:
        raise ProbeError(done.stderr.strip())
    assert done.returncode == 0, f"io_probe {arguments}: exit code {done.returncode}\n{done.stderr}"
    return json.loads(done.stdout)
