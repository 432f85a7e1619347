"""Training by several processes (docs/distributed.md): equal to one process, stopped, resumed, and refused."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

import cli_support
import tolerances as tol
from job_case import RUN, STEPS, bits, errors, finish, free_port, job, lines_of, outcomes, pretrain, start


def weights(run_dir):
    return np.concatenate([x.ravel() for x in load_file(run_dir / "model.safetensors").values()]).astype(np.float64)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    config = cli_support.run_file(folder / "run.json", **RUN)
    arguments = ("pretrain", "--config", config, "--data", data, "--output", folder / "run", "--threads", "1")
    cli_support.results(*arguments)
    return folder / "run"


@pytest.fixture(scope="module")
def two(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    (result,) = finish(pretrain(2, data, folder, "run"))
    return folder / "run", result


def test_one_process_has_the_bits_of_the_program(alone, data, tmp_path):
    arguments = ("pretrain", "--config", alone.with_suffix(".json"), "--data", data, "--output", tmp_path / "run")
    finish([start(arguments, None, 1, 0)])
    assert bits(tmp_path / "run") == bits(alone) and lines_of(tmp_path / "run") == lines_of(alone)


def assert_same_run(ours, theirs):
    """Equal but for the order of sums: losses, norms and weights."""
    for a, b in zip(lines_of(ours), lines_of(theirs), strict=True):
        assert a.keys() == b.keys()
        for key, value in b.items():
            assert a[key] == pytest.approx(value, rel=tol.JOB_RTOL) if isinstance(value, float) else a[key] == value
    assert np.abs(weights(ours) - weights(theirs)).max() <= tol.JOB_RTOL
    assert bits(ours) != bits(theirs)


def test_two_processes(alone, two):
    assert_same_run(two[0], alone)
    assert two[1]["steps"] == STEPS


def test_pairs_of_sentences(data, tmp_path):
    """Two processes see the pairs of one, and an evaluation by two has its bits. Rows are so short that most
    micro-batches have a pair and no mask."""
    keys = {**RUN, "pairs": "next_sentence", "stages": [dict(max_length=6, batch=4, accumulate=4, steps=STEPS)]}
    config = cli_support.run_file(tmp_path / "one.json", **keys)
    cli_support.results("pretrain", "--config", config, "--data", data, "--output", tmp_path / "one", "--threads", 1)
    finish(pretrain(2, data, tmp_path, "two", run=keys))
    assert_same_run(tmp_path / "two", tmp_path / "one")
    assert {"pair_loss", "pair_accuracy"} <= lines_of(tmp_path / "two")[0].keys()
    evaluate = ("evaluate", "--model", tmp_path / "one", "--data", data, "--max-length", 16, "--batch", 4)
    evaluate += ("--pairs", "next_sentence", "--threads", "1")
    (one,) = cli_support.results(*evaluate)
    (two,) = finish(job(2, *evaluate))
    assert one == two and one["pairs"] > 10


def test_four_processes(alone, data, tmp_path):
    finish(pretrain(4, data, tmp_path, "run"))
    assert_same_run(tmp_path / "run", alone)
    names = {path.name for path in (tmp_path / "run" / f"checkpoint-{STEPS}").glob("optimizer*")}
    assert names == {f"optimizer-0000{rank}-of-00004.safetensors" for rank in (1, 2, 3, 4)}


def moments(run_dir):
    parts = {}
    for path in sorted((run_dir / f"checkpoint-{STEPS}").glob("optimizer-*")):
        for name, values in load_file(path).items():
            moment, _, begin = name.partition("@")
            parts.setdefault(moment, {})[int(begin)] = values
    return {name: np.concatenate([part[begin] for begin in sorted(part)]) for name, part in parts.items()}


def test_divided_optimizer(two, alone, data, tmp_path):
    """The kernel of the update rounds the last numbers of its input differently, so a bit may differ."""
    finish(pretrain(2, data, tmp_path, "run", run={"sharding": "optimizer"}))
    assert np.abs(weights(tmp_path / "run") - weights(alone)).max() <= tol.JOB_RTOL
    ours, theirs = moments(tmp_path / "run"), moments(two[0])
    sizes = {name: x.size for name, x in load_file(alone / f"checkpoint-{STEPS}" / "optimizer.safetensors").items()}
    assert {name: x.size for name, x in ours.items()} == sizes
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, rtol=1e-5, atol=1e-9, err_msg=name)


def test_a_repeated_job_has_the_same_bits(data, tmp_path):
    for name in ("one", "other"):
        finish(pretrain(3, data, tmp_path, name, run={"sharding": "optimizer"}))
    assert bits(tmp_path / "one") == bits(tmp_path / "other")
    for path in (tmp_path / "one" / f"checkpoint-{STEPS}").glob("optimizer-*"):
        assert path.read_bytes() == (tmp_path / "other" / path.parent.name / path.name).read_bytes()


def test_sums_in_bfloat16(alone, data, tmp_path):
    """Gradients keep 8 bits: near the run in float32, and not equal to it."""
    finish(pretrain(2, data, tmp_path, "run", run={"reduce_precision": "bfloat16"}))
    difference = np.abs(weights(tmp_path / "run") - weights(alone)).max()
    assert tol.JOB_RTOL < difference < tol.JOB_BF16


def test_metrics_of_a_job(two):
    lines = [json.loads(line) for line in (two[0] / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["type"] == "train"]
    for line in train:
        assert line["processes"] == 2 and line["slowest_rank"] in (0, 1)
        assert 0 < line["exposed_seconds"] <= line["seconds"] and 0 < line["communication_seconds"] <= line["seconds"]
        assert 0 < line["slowest_seconds"] <= line["seconds"]


@pytest.mark.parametrize("size", [2, 3])
def test_evaluation_has_the_same_bits(alone, data, size):
    arguments = ("evaluate", "--model", alone, "--data", data, "--batch", "2")
    assert finish(job(size, *arguments)) == cli_support.results(*arguments, "--threads", "1")


def stopped_after(first, data, folder, size, rank, number, **options):
    """A job of which a rank got a signal when the first checkpoint was there; exit codes."""
    processes = pretrain(size, data, folder, "run", *first, run={"stages": LONG, "log_every_steps": 1}, **options)
    end = time.monotonic() + 60
    while not list((folder / "run").glob("checkpoint-*")):
        assert time.monotonic() < end and all(process.poll() is None for process in processes)
        time.sleep(0.01)
    processes[rank].send_signal(number)
    return outcomes(processes)


LONG = [dict(max_length=16, batch=8, accumulate=4, steps=400)]


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(pretrain(2, data, folder, "run", run={"stages": LONG, "log_every_steps": 1}))
    return folder / "run"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_any_rank_stops_all_after_a_checkpoint(undisturbed, data, tmp_path, rank):
    results = stopped_after((), data, tmp_path, 2, rank, signal.SIGTERM)
    assert [code for code, _, _ in results] == [128 + signal.SIGTERM] * 2
    steps = json.loads(results[0][1])["steps"]
    assert (tmp_path / "run" / f"checkpoint-{steps}" / "state.json").exists() and steps < 400
    finish(pretrain(2, data, tmp_path, "run", "--resume", run={"stages": LONG, "log_every_steps": 1}))
    assert bits(tmp_path / "run") == bits(undisturbed) and lines_of(tmp_path / "run") == lines_of(undisturbed)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_job_which_goes_on(undisturbed, data, tmp_path, rank):
    results = stopped_after((), data, tmp_path, 2, rank, signal.SIGKILL)
    assert results[rank][0] == -signal.SIGKILL and results[1 - rank][0] == 1
    assert re.search(r"\[distributed\] every process of the job must take part", results[1 - rank][2])
    finish(pretrain(2, data, tmp_path, "run", "--resume", run={"stages": LONG, "log_every_steps": 1}))
    assert bits(tmp_path / "run") == bits(undisturbed)


@pytest.mark.parametrize("before, after, sharding", [(2, 4, "optimizer"), (4, 1, "optimizer"), (1, 3, "none")])
def test_another_number_of_processes_goes_on(alone, data, tmp_path, before, after, sharding):
    half = {"sharding": sharding}
    processes = pretrain(before, data, tmp_path, "run", run={**half, "checkpoint_every_steps": 6})
    finish(processes)
    for name in ("model.safetensors", f"checkpoint-{STEPS}"):
        path = tmp_path / "run" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    results = outcomes(pretrain(after, data, tmp_path, "run", "--resume", run={**half, "checkpoint_every_steps": 6}))
    assert [code for code, _, _ in results] == [0] * after, results
    assert f"processes was {before} and is {after}" in results[0][2]
    assert_same_run(tmp_path / "run", alone)


def test_more_ranks_than_micro_batches(data, tmp_path):
    errors(pretrain(5, data, tmp_path, "run"), r"accumulate of stages\[0\] must be at least the 5 processes.*got 4")


def test_another_run_file_is_named(data, tmp_path):
    other = cli_support.run_file(tmp_path / "other.json", **{**RUN, "weight_decay": 0.5})
    arguments = ("pretrain", "--config", other, "--data", data, "--output", tmp_path / "run")
    errors(
        pretrain(2, data, tmp_path, "run", of_rank={1: arguments}),
        r"the run file must be the same on every rank, got on rank 1 0.5 at /weight_decay where there was 0.01",
    )


def test_other_data_are_named(data, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(data, other)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("other words altogether\n\n" * 40)
    shutil.rmtree(other)
    options = ("--input", corpus, "--model", data, "--output", other, "--valid-fraction", "0.2")
    cli_support.run("prepare", *options)
    arguments = ("pretrain", "--config", tmp_path / "run.json", "--data", other, "--output", tmp_path / "run")
    errors(
        pretrain(2, data, tmp_path, "run", of_rank={1: arguments}),
        r"the data must be the same on every rank, got on rank 1",
    )


def test_missing_data_of_one_rank_are_named(data, tmp_path):
    arguments = (
        "pretrain",
        "--config",
        tmp_path / "run.json",
        "--data",
        tmp_path / "none",
        "--output",
        tmp_path / "run",
    )
    errors(pretrain(2, data, tmp_path, "run", of_rank={1: arguments}), r"rank 1\].*none")


def test_a_full_disk_of_one_rank_is_named(data, tmp_path):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    errors(pretrain(2, data, tmp_path, "run", before={1: small_files}), r", rank 1\].*File too large")
    assert not list((tmp_path / "run").glob("*checkpoint-*"))


def test_a_missing_rank_is_waited_for_a_limited_time(data, tmp_path):
    config = cli_support.run_file(tmp_path / "run.json", **RUN)
    options = ("--config", config, "--data", data, "--output", tmp_path / "run", "--timeout", "2")
    ((code, _, said),) = outcomes([start(("pretrain", *options), 0, 2, free_port())])
    assert code == 1 and "[distributed] rank 0 of 2 must reach the others at 127.0.0.1" in said
    assert "Traceback" not in said


def test_a_lost_part_of_a_checkpoint_is_named(two, data, tmp_path):
    shutil.copytree(two[0], tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    checkpoint = tmp_path / "run" / f"checkpoint-{STEPS}"
    (checkpoint / "optimizer-00002-of-00002.safetensors").unlink()
    errors(
        pretrain(2, data, tmp_path, "run", "--resume"), r"must have the moments of all 2 ranks, got no optimizer-00002"
    )


@pytest.mark.parametrize("agents", [1, 2])
def test_torchrun_starts_a_killed_job_again(undisturbed, data, tmp_path, agents):
    """Two agents stand for two machines."""
    config = cli_support.run_file(tmp_path / "run.json", **{**RUN, "stages": LONG, "log_every_steps": 1})
    one = ["--standalone"]
    several = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=test"]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={agents}", f"--nproc-per-node={2 // agents}"),
        *("--max-restarts=3", *(one if agents == 1 else several), "-m", "roformer_cpp.pretrain"),
        *("--config", config, "--data", data, "--output", tmp_path / "run", "--timeout", "60"),
    ]
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(cli_support.ROOT / "python"))
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(agents)
    ]
    end = time.monotonic() + 60
    while not list((tmp_path / "run").glob("checkpoint-*")):
        assert time.monotonic() < end and all(agent.poll() is None for agent in started)
        time.sleep(0.01)
    workers = subprocess.run(["pgrep", "-P", str(started[-1].pid)], capture_output=True, text=True, check=True)
    subprocess.run(["kill", "-9", workers.stdout.split()[-1]], check=True)
    said = [agent.communicate(timeout=150)[0] for agent in started]
    assert [agent.returncode for agent in started] == [0] * agents, said
    assert any("resuming at step" in each for each in said) and bits(tmp_path / "run") == bits(undisturbed)


def test_other_weights_of_one_rank_are_named(alone, data, tmp_path):
    """`init_from` at the same path, but on another machine's disk."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        shutil.copytree(alone, tmp_path / name / "model", ignore=shutil.ignore_patterns("checkpoint-*"))
    path = tmp_path / "there" / "model" / "model.safetensors"
    stored = bytearray(path.read_bytes())
    stored[-1] ^= 1
    path.write_bytes(stored)
    run = {key: value for key, value in RUN.items() if key != "model"}
    config = tmp_path / "run.json"
    config.write_text(json.dumps({**run, "init_from": "model"}))
    options = ("pretrain", "--config", config, "--data", data, "--output", tmp_path / "run")
    port = free_port()
    errors(
        [start(options, rank, 2, port, cwd=tmp_path / name) for rank, name in enumerate(("here", "there"))],
        r"the model must be the same on every rank, got on rank 1",
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--resum",), r"\[usage\] an option of pretrain must be a known one, got \"--resum\"; did you mean --resume"),
        ((), r"\[pretrain\] a run file must be given \(--config\), got none"),
        (("--timeout", "-1"), r"\[usage\] --timeout must be a number of seconds above 0, got -1"),
        (("--timeout", "soon"), r"\[usage\] --timeout must be a number of seconds above 0, got soon"),
    ],
)
def test_a_wrong_command_line_is_said_once(data, tmp_path, options, said):
    arguments = ("pretrain", "--data", data, "--output", tmp_path / "run", *options)
    errors(job(2, *arguments), said, code=2)


def test_a_wrong_command_line_of_one_rank_is_said_by_it(data, tmp_path):
    config = cli_support.run_file(tmp_path / "run.json", **RUN)
    arguments = ("pretrain", "--config", config, "--data", data, "--output", tmp_path / "run")
    results = outcomes(job(2, *arguments, of_rank={1: (*arguments, "--threads", "none")}))
    assert [code for code, _, _ in results] == [1, 2]
    assert "rank 0 lost another one" in results[0][2] and "--threads" in results[1][2]


def test_help_names_the_options_of_both():
    done = subprocess.run(
        [sys.executable, "-m", "roformer_cpp.pretrain", "--help"],
        env=dict(os.environ, PYTHONPATH=str(cli_support.ROOT / "python")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.index("--backend") < done.stdout.index("--resume")
