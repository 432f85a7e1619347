"""The experiments of causal models of bytes and of staged pretraining, at scale tiny on made-up text."""

import json
import math
import random

import numpy as np
import pytest

import tolerances as tol
from cli_support import results

NAMES = ["linear-language-model", "extrapolation", "staged-pretraining"]


@pytest.fixture(scope="module")
def output(data_sets, tmp_path_factory):
    folder, _ = data_sets
    rng = random.Random(7)
    words = ["".join(rng.choices("etaoinshr", k=rng.randint(1, 6))) for _ in range(200)]
    (folder / "enwiki_xml").mkdir()
    text = "\n\n".join(" ".join(rng.choices(words, k=600)) for _ in range(40))
    (folder / "enwiki_xml" / "enwiki_head.xml").write_text(text)
    output = tmp_path_factory.mktemp("language_models")
    for name in NAMES:
        assert [line["name"] for line in results("reproduce", name, "--output", output, "--data", folder)] == [name]
    return output / "tiny"


def result_of(output, name):
    return json.loads((output / name / "result.json").read_text())


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_linear_attention_with_and_without_rotation(output):
    result = result_of(output, "linear-language-model")
    table = {row[0]: row for row in result["table"]["rows"]}
    assert set(table) == {"none", "learned", "eq19-elu", "eq19-favor", "before-map", "softmax-rope"}
    assert set(result["verdicts"]) == {"C-18", "C-08"}
    for arm, row in table.items():
        lines = metrics(output / "runs" / "linear-language-model" / arm / "seed-1")
        training = [line for line in lines if line["type"] == "train"]
        late = [line["loss"] for line in training if line["step"] > training[-1]["step"] / 3]
        assert row[1] == pytest.approx(np.mean(late))
        held_out = [line["loss"] for line in lines if line["type"] == "evaluation"][-1]
        assert row[4] == pytest.approx(held_out / math.log(2))
        assert row[7] > 0 if arm.startswith("eq19") else row[7] is None
    # At its start a model's queries and keys are small: the weight of a key is nearly that of two zero vectors, the
    # head's size for elu, 1 for favor.
    assert 16 < table["eq19-elu"][7] < 48 and 0.5 < table["eq19-favor"][7] < 1.5


def test_lengths_beyond_training(output):
    result = result_of(output, "extrapolation")
    found = {(row[0], row[1]): row[3] for row in result["table"]["rows"]}
    assert [found["learned", factor] is None for factor in (1, 2, 4, 8)] == [False, True, True, True]
    assert all(found["rope", factor] > 0 for factor in (1, 2, 4, 8))
    interpolated = [found["rope, positions interpolated", factor] for factor in (2, 4, 8)]
    # Dividing the positions makes another function of the same weights.
    for factor, loss in zip((2, 4, 8), interpolated, strict=True):
        assert loss > 0 and loss != found["rope", factor]
    (run,) = (output / "runs" / "extrapolation").glob("rope/seed-1")
    evaluation = [line for line in metrics(run) if line["type"] == "evaluation"][-1]
    assert found["rope", 1] == pytest.approx(evaluation["loss"], rel=tol.EVALUATED_LOSS_RTOL)
    # Losses by position: their mean is about the held-out loss, and a learned table ends.
    series = {line["name"]: line for line in result["series"]}
    assert len(series) == 5 and series["learned, seed 1"]["x"][-1] < 128 < series["rope, seed 1"]["x"][-1] < 1024
    at_length = [y for x, y in zip(*(series["rope, seed 1"][key] for key in "xy"), strict=True) if x < 128]
    assert len(at_length) == 4 and np.mean(at_length) == pytest.approx(found["rope", 1], abs=tol.LOSS_BY_POSITION)
    assert series["rope, positions interpolated, seed 1"]["y"] != series["rope, seed 1"]["y"]
    config = json.loads((run / "interpolated-4" / "config.json").read_text())
    assert config["rope_parameters"]["factor"] == 4 and "model_type" not in config


def test_stages(output):
    result = result_of(output, "staged-pretraining")
    rows = result["table"]["rows"]
    assert [row[0] for row in rows] == [stage for stage in range(1, 7) for _ in range(4)]
    assert [row[1] for row in rows[::4]] == [128, 384, 64, 32, 384, 128]
    assert [row[4] for row in rows[:4]] == [32, 64, 128, 384]
    lines = metrics(output / "runs" / "staged" / "rope" / "seed-1")
    lengths = [line for line in lines if line["type"] == "length"]
    assert [row[5] for row in rows] == [line["loss"] for line in lengths]
    assert [row[6] for row in rows] == [line["accuracy"] for line in lengths]
