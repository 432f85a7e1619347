"""A command never writes to a file that it reads, however the file is named."""

import os
import shutil
import subprocess

import numpy as np
import pytest

from cli_support import PROGRAM, make_corpus, refused, results

RULE = "[output] the output must not replace the input, got"
TEXT = '{"text": "abc de"}\n{"text": "cab"}\n'


def appending(command, file, cwd, stdin=subprocess.DEVNULL):
    """The message of a command that must refuse to write its results behind the content of a file."""
    with (cwd / file).open("a") as stdout:
        streams = dict(stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
        done = subprocess.run([PROGRAM, *map(str, command)], **streams, text=True, cwd=cwd, timeout=60)
    assert done.returncode == 1 and f"{RULE} standard output for" in done.stderr, (command, done.stderr)
    return done.stderr


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
    embed, vocab = ["embed", "--model", model, "--input"], ["vocab", "--size", 300, "--input"]
    forward = ["forward", "--model", model, "--ids", "in.npy", "--output"]
    cases = {name: [] for name in ("embed", "forward", "vocab", "part")}
    cases["embed"] += [[*embed, "in.jsonl", "--output", name] for name in spellings(tmp_path / "embed", "in.jsonl")]
    for name in spellings(tmp_path / "forward", "in.npy"):
        cases["forward"] += [[*forward, name], [*forward, name, "--mask", "in.npy"]]
    cases["forward"] += [[*forward, model / "config.json"]]
    cases["vocab"] += [[*vocab, name, "--output", "vocab.txt"] for name in spellings(tmp_path / "vocab", "vocab.txt")]
    for name in ("merges.txt", "tokenizer_config.json"):  # written too
        (tmp_path / "vocab" / name).write_text(TEXT)
        cases["vocab"] += [[*vocab, name, "--format", "text", "--byte-pairs", "--output", "."]]
    for name in ("out.npy.part", "out.npy.part.json"):
        (tmp_path / "part" / name).write_text(TEXT)
        cases["part"] += [[*embed, name, "--format", "text", "--output", "out.npy"]]
    (tmp_path / "part/model.npy").symlink_to(model / "model.safetensors")
    cases["part"] += [[*embed, "../vocab/merges.txt", "--output", "model.npy"]]
    before = content_of(tmp_path) | content_of(model)
    for folder, commands in cases.items():
        for command in commands:
            assert refused(*command, cwd=tmp_path / folder).startswith(RULE), command
    assert content_of(tmp_path) | content_of(model) == before


def test_standard_output(model, tmp_path):
    """`command x >> x` would read what it writes, without an end."""
    (tmp_path / "in.jsonl").write_text(TEXT)
    np.save(tmp_path / "in.npy", np.ones((2, 24), np.float32))
    for name, *more in (
        ["embed", "--input", "in.jsonl"],
        ["embed", "--input", "-"],
        ["similar", "--query", "a", "--input", "in.jsonl"],
        ["similar", "--query", "a", "--embeddings", "in.jsonl"],
        ["tokenize"],
    ):
        with (tmp_path / "in.jsonl").open() as stdin:
            message = appending([name, "--model", model, *more], "in.jsonl", tmp_path, stdin)
            assert f"{RULE} standard output for the input" in message
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


def test_files_of_directories_and_patterns(model, tmp_path):
    """A command that replaces a file does not read a directory or a pattern that has it."""
    for name in ("x.jsonl", "x1.jsonl"):
        (tmp_path / name).write_text(TEXT)
    (tmp_path / "link.jsonl").symlink_to("x.jsonl")
    for name in ("x.txt", "y.txt"):
        (tmp_path / name).write_text("ab cd\n" * 50)
    before = content_of(tmp_path)
    embed = ["embed", "--model", model, "--overwrite", "--input"]
    for given in (".", "x*", "[x]*.jsonl"):
        for output in ("x.jsonl", "link.jsonl"):
            assert refused(*embed, given, "--output", output, cwd=tmp_path).startswith(f"{RULE} {output}"), given
    for given in (".", "*.txt", tmp_path):
        message = refused("vocab", "--size", 60, "--input", given, "--output", "y.txt", cwd=tmp_path)
        assert message.startswith(f"{RULE} y.txt"), given
    assert content_of(tmp_path) == before
    assert results(*embed, ".", "--format", "text", "--output", "x.jsonl", cwd=tmp_path)[0]["rows"] == 100


def test_dictionaries(tmp_path):
    """Also to standard output, and before a model is opened."""
    (tmp_path / "dict.txt").write_text("ab 3 n\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/user_dict.txt").write_text("cd\n")
    make_corpus(tmp_path / "corpus")
    commands = "tokenize; predict --text a; evaluate --input in.jsonl; rerank --query a --text b; generate --prompt a; "
    commands += "prepare --input corpus --output new; add-words --input corpus --output new; "
    commands += "finetune --task tokens --train t.jsonl --valid t.jsonl --output new; "
    commands += "train-similar --pairs t.tsv --output new"
    for name, *more in (command.split() for command in commands.split("; ")):
        command = [name, "--model", "m", *more]
        for option in ("--dict", "--user-dict"):
            appending([*command, option, "dict.txt"], "dict.txt", tmp_path)
        if "--output" in command:
            given = [*command[:-1], "out", "--user-dict", "out/user_dict.txt"]
            if command[0] in ("finetune", "train-similar"):
                assert refused(*given, cwd=tmp_path).startswith(RULE), command
            else:  # these write into new directories alone
                assert "out" in refused(*given, cwd=tmp_path), command
    assert (tmp_path / "dict.txt").read_text() == "ab 3 n\n"
    assert (tmp_path / "out/user_dict.txt").read_text() == "cd\n"
    assert not (tmp_path / "new").exists()


def test_parts(prepared, tmp_path):
    """merge would empty the directory that it works in, and replaces the one that it writes."""
    common = ["prepare", "--input", prepared / "corpus", "--model", prepared / "vocabulary", "--output"]
    results(*common, tmp_path / "all.preparing", "--part", "1/2")
    results(*common, tmp_path / "b", "--part", "2/2")
    (tmp_path / "link").symlink_to("b")
    before = content_of(tmp_path)
    cases = [(["all.preparing", "b"], "all"), (["all.preparing", "b"], "./all"), (["all.preparing", "b"], "link")]
    cases += [(["all.preparing", "link"], "b")]
    for parts, output in cases:
        assert refused("merge", "--input", *parts, "--output", output, cwd=tmp_path).startswith(RULE), output
    for name in ("b/data.json", "b/train-00000.rfs", "b/vocab.txt"):
        appending(["merge", "--input", "all.preparing", "b", "--output", "c"], name, tmp_path)
    assert content_of(tmp_path) == before


def test_add_words(prepared, tmp_path):
    """Its directory is a new one; standard output may be a file of the model or an input."""
    shutil.copytree(prepared / "vocabulary", tmp_path / "m")
    make_corpus(tmp_path / "corpus")
    command = ["add-words", "--input", "corpus", "--model", "m", "--output", "new"]
    for name in ("m/vocab.txt", "corpus/00.txt"):
        before = (tmp_path / name).read_bytes()
        given = [name if word == "corpus" and name.startswith("corpus") else word for word in command]
        appending(given, name, tmp_path)
        assert (tmp_path / name).read_bytes() == before and not (tmp_path / "new").exists()
    (tmp_path / "new").symlink_to("gone")
    assert "must be an empty or a new directory" in refused(*command, cwd=tmp_path)


@pytest.mark.parametrize("command", ["vocab", "vocab --byte-pairs", "add-words", "prepare", "embed"])
def test_an_output_that_cannot_be_made(model, tmp_path, command):
    """Said before the input is read: here it never ends."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    name, *options = command.split()
    options += [] if name == "vocab" else ["--model", str(model)]
    as_owner = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    output = closed / "new" / ("vectors.npy" if name == "embed" else "vocab.txt")
    process = subprocess.Popen(
        [*as_owner, PROGRAM, name, *options, "--input", "-", "--format", "text", "--output", output],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.wait(60) == 1
    finally:
        process.kill()
        message = process.communicate()[1].splitlines()[-1]
    assert message.startswith("[") and f"{closed}" in message and "Permission denied" in message, message
    assert not list(closed.iterdir())


def test_an_output_beside_the_target_of_a_link(model, tmp_path):
    """The directory that ".." names is the target's, not the one with the link."""
    (tmp_path / "open/deep").mkdir(parents=True)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/link").symlink_to(tmp_path / "open/deep")
    (tmp_path / "closed").chmod(0o555)
    as_owner = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    (tmp_path / "in.jsonl").write_text(TEXT)
    command = [*as_owner, PROGRAM, "embed", "--model", model, "--input", tmp_path / "in.jsonl", "--output"]
    done = subprocess.run([*command, tmp_path / "closed/link/../x.npy"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and (tmp_path / "open/x.npy").exists(), done.stderr
