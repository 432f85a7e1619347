"""experiments/run.py: results are kept, interrupted work continues, and processes share it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import pytest

from experiments import __main__ as command
from experiments import judge, recorded, run


def experiment(calls, number=1.0, name="table9-things"):
    def rows(context, settings):
        calls.append(settings)
        yield from (run.row("loss", "rope", settings["number"] + seed, seed=seed) for seed in settings["seeds"])
        made = {"commit": "c", "cpu": "x", "command": "y", "seconds": 2}
        yield run.row("loss", "rope", 99.0, seed=1, step=10, made=made)  # of a curve, which no rule reads

    settings = lambda scale: {"number": number, "seeds": run.seeds_of(scale), "files": []}  # noqa: E731
    return run.Experiment(name, "Do things?", rows, settings)


@pytest.fixture
def registry(monkeypatch):
    """Puts experiments into modules of the package, by the modules' names."""

    def put(**modules):
        for name, found in modules.items():
            monkeypatch.setitem(sys.modules, f"experiments.{name}", SimpleNamespace(EXPERIMENTS=found))
        monkeypatch.setattr(run, "MODULES", tuple(modules))
        run.experiments.cache_clear()

    yield put
    run.experiments.cache_clear()


def test_commands_are_recorded_without_the_places_of_folders(monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", "all", "--output=/a/results", "--data", "/b/c/data", "--scale", "tiny"])
    made = run.made_here.__wrapped__()
    assert made["command"] == "python -m experiments all --output=results --data data --scale tiny"
    for path in recorded.RESULTS.glob("*/*.parquet"):
        rows, about = run.read(path) if path.parent.name != "runs" else ([], {"command": ""})
        assert not [each["command"] for each in (*rows, about) if " /" in each["command"]], path


def test_a_result_is_kept_while_its_settings_are_the_same(tmp_path):
    calls = []
    first = run.run(experiment(calls), "small", tmp_path)
    again = run.run(experiment(calls), "small", tmp_path)
    assert (first["kept"], again["kept"], len(calls)) == (False, True, 1)
    run.run(experiment(calls, number=2.0), "small", tmp_path)
    run.run(experiment(calls, number=2.0), "tiny", tmp_path)
    assert [len(settings["seeds"]) for settings in calls] == [3, 3, 1]


def test_rows_have_their_provenance(tmp_path):
    run.run(experiment([]), "small", tmp_path)
    rows, about = run.read(tmp_path / "small" / "table9-things.parquet")
    assert [row["value"] for row in rows[:3]] == [2.0, 3.0, 4.0] and [row["seed"] for row in rows[:3]] == [1, 2, 3]
    assert rows[0]["seconds"] >= 0
    if shutil.which("git") is None:
        assert rows[0]["commit"] == "unknown"
    else:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=run.ROOT, capture_output=True, text=True).stdout.strip()
        assert head.startswith(rows[0]["commit"].removesuffix("-dirty"))
    assert {"commit": "c", "cpu": "x", "command": "y", "seconds": 2.0}.items() <= rows[3].items()
    assert about["settings"]["seeds"] == [1, 2, 3] and about["scale"] == "small"


def test_verdicts_come_from_the_rules(tmp_path, monkeypatch):
    rule = judge.Rule("table9-things", "C-04", (judge.Contrast("loss", "rope", below=10),))
    monkeypatch.setattr(judge, "rules", lambda: [rule])
    assert run.run(experiment([]), "small", tmp_path)["verdicts"] == {"C-04": "supported"}
    assert run.run(experiment([]), "tiny", tmp_path)["verdicts"] == {"C-04": "smoke run"}


def test_names(registry):
    table = experiment([])
    others = [run.Experiment(name, "?", None, dict, has_scale=False) for name in ("other", "another")]
    registry(other=others, table9_things=[table])
    assert run.chosen(["table9"]) == run.chosen(["table9-things"]) == run.chosen(["table9_things"]) == [table]
    assert run.chosen(["all"]) == [*others, table] and run.chosen(["another", "table9"]) == [others[1], table]
    with pytest.raises(ValueError, match=r"\[run\] an experiment must be all or one that --list names, got 'table'"):
        run.chosen(["table"])


