"""Bad input: exit code 1, a message "[where] rule, got value" with the offending value, and nothing lost."""

import fcntl
import json
import os
import resource
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cli_support import MODEL, PROGRAM, refused, results, run, run_file


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the trained model that a test may damage."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        shutil.copy(trained / name, folder / name)
    return folder


def refused_forward(model, tmp_path, ids, **extra):
    np.save(tmp_path / "ids.npy", ids)
    options = ["--model", model, "--ids", tmp_path / "ids.npy", "--output", tmp_path / "out.npy"]
    for key, array in extra.items():
        np.save(tmp_path / f"{key}.npy", array)
        options += [f"--{key}", tmp_path / f"{key}.npy"]
    message = refused("forward", *options)
    assert message.startswith("[") and not (tmp_path / "out.npy").exists()
    return message


IDS = np.full((2, 5), 7)


def test_unknown_kernels(monkeypatch):
    monkeypatch.setenv("RF_KERNEL", "reference")
    assert refused("info") == "[target] RF_KERNEL must be ref, empty or not set, got reference\n"


def test_a_message_that_nobody_can_read_ends_nothing(tmp_path):
    """A full disk or a closed pipe behind standard error."""
    for command, code in ((("info",), 0), (("forward", "--model", tmp_path, "--ids", "x", "--output", "y"), 1)):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([PROGRAM, *map(str, command)], stdout=subprocess.PIPE, stderr=full)
        assert done.returncode == code


def test_missing_model(tmp_path):
    nowhere = tmp_path / "nowhere"
    rule = "[model] a model must be a directory with config.json and model.safetensors, got"
    for arguments in (["fill-mask", "--text", "a [MASK]"], ["embed", "--text", "a"], ["generate", "--prompt", "a"]):
        assert refused(*arguments, "--model", nowhere) == f"{rule} {nowhere}, which does not exist\n"
    nowhere.write_bytes(b"")
    rule = "[tokenizer] a tokenizer must be a directory with its files, got"
    assert refused("embed", "--text", "a", "--model", nowhere) == f"{rule} {nowhere}, which is not a directory\n"
    nowhere.unlink()
    assert "nowhere" in refused_forward(tmp_path / "nowhere", tmp_path, IDS)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_missing_file(model, name):
    (model / name).unlink()
    assert str(model) in refused("fill-mask", "--model", model, "--text", "a [MASK]")


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated_weights(model, tmp_path, size):
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:size])
    assert "model.safetensors" in refused_forward(model, tmp_path, IDS)


def test_truncated_config(model, tmp_path):
    (model / "config.json").write_text((model / "config.json").read_text()[:-5])
    assert "config.json" in refused_forward(model, tmp_path, IDS)


def change_config(model, **keys):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **keys}))


def test_wrong_weight_shape(model, tmp_path):
    change_config(model, intermediate_size=20)
    message = refused_forward(model, tmp_path, IDS)
    assert "intermediate.dense" in message and "[20" in message and "[24" in message


def test_odd_rotary_size(model, tmp_path):
    change_config(model, hidden_size=18, num_attention_heads=2)
    assert "9" in refused_forward(model, tmp_path, IDS)


def test_unknown_config_key(model, tmp_path):
    change_config(model, position_embedding_type="relative_key")
    assert "position_embedding_type" in refused_forward(model, tmp_path, IDS)


