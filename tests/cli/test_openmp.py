"""The program and the package warn where OpenMP's settings make torch's results wrong."""

import os
import subprocess
import sys

import pytest

from cli_support import PROGRAM, ROOT

IMPORT = "import roformer_cpp"
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "OMP_NUM_THREADS")
PROGRAM_INFO = [PROGRAM, "info"]
COMMANDS = pytest.mark.parametrize(
    "command", [PROGRAM_INFO, [sys.executable, "-c", IMPORT]], ids=["program", "package"]
)


def started(command, **settings):
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment |= {"PYTHONPATH": str(ROOT / "python"), "OMP_DISPLAY_ENV": "verbose", **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)


@COMMANDS
@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"OMP_DYNAMIC": "true", "OMP_NUM_THREADS": "2"}, "OMP_DYNAMIC=true"),
        ({"OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "2"}, "OMP_THREAD_LIMIT=1 for 2 threads"),
    ],
    ids=["dynamic", "limit"],
)
def test_threads_that_may_not_come_are_warned_of(command, settings, got):
    warned = started(command, **settings).stderr
    assert warned.count("torch's products of bfloat16 are wrong, got " + got) == 1


@COMMANDS
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"OMP_DYNAMIC": "true", "OMP_NUM_THREADS": "1"},
        {"OMP_THREAD_LIMIT": "2", "OMP_NUM_THREADS": "2"},
    ],
    ids=["nothing set", "one thread", "enough threads"],
)
def test_no_warning_where_every_thread_comes(command, settings):
    assert "[openmp]" not in started(command, **settings).stderr


def test_threads_on_the_command_line_count():
    settings = {"OMP_DYNAMIC": "true"}
    assert "[openmp]" not in started([*PROGRAM_INFO, "--threads", "1"], **settings).stderr
    assert "[openmp]" in started([*PROGRAM_INFO, "--threads", "2"], **settings).stderr
