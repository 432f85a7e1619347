"""Kill -9 at random moments, resume, and compare with a run that was never interrupted: the same bytes (R-TRN-10). The
run crosses a change of stage, accumulates gradients, drops out, evaluates, and writes a checkpoint every other step.
Damaged states are tests/train/checkpoint_test.cpp's."""

import json
import os
import random
import shutil
import time

import numpy as np
import pytest

from cli_support import MODEL, metrics, pretrain, refused, results, run, run_file, started, wait_for

STAGES = [dict(max_length=16, batch=8, steps=21, accumulate=2), dict(max_length=24, batch=4, steps=16)]
KEYS = dict(model={**MODEL, "num_hidden_layers": 2}, stages=STAGES, log_every_steps=3, evaluate_every_steps=7)
KEYS |= dict(groups=[dict(parameters="*.layer.1.*", learning_rate=0.5, weight_decay=0.2)])
KEYS |= dict(evaluate_lengths=[8, 40], checkpoint_every_steps=2)
CHECKPOINT_FILES = {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}
CHECKPOINT_FILES |= {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}


def command(prepared, output, *more):
    return pretrain(prepared, prepared / "resume.json", output, *more)


def lines_written(output):
    path = output / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def temporaries(output):
    return list(output.glob(".checkpoint-*")) if output.exists() else []


def killed(arguments, until, seconds=0, threads=1):
    """Starts the program and kills it some seconds after something holds; True when it was still running."""
    child = started(*arguments, threads=threads)
    while child.poll() is None and not until():
        pass
    time.sleep(seconds)
    running = child.poll() is None
    child.kill()
    child.communicate()
    return running


def assert_same_run(resumed, whole):
    state = [f"checkpoint-37/{name}" for name in ("model.safetensors", "optimizer.safetensors", "state.json")]
    for name in ("model.safetensors", "config.json", *state):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes(), name
    assert metrics(resumed) == metrics(whole)
    assert sorted(path.name for path in resumed.iterdir()) == sorted(path.name for path in whole.iterdir())


def whole_run(prepared, folder, threads):
    run_file(prepared / "resume.json", **KEYS)
    results(*command(prepared, folder), threads=threads)
    return folder


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory):
    """An uninterrupted run of one thread; not to be changed."""
    return whole_run(prepared, tmp_path_factory.mktemp("whole") / "run", 1)


@pytest.fixture(scope="module")
def all_checkpoints(prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("all")
    config = run_file(folder / "run.json", **KEYS, keep_checkpoints=100)
    results(*pretrain(prepared, config, folder / "run"))
    return folder / "run"


@pytest.mark.parametrize("threads", [1, 2])
def test_killed_runs_go_on_bit_for_bit(prepared, whole, tmp_path, threads):
    expected = whole if threads == 1 else whole_run(prepared, tmp_path / "whole", threads)
    rng = random.Random(threads)
    output = tmp_path / "run"
    kills = 0
    for _ in range(5):
        # From the start of the program to a few steps on; each attempt goes on where the last checkpoint is.
        target = lines_written(output) + rng.randint(0, 4)
        given = command(prepared, output, *(["--resume"] if output.exists() else []))
        kills += killed(given, lambda: lines_written(output) >= target, rng.uniform(0, 0.05), threads)  # noqa: B023
        for checkpoint in output.glob("checkpoint-*"):  # whatever is there is whole
            assert {path.name for path in checkpoint.iterdir()} == CHECKPOINT_FILES
    assert kills > 0
    (report,) = results(*command(prepared, output, "--resume"), threads=threads)
    assert report["steps"] == 37
    assert_same_run(output, expected)


def test_killed_while_a_checkpoint_is_written(prepared, whole, tmp_path):
    """After a line of metrics more than there are, as soon as a checkpoint's temporary directory is seen."""
    output = tmp_path / "run"
    caught = 0
    for attempt in range(12):
        target = lines_written(output) + 1
        given = command(prepared, output, *(["--resume"] if attempt else []))
        killed(given, lambda: lines_written(output) >= target and temporaries(output))  # noqa: B023
        caught += bool(temporaries(output))
        if caught == 2:
            break
    assert caught > 0
    results(*command(prepared, output, "--resume"))
    assert_same_run(output, whole)


@pytest.mark.parametrize("step", [20, 22, 36])
def test_every_kind_of_checkpoint_can_be_resumed(prepared, whole, all_checkpoints, tmp_path, step):
    """Just before and just after the change of stage (step 21), and at the end."""
    output = shutil.copytree(all_checkpoints, tmp_path / "run")
    for checkpoint in output.glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) > step:
            shutil.rmtree(checkpoint)
    (output / "model.safetensors").unlink()
    done = run(*command(prepared, output, "--resume"))
    assert done.returncode == 0 and f"resuming at step {step} of 37" in done.stderr
    assert_same_run(output, whole)


