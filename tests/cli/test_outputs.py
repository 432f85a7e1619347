"""A command never writes to a file that it reads, however the file is named."""

import os
import subprocess

import numpy as np
import pytest

from cli_support import PROGRAM, refused, results
from sentence_model import save_encoder, save_modules

RULE = "[output] the output must not replace the input, got"
TEXT = '{"text": "abc de"}\n{"text": "cab"}\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentence")
    save_encoder(folder)
    save_modules(folder)
    return folder


def content_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def spellings(folder, name):
    """Other names of the file, which have its extension."""
    file = folder / name
    (folder / f"link{file.suffix}").symlink_to(name)
    os.link(file, folder / f"hard{file.suffix}")
    (folder / "here").symlink_to(".")
    return [name, f"./{name}", f"here/{name}", f"link{file.suffix}", f"hard{file.suffix}", file]


def test_files(model, tmp_path):
    for folder in ("embed", "forward", "vocab", "part"):
        (tmp_path / folder).mkdir()
    (tmp_path / "embed/in.jsonl").write_text(TEXT)
    (tmp_path / "vocab/vocab.txt").write_text("ab cd\n" * 50)
    np.save(tmp_path / "forward/in.npy", np.full((1, 4), 7))
    embed = ["embed", "--model", model, "--input"]
    cases = [
        (tmp_path / "embed", [*embed, "in.jsonl", "--output", n]) for n in spellings(tmp_path / "embed", "in.jsonl")
    ]
    for name in spellings(tmp_path / "forward", "in.npy"):
        forward = ["forward", "--model", model, "--ids", "in.npy", "--output", name]
        cases += [(tmp_path / "forward", forward), (tmp_path / "forward", [*forward, "--mask", "in.npy"])]
    for name in spellings(tmp_path / "vocab", "vocab.txt"):
        cases.append((tmp_path / "vocab", ["vocab", "--size", 60, "--input", name, "--output", "vocab.txt"]))
    for name in ("merges.txt", "tokenizer_config.json"):  # written too
        (tmp_path / "vocab" / name).write_text(TEXT)
        given = ["--format", "text", "--input", name, "--byte-pairs", "--size", 300, "--output", "."]
        cases.append((tmp_path / "vocab", ["vocab", *given]))
    for name in ("out.npy.part", "out.npy.part.json"):
        (tmp_path / "part" / name).write_text(TEXT)
        given = [*embed, name, "--format", "text", "--output", "out.npy"]
        cases.append((tmp_path / "part", given))
    (tmp_path / "part/model.npy").symlink_to(model / "model.safetensors")
    cases.append((tmp_path / "part", [*embed, "../vocab/merges.txt", "--output", "model.npy"]))
    cases.append(
        (tmp_path / "forward", ["forward", "--model", model, "--ids", "in.npy", "--output", model / "config.json"])
    )
    before = content_of(tmp_path) | content_of(model)
    for folder, command in cases:
        assert refused(*command, cwd=folder).startswith(RULE), command
    assert content_of(tmp_path) | content_of(model) == before


def test_standard_output(model, tmp_path):
    """`command x >> x` would read what it writes, without an end."""
    (tmp_path / "in.jsonl").write_text(TEXT)
    np.save(tmp_path / "in.npy", np.ones((2, 24), np.float32))
    similar = ["similar", "--model", model, "--query", "a"]
    commands = [
        ["embed", "--model", model, "--input", "in.jsonl"],
        ["embed", "--model", model, "--input", "-"],
        [*similar, "--input", "in.jsonl"],
        [*similar, "--embeddings", "in.jsonl"],
        ["tokenize", "--model", model],
    ]
    for command in commands:
        with (tmp_path / "in.jsonl").open() as stdin, (tmp_path / "in.jsonl").open("a") as stdout:
            done = subprocess.run(
                [PROGRAM, *map(str, command)],
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                cwd=tmp_path,
                timeout=60,
            )
        assert done.returncode == 1 and f"{RULE} standard output for the input".encode() in done.stderr, command
    assert (tmp_path / "in.jsonl").read_text() == TEXT


def test_directories(model, tmp_path):
    """Of a directory and a pattern, the files that are written are left out."""
    (tmp_path / "in.jsonl").write_text(TEXT)
    for given in (".", "*.jsonl"):
        with (tmp_path / "out.jsonl").open("w") as stdout:
            command = [PROGRAM, "embed", "--model", model, "--input", given]
            done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, cwd=tmp_path, timeout=60)
        assert done.returncode == 0 and b"left out of the input" in done.stderr
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    (tmp_path / "link.jsonl").symlink_to("out.jsonl")
    given = ["--input", tmp_path, "--output", tmp_path / "link.jsonl", "--overwrite"]
    assert results("embed", "--model", model, *given)[0]["rows"] == 2
