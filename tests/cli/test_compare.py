"""roformer compare: tables, resuming, and what it refuses."""

import csv
import json
import os
import signal
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

import tolerances
from cli_support import MODEL, PROGRAM, hear_interrupts, make_data, refused, results, run, run_file, wait_for


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    make_data(folder)
    run_file(
        folder / "run.json",
        model={**MODEL, "max_position_embeddings": 16},
        stages=[dict(max_length=16, batch=4, steps=4)],
        evaluate_batches=2,
    )
    return folder


def options(data, output, encodings, seeds=2, *more, config="run.json"):
    return [
        "compare",
        "--encodings",
        encodings,
        "--data",
        data / "data",
        "--config",
        data / config,
        "--output",
        output,
        "--seeds",
        seeds,
        *more,
    ]


def losses(output):
    with (output / "table.csv").open(newline="") as file:
        return {(row["encoding"], row["seed"]): row["loss_16"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("objective", ["masked", "causal"])
def test_all_are_those_that_the_model_can_have(data, tmp_path, objective):
    """A bidirectional model leaves out what needs causal attention, by name; both leave out what needs keys."""
    infos = results("info", "--encodings")
    run_file(
        data / f"{objective}.json",
        model={**MODEL, "max_position_embeddings": 16},
        objective=objective,
        stages=[dict(max_length=16, batch=2, steps=1)],
        evaluate_batches=1,
    )
    done = run(*options(data, tmp_path / "out", "all", 1, "--lengths", 1, config=f"{objective}.json"))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    trained = {line["encoding"]: line["loss"]["16"] for line in lines}
    left = {line.split()[2].rstrip(":") for line in done.stderr.splitlines() if line.startswith("left out ")}
    assert trained.keys() | left == {info["name"] for info in infos} and not trained.keys() & left
    needs_causal = {info["name"] for info in infos if info["needs_causal"]}
    needs_keys = {info["name"] for info in infos if any(" (required" in key for key in info["keys"])}
    assert left == (needs_keys if objective == "causal" else needs_keys | needs_causal)
    assert all(loss > 0 for loss in trained.values())


def test_table_has_a_row_for_every_run(data, tmp_path):
    output = tmp_path / "out"
    model = {**MODEL, "max_position_embeddings": 16}
    run_file(data / "whole.json", model=model, stages=[dict(max_length=16, batch=4, steps=4)])
    lines = results(*options(data, output, "none,learned,rope", config="whole.json"))
    assert [(line["encoding"], line["seed"]) for line in lines] == [
        (name, seed) for name in ("none", "learned", "rope") for seed in (1, 2)
    ]
    by_name = {line["encoding"]: line for line in lines}
    # A learned table has max_position_embeddings rows of hidden_size numbers, and ends where the training length does.
    assert by_name["learned"]["parameters"] - by_name["none"]["parameters"] == 16 * MODEL["hidden_size"]
    assert by_name["learned"]["loss"]["32"] is None and by_name["rope"]["loss"]["64"] > 0
    # Weights, gradients and two moments, four bytes each, are alive at once.
    assert all(line["step_ms"] > 0 and line["peak_bytes"] > 16 * line["parameters"] for line in lines)
    table = (output / "table.md").read_text().splitlines()
    assert len(table) == 2 + 3 + 1 and table[-1].startswith("| (token frequencies) | - | - | - | ")
    # Every line has the loss of token frequencies, as `evaluate` measures it on the same tokens.
    assert all(line["unigram_loss"] == lines[0]["unigram_loss"] for line in lines)
    for length, unigram_loss in lines[0]["unigram_loss"].items():
        evaluation = ["--data", data / "data", "--batch", 3, *(() if length == "16" else ("--max-length", length))]
        (measured,) = results("evaluate", "--model", output / "rope" / "seed-1", *evaluation)
        assert measured["max_length"] == int(length)
        assert unigram_loss == pytest.approx(measured["unigram_loss"], rel=tolerances.STATISTICS_RTOL)
        assert f" {unigram_loss:.3f} |" in table[-1]
    assert (output / "table.svg").read_text().startswith("<svg")


def training_losses(run_dir):
    metrics = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in metrics if line["type"] == "train"]


def test_runs_share_data_order_and_initialisation(data, tmp_path):
    """Two arms of one function have the same bits at every step, with dropout; other seeds have others. Weights that
    are not an encoding's start alike in arms of two functions: a rate of 1e-30 leaves them where they are."""
    model = {**MODEL, "max_position_embeddings": 16}
    keys = dict(model=model, stages=[dict(max_length=16, batch=4, steps=6)], log_every_steps=1, evaluate_batches=1)
    run_file(data / "alike.json", **keys)
    results(*options(data, tmp_path / "alike", "rope,rope:rope_theta=10000.0", 2, config="alike.json"))
    losses_of = {
        (name, seed): training_losses(tmp_path / "alike" / name / f"seed-{seed}")
        for name in ("rope", "rope+rope_theta=10000.0")
        for seed in (1, 2)
    }
    (one, two), (again, two_again) = (list(losses_of.values())[i : i + 2] for i in (0, 2))
    assert len(one) == 6 and one == again and two == two_again
    assert not set(one) & set(two)

    still = dict(kind="constant", learning_rate=1e-30, warmup_steps=0)
    run_file(data / "still.json", **{**keys, "schedule": still})
    results(*options(data, tmp_path / "still", "none,learned,t5:scale=sqrt", 1, config="still.json"))
    none, learned, t5 = (
        load_file(tmp_path / "still" / name / "seed-1" / "model.safetensors")
        for name in ("none", "learned", "t5+scale=sqrt")
    )
    for other in (learned, t5):
        body = {name: values for name, values in other.items() if not name.startswith("position_encoding.")}
        assert body.keys() == none.keys() and len(body) < len(other)
        for name, values in none.items():
            np.testing.assert_allclose(body[name], values, rtol=0, atol=1e-28, err_msg=name)


def test_a_comparison_of_an_earlier_version_is_shown_but_not_added_to(data, tmp_path):
    """Its masks and initial values followed other rules."""
    output = tmp_path / "out"
    results(*options(data, output, "none", 1))
    settings = json.loads((output / "compare.json").read_text())
    assert settings.pop("rules") == 2
    (output / "compare.json").write_text(json.dumps(settings))
    (shown,) = results(*options(data, output, "none", 1))
    assert shown["encoding"] == "none"
    message = refused(*options(data, output, "none,rope", 1))
    assert "[compare] the runs of a comparison must share the rules of masks and initial values" in message
    assert "without rope, seed 1; give another --output" in message


def test_more_arms_and_seeds_leave_what_is_done_as_it_is(data, tmp_path):
    output = tmp_path / "out"
    results(*options(data, output, "none", 1))
    before = (output / "none" / "seed-1" / "result.json").stat().st_mtime_ns
    lines = results(*options(data, output, "none,rope", 2))
    assert len(lines) == 4
    assert (output / "none" / "seed-1" / "result.json").stat().st_mtime_ns == before


def test_a_run_that_diverges_does_not_end_the_comparison(data, tmp_path):
    run_file(
        data / "diverging.json",
        model={**MODEL, "max_position_embeddings": 16},
        stages=[dict(max_length=16, batch=4, steps=4)],
        schedule=dict(kind="constant", learning_rate=1e30, warmup_steps=0),
        evaluate_batches=2,
    )
    arguments = options(data, tmp_path / "out", "none,rope", 2, "--lengths", "1,2", config="diverging.json")
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


def test_a_signal_in_the_last_evaluation_of_a_run(data, tmp_path):
    """That run is complete and is measured; the next one is not begun."""
    run_file(
        data / "evaluating.json",
        model={**MODEL, "max_position_embeddings": 16},
        stages=[dict(max_length=16, batch=4, steps=4)],
        evaluate_batches=2,
        evaluate_lengths=list(range(8, 400)),
    )
    output = tmp_path / "out"
    arguments = options(data, output, "none,rope", 1, config="evaluating.json")
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    child = subprocess.Popen(
        [PROGRAM, *map(str, arguments)], stderr=subprocess.DEVNULL, env=environment, preexec_fn=hear_interrupts
    )
    try:
        metrics = output / "none" / "seed-1" / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and '"step":4' in metrics.read_text(), child)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 128 + signal.SIGINT
    finally:
        child.kill()
        child.wait()
    kept = (output / "none" / "seed-1" / "result.json").read_text()
    assert not (output / "rope").exists()
    results(*arguments)
    assert (output / "none" / "seed-1" / "result.json").read_text() == kept
    assert (output / "rope" / "seed-1" / "result.json").exists()


