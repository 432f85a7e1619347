"""Pretraining from Python: the files and metrics of the command, which is tested in tests/cli; how a run is stopped;
bad input, and programs that fail."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import training_case as case
from cli_support import PROGRAM, lines_of, metrics, needs_program, run_file, untimed
from roformer_cpp import Pretraining, _child, _library, merge, prepare, pretrain, vocab


def test_pretraining_is_that_of_the_command(data, trained, tmp_path):
    output, seen = tmp_path / "run", []
    result = pretrain(case.RUN, data, output, callback=seen.append, threads=1)
    directory, printed = trained
    assert isinstance(result, Pretraining) and result.is_finished and result.directory == output
    assert case.same_model(output, directory) and result.steps == printed["steps"] == 6
    assert (output / "run.json").read_bytes() == (directory / "run.json").read_bytes()
    assert seen == result.metrics == lines_of(output / "metrics.jsonl")
    assert untimed(seen) == metrics(directory)
    assert [line["type"] for line in seen] == ["train", "train", "evaluation", "train", "evaluation", "length"]
    for name in ("train_loss", "evaluation"):
        assert result.summary[name] == printed[name]
    assert any("roformer_cpp.plot" in line for line in result.messages)


def test_a_profile(data, trained, tmp_path):
    config = run_file(tmp_path / "run.json", **case.RUN)
    result = pretrain(str(config), str(data), str(tmp_path / "run"), threads=1, seed=1, profile="3:4")
    assert case.same_model(result.directory, trained[0])
    names = {path.name for path in result.directory.glob("profile*")}
    assert names == {"profile-3-4.rank0.pt.trace.json", "profile-3-4.rank0.txt"}
    with pytest.raises(ValueError, match=r"^\[profile\] the steps must be one of the run's 6 .* got \"7\""):
        pretrain(case.RUN, data, tmp_path / "other", threads=1, profile="7")


STEPS = 1000  # a third of those of runs that never end
LONG = {**case.LONG, "stages": [dict(max_length=16, batch=4, steps=STEPS)], "checkpoint_every_steps": 900}


def test_a_callback_stops_a_run_which_then_continues(data, tmp_path):
    """The lines come while the run is at work, and the parts are those of a run that was never stopped."""
    output, whole = tmp_path / "run", pretrain(LONG, data, tmp_path / "whole", threads=1)
    first = pretrain(LONG, data, output, callback=lambda line: line["step"] < 5, threads=1)
    assert not first.is_finished and 5 <= first.steps < STEPS and not (output / "model.safetensors").exists()
    assert case.checkpoints(output) == [first.steps] == [first.metrics[-1]["step"]]
    assert first.summary["interrupted_by_signal"] == signal.SIGTERM
    seen = []
    second = pretrain(LONG, data, output, resume=True, callback=[seen.append, lambda line: None], threads=1)
    assert second.is_finished and second.steps == STEPS and seen == second.metrics
    assert seen[0]["step"] == first.steps + 1
    assert case.same_model(output, whole.directory)
    assert untimed(first.metrics + second.metrics) == untimed(whole.metrics)
    third = pretrain(None, data, output, resume=True, callback=seen.append, threads=1)
    assert third.is_finished and third.steps == STEPS and third.metrics == []


def test_lines_of_a_killed_run_are_not_given_again(data, tmp_path):
    """The program removes what a kill left after the newest checkpoint, and damaged lines."""
    output = tmp_path / "run"
    stopped = pretrain(case.LONG, data, output, callback=lambda line: line["step"] < 3, threads=1)
    with (output / "metrics.jsonl").open("a") as file:
        for step in (stopped.steps + 1, stopped.steps + 2):
            file.write(json.dumps(dict(type="train", step=step, loss=99.0)) + "\n")
        file.write('no object\n{"type": "tr')
    seen = []
    with pytest.warns(RuntimeWarning, match=r"\[pretrain\] .*metrics.jsonl has 1 damaged lines"):
        callback = [seen.append, lambda line: False]
        again = pretrain(None, data, output, resume=True, callback=callback, threads=1)
    assert seen[0]["step"] == stopped.steps + 1 and all(line["loss"] != 99.0 for line in seen)
    assert lines_of(output / "metrics.jsonl") == stopped.metrics + again.metrics


def test_an_exception_in_a_callback_stops_the_run(data, tmp_path):
    seen = []

    def fail(line):
        seen.append(line)
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        pretrain(case.LONG, data, tmp_path / "run", callback=fail, threads=1)
    assert len(seen) == 1 and len(case.checkpoints(tmp_path / "run")) == 1
    assert is_free(tmp_path / "run")


def running(data, output):
    """Python in the middle of a run."""
    code = "import roformer_cpp\nshow = lambda line: print(line['step'], flush=True)\n"
    code += f"roformer_cpp.pretrain({case.LONG!r}, {str(data)!r}, {str(output)!r}, callback=show, threads=1)\n"
    process = case.script(code, session=True)
    assert process.stdout.readline() == "1\n", case.ended(process)
    return process


def test_ctrl_c_stops_the_run_after_a_checkpoint(data, tmp_path):
    process = running(data, tmp_path / "run")
    (program,) = case.children(process)
    assert os.getpgid(program) != process.pid  # or two signals would reach it, of which the second ends it at once
    os.killpg(process.pid, signal.SIGINT)
    code, said = case.ended(process)
    assert code != 0 and said.strip().endswith("KeyboardInterrupt")
    (step,) = case.checkpoints(tmp_path / "run")
    assert lines_of(tmp_path / "run" / "metrics.jsonl")[-1]["step"] == step < case.STEPS


def is_free(run_dir):
    with (run_dir / ".lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_run_ends_with_its_python(data, tmp_path):
    process = running(data, tmp_path / "run")
    process.kill()
    case.ended(process)
    case.wait_until(lambda: is_free(tmp_path / "run"))
    assert len(case.checkpoints(tmp_path / "run")) == 1 and not (tmp_path / "run" / "model.safetensors").exists()


def test_a_program_whose_python_has_ended_does_not_start():
    for parent, code in ((os.getpid(), 0), (2**31 - 1, 128 + signal.SIGTERM)):
        environment = dict(os.environ, ROFORMER_PARENT=str(parent))
        done = subprocess.run([PROGRAM, "--version"], env=environment, capture_output=True, check=False)
        assert done.returncode == code and bool(done.stdout) == (code == 0)


def test_training_needs_no_torch_in_python(data, trained, tmp_path):
    needs_program()  # the script of a package asks Python where torch lies
    given = f"{case.RUN!r}, {str(data)!r}, {str(tmp_path / 'run')!r}, threads=1"
    code = f"import roformer_cpp\nresult = roformer_cpp.pretrain({given})\n"
    code += "assert result.is_finished and result.messages and 'numpy' not in sys.modules\n"
    assert case.ended(case.script(case.refuse_torch(code))) == (0, "")  # and shows no messages
    assert case.same_model(tmp_path / "run", trained[0])


def test_messages_are_shown_on_demand(data, tmp_path, capfd):
    verbose = pretrain(case.RUN, data, tmp_path / "verbose", threads=1, verbose=True)
    shown = capfd.readouterr()
    assert shown.out == "" and shown.err.splitlines() == verbose.messages and "held-out loss" in shown.err


# ---- vocabulary and shards

MADE = {name: name for name in ("data/train-00000.rfs", "data/valid-00000.rfs")}
MADE |= {"v/vocab.txt": "vocabulary/vocab.txt"}


def assert_prepared(folder, prepared):
    """v/ and data/ of a folder have the bytes of what the command made."""
    for ours, theirs in MADE.items():
        assert (folder / ours).read_bytes() == (prepared / theirs).read_bytes(), ours


def test_from_texts_to_shards(prepared, tmp_path):
    result = vocab(prepared / "corpus", tmp_path / "v" / "vocab.txt", size=150)
    assert result["size"] == 150
    result = prepare(sorted((prepared / "corpus").iterdir()), tmp_path / "v", tmp_path / "data", valid_fraction=0.2)
    assert result["documents"] == 16 and result["output"] == str(tmp_path / "data")
    assert_prepared(tmp_path, prepared)
    assert vocab(None, tmp_path / "bytes", bytes=True)["size"] == 261


def documents(prepared):
    for path in sorted((prepared / "corpus").iterdir()):
        yield path.read_text()


def test_from_records_to_shards(prepared, tmp_path):
    """Texts, and dictionaries as those of a streaming data set, which is longer than the pipe to the program."""
    vocab(documents(prepared), tmp_path / "v" / "vocab.txt", size=150)
    rows = ({"body": text, "id": 1} for text in documents(prepared))
    prepare(rows, tmp_path / "v", tmp_path / "data", field="body", valid_fraction=0.2)
    assert_prepared(tmp_path, prepared)
    texts = [f"ab\n\u2028 é {number} " * 200 for number in range(2000)]  # 5 MB
    (tmp_path / "big.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    prepare(iter(texts), tmp_path / "v", tmp_path / "streamed")
    prepare(tmp_path / "big.jsonl", tmp_path / "v", tmp_path / "read")
    one, other = (sorted((tmp_path / name).glob("*.rfs")) for name in ("streamed", "read"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_records_that_end_early_are_no_data(prepared, tmp_path):
    """An error of the iterator is raised, and one of the program, which stops reading; also in a job in the background
    of a shell, which ignores SIGINT."""

    def cut():
        yield from ["ab ab"] * 5000
        raise LookupError("the store is gone")

    options = dict(model=prepared / "vocabulary", output=tmp_path / "data")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(LookupError, match="the store is gone"):
            prepare(cut(), **options)
    finally:
        signal.signal(signal.SIGINT, before)
    for records, more, message in (
        ([{"txt": "a"}], {}, r"^\[prepare\] record 1 must be a text or have one as \"text\", got \{'txt': 'a'\}"),
        (["a", 5], {}, r"^\[prepare\] record 2 must be a text or have one as \"text\", got 5"),
        (["a"], dict(format="csv"), r"^\[prepare\] format must be None for records, got csv"),
        ((str(n) for n in range(10**9)), dict(seed=-1), r"seed must be"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            prepare(iter(records), **options, **more)
    with pytest.raises(TypeError, match=r"^\[prepare\] input must be files or records, got a dictionary with \['tr"):
        prepare({"train": ["ab"]}, **options)  # all splits of a data set
    assert not (tmp_path / "data" / "data.json").exists()


def test_a_debugger_adds_no_options(monkeypatch):
    """Before Python 3.13 one that reads a frame's variables adds those to the dictionary that locals() returned."""
    given, child = [], SimpleNamespace(results=[{}])
    monkeypatch.setattr(_child, "run", lambda command, options, **_: given.append(options) or (child, True))

    def read(frame, *_):
        _ = frame.f_locals
        return read

    before = sys.gettrace()
    try:
        sys.settrace(read)
        vocab(None, "tokens", bytes=True)
    finally:
        sys.settrace(before)
    assert given == [["--output=tokens", "--bytes"]]


