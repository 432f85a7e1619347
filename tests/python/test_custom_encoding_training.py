"""Commands that train, in Python, with encodings written there. The oracle: alibi of C++, written again in Python."""

import json

import pytest

import tolerances as tol
from cli_support import MODEL, pretrain, results, run_file
from roformer_cpp import distributed
from training_case import printed

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


def result(command, folder, *arguments):
    return json.loads(printed("-m", f"roformer_cpp.{command}", *arguments, cwd=folder).splitlines()[-1])


def test_pretrain_and_evaluate(folder):
    """The program trains with the encodings that it has."""
    # So that the model attends to some tokens more than to others.
    longer = dict(stages=[dict(max_length=16, batch=4, steps=40)], checkpoint_every_steps=40)
    longer |= dict(schedule=dict(kind="linear", learning_rate=0.05, warmup_steps=2))
    losses, common = {}, ["--import", "my_encodings", "--data", "data"]
    for encoding in ("none", "alibi", "plain-alibi"):
        config = run_file(folder / "run.json", model=MODEL | {"position_encoding": encoding}, **longer)
        if encoding == "plain-alibi":
            trained = result("pretrain", folder, *common, "--output", encoding, "--config", config)
        else:
            (trained,) = results(*pretrain(folder, config, folder / encoding))
        losses[encoding] = trained["evaluation"]["loss"]
    assert losses["plain-alibi"] == pytest.approx(losses["alibi"], rel=tol.T4_MAX)
    assert losses["plain-alibi"] != pytest.approx(losses["none"], rel=tol.T4_MAX)
    (theirs,) = results("evaluate", "--data", folder / "data", "--model", folder / "alibi")
    ours = result("evaluate", folder, *common, "--model", "plain-alibi")
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=tol.T4_MAX)


def test_compare(folder):
    config = run_file(folder / "run.json")
    result("compare", folder, "--import=my_encodings", "--encodings", "plain-alibi", "--data", "data",
           "--output", "table", "--config", config, "--seeds", 1)  # fmt: skip
    assert "plain-alibi" in (folder / "table" / "table.md").read_text()


def test_what_the_launcher_says(tmp_path, monkeypatch, capsys):
    """Before it calls the program; of several processes the first one says it."""
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    for arguments, said in (
        (["--import", "nothing"], "got nothing (ModuleNotFoundError: No module named 'nothing')"),
        (["--import", "broken"], "got broken (ZeroDivisionError: division by zero)"),
    ):
        assert distributed.main("pretrain", arguments) == 2
        assert capsys.readouterr().err == f"[usage] --import must be a module that can be loaded, {said}\n"
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        for value in ("-1", "soon"):
            assert distributed.main("pretrain", ["--timeout", value]) == 2
            said = f"[usage] --timeout must be a number of seconds above 0, got {value}\n"
            assert capsys.readouterr().err == (said if rank == "0" else "")
    monkeypatch.setenv("RANK", "0")
    assert distributed.main("compare", ["--encodings", "none"]) == 2
    assert capsys.readouterr().err == "[distributed] compare must be run by one process, got rank 0\n"
    monkeypatch.setattr(distributed, "_run", lambda arguments, group: print(arguments) or 0)
    for command in ("pretrain", "compare"):
        assert distributed.main(command, ["--help"]) == 0
        text = capsys.readouterr().out
        assert "--import MODULE" in text and text.endswith(f"['{command}', '--help']\n")
        assert ("torchrun" in text) == ("--backend" in text) == (command == "pretrain")