def test_interrupted_comparison_goes_on_to_the_same_numbers(data, tmp_path):
    """Ended by a signal in its first run, and killed in its second one, each after a checkpoint and before the end."""
    run_file(
        data / "long.json",
        stages=[dict(max_length=16, batch=4, steps=60)],
        evaluate_batches=2,
        checkpoint_every_steps=3,
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    results(*options(data, whole, "rope,none", 1, config="long.json"))
    again = options(data, parts, "rope,none", 1, config="long.json")
    arguments = [PROGRAM, *map(str, again)]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    for name, kill, code in (("rope", signal.SIGTERM, 128 + signal.SIGTERM), ("none", signal.SIGKILL, -signal.SIGKILL)):
        folder = parts / name / "seed-1"
        child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        wait_for(lambda: list(folder.glob("checkpoint-*")), child)  # noqa: B023, waited for here
        child.send_signal(kill)
        assert child.wait(timeout=60) == code
        assert list(folder.glob("checkpoint-*")) and not (folder / "model.safetensors").exists()
    results(*again)
    for name in ("rope", "none"):
        steps = [json.loads(line)["step"] for line in (parts / name / "seed-1" / "metrics.jsonl").open()]
        assert steps == sorted(steps) and max(steps) == 60
    assert losses(parts) == losses(whole)


def test_a_damaged_line_of_the_metrics_is_told(data, tmp_path):
    output = tmp_path / "out"
    results(*options(data, output, "none", 1))
    folder = output / "none" / "seed-1"
    (folder / "result.json").unlink()
    damaged = "{\n" + (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(damaged)
    done = run(*options(data, output, "none", 1))
    assert done.returncode == 0, done.stderr
    assert str(folder / "metrics.jsonl.damaged-1") in done.stderr
    assert (folder / "metrics.jsonl.damaged-1").read_text() == damaged


@pytest.mark.parametrize(
    ("key", "value"),
    [("losses", 5), ("losses", []), ("losses", ["x"]), ("seed", "1"), ("encoding", 7), ("step_ms", None)],
)
def test_a_result_with_a_wrong_value_is_named(data, tmp_path, key, value):
    output = tmp_path / "out"
    results(*options(data, output, "none", 1))
    path = output / "none" / "seed-1" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    message = refused(*options(data, output, "none", 1))
    assert str(path) in message and key in message


@pytest.mark.parametrize(
    "encodings, words",
    [
        ("lerned", ["lerned", "learned"]),
        ("rope,rope", ["rope", "twice"]),
        ("", ["name"]),
        ("learned:colour=red", ["colour"]),
        ("learned:max_position_embeddings=0", ["max_position_embeddings", "0"]),
        ("learned:x", ["name:key=value"]),
    ],
)
def test_bad_encodings_are_named_before_anything_is_trained(data, tmp_path, encodings, words):
    message = refused(*options(data, tmp_path / "out", encodings))
    assert all(word in message for word in words), message
    assert not (tmp_path / "out").exists()


def test_bad_settings(data, tmp_path):
    assert "seeds" in refused(*options(data, tmp_path / "a", "none", 0))
    assert "multiples" in refused(*options(data, tmp_path / "b", "none", 1, "--lengths", "0"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    assert "empty" in refused(*options(data, tmp_path / "full", "none"))
    output = tmp_path / "out"
    results(*options(data, output, "none", 1))
    assert "seed" in refused(*options(data, output, "none", 1, "--seed", 5))
    assert run("compare", "--data", data, "--output", tmp_path / "c").returncode == 2
