"""What the program and the package ask of OpenMP: how idle threads wait, and a warning where torch's results are wrong.
libgomp says what it was told when OMP_DISPLAY_ENV is set."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from cli_support import PROGRAM, ROOT, needs_program

IMPORT = "import roformer_cpp"
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "OMP_NUM_THREADS")
PROGRAM_INFO, PACKAGE = [PROGRAM, "info"], [sys.executable, "-c", IMPORT]


def started(command, **settings):
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment |= {"PYTHONPATH": str(ROOT / "python"), "OMP_DISPLAY_ENV": "verbose", **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)


def spin_count(command, **settings):
    (count,) = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", started(command, **settings).stderr)
    return int(count)


@pytest.fixture(scope="module")
def libgomps_own():
    return spin_count([sys.executable, "-c", "import torch"])


def test_idle_threads_spin_for_a_bounded_while(libgomps_own):
    assert 0 < spin_count(PROGRAM_INFO) == spin_count(PACKAGE) < libgomps_own


@pytest.mark.parametrize("command", [PROGRAM_INFO, PACKAGE], ids=["program", "package"])
def test_the_users_choice_stays(command, libgomps_own):
    assert spin_count(command, GOMP_SPINCOUNT="77") == 77
    assert spin_count(command, OMP_WAIT_POLICY="passive") == 0
    assert spin_count(command, OMP_WAIT_POLICY="active") > libgomps_own


def test_the_package_leaves_the_environment_as_it_was():
    unchanged = f"import os; before = dict(os.environ); {IMPORT}; assert dict(os.environ) == before"
    started([sys.executable, "-c", unchanged])


def test_a_torch_that_is_there_already_keeps_its_way(libgomps_own):
    assert spin_count([sys.executable, "-c", f"import torch; {IMPORT}"]) == libgomps_own


def test_threads_that_may_not_come_are_warned_of():
    for command, settings, got in (
        (PROGRAM_INFO, {"OMP_DYNAMIC": "true", "OMP_NUM_THREADS": "2"}, "OMP_DYNAMIC=true"),
        ([*PROGRAM_INFO, "--threads", "2"], {"OMP_DYNAMIC": "true"}, "OMP_DYNAMIC=true"),
        (PROGRAM_INFO, {"OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "2"}, "OMP_THREAD_LIMIT=1 for 2 threads"),
        (PACKAGE, {"OMP_DYNAMIC": "true", "OMP_NUM_THREADS": "2"}, "OMP_DYNAMIC=true"),
        (PROGRAM_INFO, {}, None),
        (PROGRAM_INFO, {"OMP_DYNAMIC": "true", "OMP_NUM_THREADS": "1"}, None),
        ([*PROGRAM_INFO, "--threads", "1"], {"OMP_DYNAMIC": "true"}, None),
        (PACKAGE, {"OMP_THREAD_LIMIT": "2", "OMP_NUM_THREADS": "2"}, None),
    ):
        said, is_warned = started(command, **settings).stderr, got is not None
        assert ("[openmp]" in said) == is_warned
        assert said.count(f"torch's products of bfloat16 are wrong, got {got}") == is_warned


def test_a_program_without_its_commands_says_what_is_missing(tmp_path):
    needs_program()
    alone = tmp_path / "roformer"
    shutil.copy2(PROGRAM, alone)
    done = subprocess.run([alone, "info"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr.startswith("[program] libroformer_cli.so must be in lib/ beside the program, got: ")


def test_threads_of_a_container():
    """Files of a cgroup with half a CPU, seen by the program alone."""
    files = 'mount -t tmpfs none /sys/fs/cgroup && echo 50000 100000 >/sys/fs/cgroup/cpu.max && exec "$@"'
    container = ["unshare", "--mount", "--map-root-user", "sh", "-c", files, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        pytest.skip("NOT TESTED: this user may not mount a file system of its own")

    def threads(*options, **settings):
        return json.loads(started([*container, *PROGRAM_INFO, *options], **settings).stdout)["threads"]["used"]

    assert threads() == 1
    assert threads("--threads", "3") == 3
    assert threads(OMP_NUM_THREADS="2") == min(2, os.cpu_count())  # torch allows no more than there are
