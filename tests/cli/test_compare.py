"""roformer compare: tables, resuming, and what it refuses."""

import csv
import itertools
import json
import shutil
import signal

import numpy as np
import pytest
from safetensors.numpy import load_file

import tolerances
from cli_support import MODEL, metrics, refused, results, run, run_file, stopped
from encoding_files import INFOS, needs_keys, sweep_keys

SMALL = dict(model={**MODEL, "max_position_embeddings": 16}, evaluate_batches=2)
SMALL |= dict(stages=[dict(max_length=16, batch=4, steps=4)])


def options(prepared, output, encodings, seeds=2, *more, **keys):
    config = run_file(output.with_suffix(".json"), **SMALL | keys)
    given = ["--encodings", encodings, "--data", prepared / "data", "--config", config, "--output", output]
    return ["compare", *given, "--seeds", seeds, *more]


@pytest.fixture(scope="module")
def first(prepared, tmp_path_factory):
    """A finished comparison of one run; not to be changed."""
    output = tmp_path_factory.mktemp("first") / "out"
    results(*options(prepared, output, "none", 1))
    return output


@pytest.fixture
def finished(first, tmp_path):
    shutil.copytree(first, tmp_path / "out")
    return tmp_path / "out"


def losses(output):
    with (output / "table.csv").open(newline="") as file:
        return {(row["encoding"], row["seed"]): row["loss_16"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("objective", ["masked", "causal"])
def test_all_are_those_that_the_model_can_have(prepared, tmp_path, objective):
    """Each trains in stages of several lengths (R-TRN-08). A bidirectional model omits what needs causal attention, and
    both omit what needs keys, unless they are given."""
    lengths = [dict(max_length=length, batch=2, steps=2) for length in (12, 16, 8)]
    keys = dict(objective=objective, stages=lengths, evaluate_batches=1, evaluate_lengths=[16])
    if objective == "causal":
        keys["precision"] = "float32"
    required = {name for name in INFOS if needs_keys(name)}
    causal = {name for name, info in INFOS.items() if info["needs_causal"]}
    with_keys = set()
    for name in required - (causal if objective == "masked" else set()):
        given = sweep_keys(name, MODEL["hidden_size"] // MODEL["num_attention_heads"])
        with_keys.add(":".join([name, *(f"{key}={json.dumps(value)}" for key, value in given.items())]))
    encodings = ",".join(["all", *with_keys])
    done = run(*options(prepared, tmp_path / "out", encodings, 1, "--lengths", 1, **keys))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    trained = {line["encoding"] for line in lines}
    left = {line.split()[2].rstrip(":") for line in done.stderr.splitlines() if line.startswith("left out ")}
    assert left == (required if objective == "causal" else required | causal)
    assert trained == (INFOS.keys() - left) | with_keys
    losses = [loss["loss"] for path in (tmp_path / "out").glob("*/*/metrics.jsonl") for loss in metrics(path.parent)]
    losses += [line["loss"]["8"] for line in lines]
    assert len(losses) > 6 * len(trained)
    if objective == "causal":  # which has no masks that are drawn anew
        (measured,) = (line["loss"]["8"] for line in lines if line["encoding"] == "rope")
        last = metrics(tmp_path / "out" / "rope" / "seed-1", "evaluation")[-1]
        assert last["loss"] == pytest.approx(measured, rel=tolerances.T4_MAX)
    assert losses == pytest.approx([np.log(150)] * len(losses), rel=tolerances.UNTRAINED_LOSS)


def test_table_has_a_row_for_every_run(prepared, tmp_path):
    output = tmp_path / "out"
    lines = results(*options(prepared, output, "none,learned,rope", evaluate_batches=0))
    runs = [(name, seed) for name in ("none", "learned", "rope") for seed in (1, 2)]
    assert [(line["encoding"], line["seed"]) for line in lines] == runs
    by_name = {line["encoding"]: line for line in lines}
    # A learned table has max_position_embeddings rows of hidden_size numbers, and ends where the training length does.
    assert by_name["learned"]["parameters"] - by_name["none"]["parameters"] == 16 * MODEL["hidden_size"]
    assert by_name["learned"]["loss"]["32"] is None and by_name["rope"]["loss"]["64"] > 0
    # Weights, gradients and two moments, four bytes each, are alive at once.
    assert all(line["step_ms"] > 0 and line["peak_bytes"] > 16 * line["parameters"] for line in lines)
    table = (output / "table.md").read_text().splitlines()
    assert len(table) == 2 + 3 + 1 and table[-1].startswith("| (token frequencies) | - | - | - | - | ")
    with (output / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, line in zip(rows, lines, strict=True):
        log = (output / line["encoding"] / f"seed-{line['seed']}" / "metrics.jsonl").read_text().splitlines()
        steps = [entry for entry in map(json.loads, log) if entry["type"] == "train"]
        seconds, tokens = (sum(step[key] for step in steps) for key in ("seconds", "tokens"))
        assert line["seconds"] == pytest.approx(seconds) and line["tokens"] == tokens > 0
        assert row["tokens_per_second"] == f"{tokens / seconds:.1f}"
        assert row["loss_128"] == (f"{line['loss']['128']:.6f}" if row["encoding"] != "learned" else "")
    # Every line has the loss of token frequencies, as `evaluate` measures it on the same tokens.
    assert all(line["unigram_loss"] == lines[0]["unigram_loss"] for line in lines)
    for length, unigram_loss in lines[0]["unigram_loss"].items():
        evaluation = ["--data", prepared / "data", "--batch", 3, *(() if length == "16" else ("--max-length", length))]
        (measured,) = results("evaluate", "--model", output / "rope" / "seed-1", *evaluation)
        assert measured["max_length"] == int(length)
        assert unigram_loss == pytest.approx(measured["unigram_loss"], rel=tolerances.STATISTICS_RTOL)
        assert f" {unigram_loss:.3f} |" in table[-1]


def test_runs_share_data_order_and_initialisation(prepared, tmp_path):
    """Two arms of one function have the same bits at every step, with dropout; other seeds have others. Weights that
    are not an encoding's start alike in arms of two functions: a rate of 1e-30 leaves them where they are."""
    keys = dict(stages=[dict(max_length=16, batch=4, steps=6)], log_every_steps=1, evaluate_batches=1)
    results(*options(prepared, tmp_path / "alike", "rope,rope:rope_theta=10000.0", 2, **keys))
    one, two, again, two_again = (
        [line["loss"] for line in metrics(tmp_path / "alike" / name / f"seed-{seed}", "train")]
        for name, seed in itertools.product(("rope", "rope+rope_theta=10000.0"), (1, 2))
    )
    assert len(one) == 6 and one == again and two == two_again
    assert not set(one) & set(two)

    keys |= dict(schedule=dict(kind="constant", learning_rate=1e-30, warmup_steps=0))
    results(*options(prepared, tmp_path / "still", "none,learned,t5:scale=sqrt", 1, **keys))
    folders = (tmp_path / "still" / name / "seed-1" for name in ("none", "learned", "t5+scale=sqrt"))
    none, *others = (load_file(folder / "model.safetensors") for folder in folders)
    for other in others:
        body = {name: values for name, values in other.items() if not name.startswith("position_encoding.")}
        assert body.keys() == none.keys() and len(body) < len(other)
        for name, values in none.items():
            np.testing.assert_allclose(body[name], values, rtol=0, atol=tolerances.STILL_WEIGHTS, err_msg=name)


def test_more_arms_and_seeds_leave_what_is_done_as_it_is(prepared, finished):
    """And are refused where the runs were by other rules."""
    before = (finished / "none" / "seed-1" / "result.json").stat().st_mtime_ns
    lines = results(*options(prepared, finished, "none,rope", 2))
    assert len(lines) == 4
    steps = metrics(finished / "none" / "seed-1", "train")
    assert lines[0]["tokens"] == sum(step["tokens"] for step in steps) > 0 and lines[0]["seconds"] > 0
    assert (finished / "none" / "seed-1" / "result.json").stat().st_mtime_ns == before
    settings = json.loads((finished / "compare.json").read_text())
    (finished / "compare.json").write_text(json.dumps(settings | {"rules": 1}))
    message = refused(*options(prepared, finished, "none,rope", 2))
    assert "[compare] the settings must be those of the comparison" in message and "rules" in message


def test_a_run_that_diverges_does_not_end_the_comparison(prepared, tmp_path):
    keys = dict(schedule=dict(kind="constant", learning_rate=1e30, warmup_steps=0))
    arguments = options(prepared, tmp_path / "out", "none,rope", 2, "--lengths", "1,2", **keys)
    first = results(*arguments)
    assert [(line["encoding"], line["seed"]) for line in first] == [("none", 1), ("none", 2), ("rope", 1), ("rope", 2)]
    for line in first:
        assert line["loss"] == {"16": None, "32": None} and 1 < line["diverged_at_step"] <= 4
    assert set(losses(tmp_path / "out").values()) == {"nan"}
    table = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert len(table) == 5 and all(row.endswith("| 2 diverged | 2 diverged |") for row in table[2:4])
    # They are finished: called again, nothing is trained.
    metrics = tmp_path / "out" / "rope" / "seed-2" / "metrics.jsonl"
    before = metrics.stat().st_mtime_ns
    assert results(*arguments) == first and metrics.stat().st_mtime_ns == before


def test_a_signal_in_the_last_evaluation_of_a_run(prepared, tmp_path):
    """That run is complete and is measured; the next one is not begun."""
    output = tmp_path / "out"
    arguments = options(prepared, output, "none,rope", 1, evaluate_lengths=list(range(8, 400)))
    log, result = output / "none" / "seed-1" / "metrics.jsonl", output / "none" / "seed-1" / "result.json"
    code, _, _ = stopped(signal.SIGINT, lambda: log.exists() and '"step":4' in log.read_text(), *arguments)
    assert code == 128 + signal.SIGINT
    kept = result.read_text()
    assert not (output / "rope").exists()
    results(*arguments)
    assert result.read_text() == kept
    assert (output / "rope" / "seed-1" / "result.json").exists()


def test_interrupted_comparison_goes_on_to_the_same_numbers(prepared, tmp_path):
    """Ended by a signal in its first run, and killed in its second one, each after a checkpoint and before the end."""
    keys = dict(stages=[dict(max_length=16, batch=4, steps=60)], checkpoint_every_steps=3)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    results(*options(prepared, whole, "rope,none", 1, **keys))
    again = options(prepared, parts, "rope,none", 1, **keys)
    for name, kill, expected in (("rope", signal.SIGTERM, 143), ("none", signal.SIGKILL, -signal.SIGKILL)):
        folder = parts / name / "seed-1"
        code, _, _ = stopped(kill, lambda: list(folder.glob("checkpoint-*")), *again)  # noqa: B023, waited for here
        assert code == expected
        assert list(folder.glob("checkpoint-*")) and not (folder / "model.safetensors").exists()
    results(*again)
    for name in ("rope", "none"):
        steps = [line["step"] for line in metrics(parts / name / "seed-1")]
        assert steps == sorted(steps) and max(steps) == 60
    assert losses(parts) == losses(whole)


def test_a_result_with_a_wrong_value_is_named(prepared, finished):
    path = finished / "none" / "seed-1" / "result.json"
    good = json.loads(path.read_text())
    for key, value in (("losses", 5), ("losses", []), ("losses", ["x"]), ("seed", "1"), ("step_ms", None)):
        path.write_text(json.dumps(good | {key: value}))
        message = refused(*options(prepared, finished, "none", 1))
        assert str(path) in message and key in message


def test_bad_settings(prepared, finished, tmp_path):
    assert "seeds" in refused(*options(prepared, tmp_path / "a", "none", 0))
    assert "multiples" in refused(*options(prepared, tmp_path / "b", "none", 1, "--lengths", "0"))
    message = refused(*options(prepared, tmp_path / "twice", "rope,rope"))
    assert "rope" in message and "twice" in message and not (tmp_path / "twice").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    assert "empty" in refused(*options(prepared, tmp_path / "full", "none"))
    assert "seed" in refused(*options(prepared, finished, "none", 1, "--seed", 5))
    assert "--encodings" in refused("compare", "--data", prepared, "--output", tmp_path / "c", code=2)
