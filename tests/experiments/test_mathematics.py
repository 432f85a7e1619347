"""The experiments without training find what the recorded results of the C++ program have."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import run  # noqa: E402

RECORDED = ROOT / "experiments" / "results" / "any"
NAMES = ["permutation", "relative-score", "norm", "bilinear", "any-position", "sinusoid", "linear-attention"]
NAMES += ["pairwise", "decay", "score-by-distance"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Of a name: the verdicts, and the rows."""
    output, kept = tmp_path_factory.mktemp("mathematics"), {}

    def of(name, scale="tiny"):
        if name not in kept:
            (experiment,) = run.chosen([name])
            line = run.run(experiment, scale, output)
            kept[name] = line["verdicts"], run.read(output / experiment.folder(scale) / f"{name}.parquet")[0]
        return kept[name]

    return of


def recorded(name):
    return json.loads((RECORDED / name / "result.json").read_text())


def table(name):
    """{first column: the row} of a recorded table."""
    return {row[0]: row for row in recorded(name)["table"]["rows"]}


def values(rows, measure):
    """{arm: value} of rows without a step."""
    return {row["arm"]: row["value"] for row in rows if row["measure"] == measure and row["step"] is None}


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_those_recorded(found, name):
    assert found(name)[0] == recorded(name)["verdicts"]


def test_pairwise_states(found):
    rows = [row for row in found("pairwise")[1] if row["measure"] == "states by tokens"]
    states = {arm: [row["value"] for row in rows if row["arm"] == arm] for arm in {row["arm"] for row in rows}}
    expected = {arm: row[3:7] for arm, row in table("pairwise").items()}
    assert {arm: states[arm] for arm in expected} == expected


def test_decay(found):
    rows = found("decay")[1]
    columns = {"steps on which f rises": 5, "lowest f beyond 512 tokens": 7, "highest f beyond 512 tokens": 8}
    for head_dim, base, *_ in (recorded_rows := recorded("decay")["table"]["rows"]):
        arm = f"head size {head_dim}" + ("" if base == 10000 else f", base {int(base)}")
        expected = next(row for row in recorded_rows if row[:2] == [head_dim, base])
        for measure, column in columns.items():
            assert values(rows, measure)[arm] == pytest.approx(expected[column], rel=1e-9)


def test_worked_example_of_linear_attention(found):
    rows = [row for row in found("linear-attention")[1] if row["measure"] == "outputs of the worked example"]
    for column, form in enumerate(("Eq. 18", "Eq. 19", "both sums rotated"), 1):
        expected = [row[column] for name, row in table("linear-attention").items() if "output" in name]
        assert [row["value"] for row in rows if row["arm"] == form] == pytest.approx(expected, rel=1e-9)


def test_random_features_are_better_if_orthogonal(found):
    verdicts, rows = found("random-features")
    powers = values(rows, "power of m with which the error grows")
    assert verdicts == {"X-17": "smoke run"} and all(-0.65 < power < -0.35 for power in powers.values())
    errors = [row["value"] for row in rows if row["measure"] == "relative error of attention"]
    assert len(errors) == 14 and sorted(errors[:7], reverse=True) == errors[:7]
