"""The battery of synthetic tasks and the atlas, at scale tiny; answers against loops in Python."""

import json

import pytest

import roformer_cpp
from cli_support import results

NAMES = ["none", "alibi", "rope"]
TASKS = ["copy back", "first occurrence", "count"]
LENGTHS = [64, 128, 256]
FIRST_HEADER = 33  # 0 is padding, 1 to 32 are symbols
OFFSETS = [1, 2, 4, 8, 16]
LETTERS = {"first occurrence": 16, "count": 8}


@pytest.fixture(scope="module")
def battery(tmp_path_factory):
    output = tmp_path_factory.mktemp("battery")
    (line,) = results("reproduce", "synthetic", "--scale", "tiny", "--output", output)
    assert line["verdicts"] == {"X-20": "smoke run"} and line["seconds"] < 120
    return output / "tiny"


def answer(task, ids, place):
    """The answer at a token, None where there is none."""
    if task == "copy back":
        offset = OFFSETS[ids[0] - FIRST_HEADER]
        return ids[place - offset] - 1 if place - offset >= 1 else None
    if place == 0 or ids[place] > LETTERS[task]:
        return None
    before = [id for id in ids[1:place] if id == ids[place]]
    return int(not before) if task == "first occurrence" else min(len(before), 15)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("tokens", LENGTHS)
def test_answers_are_those_of_loops(battery, task, tokens):
    rows = json.loads((battery / "runs" / "synthetic" / "rows.json").read_text())[task][str(tokens)]
    found = set()
    for kind, first_scored in (("training", 0), ("held out", tokens // 2)):
        assert len(rows[kind]["ids"]) == 8
        for ids, labels in zip(rows[kind]["ids"], rows[kind]["labels"], strict=True):
            assert len(ids) == tokens and ids[0] >= FIRST_HEADER and 1 <= min(ids[1:]) <= max(ids[1:]) <= 32
            expected = [answer(task, ids, place) for place in range(tokens)]
            if kind == "training" and task != "copy back":
                assert sum(value is not None for value in expected) == 32  # letters, whatever the length
            expected = [value if place >= first_scored else None for place, value in enumerate(expected)]
            assert labels == [-1 if value is None else 1 + value for value in expected]
            found.update(labels)
    assert len(found) > 2  # not one answer alone


def test_what_is_measured_is_what_the_runs_have(battery):
    result = json.loads((battery / "synthetic" / "result.json").read_text())
    values = {(m["name"], m["arm"]): m["value"] for m in result["measures"]}
    for task in TASKS:
        for arm in NAMES:
            folder = battery / "runs" / "synthetic" / task.replace(" ", "-") / arm
            (tried,) = (rates for rates in result["rates"] if rates["arm"] == f"{arm} on {task}")
            whole = {}
            for rate in tried["whole"]["rates"]:
                run = json.loads((folder / f"{rate:g}" / "seed-1000" / "result.json").read_text())
                whole[rate] = run["scores"][0]["loss"]
            assert list(whole.values()) == tried["whole"]["losses"]
            # From the highest rate that the short runs do not tell from the best, to one below the best.
            near = [
                r
                for r, loss in zip(tried["rates"], tried["losses"], strict=True)
                if loss <= min(tried["losses"]) + 0.05
            ]
            assert max(whole) == max(near) and len(whole) >= 2
            chosen = min(whole, key=whole.get)
            run = json.loads((folder / f"{chosen:g}" / "seed-1" / "result.json").read_text())
            of_lengths = [score["accuracy"] for score in run["scores"]]
            assert [values[f"{task}, accuracy at {tokens} tokens", arm] for tokens in LENGTHS] == of_lengths
            change = values[f"{task}, accuracy at 128 tokens less that at 64", arm]
            assert change == pytest.approx(of_lengths[1] - of_lengths[0])
            assert run["settings"]["schedule"]["learning_rate"] == chosen
            recorded = [(entry["seed"], entry["learning_rate"]) for entry in tried["training"]]
            assert recorded == [(1000, rate) for rate in [*tried["rates"], *whole]]
            assert all(entry["parts"] for entry in tried["training"])
    assert [(row[0], row[1]) for row in result["table"]["rows"]] == [(arm, task) for task in TASKS for arm in NAMES]
    assert [entry["arm"] for entry in result["training"]] == [f"{arm} on {task}" for task in TASKS for arm in NAMES]
    assert all(entry["parts"] for entry in result["training"])


def test_finished_runs_are_kept_and_give_the_same_bits(battery):
    """One of the runs is made again; the others are not touched."""
    files = sorted((battery / "runs" / "synthetic").rglob("result.json"))
    before = {path: (path.stat().st_mtime_ns, path.read_text()) for path in files}
    lost = next(path for path in files if "rope" in str(path) and "seed-1" in str(path))
    lost.unlink()
    (battery / "synthetic" / "result.json").unlink()
    results("reproduce", "synthetic", "--scale", "tiny", "--output", battery.parent)
    for path, (time, text) in before.items():
        assert (path.stat().st_mtime_ns == time) == (path != lost) and path.read_text() == text


def test_a_run_that_has_diverged_has_no_values(battery, tmp_path):
    for path in (battery / "runs").rglob("*.json"):
        copy = tmp_path / "tiny" / path.relative_to(battery)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for path in (tmp_path / "tiny" / "runs" / "synthetic" / "count" / "rope").glob("*/seed-1/result.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": [None] * 3}))
    results("reproduce", "synthetic", "--scale", "tiny", "--output", tmp_path)
    result = json.loads((tmp_path / "tiny" / "synthetic" / "result.json").read_text())
    columns = result["table"]["columns"]
    rows = [dict(zip(columns, row, strict=True)) for row in result["table"]["rows"]]
    without = [(row["encoding"], row["task"]) for row in rows if row["accuracy at 64 tokens"] is None]
    assert without == [("rope", "count")]
    assert not any(m["arm"] == "rope" and m["name"].startswith("count") for m in result["measures"])


