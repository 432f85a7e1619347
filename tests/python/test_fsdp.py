"""examples/fsdp.py: parameters divided among two processes by FSDP2, against one process."""

import os
import re
import subprocess
import sys

import pytest

import tolerances as tol
from cli_support import ROOT
from job_case import free_port


def start(**environment):
    return subprocess.Popen(
        [sys.executable, ROOT / "examples" / "fsdp.py"],
        env=dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "python"), **environment),
        stdout=subprocess.PIPE,
        text=True,
    )


def losses(processes):
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return [float(number) for number in re.findall(r"loss ([\d.]+)", said[0])]


def test_two_processes_have_the_losses_of_one():
    address = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE="2")
    divided = losses([start(RANK=str(rank), **address) for rank in range(2)])
    alone = losses([start()])
    assert len(alone) == 20 and alone[-1] < 0.7 * alone[0]
    assert divided == pytest.approx(alone, rel=tol.FSDP_RTOL, abs=tol.FSDP_ATOL)
