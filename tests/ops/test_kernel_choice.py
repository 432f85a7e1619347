"""RF_KERNEL, the environment's choice of kernels, in a process of its own each time: it is read once."""

import os
import subprocess
import sys
from pathlib import Path

import roformer_cpp

PYTHON_DIR = Path(roformer_cpp.__file__).parents[1]


def run(kernel, code):
    environment = {**os.environ, "PYTHONPATH": str(PYTHON_DIR), "RF_KERNEL": kernel}
    command = [sys.executable, "-c", f"import torch, roformer_cpp\n{code}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_reference_loops():
    result = run("ref", "print(roformer_cpp.target())")
    assert result.stdout.strip() == "ref", result.stderr


LOOPS = """
torch.manual_seed(0)
x = torch.randn(1, 9, 2, 4)
for attend in (roformer_cpp.attention, roformer_cpp.linear_attention):
    print(torch.equal(attend(x, x, x), attend(x, x, x, kernel="ref")))
    print(torch.equal(attend(x, x, x), attend(x, x, x, kernel="explicit")))
"""


def test_attention_goes_to_the_loops():
    result = run("ref", LOOPS)
    assert result.stdout.split() == ["True", "False"] * 2, result.stdout + result.stderr


EVERY_USE = """
for call in (
    roformer_cpp.target,
    lambda: roformer_cpp.set_target(""),
    lambda: roformer_cpp.rope(torch.ones(1, 1, 2), torch.arange(1), layout="pairs"),
    lambda: torch.ops.roformer.dropout(torch.ones(1), 0.5, 1, 2),
    lambda: roformer_cpp.attention(*[torch.ones(1, 1, 1, 2)] * 3),
    lambda: roformer_cpp.linear_attention(*[torch.ones(1, 1, 1, 2)] * 3),
):
    try:
        call()
    except ValueError as error:
        print(error)
"""


def test_an_unknown_choice_is_refused_by_every_use():
    result = run("reference", EVERY_USE)
    message = "[target] RF_KERNEL must be ref, empty or not set, got reference"
    assert result.stdout.splitlines() == [message] * EVERY_USE.count("roformer"), result.stdout + result.stderr
