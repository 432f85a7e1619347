"""Data of many shards: opening reads their headers, and memory does not grow with them. The shards are one file under
many names, so that they need no space on the disk."""

import json
import os
import random
import subprocess

import numpy as np
import pytest

from cli_support import PROGRAM, results

MB = 1_000_000
COPIES = 160


def probe(folder, **options):
    asked = json.dumps({"open": {"data": str(folder), "max_length": 128, **options}})
    done = subprocess.run([PROGRAM.parent / "tests" / "data_probe", asked], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    """A data directory with one shard of about 5 MB in 40,000 documents."""
    folder = tmp_path_factory.mktemp("shard")
    rng = random.Random(1)
    (folder / "text.txt").write_text("\n".join(["x" * rng.randint(1, 120) for _ in range(40_000)]))
    results("vocab", "--bytes", "--output", folder / "bytes")
    arguments = ["--input", folder / "text.txt", "--documents", "line", "--model", folder / "bytes"]
    results("prepare", *arguments, "--valid-fraction", "0", "--output", folder / "data")
    return folder / "data"


def repeated(shard, folder, copies):
    """A data directory with the shard many times."""
    folder.mkdir()
    manifest = json.loads((shard / "data.json").read_text())
    train = manifest["splits"]["train"]
    np.save(folder / "train.counts.npy", copies * np.load(shard / "train.counts.npy"))
    train["shards"] = [f"train-{number:05}.rfs" for number in range(copies)]
    train["documents"] *= copies
    train["tokens"] *= copies
    for name in train["shards"]:
        os.link(shard / "train-00000.rfs", folder / name)
    (folder / "data.json").write_text(json.dumps(manifest))
    return folder


def test_opening_and_reading_need_the_same_memory_for_any_number_of_shards(shard, tmp_path):
    few, many = (repeated(shard, tmp_path / str(copies), copies) for copies in (2, COPIES))
    small, large = probe(few, batches=100), probe(many, batches=100)
    assert large["documents"] == COPIES // 2 * small["documents"] == COPIES * 40_000
    assert (many / "train-00000.rfs").stat().st_size * COPIES > 800 * MB
    # A byte for 8 documents, and what a shard needs to be open.
    assert large["rows_bytes"] - small["rows_bytes"] < large["documents"] / 8 + COPIES * 4096 + MB
    assert large["peak_bytes"] - small["peak_bytes"] < 400 * MB  # the pages of mapped shards, at most 256 MiB


def test_opening_reads_no_token(shard, tmp_path):
    """A file whose tokens are a hole of many gigabytes is opened in little memory."""
    folder = repeated(shard, tmp_path / "data", 1)
    path = folder / "train-00000.rfs"
    header = bytearray(path.read_bytes()[:128])
    tokens, documents = 60_000_000_000, 1
    header[16:32] = tokens.to_bytes(8, "little") + documents.to_bytes(8, "little")
    words = -(-(128 + 2 * tokens) // 64) * 64
    offsets = -(-(words + -(-tokens // 8)) // 64) * 64
    path.unlink()
    with path.open("wb") as file:
        file.write(header)
        file.seek(offsets + 8)
        file.write(tokens.to_bytes(8, "little"))
    manifest = json.loads((folder / "data.json").read_text())
    manifest["splits"]["train"] |= dict(tokens=tokens, documents=documents)
    (folder / "data.json").write_text(json.dumps(manifest))
    opened = probe(folder, batches=0)
    assert opened["tokens"] == tokens
    assert opened["peak_bytes"] < 64 * MB