def test_nan_in_weights(model, tmp_path):
    data = bytearray((model / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    name = "roformer.encoder.layer.0.output.dense.weight"
    begin = 8 + length + header[name]["data_offsets"][0]
    data[begin + 4 : begin + 8] = struct.pack("<f", float("nan"))
    (model / "model.safetensors").write_bytes(data)
    message = refused_forward(model, tmp_path, IDS)
    assert "nan" in message and name in message


@pytest.mark.parametrize("bad", [-1, 150])
def test_id_out_of_range(model, tmp_path, bad):
    ids = IDS.copy()
    ids[1, 3] = bad
    message = refused_forward(model, tmp_path, ids)
    assert str(bad) in message and "1" in message and "3" in message


def test_wrong_array_shapes(model, tmp_path):
    assert "[5]" in refused_forward(model, tmp_path, IDS[0])
    assert "[2, 4]" in refused_forward(model, tmp_path, IDS, mask=np.ones((2, 4), int))
    assert "[3, 5]" in refused_forward(model, tmp_path, IDS, types=np.zeros((3, 5), int))


def test_float_ids(model, tmp_path):
    assert "ids.npy" in refused_forward(model, tmp_path, IDS.astype(float))


def test_sequence_without_a_token(model, tmp_path):
    assert "[2, 0]" in refused_forward(model, tmp_path, IDS[:, :0])
    mask = np.ones_like(IDS)
    mask[1] = 0
    assert "row 1" in refused_forward(model, tmp_path, IDS, mask=mask)


def test_ids_that_are_no_npy(model, tmp_path):
    (tmp_path / "ids.npy").write_bytes(b"not an array")
    message = refused("forward", "--model", model, "--ids", tmp_path / "ids.npy", "--output", tmp_path / "out.npy")
    assert "ids.npy" in message


def test_fill_mask_arguments(model):
    assert "[MASK]" in refused("fill-mask", "--model", model, "--text", "no mask here")
    assert "got 0" in refused("fill-mask", "--model", model, "--text", "[MASK]", "--top-k", "0")
    assert "got 151" in refused("fill-mask", "--model", model, "--text", "[MASK]", "--top-k", "151")


def test_tokenizer_kinds_by_name(model):
    message = refused("tokenize", "--model", model, "--kind", "robert", stdin="")
    assert "wobert" in message and "robert" in message
    assert "word pieces" in refused("tokenize", "--model", model, "--kind", "byte-level-bpe", stdin="")
    assert "nowhere.txt" in refused("tokenize", "--model", model, "--kind", "wobert", "--dict", "nowhere.txt", stdin="")


def test_unreadable_corpus(tmp_path, prepared):
    arguments = ["--model", prepared / "vocabulary", "--output", tmp_path / "data"]
    assert "nowhere" in refused("prepare", "--input", tmp_path / "nowhere", *arguments)
    (tmp_path / "empty").mkdir()
    assert "empty" in refused("prepare", "--input", tmp_path / "empty", *arguments)
    (tmp_path / "blank.txt").write_text(" \n")
    assert refused("prepare", "--input", tmp_path / "blank.txt", *arguments).startswith("[")
    assert not (tmp_path / "data").exists()
    assert "nowhere" in refused("vocab", "--input", tmp_path / "nowhere", "--output", tmp_path / "vocab.txt")


def test_corpus_that_fails_to_read(tmp_path, prepared):
    """/proc/self/mem opens, also for root, and its first byte cannot be read."""
    message = refused(
        "prepare", "--input", "/proc/self/mem", "--model", prepared / "vocabulary", "--output", tmp_path / "data"
    )
    assert "/proc/self/mem" in message and "Input/output error" in message
    assert not (tmp_path / "data").exists()


def test_run_file_errors(prepared, tmp_path):
    def message(**keys):
        config = run_file(tmp_path / "run.json", **keys)
        return refused("pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run")

    assert 'got "weight_dacay"' in message(weight_dacay=0.1)
    assert "stages" in message(stages=[])
    assert "model.vocab_size must be the data's 150" in message(model={**MODEL, "vocab_size": 99})
    assert "hidden_size" in message(model={**MODEL, "hidden_size": 17})
    (tmp_path / "run.json").write_text("{")
    assert "run.json" in refused(
        "pretrain", "--config", tmp_path / "run.json", "--data", prepared / "data", "--output", tmp_path / "run"
    )
    assert "--config" in refused("pretrain", "--data", prepared / "data", "--output", tmp_path / "run", code=2)


def test_damaged_shard(prepared, tmp_path):
    shutil.copytree(prepared / "data", tmp_path / "data")
    shard = next((tmp_path / "data").glob("train-*.rfs"))
    shard.write_bytes(shard.read_bytes()[:-8])
    config = run_file(tmp_path / "run.json")
    message = refused("pretrain", "--config", config, "--data", tmp_path / "data", "--output", tmp_path / "run")
    assert shard.name in message


def test_model_of_another_vocabulary(prepared, model):
    (model / "vocab.txt").write_text((model / "vocab.txt").read_text().replace("\na\n", "\nxyzzy\n"))
    assert "vocabulary" in refused("evaluate", "--model", model, "--data", prepared / "data")


def test_a_run_is_not_overwritten(prepared, trained, tmp_path):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    arguments = ["--config", prepared / "run.json", "--data", prepared / "data"]
    assert "--resume" in refused("pretrain", *arguments, "--output", trained)
    other = run_file(tmp_path / "other.json", beta1=0.8)
    message = refused("pretrain", "--config", other, "--data", prepared / "data", "--output", trained, "--resume")
    assert "/beta1" in message and "0.8" in message and "0.9" in message
    assert "run.json" in refused("pretrain", *arguments, "--output", prepared / "corpus", "--resume")
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_resume_with_other_data(prepared, trained, tmp_path):
    results(
        "prepare",
        "--input",
        prepared / "corpus",
        "--model",
        prepared / "vocabulary",
        "--output",
        tmp_path / "data",
        "--valid-fraction",
        0.5,
    )
    message = refused("pretrain", "--data", tmp_path / "data", "--output", trained, "--resume")
    assert message.startswith("[resume]") and str(tmp_path / "data") in message


def test_a_loss_that_is_not_finite(prepared, tmp_path):
    config = run_file(
        tmp_path / "run.json",
        schedule=dict(kind="constant", learning_rate=1e30, warmup_steps=0),
        checkpoint_every_steps=1,
        weight_decay=0,
    )
    message = refused("pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run")
    assert "must be finite" in message and "at step" in message
    assert list((tmp_path / "run").glob("checkpoint-*"))


def test_full_disk_during_a_checkpoint(prepared, tmp_path):
    """Files may not grow past a limit that the optimizer's state needs: the old checkpoint stays, and training goes on
    from it once there is room."""
    config = run_file(tmp_path / "run.json", checkpoint_every_steps=2)
    arguments = ["pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run"]
    whole = results(*arguments[:-1], tmp_path / "whole")
    size = (tmp_path / "whole" / "model.safetensors").stat().st_size

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, size + 1000))

    done = run(*arguments, preexec_fn=limit)
    assert done.returncode == 1 and "optimizer.safetensors" in done.stderr and "File too large" in done.stderr
    assert not list((tmp_path / "run").glob("*checkpoint-*"))  # the first one did not fit, and left nothing

    shutil.copytree(tmp_path / "whole" / "checkpoint-4", tmp_path / "run" / "checkpoint-4")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run" / "checkpoint-4").iterdir()}
    done = run(*arguments, "--resume", preexec_fn=limit)
    assert done.returncode == 1 and "File too large" in done.stderr
    assert [path.name for path in (tmp_path / "run").glob("*checkpoint-*")] == ["checkpoint-4"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "run" / "checkpoint-4").iterdir()} == before

    (resumed,) = results(*arguments, "--resume")
    assert resumed["steps"] == whole[0]["steps"]
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()


