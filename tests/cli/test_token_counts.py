"""The numbers of each token that prepare writes beside the shards, and evaluate reads instead of the shards; and what
verify says of both."""

import json
import shutil

import numpy as np
import pytest

from cli_support import refused, results, run
from shard_file import shard_tokens


@pytest.fixture
def data(prepared, tmp_path):
    return shutil.copytree(prepared / "data", tmp_path / "data")


def evaluation(model, data):
    return ["evaluate", "--model", model, "--data", data, "--max-length", 16]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_counts_are_those_of_the_shards(prepared, split):
    manifest = json.loads((prepared / "data" / "data.json").read_text())
    tokens = np.concatenate([shard_tokens(path) for path in (prepared / "data").glob(f"{split}-*.rfs")])
    assert manifest["splits"][split]["token_counts"] == f"{split}.counts.npy"
    counts = np.load(prepared / "data" / f"{split}.counts.npy")
    assert counts.dtype == np.int64 and counts.sum() == len(tokens) > 0
    np.testing.assert_array_equal(counts, np.bincount(tokens, minlength=manifest["vocab_size"]))


def test_evaluation_reads_no_token_of_the_training_split(trained, data):
    (want,) = results(*evaluation(trained, data))
    for shard in data.glob("train-*.rfs"):  # so that the checksum of each is wrong
        content = bytearray(shard.read_bytes())
        content[128] ^= 1
        shard.write_bytes(content)
    (got,) = results(*evaluation(trained, data))
    assert got["unigram_loss"] == want["unigram_loss"] > 0


def test_damaged_counts(trained, data):
    path = data / "train.counts.npy"
    counts = np.load(path)
    tokens = counts.sum()
    counts[int(counts.argmax())] += 1
    np.save(path, counts)
    message = f"[data] {path} must sum to the {tokens} tokens of the split, got more"
    assert refused(*evaluation(trained, data)).splitlines()[-1] == message
    done = run("verify", "--data", data)
    assert done.returncode == 1
    assert json.loads(done.stdout)["damaged"] == [{"file": path.name, "error": message}]
    counts[int(counts.argmax())] -= 2
    np.save(path, counts)
    assert f"must sum to the {tokens} tokens of the split, got {tokens - 1}" in refused(*evaluation(trained, data))
    for wrong in (counts[:-1], counts.astype(np.int32), counts.reshape(1, -1)):
        np.save(path, wrong)
        assert f"must hold an int64 for each of the {len(counts)} ids" in refused(*evaluation(trained, data))
    path.unlink()
    assert str(path) in refused(*evaluation(trained, data))


def test_verify(data):
    splits = json.loads((data / "data.json").read_text())["splits"].values()
    shards = list(data.glob("*.rfs"))
    whole = {"data": str(data), "damaged": [], "shards": len(shards)}
    whole |= {"bytes": sum(shard.stat().st_size for shard in shards)}
    whole |= {key: sum(split[key] for split in splits) for key in ("documents", "tokens")}
    assert results("verify", "--data", data) == [whole]
    shard = data / "valid-00000.rfs"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x01")
    done = run("verify", "--data", data)
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and error.startswith(f"[shard] {shard}: the checksum must be ")
    report = json.loads(done.stdout)
    assert report["shards"] == len(shards) - 1 and report["damaged"] == [{"file": shard.name, "error": error}]
