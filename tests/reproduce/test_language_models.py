"""The experiments of causal models of bytes and of staged pretraining, at scale tiny on made-up text."""

import json
import math
import random
import shutil

import numpy as np
import pytest

import tolerances as tol
from cli_support import refused, results

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


def chosen_rate(tried):
    """The best of the whole runs, which begin at the highest rate that the short ones do not tell from the best."""
    rates, losses = (np.array(tried[key]) for key in ("rates", "losses"))
    whole = dict(zip(tried["whole"]["rates"], tried["whole"]["losses"], strict=True))
    assert max(whole) == max(rates[losses <= losses.min() + 0.05]) and len(whole) >= 2
    return min(whole, key=whole.get)


def test_linear_attention_with_and_without_rotation(output):
    result = result_of(output, "linear-language-model")
    table = {row[0]: row for row in result["table"]["rows"]}
    assert set(table) == {"none", "learned", "rope", "rope, softmax"}
    assert set(result["verdicts"]) == {"C-18", "C-08"}
    rates = {tried["arm"]: tried for tried in result["rates"]}
    for arm, row in table.items():
        rate = chosen_rate(rates[arm])
        lines = metrics(output / "runs" / "linear-language-model" / f"{rate:g}" / arm / "seed-1")
        training = [line for line in lines if line["type"] == "train"]
        late = [line["loss"] for line in training if line["step"] > training[-1]["step"] / 3]
        assert row[1] == pytest.approx(np.mean(late))
        held_out = [line["loss"] for line in lines if line["type"] == "evaluation"][-1]
        assert row[4] == pytest.approx(held_out / math.log(2))
        assert row[7] > 0 if arm == "rope" else row[7] is None
    # At its start a model's queries and keys are small: the weight of a key is nearly that of two zero vectors, the
    # head's size for elu.
    assert 16 < table["rope"][7] < 48


