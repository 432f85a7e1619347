"""Metrics for TensorBoard, as tensorboard itself reads them."""

import json
import sys

import numpy as np
import pytest

import roformer_cpp
from cli_support import lines_of
from roformer_cpp import TensorBoard, tensorboard
from training_case import RUN, ended, refuse_torch, script

pytest.importorskip("tensorboard", reason="needs tensorboard (requirements-dev.txt)")

LINES = [
    dict(type="train", step=10, stage=0, loss=8.25, learning_rate=1e-3, tokens=500),
    dict(type="train", step=20, stage=0, loss=7.1, learning_rate=2e-3, tokens=510),
    dict(type="evaluation", step=20, loss=7.3, accuracy=0.1, unigram_loss=6.5, f1=None, note="a text", flag=True),
    dict(type="length", step=20, length=64, loss=7.2, accuracy=0.2),
    dict(type="length", step=20, length=512, loss=None, accuracy=None),
]


def scalars(log_dir):
    """{tag: [(step, value)]}"""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(log_dir))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def expected(lines):
    found = {}
    for line in lines:
        prefix = line["type"] + (f"/{line['length']}" if "length" in line else "")
        for name, value in line.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and name not in ("step", "length"):
                found.setdefault(f"{prefix}/{name}", []).append((line["step"], float(np.float32(value))))
    return found


def test_scalars_by_step(tmp_path):
    with TensorBoard(tmp_path / "logs") as board:
        for number, line in enumerate(LINES, 1):
            board(line)
            assert scalars(tmp_path / "logs") == expected(LINES[:number])  # at once
    found = scalars(tmp_path / "logs")
    assert found["train/loss"] == [(10, 8.25), (20, float(np.float32(7.1)))]
    assert set(found) >= {"evaluation/accuracy", "length/64/loss"} and "length/512/loss" not in found


def test_a_resumed_run_replaces_what_was_written_after_its_checkpoint(tmp_path):
    line = dict(type="train", step=10, loss=1.0)
    with TensorBoard(tmp_path) as board:
        for step in (10, 20, 30):
            board({**line, "step": step})
    with TensorBoard(tmp_path) as board:
        for step in (20, 40):
            board({**line, "step": step, "loss": 0.5})
    assert scalars(tmp_path) == {"train/loss": [(10, 1.0), (20, 0.5), (40, 0.5)]}


def test_as_a_callback(data, tmp_path):
    with TensorBoard(tmp_path / "logs") as board:
        roformer_cpp.pretrain(RUN, data, tmp_path / "run", callback=board, threads=1)
    found = scalars(tmp_path / "logs")
    assert found == expected(lines_of(tmp_path / "run" / "metrics.jsonl"))
    assert [step for step, _ in found["train/loss"]] == [2, 4, 6] and "length/8/accuracy" in found


def write_lines(folder, lines):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_command(tmp_path):
    """Without torch; a second time it replaces what it wrote."""
    write_lines(tmp_path / "run", LINES)
    for log_dir in ([], [], [str(tmp_path / "logs")]):
        code = f"import runpy; sys.argv = ['tensorboard', {str(tmp_path / 'run')!r}, *{log_dir!r}]; "
        code += "runpy.run_module('roformer_cpp.tensorboard', run_name='__main__')"
        assert ended(script(refuse_torch(code))) == (0, "")
    assert scalars(tmp_path / "run" / "tensorboard") == scalars(tmp_path / "logs") == expected(LINES)


def test_each_run_of_a_fine_tuning_has_a_folder(tmp_path):
    runs = {"lr-3e-05/seed-1": 1.0, "lr-0.001/seed-2": 2.0}
    for run, loss in runs.items():
        write_lines(tmp_path / "out" / run, [dict(type="train", step=5, epoch=1, loss=loss)])
    tensorboard.write(tmp_path / "out", tmp_path / "logs")
    for run, loss in runs.items():
        assert scalars(tmp_path / "logs" / run) == {"train/loss": [(5, loss)], "train/epoch": [(5, 1.0)]}


def test_bad_input(tmp_path, capsys, monkeypatch):
    for wrong, got in ((3, "int"), (None, "NoneType"), ([1], "list")):
        with pytest.raises(TypeError, match=rf"\[tensorboard\] metrics must be a dictionary, got {got}"):
            roformer_cpp.scalars(wrong)
    monkeypatch.setattr(sys, "argv", ["tensorboard", str(tmp_path / "nothing")])
    assert tensorboard.main() == 1
    assert f"[tensorboard] a run must have metrics.jsonl, got none in {tmp_path / 'nothing'}" in capsys.readouterr().err
    write_lines(tmp_path / "run", [dict(type="train", step=1, loss=1.0), 7])
    monkeypatch.setattr(sys, "argv", ["tensorboard", str(tmp_path / "run")])
    assert tensorboard.main() == 1
    assert "metrics.jsonl:2 must be a JSON object, got '7'" in capsys.readouterr().err
    board = TensorBoard(tmp_path / "logs")
    for line, message in (
        (dict(loss=1.0), "the step of metrics must be an integer, got NoneType"),
        (dict(step=1, run=3), "the run of metrics must be a string, got int"),
    ):
        with pytest.raises(TypeError, match=rf"^\[tensorboard\] {message}"):
            board(line)
    with pytest.raises(TypeError, match=r"^\[tensorboard\] log_dir must be a path, got NoneType"):
        TensorBoard(None)


def test_without_the_package(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"^\[tensorboard\] the package tensorboard must be installed, got: .*Hint"):
        TensorBoard(tmp_path)
