"""Models and training runs on an emulated GPU (emulated_gpu.cpp), each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import task_files
import tolerances as tol
from cli_support import MODEL, PROGRAM, RUN, metrics, prepare, pretrain, results, run_file
from cli_support import run as cli_run
from job_case import Forked

ROWS = {"stages": [{"max_length": 16, "batch": 4, "steps": 6}]}
SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}
TRANSLATION = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIZES.items()}
TRANSLATION = {"model": TRANSLATION | {"d_model": 16, "position_encoding": "rope"}, "label_smoothing": 0.1}
TRANSLATION |= {"steps": 4, "max_tokens": 128, "max_length": 32, "accumulate": 2, "precision": "float32"}
TRANSLATION |= {"evaluate_every_steps": 2, "log_every_steps": 1}
FAILED_GPU = (
    "[device] the GPU must work until the command ends, got: CUDA error: all CUDA-capable devices are busy; training "
    "continues from its newest checkpoint (pretrain: with --resume)"
)
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

HERE = Path(__file__).resolve().parent
LIBRARY = PROGRAM.parent / "tests" / "libemulated_gpu.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the target rf_emulated_gpu is not built")


def test_models_with_every_encoding():
    path = os.pathsep.join(str(folder) for folder in (HERE.parent.parent / "python", HERE.parent))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", HERE / "emulated_models.py", LIBRARY]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run(name, *arguments, **environment):
    """A command of the program with these options on the emulated GPU."""
    server = ("-W", "ignore", str(HERE / "emulated_command.py"), str(LIBRARY))
    process = Forked(server, name, list(map(str, arguments)), environment=environment)
    out, said = process.communicate(timeout=600)
    return subprocess.CompletedProcess(name, process.returncode, out, said)


def command(name, *arguments, **environment):
    """It must succeed."""
    done = run(name, *arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def losses(folder):
    return [line["loss"] for line in metrics(folder) if "loss" in line]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_pretraining_has_the_losses_of_the_cpu(prepared, tmp_path, precision):
    config = run_file(tmp_path / "run.json", precision=precision, evaluate_every_steps=3, **ROWS)
    results(*pretrain(prepared, config, tmp_path / "cpu"), "--device", "cpu")
    command(*pretrain(prepared, config, tmp_path / "gpu"), "--device", "cuda:1")
    close = tol.EMULATED if precision == "float32" else tol.EMULATED_BF16
    assert losses(tmp_path / "gpu") == pytest.approx(losses(tmp_path / "cpu"), rel=close)
    assert json.loads((tmp_path / "gpu" / "checkpoint-6" / "state.json").read_text())["platform"]["device"] == "cuda"


def test_a_resumed_run_has_the_same_bits_on_the_device_and_goes_on_on_another(prepared, tmp_path):
    first = pretrain(prepared, run_file(tmp_path / "run.json", **ROWS), tmp_path / "run")
    command(*first, "--device", "cuda")
    whole = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.safetensors")}
    lines = metrics(tmp_path / "run")

    def back_to_step_4():
        shutil.copytree(tmp_path / "kept", tmp_path / "run", dirs_exist_ok=True)
        for path in (tmp_path / "run").glob("checkpoint-[!4]*"):
            shutil.rmtree(path)

    shutil.copytree(tmp_path / "run", tmp_path / "kept")
    back_to_step_4()
    command(*first, "--device", "cuda", "--resume")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.safetensors")} == whole
    assert metrics(tmp_path / "run") == lines
    back_to_step_4()
    done = cli_run(*first, "--device", "cpu", "--resume")
    assert done.returncode == 0 and 'device was "cuda" and is "cpu"' in done.stderr
    expected = [line["loss"] for line in lines if "loss" in line]
    assert losses(tmp_path / "run") == pytest.approx(expected, rel=tol.EMULATED)


def sized(rows):
    """A run whose largest tensor, of queries, keys and values, has rows * 32 * 48 * 4 bytes."""
    return {"stages": [{"max_length": 32, "batch": rows, "steps": 4}], "precision": "float32"}


def test_a_step_that_does_not_fit_is_repeated_with_smaller_micro_batches(prepared, tmp_path):
    prepare(prepared, tmp_path / "data", held_out=0)
    config = run_file(tmp_path / "run.json", model={**MODEL, **NO_DROPOUT}, **sized(16))
    given = ["pretrain", "--config", config, "--data", tmp_path / "data", "--output"]
    results(*given, tmp_path / "cpu", "--device", "cpu")
    done = command(*given, tmp_path / "gpu", "--device", "cuda", EMULATED_GPU_BYTES=str(8 * 32 * 48 * 4))
    assert "step 1 does not fit into the memory of cuda:0: from here on, accumulate is 2" in done.stderr
    assert losses(tmp_path / "gpu") == pytest.approx(losses(tmp_path / "cpu"), rel=tol.EMULATED)


def test_rows_that_cannot_be_halved_end_the_run_with_a_checkpoint(prepared, tmp_path):
    given = pretrain(prepared, run_file(tmp_path / "run.json", **sized(3)), tmp_path / "run")
    done = run(*given, "--device", "cuda", EMULATED_GPU_BYTES=str(2 * 32 * 48 * 4))
    assert done.returncode == 1
    assert "[memory] step 1 must fit into the memory of cuda:0, got micro-batches of 3 rows that do not" in done.stderr
    assert (tmp_path / "run" / "checkpoint-0" / "state.json").exists()


def test_comparison(prepared, tmp_path):
    config = run_file(tmp_path / "run.json", **ROWS)
    given = ["compare", "--encodings", "none,t5", "--seeds", "1", "--data", prepared / "data", "--config", config]
    theirs = results(*given, "--output", tmp_path / "cpu", "--device", "cpu")
    done = command(*given, "--output", tmp_path / "gpu", "--device", "cuda")
    for ours, run_of_cpu in zip(map(json.loads, done.stdout.splitlines()), theirs, strict=True):
        assert ours["loss"]["16"] == pytest.approx(run_of_cpu["loss"]["16"], rel=tol.EMULATED_BF16)
        # The table measures its losses on the device, as the run did.
        of_run = metrics(tmp_path / "gpu" / ours["encoding"] / "seed-1", "evaluation")[-1]
        assert ours["loss"]["16"] == of_run["loss"]


@pytest.mark.parametrize("task", ["classification", "tokens", "answers"])
def test_fine_tuning(prepared, tmp_path, task):
    model = tmp_path / "model"
    results(*pretrain(prepared, run_file(tmp_path / "run.json", **ROWS), model), "--device", "cpu")
    files = task_files.write_splits(tmp_path, task_files.KINDS[task], train=20, valid=6)
    given = [task, "--epochs", 1, "--precision", "float32"]
    results(*task_files.options(model, files, tmp_path / "cpu", *given), "--device", "cpu")
    on_gpu = [*task_files.options(model, files, tmp_path / "gpu", *given), "--device", "cuda"]

    def fails_on_gpu():
        done = run(*on_gpu, EMULATED_GPU_OPERATORS="1")
        return done.returncode == 1 and done.stderr.splitlines()[-1] == FAILED_GPU

    # The device trains, and after that evaluates for the report.
    run_folder = tmp_path / "gpu" / "lr-0.01" / "seed-1"
    assert fails_on_gpu()
    assert not (run_folder / "result.json").exists()
    command(*on_gpu)
    assert losses(run_folder) == pytest.approx(losses(tmp_path / "cpu" / "lr-0.01" / "seed-1"), rel=tol.EMULATED)
    (tmp_path / "gpu" / "report.json").unlink()
    assert fails_on_gpu()
    assert not (tmp_path / "gpu" / "report.json").exists()


def test_translation(tmp_path):
    lines = [f"{i} one two {i % 3} three\n" for i in range(40)]
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("".join(lines))
    inputs, pieces = [tmp_path / "train.en", tmp_path / "train.de"], ["--format", "text", "--size", 280]
    results("vocab", "--byte-pairs", "--input", inputs[0], *pieces, "--output", tmp_path / "t")
    (tmp_path / "run.json").write_text(json.dumps(TRANSLATION))
    given = ["train-translation", "--config", tmp_path / "run.json", "--train", *inputs, "--valid", *inputs]
    given += ["--tokenizer", tmp_path / "t", "--output"]
    results(*given, tmp_path / "cpu", "--device", "cpu")
    command(*given, tmp_path / "gpu", "--device", "cuda")
    assert losses(tmp_path / "gpu") == pytest.approx(losses(tmp_path / "cpu"), rel=tol.EMULATED)


def test_a_gradient_that_is_not_finite_ends_the_run_and_keeps_the_weights(prepared, tmp_path):
    schedule = {"kind": "constant", "learning_rate": 1e30, "warmup_steps": 0}
    config = run_file(tmp_path / "run.json", schedule=schedule, checkpoint_every_steps=1, **ROWS)
    theirs = cli_run(*pretrain(prepared, config, tmp_path / "cpu"), "--device", "cpu")
    ours = run(*pretrain(prepared, config, tmp_path / "gpu"), "--device", "cuda")
    assert theirs.returncode == ours.returncode == 1
    assert ours.stderr.splitlines()[-1] == theirs.stderr.splitlines()[-1]
    kept = [{path.name for path in (tmp_path / name).glob("checkpoint-*")} for name in ("cpu", "gpu")]
    assert kept[0] == kept[1]


def test_a_gpu_that_fails_ends_the_run_in_one_sentence(prepared, tmp_path):
    config = run_file(tmp_path / "run.json", **{**RUN, "stages": [{"max_length": 16, "batch": 4, "steps": 400}]})
    first = pretrain(prepared, config, tmp_path / "run")
    done = run(*first, "--device", "cuda", EMULATED_GPU_OPERATORS="5000")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == FAILED_GPU
    assert list((tmp_path / "run").glob("checkpoint-*"))