def test_a_run_that_has_diverged_has_no_values(output, data_sets, tmp_path):
    shutil.copytree(output, tmp_path / "tiny")
    for path in tmp_path.glob("tiny/runs/linear-language-model/*/rope/seed-1.training.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"outcome": {"diverged_at_step": 3}}))
    (tmp_path / "tiny" / "linear-language-model" / "result.json").unlink()
    results("reproduce", "linear-language-model", "--output", tmp_path, "--data", data_sets[0])
    result = result_of(tmp_path / "tiny", "linear-language-model")
    rows = {row[0]: row[1:] for row in result["table"]["rows"]}
    assert rows["rope"] == [None] * 7 and None not in rows["none"][:6]
    assert {m["arm"] for m in result["measures"]} == {"none", "learned", "rope, softmax"}
    (tried,) = (tried for tried in result["rates"] if tried["arm"] == "rope")
    assert tried["whole"]["losses"] == [None] * 2


def test_lengths_beyond_training(output):
    result = result_of(output, "extrapolation")
    found = {(row[0], row[1]): row[3] for row in result["table"]["rows"]}
    assert [found["learned", factor] is None for factor in (1, 2, 4, 8)] == [False, True, True, True]
    arms = ["none", "alibi", "xpos", "rope"]
    assert all(found[arm, factor] > 0 for arm in arms for factor in (1, 2, 4, 8))
    # Each reading is another function of the same weights; at the training length there is nothing to change.
    for arm in ("rope, interpolated", "rope, NTK", "rope, YaRN", "rope, ReRoPE"):
        for factor in (2, 4, 8):
            assert found[arm, factor] > 0 and found[arm, factor] != found["rope", factor]
        assert (arm, 1) not in found
    measures = {(m["name"], m["arm"]): m["value"] for m in result["measures"]}
    growth = measures["loss of the last tokens at twice the length less that at it, nats per token", "rope"]
    assert growth == pytest.approx(found["rope", 2] - found["rope", 1])
    # Losses by position: their mean is about the held-out loss, and a learned table ends.
    series = {line["name"]: line for line in result["series"]}
    assert len(series) == 5 and series["learned, seed 1"]["x"][-1] < 128 < series["rope, seed 1"]["x"][-1] < 1024
    at_length = [y for x, y in zip(*(series["rope, seed 1"][key] for key in "xy"), strict=True) if x < 128]
    held_out = measures["held-out loss, nats per token", "rope"]
    assert len(at_length) == 4 and np.mean(at_length) == pytest.approx(held_out, abs=tol.LOSS_BY_POSITION)
    (run,) = (output / "runs" / "extrapolation").glob("*/rope/seed-1")
    config = json.loads((run / "yarn-4" / "config.json").read_text())
    assert config["rope_parameters"]["factor"] == 4 and "model_type" not in config
    config = json.loads((run / "rerope-4" / "config.json").read_text())
    assert config["position_encoding"] == {"type": "rerope", "window": 64}


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
    # The claim is judged by the same masked tokens in rows of every length.
    same = [m for m in result["measures"] if m["name"] == "accuracy of the same masked tokens, fraction"]
    assert [m["arm"] for m in same] == [f"{length} tokens" for length in (32, 64, 128, 384)]
    assert [row[9] for row in rows[-4:]] == [m["value"] for m in same] and rows[0][9] is None


SMALL_FILES = ("metrics.jsonl", "result.json", "compare.json")


def records_alone(output, target):
    """A copy with what finished runs are known by: no weights, no results of experiments."""
    shutil.copytree(output, target)
    for path in [*target.glob("*/result.json"), *target.glob("runs/**/*")]:
        if path.is_file() and not (
            "runs" in path.parts and (path.name in SMALL_FILES or path.name.endswith(".training.json"))
        ):
            path.unlink()
    assert not list(target.rglob("*.safetensors")) and not list(target.glob("*/result.json"))
    return target


def test_records_of_finished_runs_are_enough(output, data_sets, tmp_path):
    records_alone(output, tmp_path / "tiny")
    lines = results("reproduce", *NAMES, "--output", tmp_path, "--data", data_sets[0])
    assert [line["name"] for line in lines] == NAMES
    for name in NAMES:
        before, after = result_of(output, name), result_of(tmp_path / "tiny", name)
        for key in ("table", "series", "measures", "verdicts", "checks", "rates", "training"):
            assert after[key] == before[key], (name, key)


@pytest.mark.parametrize(
    "name, run", [("extrapolation", "extrapolation/*/alibi/seed-1"), ("staged-pretraining", "staged/rope/seed-1")]
)
@pytest.mark.parametrize("change", ["settings", "name"])
def test_a_run_with_neither_weights_nor_reading_is_named(output, data_sets, tmp_path, name, run, change):
    copy = records_alone(output, tmp_path / "tiny")
    (path,) = copy.glob(f"runs/{run}.training.json")
    record = json.loads(path.read_text())
    if change == "settings":
        record["readings"][name]["settings"] = {"other": 1}
    else:
        record["readings"] = {"another": record["readings"][name]}
    path.write_text(json.dumps(record))
    message = refused("reproduce", name, "--output", tmp_path, "--data", data_sets[0])
    assert f"{str(path).removesuffix('.training.json')} must have its weights, or what {name} reads of them" in message
    assert json.loads(path.read_text()) == record


def test_a_refused_run_keeps_its_record(output, data_sets, tmp_path):
    """Of another design: it is trained again when it is removed, and not before."""
    copy = records_alone(output, tmp_path / "tiny")
    (path,) = copy.glob("runs/staged/rope/seed-1.training.json")
    record = json.loads(path.read_text())
    record["settings"]["schedule"]["learning_rate"] = 0.5
    path.write_text(json.dumps(record))
    assert "run.json" in refused("reproduce", "staged-pretraining", "--output", tmp_path, "--data", data_sets[0])
    assert json.loads(path.read_text()) == record
