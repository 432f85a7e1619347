"""Bad input: exit code 1, a message "[where] rule, got value" with the offending value, and nothing lost."""

import os
import resource
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cli_support import MODEL, PROGRAM, prepare, pretrain, refused, results, run, run_file, size_limit

IDS = np.full((2, 5), 7)


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the trained model that a test may damage."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        shutil.copy(trained / name, folder / name)
    return folder


def refused_forward(model, tmp_path, ids=IDS, **extra):
    np.save(tmp_path / "ids.npy", ids)
    options = ["--model", model, "--ids", tmp_path / "ids.npy", "--output", tmp_path / "out.npy"]
    for key, array in extra.items():
        np.save(tmp_path / f"{key}.npy", array)
        options += [f"--{key}", tmp_path / f"{key}.npy"]
    message = refused("forward", *options)
    assert message.startswith("[") and not (tmp_path / "out.npy").exists()
    return message


def test_a_message_that_nobody_can_read_ends_nothing(tmp_path):
    """A full disk or a closed pipe behind standard error."""
    for command, code in ((("info",), 0), (("forward", "--model", tmp_path, "--ids", "x", "--output", "y"), 1)):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([PROGRAM, *map(str, command)], stdout=subprocess.PIPE, stderr=full)
        assert done.returncode == code


def test_missing_files(model):
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (model / name).rename(model / "away")
        assert str(model) in refused("fill-mask", "--model", model, "--text", "a [MASK]")
        (model / "away").rename(model / name)


def test_arrays_of_ids(model, tmp_path):
    for bad in (-1, 150):
        ids = IDS.copy()
        ids[1, 3] = bad
        message = refused_forward(model, tmp_path, ids)
        assert str(bad) in message and "1" in message and "3" in message
    assert "[5]" in refused_forward(model, tmp_path, IDS[0])
    assert "[2, 0]" in refused_forward(model, tmp_path, IDS[:, :0])
    assert "ids.npy" in refused_forward(model, tmp_path, IDS.astype(float))
    assert "[2, 4]" in refused_forward(model, tmp_path, mask=np.ones((2, 4), int))
    assert "[3, 5]" in refused_forward(model, tmp_path, types=np.zeros((3, 5), int))
    assert "row 1" in refused_forward(model, tmp_path, mask=np.array([[1] * 5, [0] * 5]))
    (tmp_path / "not.npy").write_bytes(b"not an array")
    given = ["--model", model, "--ids", tmp_path / "not.npy", "--output", tmp_path / "out.npy"]
    assert "not.npy" in refused("forward", *given)