def test_parts_are_merged(prepared, tmp_path):
    options = dict(model=prepared / "vocabulary", valid_fraction=0.2)
    for part in "12":
        assert prepare(prepared / "corpus", output=tmp_path / part, part=f"{part}/2", **options)["part"] == f"{part}/2"
    report = merge([tmp_path / "2", tmp_path / "1"], tmp_path / "data")
    assert report["documents"] == 16 and report["output"] == str(tmp_path / "data")
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()} == {
        path.name: path.read_bytes() for path in (prepared / "data").iterdir()
    }
    with pytest.raises(ValueError, match=r"^\[merge\] all 2 parts must be given, got none with number 2"):
        merge([tmp_path / "1"], tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"^\[merge\] the part's directory must exist, got .*nothing$"):
        merge([tmp_path / "nothing"], tmp_path / "other")


# ---- bad input, and programs that fail


@pytest.mark.parametrize(
    ("run", "options", "kind", "message"),
    [
        ({**case.RUN, "stagse": 1}, {}, ValueError, r"^\[run file\] .*stagse"),
        ({**case.RUN, "seed": float("nan")}, {}, ValueError, r"^\[run file\] options must be finite numbers"),
        ("nothing.json", {}, FileNotFoundError, r"^\[nothing.json\] cannot open: No such file"),
        (None, {}, ValueError, r"^\[pretrain\] a run file must be given unless"),
        (3, {}, TypeError, r"^\[pretrain\] the run must be a path, got int"),
        (case.RUN, {"threads": 0}, ValueError, r"--threads must be .* from 1 to 1024 in decimal digits, got \"0\""),
        (case.RUN, {"seed": [object()]}, TypeError, r"^\[pretrain\] seed must be a number, .*, got object"),
        (case.RUN, {"threads": np.ones(3)}, TypeError, r"^\[pretrain\] threads must be a number, .*, got ndarray"),
        (case.RUN, {"verbose": 1}, TypeError, r"^\[pretrain\] verbose must be True or False, got 1"),
        (case.RUN, {"callback": "print"}, TypeError, r"^\[pretrain\] callback must be a function .*, got str"),
        (case.RUN, {"callback": [print, 3]}, TypeError, r"^\[pretrain\] callback must be a function .*, got int"),
        (case.RUN, {"data": "nothing"}, FileNotFoundError, r"^\[pretrain\] the data directory must exist, got nothing"),
        (case.RUN, {"data": None}, TypeError, r"^\[pretrain\] the data directory must be a path, got NoneType"),
        (case.RUN, {"output": ""}, ValueError, r"^\[pretrain\] output must not be empty, got ''"),
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
        pretrain(case.RUN, data, tmp_path)
    with pytest.raises(ValueError, match=r"^\[resume\] the run file must be the run's own, got 2 at /seed"):
        pretrain({**case.RUN, "seed": 2}, data, trained[0], resume=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_loss_that_is_not_finite(data, tmp_path):
    run = {**case.RUN, "schedule": dict(kind="constant", learning_rate=1e30, warmup_steps=0), "clip_norm": 0}
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
        pretrain(case.RUN, data, tmp_path / "run")


def test_a_signal_of_others_that_stops_a_run_is_no_error(data, tmp_path, monkeypatch):
    fake_program(tmp_path, """echo '{"steps": 4, "interrupted_by_signal": 15}'; exit 143""", monkeypatch)
    result = pretrain(case.RUN, data, tmp_path / "run")
    assert not result.is_finished and result.steps == 4


def test_without_the_program_or_its_library(data, tmp_path, monkeypatch):
    needs_program()
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv("ROFORMER_LIB_DIR", str(tmp_path / "lib"))
    with pytest.raises(ImportError, match=r"^\[roformer_cpp\] the program roformer must be built, got none in .*Hint"):
        pretrain(case.RUN, data, tmp_path / "run")
    shutil.copy2(PROGRAM, tmp_path / "roformer")
    shutil.copy2(PROGRAM.parent / "lib" / "libroformer_cli.so", tmp_path / "lib")
    with pytest.raises(ImportError, match=r"^\[program\] pretrain needs libroformer_training.so beside .*PyTorch"):
        pretrain(case.RUN, data, tmp_path / "run")


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
