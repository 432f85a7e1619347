"""experiments/record_runs.py keeps what runs measured, and the recorded runs are those of the recorded results."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "experiments" / "results"
LOSS = re.compile(r"(held-out loss|loss at \d+ tokens), nats per token$")


def read(path):
    return parquet.read_table(path).to_pylist()


def run_of(folder, steps):
    """A run with two seeds' folder, as `roformer reproduce` leaves it; its losses are 1 / step."""
    run = folder / "0.003" / "shaw+max_relative_position=4" / "seed-2"
    run.mkdir(parents=True)
    train = [
        {"type": "train", "step": step, "loss": 1 / step, "gradient_norm": 2.0, "tokens_per_second": 5.0}
        for step in range(10, 10 * steps + 1, 10)
    ]
    evaluation = {"type": "evaluation", "step": 10 * steps, "loss": 0.5, "accuracy": 0.25, "unigram_loss": 3.0}
    lines = map(json.dumps, [*train, evaluation])
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    result = {"encoding": "shaw:max_relative_position=4", "seed": 2, "losses": [0.5, None], "parameters": 7}
    (run / "result.json").write_text(json.dumps(result | {"peak_bytes": 8, "step_ms": 1.5}))
    parts = [{"commit": name, "cpu": "A", "command": "roformer reproduce x"} for name in ("aa", "bb")]
    settings = {"seed": 1, "schedule": {"learning_rate": 0.003}, "stages": [{"max_length": 32}]}
    record = {"finished": True, "seconds": 12.5, "parts": parts, "settings": settings}
    (run.parent / "seed-2.training.json").write_text(json.dumps(record))
    (run.parent / "seed-3.training.json").write_text(json.dumps(record | {"finished": False}))
    (folder / "0.003" / "compare.json").write_text(json.dumps({"data": "f00", "length_factors": [1, 8]}))


def recorded_runs(folder):
    command = [sys.executable, "-m", "experiments", "record-runs", folder / "runs", folder / "out"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return read(folder / "out" / "encodings.parquet")


def test_every_value_of_a_run_is_kept(tmp_path):
    run_of(tmp_path / "runs" / "encodings", steps=1000)
    rows = recorded_runs(tmp_path)
    assert {row["run"] for row in rows} == {"0.003/shaw+max_relative_position=4/seed-2"}  # seed 3 is not finished
    how = {"arm": "shaw:max_relative_position=4", "seed": 2, "learning_rate": 0.003, "seconds": 12.5, "data": "f00"}
    assert all(how.items() <= row.items() for row in rows)
    assert {row["commit"] for row in rows} == {"aa | bb"} and {row["command"] for row in rows} == {
        "roformer reproduce x"
    }
    curve = [row for row in rows if row["measure"] == "training loss"]
    assert len(curve) == 200 and curve[-1]["step"] == 10_000
    assert all(row["value"] == 1 / row["step"] for row in curve)
    found = {(row["measure"], row["length"]): row["value"] for row in rows if "training" not in row["measure"]}
    expected = {("held-out loss", None): 0.5, ("held-out accuracy", None): 0.25, ("held-out unigram_loss", None): 3.0}
    costs = {("parameters", None): 7, ("peak_bytes", None): 8, ("step_ms", None): 1.5}
    assert found == expected | costs | {("loss", 32): 0.5, ("loss", 256): None}


def test_short_curves_are_whole(tmp_path):
    run_of(tmp_path / "runs" / "encodings", steps=200)
    steps = [row["step"] for row in recorded_runs(tmp_path) if row["measure"] == "training loss"]
    assert steps == list(range(10, 2001, 10))


@pytest.mark.parametrize("experiment", ["atlas", "convergence", "encodings", "extrapolation"])
def test_recorded_runs_are_those_of_the_results(experiment):
    """Every held-out loss in the result of an experiment is that of a recorded run of its arm and seed."""
    recorded = {}
    for row in read(RECORDED / "runs" / f"{experiment}.parquet"):
        if row["measure"] == "loss":
            recorded.setdefault((row["arm"], row["seed"]), set()).add(row["value"])
    arms = {arm.split(":")[0]: arm for arm, _ in recorded}  # the atlas names its arms without their options
    result = json.loads((RECORDED / "small" / experiment / "result.json").read_text())
    trained = [measure for measure in result["measures"] if LOSS.match(measure["name"]) and "," not in measure["arm"]]
    assert len(trained) >= 12
    for measure in trained:
        arm = measure["arm"] if (measure["arm"], measure["seed"]) in recorded else arms[measure["arm"]]
        assert measure["value"] in recorded[arm, measure["seed"]]


def test_results_stay_small():
    files = [path for path in RECORDED.rglob("*") if path.is_file()]
    assert len(files) <= 60 and sum(path.stat().st_size for path in files) <= 8e6