def test_arguments(prepared, model, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    other = shutil.copytree(model, tmp_path / "other")
    (other / "vocab.txt").write_text((model / "vocab.txt").read_text().replace("\na\n", "\nxyzzy\n"))
    fill_mask, tokenize = (["fill-mask", "--model", model, "--text"], ["tokenize", "--model", model, "--kind"])
    for command, words in (
        ([*fill_mask, "no mask here"], "[MASK]"),
        ([*fill_mask, "[MASK]", "--top-k", 0], "got 0"),
        ([*fill_mask, "[MASK]", "--top-k", 151], "got 151"),
        ([*tokenize, "robert"], 'got "robert"'),
        ([*tokenize, "byte-level-bpe"], "word pieces"),
        ([*tokenize, "wobert", "--dict", "nowhere.txt"], "nowhere.txt"),
        (["embed", "--text", "a", "--model", tmp_path / "file"], "file] a GGUF file must begin with GGUF, got 0 bytes"),
        (["evaluate", "--model", other, "--data", prepared / "data"], "vocabulary"),
    ):
        assert words in refused(*command, stdin=""), command


def test_inputs_of_prepare(prepared, tmp_path):
    """/proc/self/mem opens, also for root, and its first byte cannot be read."""
    corpus = prepared / "corpus"
    command = ["prepare", "--model", prepared / "vocabulary", "--output", tmp_path / "data"]
    for given, words in (
        (["/proc/self/mem"], "[input] /proc/self/mem must be readable, got: Input/output error"),
        ([tmp_path / "*.txt"], f"[input] a pattern must match at least one file, got {tmp_path}/*.txt"),
        ([corpus, "--test-input", corpus], f"[prepare] a file must be of one split, got {corpus}/"),
    ):
        assert refused(*command, "--input", *given).startswith(words)
        assert list(tmp_path.iterdir()) == []


def test_run_file_errors(prepared, tmp_path):
    """The keys are tests/train/run_config_test.cpp's."""
    given = pretrain(prepared, tmp_path / "run.json", tmp_path / "run")
    run_file(tmp_path / "run.json", weight_dacay=0.1)
    assert 'got "weight_dacay"' in refused(*given)
    run_file(tmp_path / "run.json", model={**MODEL, "vocab_size": 99})
    assert "model.vocab_size must be the data's 150" in refused(*given)
    (tmp_path / "run.json").write_text("{")
    assert "run.json" in refused(*given)
    assert "--config" in refused("pretrain", "--data", prepared / "data", "--output", tmp_path / "run", code=2)
    run_file(tmp_path / "run.json", stages=[dict(max_length=64, batch=300000, steps=1)])
    assert "batch_size times max_length at most 2^24, got 300000 of 64" in refused(*given)


def test_a_run_is_not_overwritten(prepared, trained, tmp_path):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    config = prepared / "run.json"
    assert "--resume" in refused(*pretrain(prepared, config, trained))
    other = run_file(tmp_path / "other.json", beta1=0.8)
    message = refused(*pretrain(prepared, other, trained, "--resume"))
    assert "/beta1" in message and "0.8" in message and "0.9" in message
    assert "run.json" in refused(*pretrain(prepared, config, prepared / "corpus", "--resume"))
    prepare(prepared, tmp_path / "data", held_out=0.5)
    message = refused("pretrain", "--data", tmp_path / "data", "--output", trained, "--resume")
    assert message.startswith("[resume]") and str(tmp_path / "data") in message
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_full_disk_during_a_checkpoint(prepared, trained, tmp_path):
    """Files may not grow past a limit that the optimizer's state needs: the old checkpoint stays, and training goes on
    from it once there is room."""
    given = pretrain(prepared, prepared / "run.json", tmp_path / "run")
    limit = size_limit((trained / "model.safetensors").stat().st_size + 1000)
    done = run(*given, preexec_fn=limit)
    assert done.returncode == 1 and "optimizer.safetensors" in done.stderr and "File too large" in done.stderr
    assert not list((tmp_path / "run").glob("*checkpoint-*"))  # the first one did not fit, and left nothing
    checkpoint = tmp_path / "run" / "checkpoint-4"
    shutil.copytree(trained / "checkpoint-4", checkpoint)
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    done = run(*given, "--resume", preexec_fn=limit)
    assert done.returncode == 1 and "File too large" in done.stderr
    assert list((tmp_path / "run").glob("*checkpoint-*")) == [checkpoint]
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    (resumed,) = results(*given, "--resume")
    assert resumed["steps"] == 6
    resumed, whole = ((folder / "model.safetensors").read_bytes() for folder in (tmp_path / "run", trained))
    assert resumed == whole


def test_unreadable_standard_input(model):
    descriptor = os.open(model, os.O_RDONLY)
    done = subprocess.run([PROGRAM, "tokenize", "--model", model], stdin=descriptor, capture_output=True, text=True)
    os.close(descriptor)
    assert (done.returncode, done.stdout) == (1, "") and "is a directory" in done.stderr.lower()


def test_more_memory_than_there_is(prepared, tmp_path):
    config = run_file(tmp_path / "run.json", stages=[dict(max_length=64, batch=260000, steps=1)], precision="float32")
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))  # noqa: E731
    done = run(*pretrain(prepared, config, tmp_path / "run"), preexec_fn=limit)
    rule = "[memory] the work must fit into memory, got an allocation that failed"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, rule)