def test_the_atlas_at_scale_tiny(data_sets, tmp_path):
    folder, _ = data_sets
    (line,) = results("reproduce", "atlas", "--scale", "tiny", "--output", tmp_path, "--data", folder)
    assert line["verdicts"] == {}
    result = json.loads((tmp_path / "tiny" / "atlas" / "result.json").read_text())
    columns = result["table"]["columns"]
    rows = [dict(zip(columns, row, strict=True)) for row in result["table"]["rows"]]
    assert [row["encoding"] for row in rows] == NAMES
    for row in rows:
        runs = tmp_path / "tiny" / "runs" / "atlas" / row["encoding"]
        kept = json.loads((runs / f"{row['learning rate']:g}" / row["encoding"] / "seed-1" / "result.json").read_text())
        assert [row[f"loss at {128 * f} tokens, nats per token"] for f in (1, 2, 4, 8)] == kept["losses"]
        less_rope = row["loss at 128 tokens, nats per token"] - rows[-1]["loss at 128 tokens, nats per token"]
        assert row["loss at 128 tokens less rope's, nats per token"] == less_rope
        assert row["from, 95 %"] is row["to, 95 %"] is None  # of one seed
        assert (runs / f"{row['learning rate']:g}.run.json").exists()
        assert row["peak MiB"] == pytest.approx(kept["peak_bytes"] / 2**20) and row["peak MiB"] > 1
        assert 0.1 < row["time of attention at 128 tokens, of rope's"] < 10
    register = json.loads((tmp_path / "register.json").read_text())
    assert [encoding["name"] for encoding in register["encodings"]] == [
        info["name"] for info in roformer_cpp.encodings()
    ]
    arms = next(each for each in register["experiments"] if each["name"] == "atlas")["settings"]["small"]["design"]
    arms = [arm for arm in arms["arms"] if arm != "t5:scale=sqrt"]
    assert [arm.split(":")[0] for arm in arms] == [encoding["name"] for encoding in register["encodings"]]
    # Elsewhere it goes on from the small files of its finished runs.
    elsewhere = tmp_path / "elsewhere"
    for name in ("*.training.json", "result.json", "compare.json"):
        for path in (tmp_path / "tiny" / "runs").rglob(name):
            copy = elsewhere / path.relative_to(tmp_path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    results("reproduce", "atlas", "--scale", "tiny", "--output", elsewhere, "--data", folder)
    again = json.loads((elsewhere / "tiny" / "atlas" / "result.json").read_text())
    keys = ("measures", "rates", "training")
    assert [again[key] for key in keys] == [result[key] for key in keys]
    assert not list(elsewhere.rglob("model.safetensors"))
    # A run that has diverged has no loss and no values.
    for path in elsewhere.glob("tiny/runs/atlas/rope/*/rope/seed-1/result.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"losses": [None] * 4, "diverged_at_step": 3}))
    (elsewhere / "tiny" / "atlas" / "result.json").unlink()
    results("reproduce", "atlas", "--scale", "tiny", "--output", elsewhere, "--data", folder)
    result = json.loads((elsewhere / "tiny" / "atlas" / "result.json").read_text())
    rows = [dict(zip(columns, row, strict=True)) for row in result["table"]["rows"]]
    assert [row["diverged runs"] for row in rows] == [0, 0, 1]
    assert [row["loss at 128 tokens, nats per token"] is None for row in rows] == [False, False, True]
    assert [row["loss at 128 tokens less rope's, nats per token"] for row in rows] == [None] * 3
    assert {measure["arm"] for measure in result["measures"]} == {"none", "alibi"}