def test_one_process_a_run(prepared, tmp_path):
    (tmp_path / "run").mkdir()
    config = run_file(tmp_path / "run.json")
    with (tmp_path / "run" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        message = refused("pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run")
    assert "another one holds" in message


def test_unreadable_standard_input(model):
    descriptor = os.open(model, os.O_RDONLY)
    done = subprocess.run([PROGRAM, "tokenize", "--model", model], stdin=descriptor, capture_output=True, text=True)
    os.close(descriptor)
    assert (done.returncode, done.stdout) == (1, "") and "is a directory" in done.stderr.lower()


def test_numbers_that_do_not_fit(prepared, tmp_path):
    arguments = ["vocab", "--input", prepared / "corpus", "--output", tmp_path / "vocab.txt"]
    for text in ("99999999999999999999", "0x100", "0200", "1e3", ""):
        assert "--size" in refused(*arguments, f"--size={text}", code=2)
    for text in ("-1", "9223372036854775808"):
        assert "--seed" in refused("evaluate", "--model", "x", f"--seed={text}", code=2)


def test_more_memory_than_there_is(prepared, tmp_path):
    config = run_file(tmp_path / "run.json", stages=[dict(max_length=64, batch=260000, steps=1)], precision="float32")

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))

    arguments = ["pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run"]
    done = run(*arguments, preexec_fn=limit)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "[memory] the work must fit into memory, got an allocation that failed",
    )


def test_a_batch_of_too_many_tokens(prepared, tmp_path):
    config = run_file(tmp_path / "run.json", stages=[dict(max_length=64, batch=300000, steps=1)])
    message = refused("pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run")
    assert "batch_size times max_length at most 2^24, got 300000 of 64" in message
