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
from cli_support import metrics
from job_case import RUN, STEPS, Forked, bits, errors, finish, free_port, job, outcomes, pretrain, start


def weights(run_dir):
    return np.concatenate([x.ravel() for x in load_file(run_dir / "model.safetensors").values()]).astype(np.float64)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    config = cli_support.run_file(folder / "run.json", **RUN)
    cli_support.results("pretrain", "--config", config, "--data", data, "--output", folder / "run", "--threads", "1")
    return folder / "run"


@pytest.fixture(scope="module")
def two(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    (result,) = finish(pretrain(2, data, folder, "run"))
    return folder / "run", result


@pytest.fixture(scope="module")
def divided(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("divided")
    finish(pretrain(2, data, folder, "run", run={"sharding": "optimizer"}))
    return folder / "run"


def test_one_process_has_the_bits_of_the_program(alone, data, tmp_path):
    arguments = ("pretrain", "--config", alone.with_suffix(".json"), "--data", data, "--output", tmp_path / "run")
    finish([start(arguments, None, 1, 0)])
    assert bits(tmp_path / "run") == bits(alone) and metrics(tmp_path / "run") == metrics(alone)


def assert_same_run(ours, theirs):
    """Equal but for the order of sums: losses, norms and weights."""
    for a, b in zip(metrics(ours), metrics(theirs), strict=True):
        assert a.keys() == b.keys()
        for key, value in b.items():
            assert a[key] == pytest.approx(value, rel=tol.JOB_RTOL) if isinstance(value, float) else a[key] == value
    assert np.abs(weights(ours) - weights(theirs)).max() <= tol.JOB_RTOL
    assert bits(ours) != bits(theirs)


def test_two_processes(alone, two):
    assert_same_run(two[0], alone)
    assert two[1]["steps"] == STEPS
    names = {path.name for path in (two[0] / f"checkpoint-{STEPS}").glob("optimizer*")}
    assert names == {f"optimizer-0000{rank}-of-00002.safetensors" for rank in (1, 2)}
    for line in [line for line in cli_support.lines_of(two[0] / "metrics.jsonl") if line["type"] == "train"]:
        assert line["processes"] == 2 and line["slowest_rank"] in (0, 1)
        assert 0 < line["exposed_seconds"] <= line["seconds"] and 0 < line["communication_seconds"] <= line["seconds"]
        assert 0 < line["slowest_seconds"] <= line["seconds"]


def test_pairs_of_sentences(data, tmp_path):
    """Two processes see the pairs of one, and an evaluation by two has its bits. Rows are so short that most
    micro-batches have a pair and no mask."""
    keys = {**RUN, "pairs": "next_sentence", "stages": [dict(max_length=6, batch=4, accumulate=4, steps=STEPS)]}
    config = cli_support.run_file(tmp_path / "one.json", **keys)
    cli_support.results("pretrain", "--config", config, "--data", data, "--output", tmp_path / "one", "--threads", 1)
    finish(pretrain(2, data, tmp_path, "two", run=keys))
    assert_same_run(tmp_path / "two", tmp_path / "one")
    assert {"pair_loss", "pair_accuracy"} <= metrics(tmp_path / "two")[0].keys()
    evaluate = ("evaluate", "--model", tmp_path / "one", "--data", data, "--max-length", 16, "--batch", 4)
    evaluate += ("--pairs", "next_sentence", "--threads", "1")
    (one,) = cli_support.results(*evaluate)
    (two,) = finish(job(2, *evaluate))
    assert one == two and one["pairs"] > 10


def moments(run_dir):
    parts = {}
    for path in sorted((run_dir / f"checkpoint-{STEPS}").glob("optimizer-*")):
        for name, values in load_file(path).items():
            moment, _, begin = name.partition("@")
            parts.setdefault(moment, {})[int(begin)] = values
    return {name: np.concatenate([part[begin] for begin in sorted(part)]) for name, part in parts.items()}


def test_divided_optimizer(two, divided, alone, data, tmp_path):
    """The kernel of the update rounds the last numbers of its input differently, so a bit may differ. A repeated job
    has the same bits."""
    finish(pretrain(2, data, tmp_path, "again", run={"sharding": "optimizer"}))
    assert bits(divided) == bits(tmp_path / "again")
    for path in (divided / f"checkpoint-{STEPS}").glob("optimizer-*"):
        assert path.read_bytes() == (tmp_path / "again" / path.parent.name / path.name).read_bytes()
    assert np.abs(weights(divided) - weights(alone)).max() <= tol.JOB_RTOL
    ours, theirs = moments(divided), moments(two[0])
    sizes = {name: x.size for name, x in load_file(alone / f"checkpoint-{STEPS}" / "optimizer.safetensors").items()}
    assert {name: x.size for name, x in ours.items()} == sizes
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, **tol.MOMENTS, err_msg=name)


def test_sums_in_bfloat16(alone, data, tmp_path):
    """Gradients keep 8 bits: near the run in float32, and not equal to it."""
    finish(pretrain(2, data, tmp_path, "run", run={"reduce_precision": "bfloat16"}))
    assert tol.JOB_RTOL < np.abs(weights(tmp_path / "run") - weights(alone)).max() < tol.JOB_BF16


def test_evaluation_has_the_same_bits(alone, data):
    arguments = ("evaluate", "--model", alone, "--data", data, "--batch", "2")
    assert finish(job(3, *arguments)) == cli_support.results(*arguments, "--threads", "1")


LONG = {"stages": [dict(max_length=16, batch=8, accumulate=4, steps=200)], "log_every_steps": 1}


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(pretrain(2, data, folder, "run", run=LONG))
    return folder / "run"


def wait_for_checkpoint(run_dir, processes):
    end = time.monotonic() + 60
    while not list(run_dir.glob("checkpoint-*")):
        assert time.monotonic() < end and all(process.poll() is None for process in processes)
        time.sleep(0.01)


@pytest.mark.parametrize(("rank", "number"), [(1, signal.SIGTERM), (0, signal.SIGKILL)])
def test_a_signal_to_a_rank_ends_the_job_which_goes_on(undisturbed, data, tmp_path, rank, number):
    """SIGTERM to any rank stops all after a checkpoint."""
    processes = pretrain(2, data, tmp_path, "run", run=LONG)
    wait_for_checkpoint(tmp_path / "run", processes)
    processes[rank].send_signal(number)
    results = outcomes(processes)
    if number == signal.SIGKILL:
        assert results[rank][0] == -number and results[1 - rank][0] == 1
        assert "[distributed] every process of the job must take part" in results[1 - rank][2]
    else:
        assert [code for code, _, _ in results] == [128 + number] * 2
        steps = json.loads(results[0][1])["steps"]
        assert (tmp_path / "run" / f"checkpoint-{steps}" / "state.json").exists() and steps < 200
    finish(pretrain(2, data, tmp_path, "run", "--resume", run=LONG))
    assert bits(tmp_path / "run") == bits(undisturbed) and metrics(tmp_path / "run") == metrics(undisturbed)


@pytest.mark.parametrize("before, after, sharding", [(2, 3, "optimizer"), (2, 1, "optimizer"), (1, 2, "none")])
def test_another_number_of_processes_goes_on(alone, divided, data, tmp_path, before, after, sharding):
    """Parts of three ranks begin and end within those of two."""
    shutil.copytree(alone if before == 1 else divided, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    shutil.rmtree(tmp_path / "run" / f"checkpoint-{STEPS}")
    results = outcomes(pretrain(after, data, tmp_path, "run", "--resume", run={"sharding": sharding}))
    assert [code for code, _, _ in results] == [0] * after, results
    assert f"processes was {before} and is {after}" in results[0][2]
    assert_same_run(tmp_path / "run", alone)


def test_another_run_file_or_data_of_one_rank_are_named(data, tmp_path):
    changed = cli_support.run_file(tmp_path / "other.json", **{**RUN, "weight_decay": 0.5})
    other, corpus = tmp_path / "other", tmp_path / "corpus.txt"
    corpus.write_text("other words altogether\n\n" * 40)
    cli_support.run("prepare", "--input", corpus, "--model", data, "--output", other, "--valid-fraction", "0.2")
    same = r"the {} must be the same on every rank, got on rank 1"
    for run_file, folder, message in (
        (changed, data, same.format("run file") + " 0.5 at /weight_decay where there was 0.01"),
        (tmp_path / "run.json", other, same.format("data")),
        (tmp_path / "run.json", tmp_path / "none", r"rank 1\].*none"),
    ):
        arguments = ("pretrain", "--config", run_file, "--data", folder, "--output", tmp_path / "run")
        errors(pretrain(2, data, tmp_path, "run", of_rank={1: arguments}), message)


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
    (tmp_path / "run" / f"checkpoint-{STEPS}" / "optimizer-00002-of-00002.safetensors").unlink()
    rule = r"must have the moments of all 2 ranks, got no optimizer-00002"
    errors(pretrain(2, data, tmp_path, "run", "--resume"), rule)


def test_torchrun_starts_a_killed_job_again(undisturbed, data, tmp_path):
    """Two agents stand for two machines."""
    config = cli_support.run_file(tmp_path / "run.json", **{**RUN, **LONG})
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=test"),
        *("-m", "roformer_cpp.pretrain", "--config", config, "--data", data, "--output", tmp_path / "run"),
        *("--timeout", "60"),
    ]
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(cli_support.ROOT / "python"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    wait_for_checkpoint(tmp_path / "run", started)
    workers = subprocess.run(["pgrep", "-P", str(started[-1].pid)], capture_output=True, text=True, check=True)
    subprocess.run(["kill", "-9", workers.stdout.split()[-1]], check=True)
    said = [agent.communicate(timeout=150)[0] for agent in started]
    assert [agent.returncode for agent in started] == [0, 0], said
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
    config = cli_support.run_file(tmp_path / "run.json", **run, init_from="model")
    options, port = ("pretrain", "--config", config, "--data", data, "--output", tmp_path / "run"), free_port()
    ranks = [start(options, rank, 2, port, cwd=tmp_path / name) for rank, name in enumerate(("here", "there"))]
    errors(ranks, r"the model must be the same on every rank, got on rank 1")


def test_more_ranks_than_micro_batches(data, tmp_path):
    stage = dict(max_length=16, batch=8, accumulate=1, steps=STEPS)
    message = r"accumulate of stages\[0\] must be at least the 2 processes.*got 1"
    errors(pretrain(2, data, tmp_path, "run", run={"stages": [stage]}), message)


def test_a_wrong_command_line_is_said_once(data, tmp_path):
    config = cli_support.run_file(tmp_path / "run.json", **RUN)
    arguments = ("pretrain", "--config", config, "--data", data, "--output", tmp_path / "run")
    errors(job(2, *arguments, "--resum"), r"\[usage\] an option of pretrain must .* got \"--resum\"; did you", code=2)
    results = outcomes(job(2, *arguments, of_rank={1: (*arguments, "--threads", "none")}))
    assert [code for code, _, _ in results] == [1, 2]
    assert "rank 0 lost another one" in results[0][2] and "--threads" in results[1][2]


EXAMPLE = """
import fork_server, runpy, roformer_cpp, torch._dynamo, torch.distributed.fsdp
fork_server.serve(lambda path: runpy.run_path(path, run_name="__main__") and None)
"""


def losses(*of_rank):
    """What the first process of examples/fsdp.py prints; of_rank: the environment of each."""
    example = str(cli_support.ROOT / "examples" / "fsdp.py")
    results = outcomes([Forked(("-c", EXAMPLE), example, environment=each) for each in of_rank])
    assert [code for code, _, _ in results] == [0] * len(of_rank), results
    return [float(number) for number in re.findall(r"loss ([\d.]+)", results[0][1])]


def test_fsdp_of_two_processes_has_the_losses_of_one():
    """examples/fsdp.py: parameters divided among two processes by FSDP2."""
    address = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE="2")
    divided, alone = losses(*(address | {"RANK": str(rank)} for rank in range(2))), losses({})
    assert len(alone) == 20 and alone[-1] < 0.7 * alone[0]
    assert divided == pytest.approx(alone, rel=tol.FSDP_RTOL, abs=tol.FSDP_ATOL)