def test_the_platform_is_recorded(prepared, whole, tmp_path):
    """Another number of threads, or another product of linear layers, warns."""
    copy = shutil.copytree(whole, tmp_path / "run")
    states = list(copy.glob("checkpoint-*/state.json"))
    platform = json.loads(states[0].read_text())["platform"]
    linear = platform["linear"]
    plain, another = ({k: v if v == "torch" else name for k, v in linear.items()} for name in ("plain", "another"))
    for changed, threads, code, warning in (
        (platform, 2, 0, "threads was 1 and is 2"),
        (platform | {"linear": plain}, 1, 0, None),
        (platform | {"linear": another}, 1, 0, "linear was"),
        ({"linear": {"bfloat16": 5}}, 1, 0, "linear was"),
        ({"linear": 5}, 1, 0, "linear was"),
        (None, 1, 1, "platform"),
    ):
        for path in states:
            path.write_text(json.dumps(json.loads(path.read_text()) | {"platform": changed}))
        done = run("pretrain", "--data", prepared / "data", "--output", copy, "--resume", threads=threads)
        assert done.returncode == code and "internal error" not in done.stderr, changed
        assert "linear was" not in done.stderr if warning is None else warning in done.stderr, changed


def test_resume_without_a_checkpoint_starts_and_says_so(prepared, tmp_path):
    """Also with a short name of a type, which the run does not keep."""
    done = run(*pretrain(prepared, run_file(tmp_path / "run.json", precision="bf16"), tmp_path / "run", "--resume"))
    assert done.returncode == 0 and "starting at step 0" in done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["precision"] == "bfloat16"


def test_more_steps_than_the_run_had(prepared, whole, tmp_path):
    config = run_file(tmp_path / "longer.json", **KEYS | dict(stages=[STAGES[0], {**STAGES[1], "steps": 30}]))
    message = refused(*pretrain(prepared, config, whole, "--resume"))
    assert "/stages/1/steps" in message and "init_from" in message
    more = {key: value for key, value in KEYS.items() if key != "model"}
    results(*pretrain(prepared, run_file(tmp_path / "more.json", **more, init_from=str(whole)), tmp_path / "more"))


@pytest.fixture
def running(prepared, tmp_path):
    """A run of many steps on a copy of the data, once it has written two lines of metrics."""
    shutil.copytree(prepared / "data", tmp_path / "data")
    keys = dict(stages=[dict(max_length=16, batch=4, steps=100_000)], log_every_steps=1, evaluate_every_steps=30)
    config = run_file(tmp_path / "run.json", **keys, checkpoint_every_steps=20)
    child = started(*pretrain(tmp_path, config, tmp_path / "run"))
    wait_for(lambda: lines_written(tmp_path / "run") >= 2, child)
    yield child
    child.kill()
    child.wait()


@pytest.mark.parametrize("cut", [100, None], ids=["inside its last page", "to nothing"])
def test_a_shard_that_is_cut_short_while_it_is_read_is_named(running, tmp_path, cut):
    for shard in (tmp_path / "data").glob("train*.rfs"):
        os.truncate(shard, shard.stat().st_size - cut if cut else 0)
    _, message = running.communicate(timeout=60)
    assert running.returncode == 1 and ".rfs" in message and "must keep its size" in message


def test_data_that_are_deleted_while_they_are_read(running, tmp_path):
    """The run goes on to evaluations and checkpoints, and ends by a signal as it does with its data."""
    shutil.rmtree(tmp_path / "data")
    begun = lines_written(tmp_path / "run")
    wait_for(lambda: lines_written(tmp_path / "run") >= begun + 100, running)
    running.terminate()
    _, message = running.communicate(timeout=60)
    assert running.returncode == 128 + 15 and "a checkpoint was written" in message, message
    newest = max((tmp_path / "run").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert {path.name for path in newest.iterdir()} == CHECKPOINT_FILES
    assert metrics(tmp_path / "run", "evaluation")


def test_an_unfinished_run_is_read_at_its_newest_checkpoint(prepared, trained, tmp_path):
    """evaluate, fill-mask, forward and embed; a finished run is read as it is."""
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copy(trained / "run.json", unfinished / "run.json")
    np.save(tmp_path / "ids.npy", np.full((1, 4), 7))
    commands = [
        ("fill-mask", "--text", "ab [MASK]"),
        ("evaluate", "--data", prepared / "data", "--max-length", 16),
        ("forward", "--ids", tmp_path / "ids.npy", "--output", tmp_path / "out.npy"),
        ("embed", "--text", "ab ab"),
    ]
    for name, *options in commands:
        assert "must have a model or a checkpoint" in refused(name, "--model", unfinished, *options)
    for checkpoint in trained.glob("checkpoint-*"):
        shutil.copytree(checkpoint, unfinished / checkpoint.name)
    newest = unfinished / "checkpoint-6"
    for name, *options in commands:
        done = run(name, "--model", unfinished, *options)
        assert done.returncode == 0 and f"newest checkpoint is used, {newest}" in done.stderr
    name, *options = commands[0]
    expected = run(name, "--model", newest, *options)
    assert (expected.stdout, expected.stderr) == (run(name, "--model", unfinished, *options).stdout, "")
    assert "checkpoint" not in run(name, "--model", trained, *options).stderr
