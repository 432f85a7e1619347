"""Kill -9 at random moments, resume, and compare with a run that was never interrupted: the same bytes (R-TRN-10).

The run crosses a change of stage, accumulates gradients, drops out, evaluates, and writes a checkpoint every other
step.
"""

import json
import os
import random
import shutil
import subprocess
import time

import numpy as np
import pytest

from cli_support import MODEL, PROGRAM, results, run, run_file

TIMING = ("seconds", "tokens_per_second")
KEYS = dict(
    model={**MODEL, "num_hidden_layers": 2},
    stages=[dict(max_length=16, batch=8, steps=21, accumulate=2), dict(max_length=24, batch=4, steps=16)],
    log_every_steps=3,
    evaluate_every_steps=7,
    evaluate_lengths=[8, 40],
    checkpoint_every_steps=2,
)


CHECKPOINT_FILES = {
    "config.json",
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
}


def command(prepared, output):
    return ["pretrain", "--data", prepared / "data", "--config", prepared / "resume.json", "--output", output]


def metrics(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMING} for line in lines]


def start(arguments, threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    return subprocess.Popen(
        [PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )


def lines_written(output):
    path = output / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_after(arguments, output, lines, seconds, threads):
    """Starts the program and kills it some seconds after it has written some lines more than there are; True when it
    was still running."""
    child = start(arguments, threads)
    target = lines_written(output) + lines
    while child.poll() is None and lines_written(output) < target:
        time.sleep(0.001)
    time.sleep(seconds)
    running = child.poll() is None
    child.kill()
    child.wait()
    return running


def kill_while_writing(arguments, output, threads):
    """Starts the program, lets it write a line of metrics more than there are, and kills it as soon as a checkpoint's
    temporary directory is seen; True when one was left."""
    child = start(arguments, threads)
    target = lines_written(output) + 1
    while child.poll() is None and not (lines_written(output) >= target and temporaries(output)):
        pass
    child.kill()
    child.wait()
    return bool(temporaries(output))


def temporaries(output):
    return list(output.glob(".checkpoint-*")) if output.exists() else []


def assert_same_run(resumed, whole):
    for name in (
        "model.safetensors",
        "config.json",
        "checkpoint-37/model.safetensors",
        "checkpoint-37/optimizer.safetensors",
        "checkpoint-37/state.json",
    ):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes(), name
    assert metrics(resumed) == metrics(whole)
    assert sorted(path.name for path in resumed.iterdir()) == sorted(path.name for path in whole.iterdir())


@pytest.fixture(scope="module")
def whole(request, prepared, tmp_path_factory):
    """An uninterrupted run, and its number of threads."""
    threads = request.param
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_file(prepared / "resume.json", **KEYS)
    results(*command(prepared, folder), threads=threads)
    return folder, threads


@pytest.mark.parametrize("whole", [1, 2], indirect=True)
def test_killed_runs_go_on_bit_for_bit(prepared, whole, tmp_path):
    expected, threads = whole
    rng = random.Random(threads)
    output = tmp_path / "run"
    kills = 0
    for _ in range(6):
        resume = ["--resume"] if output.exists() else []
        # From the start of the program to a few steps on; each attempt goes on where the last checkpoint is.
        arguments = [*command(prepared, output), *resume]
        kills += kill_after(arguments, output, rng.randint(0, 3), rng.uniform(0, 0.05), threads)
        for checkpoint in output.glob("checkpoint-*"):  # whatever is there is whole
            assert {path.name for path in checkpoint.iterdir()} == CHECKPOINT_FILES
    assert kills > 0
    (report,) = results(*command(prepared, output), "--resume", threads=threads)
    assert report["steps"] == 37
    assert_same_run(output, expected)


@pytest.mark.parametrize("whole", [1], indirect=True)
def test_killed_while_a_checkpoint_is_written(prepared, whole, tmp_path):
    expected, threads = whole
    output = tmp_path / "run"
    caught = 0
    for attempt in range(12):
        if kill_while_writing([*command(prepared, output), *(["--resume"] if attempt else [])], output, threads):
            caught += 1
        if caught == 2:
            break
    assert caught > 0
    results(*command(prepared, output), "--resume", threads=threads)
    assert_same_run(output, expected)


@pytest.mark.parametrize("whole", [1], indirect=True)
@pytest.mark.parametrize("step", [2, 20, 22, 36])
def test_every_kind_of_checkpoint_can_be_resumed(prepared, whole, tmp_path, step):
    """Before, just before and just after the change of stage (step 21), and at the end; killed at the first chance."""
    expected, threads = whole
    output = tmp_path / "run"
    run_file(tmp_path / "resume.json", **{**KEYS, "keep_checkpoints": 100})
    results(
        "pretrain",
        "--data",
        prepared / "data",
        "--config",
        tmp_path / "resume.json",
        "--output",
        output,
        threads=threads,
    )
    for checkpoint in output.glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) > step:
            for path in checkpoint.iterdir():
                path.unlink()
            checkpoint.rmdir()
    (output / "model.safetensors").unlink()
    done = run(*command(prepared, output), "--resume", threads=threads)
    assert done.returncode == 0 and f"resuming at step {step} of 37" in done.stderr
    assert_same_run(output, expected)


@pytest.mark.parametrize("whole", [1], indirect=True)
def test_another_number_of_threads_warns(prepared, whole, tmp_path):
    folder, threads = whole
    done = run("pretrain", "--data", prepared / "data", "--output", folder, "--resume", threads=3 - threads)
    assert done.returncode == 0
    assert f"threads was {threads} and is {3 - threads}" in done.stderr


@pytest.mark.parametrize("whole", [1], indirect=True)
@pytest.mark.parametrize(("backend", "warns"), [("plain", False), ("another", True)])
def test_the_product_of_linear_layers_is_kept(prepared, whole, tmp_path, backend, warns):
    folder, threads = whole
    shutil.copytree(folder, tmp_path / "run")
    for path in (tmp_path / "run").glob("checkpoint-*/state.json"):
        state = json.loads(path.read_text())
        linear = state["platform"]["linear"]
        state["platform"]["linear"] = {k: v if v == "torch" else backend for k, v in linear.items()}
        path.write_text(json.dumps(state))
    done = run("pretrain", "--data", prepared / "data", "--output", tmp_path / "run", "--resume", threads=threads)
    assert done.returncode == 0
    assert ("linear was" in done.stderr) == warns


@pytest.mark.parametrize("whole", [1], indirect=True)
@pytest.mark.parametrize(
    ("platform", "code"), [({"linear": {"bfloat16": 5}}, 0), ({"linear": 5}, 0), ({}, 0), (None, 1)]
)
def test_a_damaged_record_of_the_platform(prepared, whole, tmp_path, platform, code):
    folder, threads = whole
    shutil.copytree(folder, tmp_path / "run")
    for path in (tmp_path / "run").glob("checkpoint-*/state.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"platform": platform}))
    done = run("pretrain", "--data", prepared / "data", "--output", tmp_path / "run", "--resume", threads=threads)
    assert done.returncode == code
    assert "internal error" not in done.stderr


def test_resume_without_a_checkpoint_starts_and_says_so(prepared, tmp_path):
    config = run_file(tmp_path / "run.json")
    done = run("pretrain", "--data", prepared / "data", "--config", config, "--output", tmp_path / "run", "--resume")
    assert done.returncode == 0 and "starting at step 0" in done.stderr


@pytest.mark.parametrize("whole", [1], indirect=True)
def test_a_damaged_line_of_the_metrics_costs_no_other(prepared, whole, tmp_path):
    folder, threads = whole
    output = tmp_path / "run"
    shutil.copytree(folder, output)
    lines = (output / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines[2] = "{" + lines[2]
    (output / "metrics.jsonl").write_text("".join(lines))
    done = run("pretrain", "--data", prepared / "data", "--output", output, "--resume", threads=threads)
    assert done.returncode == 0 and "metrics.jsonl.damaged-1" in done.stderr
    assert (output / "metrics.jsonl").read_text() == "".join(lines[:2] + lines[3:])
    assert (output / "metrics.jsonl.damaged-1").read_text() == "".join(lines)


@pytest.mark.parametrize("whole", [1], indirect=True)
def test_checkpoints_that_a_kill_left_over_go(prepared, whole, tmp_path):
    """A kill after a checkpoint was renamed into place and before the oldest was dropped, or while it was."""
    folder, threads = whole
    output = tmp_path / "run"
    shutil.copytree(folder, output)
    kept = {path.name for path in output.glob("checkpoint-*")}
    shutil.copytree(output / "checkpoint-37", output / "checkpoint-2")
    (output / ".checkpoint-1.tmp").mkdir()
    results("pretrain", "--data", prepared / "data", "--output", output, "--resume", threads=threads)
    assert {path.name for path in output.glob("*checkpoint-*")} == kept
    assert not (output / ".checkpoint-1.tmp").exists()


@pytest.mark.parametrize("whole", [1], indirect=True)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run", 5),
        ("run", None),
        ("data", {}),
        ("step", "2"),
        ("cursor", {"epoch": 0, "row": "x"}),
        ("cursor", [1]),
        ("interval", {"loss_sum": []}),
        ("evaluation", 7),
        ("version", "2"),
    ],
)
def test_a_state_with_a_wrong_value_is_named(prepared, whole, tmp_path, key, value):
    folder, threads = whole
    output = tmp_path / "run"
    shutil.copytree(folder, output)
    for path in output.glob("checkpoint-*/state.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    done = run("pretrain", "--data", prepared / "data", "--output", output, "--resume", threads=threads)
    assert done.returncode == 1 and key in done.stderr, done.stderr
    assert "state.json" in done.stderr or key == "data"


@pytest.mark.parametrize("whole", [1], indirect=True)
def test_more_steps_than_the_run_had(prepared, whole, tmp_path):
    folder, _ = whole
    stages = [KEYS["stages"][0], {**KEYS["stages"][1], "steps": 30}]
    config = run_file(tmp_path / "longer.json", **{**KEYS, "stages": stages})
    done = run("pretrain", "--data", prepared / "data", "--config", config, "--output", folder, "--resume")
    assert done.returncode == 1 and "/stages/1/steps" in done.stderr and "init_from" in done.stderr
    longer = run_file(tmp_path / "more.json", **{**KEYS, "init_from": str(folder)})
    more = json.loads(longer.read_text())
    del more["model"]
    longer.write_text(json.dumps(more))
    results("pretrain", "--data", prepared / "data", "--config", longer, "--output", tmp_path / "more")


def running(prepared, tmp_path, data):
    """A run of many steps on a copy of the data, once it has written two lines of metrics."""
    shutil.copytree(prepared / "data", data)
    config = run_file(
        tmp_path / "run.json",
        stages=[dict(max_length=16, batch=4, steps=100_000)],
        log_every_steps=1,
        checkpoint_every_steps=20,
        evaluate_every_steps=30,
    )
    arguments = ["pretrain", "--data", data, "--config", config, "--output", tmp_path / "run"]
    child = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while child.poll() is None and lines_written(tmp_path / "run") < 2:
        time.sleep(0.01)
    assert child.poll() is None
    return child


@pytest.mark.parametrize("cut", [100, None], ids=["inside its last page", "to nothing"])
def test_a_shard_that_is_cut_short_while_it_is_read_is_named(prepared, tmp_path, cut):
    child = running(prepared, tmp_path, tmp_path / "data")
    for shard in (tmp_path / "data").glob("train*.rfs"):
        os.truncate(shard, shard.stat().st_size - cut if cut else 0)
    _, message = child.communicate(timeout=60)
    assert child.returncode == 1 and ".rfs" in message.decode() and "must keep its size" in message.decode()


def test_data_that_are_deleted_while_they_are_read(prepared, tmp_path):
    """The run goes on to evaluations and checkpoints, and ends by a signal as it does with its data."""
    child = running(prepared, tmp_path, tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    begun = lines_written(tmp_path / "run")
    while child.poll() is None and lines_written(tmp_path / "run") < begun + 100:
        time.sleep(0.01)
    child.terminate()
    _, message = child.communicate(timeout=60)
    assert child.returncode == 128 + 15 and "a checkpoint was written" in message.decode(), message
    newest = max((tmp_path / "run").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert {path.name for path in newest.iterdir()} == CHECKPOINT_FILES
    assert any(line["type"] == "evaluation" for line in metrics(tmp_path / "run"))


def test_an_unfinished_run_is_read_at_its_newest_checkpoint(prepared, trained, tmp_path):
    """evaluate, fill-mask, forward and embed; a finished run is read as it is."""
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copy(trained / "run.json", unfinished / "run.json")
    commands = [
        ("evaluate", "--data", prepared / "data", "--max-length", 16),
        ("fill-mask", "--text", "ab [MASK]"),
        ("forward", "--ids", tmp_path / "ids.npy", "--output", tmp_path / "out.npy"),
        ("embed", "--text", "ab ab"),
    ]
    np.save(tmp_path / "ids.npy", np.full((1, 4), 7))
    for name, *options in commands:
        done = run(name, "--model", unfinished, *options)
        assert done.returncode == 1 and "must have a model or a checkpoint" in done.stderr
    for checkpoint in trained.glob("checkpoint-*"):
        shutil.copytree(checkpoint, unfinished / checkpoint.name)
    newest = max(unfinished.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    for name, *options in commands:
        done = run(name, "--model", unfinished, *options)
        assert done.returncode == 0 and f"newest checkpoint is used, {newest}" in done.stderr
        expected = run(name, "--model", newest, *options)
        assert (expected.stdout, expected.stderr) == (done.stdout, "")
        assert "checkpoint" not in run(name, "--model", trained, *options).stderr
