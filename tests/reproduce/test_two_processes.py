"""Processes that run the same experiments in the same output directory share the trainings."""

import contextlib
import json
import os
import subprocess

from cli_support import PROGRAM, results, wait_for

LIMIT = 300  # seconds


def command(data_sets, *names):
    folder, _ = data_sets
    return ["reproduce", *names, "--scale", "tiny", "--data", folder, "--output"]


@contextlib.contextmanager
def started(folder, *arguments):
    """A process with its outputs in folder/out and folder/messages, which does not outlive the test."""
    folder.mkdir()
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    with (folder / "out").open("w") as out, (folder / "messages").open("w") as messages:
        child = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=out, stderr=messages, env=environment)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def lines_of(folder, child):
    """The results of a process that must succeed."""
    assert child.wait(timeout=LIMIT) == 0, (folder / "messages").read_text()
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


def records(output):
    return [json.loads(path.read_text()) for path in output.rglob("*.training.json")]


def outcomes(output):
    """What the results of an output directory say, without times and the paths and seconds of records."""
    found = {}
    for name in ("atlas", "synthetic"):
        result = json.loads((output / "tiny" / name / "result.json").read_text())
        trained = [(run["arm"], run["seed"], run.get("learning_rate")) for run in result["training"]]
        rates = [{key: value for key, value in tried.items() if key != "training"} for tried in result["rates"]]
        found[name] = (result["measures"], rates, trained)
    return found


def test_two_processes_train_each_run_once(data_sets, tmp_path):
    names = ["norm", "synthetic", "atlas"]
    arguments = command(data_sets, *names)
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    results(*arguments, alone)
    folders = [tmp_path / "first", tmp_path / "second"]
    with started(folders[0], *arguments, shared) as first, started(folders[1], *arguments, shared) as second:
        lines = [lines_of(folder, child) for folder, child in zip(folders, (first, second), strict=True)]
    for name, *own in zip(names, *lines, strict=True):
        assert [line["name"] for line in own] == [name, name]
        assert sorted(line["kept"] for line in own) == [False, True]  # one has written the result
    assert outcomes(shared) == outcomes(alone)
    assert len(records(shared)) == len(records(alone))
    assert all(record["finished"] and len(record["parts"]) == 1 for record in records(shared))


def test_what_a_killed_process_had_is_trained_by_the_other(data_sets, tmp_path):
    arguments = command(data_sets, "atlas")
    output = tmp_path / "output"
    with started(tmp_path / "killed", *arguments, output) as killed:
        wait_for(lambda: list(output.glob("tiny/runs/atlas/*/*/*/*/metrics.jsonl")), killed, LIMIT)
        killed.kill()
    with started(tmp_path / "other", *arguments, output) as other:
        lines_of(tmp_path / "other", other)
    assert all(record["finished"] for record in records(output))
    assert max(len(record["parts"]) for record in records(output)) == 2
