"""Commands that train, in Python, with encodings written there. The oracle: alibi of C++, written again in Python."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tolerances as tol
from cli_support import run_file

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
import torch
import roformer_cpp

class PlainAlibi(roformer_cpp.CustomEncoding):
    def __init__(self, shape, longest=31):
        super().__init__()
        heads = shape.num_attention_heads
        slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1).double())
        self.rows, self.longest = -slopes[:, None] * torch.arange(-longest, longest + 1).abs(), longest

    def shared(self, positions, key_positions, dtype):
        return roformer_cpp.Terms(bias=roformer_cpp.DistanceTable(self.rows.to(dtype), -self.longest, self.longest))

roformer_cpp.register_encoding("plain-alibi", PlainAlibi)
"""


@pytest.fixture
def folder(prepared, tmp_path):
    (tmp_path / "my_encodings.py").write_text(MODULE)
    (tmp_path / "data").symlink_to(prepared / "data")
    return tmp_path


def launch(command, folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", f"roformer_cpp.{command}", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1") | environment,
        timeout=600,
    )


def result(command, folder, *arguments):
    done = launch(command, folder, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pretrain_and_evaluate(folder):
    model = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
    # So that the model attends to some tokens more than to others.
    longer = dict(
        stages=[dict(max_length=16, batch=4, steps=40)],
        schedule=dict(kind="linear", learning_rate=0.05, warmup_steps=2),
        checkpoint_every_steps=40,
    )
    losses = {}
    for encoding in ("none", "alibi", "plain-alibi"):
        config = run_file(folder / "run.json", model=model | {"position_encoding": encoding}, **longer)
        common = ["--import", "my_encodings", "--data", "data"]
        trained = result("pretrain", folder, *common, "--output", encoding, "--config", config)
        report = result("evaluate", folder, *common, "--model", encoding)
        losses[encoding] = trained["evaluation"]["loss"], report["loss"]
    assert losses["plain-alibi"] == pytest.approx(losses["alibi"], rel=tol.T4_MAX)
    assert losses["plain-alibi"] != pytest.approx(losses["none"], rel=tol.T4_MAX)


def test_compare(folder):
    config = run_file(folder / "run.json")
    result("compare", folder, "--import=my_encodings", "--encodings", "none,plain-alibi", "--data", "data",
           "--output", "table", "--config", config, "--seeds", 1)  # fmt: skip
    assert "plain-alibi" in (folder / "table" / "table.md").read_text()


def test_bad_input(folder):
    common = ["--data", "data", "--output", "run", "--config", run_file(folder / "run.json")]
    done = launch("pretrain", folder, "--import", "nothing", *common)
    assert done.returncode == 2
    rule = "[usage] --import must be a module that can be loaded, got nothing"
    assert done.stderr.splitlines()[-1] == f"{rule} (ModuleNotFoundError: No module named 'nothing')"
    (folder / "broken.py").write_text("1 / 0")
    done = launch("pretrain", folder, "--import", "broken", *common)
    assert "got broken (ZeroDivisionError: division by zero)" in done.stderr and "Traceback" not in done.stderr
    done = launch("compare", folder, "--encodings", "plain-alibi", "--data", "data", "--output", "table")
    assert done.returncode == 1 and 'must be a known encoding, got "plain-alibi"' in done.stderr
    done = launch("compare", folder, "--encodings", "none", "--data", "data", "--output", "table", RANK="0")
    assert done.returncode == 2 and done.stderr == "[distributed] compare must be run by one process, got rank 0\n"
    help_text = launch("compare", folder, "--help").stdout
    assert "--import MODULE" in help_text and "torchrun" not in help_text
