"""Processes that run the same experiments in the same output directory share the trainings."""

import json
import os
import subprocess
import time

from cli_support import PROGRAM, results


def command(data_sets, *names):
    folder, _ = data_sets
    return ["reproduce", *names, "--scale", "tiny", "--data", folder, "--output"]


def start(*arguments):
    return subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )


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
    both = command(data_sets, "atlas", "synthetic")
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    results(*both, alone)
    children = [start(*both, shared) for _ in range(2)]
    said = [child.communicate(timeout=600) for child in children]
    for child, (_, messages) in zip(children, said, strict=True):
        assert child.returncode == 0, messages
    assert outcomes(shared) == outcomes(alone)
    records = [json.loads(path.read_text()) for path in shared.rglob("*.training.json")]
    assert len(records) == len(list(alone.rglob("*.training.json")))
    assert all(record["finished"] and len(record["parts"]) == 1 for record in records)


def test_what_a_killed_process_had_is_trained_by_the_other(data_sets, tmp_path):
    atlas = command(data_sets, "atlas")
    killed = start(*atlas, tmp_path)
    while not list(tmp_path.glob("tiny/locks/atlas/*.lock")):
        time.sleep(0.01)
    other = start(*atlas, tmp_path)
    time.sleep(1)
    killed.kill()
    killed.communicate()
    _, said = other.communicate(timeout=600)
    assert other.returncode == 0, said
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("*.training.json")]
    assert records and all(record["finished"] for record in records)
    assert (tmp_path / "tiny" / "atlas" / "result.json").exists()