def test_all_experiments(registry, tmp_path, capsys):
    """All that have their data are run, and kept by the next command; a signal in one keeps those before it."""

    def interrupted(context, settings):
        if not (tmp_path / "again").exists():
            signal.raise_signal(signal.SIGTERM)
        yield run.row("loss", "rope", 1.0)

    registry(
        first=[experiment([], name="first")],
        needs=[run.Experiment("needs", "?", None, lambda: {"files": ["a/b.txt"]}, has_scale=False)],
        last=[run.Experiment("last", "?", interrupted, dict, has_scale=False)],
    )

    def lines():
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    arguments = ["all", "--scale", "tiny", "--output", str(tmp_path), "--data", str(tmp_path)]
    with pytest.raises(SystemExit, match="143"):
        command.main(arguments)
    first, needs = lines()
    assert (first["name"], first["kept"]) == ("first", False)
    assert needs == {"name": "needs", "scale": "any", "missing_data": ["a/b.txt"]}
    (tmp_path / "again").touch()
    command.main(arguments)
    assert [line.get("kept") for line in lines()] == [True, None, False]
    with pytest.raises(SystemExit, match=r"\[run\] needs must find its data in the folder of --data, got none of"):
        command.main(["needs", *arguments[1:]])


def test_kept_values(tmp_path):
    context = run.Context(tmp_path, None, "tiny")
    made = []

    def make():
        made.append(1)
        return (len(made), 2)

    assert context.kept(tmp_path / "a.json", {"x": (1, 2)}, make) == [1, 2]
    assert context.kept(tmp_path / "a.json", {"x": [1, 2]}, make) == [1, 2]
    assert context.kept(tmp_path / "a.json", {"x": [1, 3]}, make) == [2, 2]


def test_records_have_the_parts_of_all_processes(tmp_path):
    context = run.Context(tmp_path, None, "tiny")
    directory = tmp_path / "runs" / "a"
    with pytest.raises(run.Interrupted), context.recorded(directory, {"steps": 1}):
        directory.mkdir(parents=True)
        raise run.Interrupted(130)
    assert not context.is_finished(directory, {"steps": 1})
    with context.recorded(directory, {"steps": 1}) as record:
        pass
    assert context.is_finished(directory, {"steps": 1}) and not context.is_finished(directory, {"steps": 2})
    assert len(record["parts"]) == 2 and record["seconds"] == sum(part["seconds"] for part in record["parts"])
    with context.recorded(directory, {"steps": 1}) as again:
        pass
    assert again == context.record(directory) == record


def test_processes_share_parts(tmp_path):
    """Locks are of open files, so threads are as good as processes."""
    both = threading.Barrier(2)

    def part_of(part):
        path = tmp_path / f"{part}.txt"
        if not path.exists():  # another one has not done it
            time.sleep(0.1)
            with path.open("x") as file:
                file.write(str(threading.get_ident()))
        return path.read_text()

    def shared(_):
        both.wait()
        return run.Context(tmp_path, None, "tiny").share("parts", ["a", "b", "c", "d"], part_of)

    with ThreadPool(2) as pool:
        first, second = pool.map(shared, range(2), chunksize=1)
    assert first == second and len(set(first.values())) == 2


def program_of(monkeypatch, path, text):
    """A program in the place of roformer."""
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)
    monkeypatch.setattr(run, "_program", lambda: str(path))
    return run.Context(path.parent, None, "tiny", threads=1)


def test_a_signal_reaches_the_program(tmp_path, monkeypatch):
    """The program is told once, and this process waits until it has written its checkpoint."""
    started, stopped = tmp_path / "started", tmp_path / "stopped"
    text = f"trap 'sleep 0.3; touch {stopped}; exit 130' INT\ntouch {started}\nwhile :; do sleep 0.05; done\n"
    context = program_of(monkeypatch, tmp_path / "roformer", text)

    def interrupt():
        while not started.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            context.roformer("x")
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.exists()


def test_the_command_of_the_program(tmp_path, monkeypatch):
    text = 'printf \'{"arguments": "%s"}\\n\' "$*"\n[ "$1" != bad ]\n'
    context = program_of(monkeypatch, tmp_path / "roformer", text)
    (line,) = context.roformer("compare", seeds=1, resume=True, config=None, lengths=[1, 2], valid_fraction=0.5)
    assert line["arguments"] == "compare --seeds 1 --resume --lengths 1 2 --valid-fraction 0.5 --threads 1"
    with pytest.raises(RuntimeError, match=r"\[run\] roformer bad --threads 1 must end with code 0, got 1"):
        context.roformer("bad")
