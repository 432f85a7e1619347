"""Training from Python: bad input, and programs that fail."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cli_support import PROGRAM, needs_program
from roformer_cpp import _library, prepare, pretrain, vocab
from training_case import RUN


@pytest.mark.parametrize(
    ("run", "options", "kind", "message"),
    [
        ({**RUN, "stagse": 1}, {}, ValueError, r"^\[run file\] .*stagse"),
        ({**RUN, "seed": float("nan")}, {}, ValueError, r"^\[run file\] options must be finite numbers"),
        ("nothing.json", {}, FileNotFoundError, r"^\[nothing.json\] cannot open: No such file"),
        (None, {}, ValueError, r"^\[pretrain\] a run file must be given unless"),
        (3, {}, TypeError, r"^\[pretrain\] the run must be a path, got int"),
        (RUN, {"threads": 0}, ValueError, r"--threads must be .* from 1 to 1024 in decimal digits, got \"0\""),
        (RUN, {"seed": [object()]}, TypeError, r"^\[pretrain\] seed must be a number, .*, got object"),
        (RUN, {"threads": np.ones(3)}, TypeError, r"^\[pretrain\] threads must be a number, .*, got ndarray"),
        (RUN, {"verbose": 1}, TypeError, r"^\[pretrain\] verbose must be True or False, got 1"),
        (RUN, {"callback": "print"}, TypeError, r"^\[pretrain\] callback must be a function .*, got str"),
        (RUN, {"callback": [print, 3]}, TypeError, r"^\[pretrain\] callback must be a function .*, got int"),
        (RUN, {"data": "nothing"}, FileNotFoundError, r"^\[pretrain\] the data directory must exist, got nothing"),
        (RUN, {"data": None}, TypeError, r"^\[pretrain\] the data directory must be a path, got NoneType"),
        (RUN, {"output": ""}, ValueError, r"^\[pretrain\] output must not be empty, got ''"),
    ],
)
def test_bad_arguments(data, tmp_path, monkeypatch, run, options, kind, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message) as error:
        pretrain(run, **{"data": data, "output": "run", **options})
    assert error.type is kind
    assert not list(tmp_path.rglob("*.safetensors"))


def test_output_that_is_taken(data, trained, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"^\[train\] the output directory must be empty, got .*notes.txt"):
        pretrain(RUN, data, tmp_path)
    with pytest.raises(ValueError, match=r"^\[resume\] the run file must be the run's own, got 2 at /seed"):
        pretrain({**RUN, "seed": 2}, data, trained[0], resume=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_loss_that_is_not_finite(data, tmp_path):
    run = {**RUN, "schedule": dict(kind="constant", learning_rate=1e30, warmup_steps=0), "clip_norm": 0}
    seen = []
    with pytest.raises(ValueError, match=r"must be finite, got .* at step \d+"):
        pretrain({**run, "log_every_steps": 1}, data, tmp_path / "run", callback=seen.append)
    assert [line["step"] for line in seen] == list(range(1, len(seen) + 1)) and seen


def fake_program(folder, text, monkeypatch):
    path = folder / "roformer"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    (folder / "lib").mkdir()
    monkeypatch.setenv("ROFORMER_LIB_DIR", str(folder / "lib"))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("kill -9 $$", RuntimeError, r"^\[pretrain\] the program must end by itself, got signal 9 \(SIGKILL\)"),
        ("echo 'internal error: what' >&2; exit 3", RuntimeError, "^internal error: what$"),
        ("echo note >&2; echo '[memory] too much' >&2; exit 1", MemoryError, r"^\[memory\] too much$"),
        ("echo '[a/b] a rule' >&2; echo 'goes on' >&2; exit 1", RuntimeError, r"^\[a/b\] a rule\ngoes on$"),
        ("printf '[program] no newline' >&2; exit 3", ImportError, r"^\[program\] no newline$"),
    ],
)
def test_ends_of_the_program(data, tmp_path, monkeypatch, text, kind, message):
    fake_program(tmp_path, text, monkeypatch)
    with pytest.raises(kind, match=message):
        pretrain(RUN, data, tmp_path / "run")


def test_a_signal_of_others_that_stops_a_run_is_no_error(data, tmp_path, monkeypatch):
    fake_program(tmp_path, """echo '{"steps": 4, "interrupted_by_signal": 15}'; exit 143""", monkeypatch)
    result = pretrain(RUN, data, tmp_path / "run")
    assert not result.is_finished and result.steps == 4


def test_without_the_program_or_its_library(data, tmp_path, monkeypatch):
    needs_program()
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv("ROFORMER_LIB_DIR", str(tmp_path / "lib"))
    with pytest.raises(ImportError, match=r"^\[roformer_cpp\] the program roformer must be built, got none in .*Hint"):
        pretrain(RUN, data, tmp_path / "run")
    shutil.copy2(PROGRAM, tmp_path / "roformer")
    shutil.copy2(PROGRAM.parent / "lib" / "libroformer_cli.so", tmp_path / "lib")
    with pytest.raises(ImportError, match=r"^\[program\] pretrain needs libroformer_training.so beside .*PyTorch"):
        pretrain(RUN, data, tmp_path / "run")


def test_the_program_of_a_wheel_finds_torch_elsewhere(tmp_path, monkeypatch):
    package, known = tmp_path / "site" / "roformer_cpp", str(tmp_path / "known")
    program = str(package / "bin" / "roformer")
    package.mkdir(parents=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", known)
    assert _library.program_environment(program) == {"ROFORMER_PYTHON": sys.executable, **os.environ}  # of a build
    monkeypatch.setattr(_library, "__file__", str(package / "_library.py"))
    torch = Path(find_spec("torch").origin).parent
    assert _library.program_environment(program)["LD_LIBRARY_PATH"] == f"{torch / 'lib'}:{known}"
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert _library.program_environment(program)["LD_LIBRARY_PATH"] == str(torch / "lib")
    (package.parent / "torch").mkdir()
    assert _library.program_environment(program) == {"ROFORMER_PYTHON": sys.executable, **os.environ}


def test_bad_arguments_of_preparation(prepared, tmp_path):
    for options in (dict(input=None), dict(input=prepared / "corpus", bytes=True)):
        with pytest.raises(ValueError, match=r"^\[vocab\] the input must be given unless bytes is True"):
            vocab(output=tmp_path / "vocab.txt", **options)
    with pytest.raises(FileNotFoundError, match=r"nothing.txt must exist"):
        prepare(["nothing.txt"], prepared / "vocabulary", tmp_path / "data")
    with pytest.raises(FileNotFoundError, match=r"^\[model\] a model must be a .*, got .*, which does not exist"):
        prepare(prepared / "corpus", tmp_path / "nothing", tmp_path / "data")
    with pytest.raises(ValueError, match=r"documents"):
        prepare(prepared / "corpus", prepared / "vocabulary", tmp_path / "data", documents="page")
