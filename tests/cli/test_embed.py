"""roformer embed and similar: inputs and outputs, order, resuming with the same bits, and what must not get lost."""

import gzip
import json
import random
import shutil
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest

import cli_support
import roformer_cpp
from cli_support import embed, refused, results, run, started, state_of, stopped
from rf_engine import Embedder
from sentence_model import TEXTS, save_encoder, save_modules


@pytest.fixture(scope="module")
def vectors(sentence_encoder):
    return Embedder(sentence_encoder).embed(TEXTS)


LINES = "".join(text + "\n" for text in TEXTS)


def test_inputs(model, vectors, tmp_path):
    output, records = tmp_path / "out.npy", [{"id": i, "text": t if t else None} for i, t in enumerate(TEXTS)]
    for name, content, *more in (
        ("a.txt", LINES.encode()),
        ("b.txt.gz", gzip.compress(LINES.encode())),
        ("crlf.txt", b"\xef\xbb\xbf" + LINES.encode().replace(b"\n", b"\r\n")),
        ("c.jsonl", "\n".join(map(json.dumps, records)).encode()),
        ("d.csv", ("id,text\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(TEXTS))).encode()),
        ("e.tsv", "".join(f"{t}\t{i}\n" for i, t in enumerate(TEXTS)).encode(), "--field", "1"),
    ):
        (tmp_path / name).write_bytes(content)
        report = embed(model, output, tmp_path / name, *more)
        assert report["rows"] == len(TEXTS) and report["output"] == str(output), name
        assert np.array_equal(np.load(output), vectors), name
    assert embed(model, output, "-", stdin=LINES)["rows"] == len(TEXTS)
    assert np.array_equal(np.load(output), vectors)
    several = embed(model, output, tmp_path / "c.jsonl", tmp_path / "a.txt")
    assert several["rows"] == 2 * len(TEXTS)
    assert np.array_equal(np.load(output), np.concatenate([vectors, vectors]))
    (tmp_path / "more").mkdir()
    (tmp_path / "more/1.txt").write_text("a\nabc de")  # no line end
    (tmp_path / "more/0.txt").write_text("\n\n")
    embed(model, tmp_path / "more/out.jsonl", tmp_path / "more")
    rows = cli_support.lines_of(tmp_path / "more/out.jsonl")
    assert [r["index"] for r in rows] == [0, 1, 2, 3]
    assert np.array_equal(np.array([r["embedding"] for r in rows], np.float32), vectors[[1, 1, 3, 0]])


def test_outputs(model, vectors, tmp_path):
    (tmp_path / "a.txt").write_text(LINES)
    embed(model, tmp_path / "half.npy", tmp_path / "a.txt", "--dtype", "float16")
    half = np.load(tmp_path / "half.npy", mmap_mode="r")
    assert half.dtype == np.float16 and np.array_equal(half, vectors.astype(np.float16))
    rows = results("embed", "--model", model, "--input", tmp_path / "a.txt")
    assert np.array_equal(np.array([r["embedding"] for r in rows], np.float32), vectors)
    rows = results("embed", "--model", model, "--text", *TEXTS)
    assert [(r["index"], r["text"]) for r in rows] == list(enumerate(TEXTS))
    assert np.array_equal(np.array([r["embedding"] for r in rows], np.float32), vectors)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.txt", "half.npy"]
    embed(model, tmp_path / "new/inside/out.npy", tmp_path / "a.txt")
    assert np.array_equal(np.load(tmp_path / "new/inside/out.npy"), vectors)


def test_options(model, tmp_path):
    (tmp_path / "a.txt").write_text(LINES)
    rounded = ["--precision", "bfloat16", "--max-length", 6, "--token-budget", 10]
    for arguments, options in (
        (["--pooling", "cls", "--no-normalize"], {"pooling": "cls", "normalize": False}),
        (["--dimensions", 5, "--prompt", "b "], {"dimensions": 5, "prompt": "b "}),
        (rounded, {"precision": "bfloat16", "max_length": 6}),
    ):
        embed(model, tmp_path / "out.npy", tmp_path / "a.txt", *arguments)
        assert np.array_equal(np.load(tmp_path / "out.npy"), Embedder(model, **options).embed(TEXTS)), arguments
    embed(model, tmp_path / "out.npy", tmp_path / "a.txt", "--pooling", "cls,max")
    assert np.load(tmp_path / "out.npy").shape == (len(TEXTS), 48)
    bfloat16 = roformer_cpp.Engine(model, precision="bf16")
    embed(model, tmp_path / "out.npy", tmp_path / "a.txt", "--precision", "bf16", "--dtype", "fp16")
    assert np.load(tmp_path / "out.npy").dtype == np.float16
    assert np.array_equal(np.load(tmp_path / "out.npy"), bfloat16.embed(TEXTS).astype(np.float16))
    assert np.array_equal(bfloat16.embed(TEXTS), Embedder(model, precision="bfloat16").embed(TEXTS))


def test_usage(model, tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    command, given = ["embed", "--model", model], ["--input", tmp_path / "a.txt"]
    for more, code, rule in (
        ([], 2, "--input or --text, got neither"),
        ([*given, "--text", "a"], 2, "got both"),
        ([*given, "--output", tmp_path / "a.bin"], 1, ".npy, .jsonl or .parquet, got"),
        ([*given, "--output", tmp_path / "a.jsonl", "--dtype", "float16"], 2, "float16 goes with"),
        (["--text", "a " * 30, "--long-texts", "refuse"], 1, "at most 24 tokens, got"),
    ):
        assert rule in refused(*command, *more, code=code), more


def test_lengths_beyond_the_table(model, tmp_path):
    """They are refused before a text is read, which may be short. The model's own number is only a limit."""
    (tmp_path / "a.txt").write_text("a\n")
    most = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    given = ["--input", tmp_path / "a.txt"]
    for command in (["embed", "--text", "a"], ["embed", *given], ["similar", "--query", "a", *given]):
        results(*command, "--model", model, "--max-length", most)
        message = refused(*command, "--model", model, "--max-length", most + 1)
        assert message.startswith(f"[embed] max_length must be a length that the model reads, got {most + 1}: ")
    with pytest.raises(ValueError, match="must be a length that the model reads"):
        roformer_cpp.Engine(model, task="embed", max_length=most + 1)
    shutil.copytree(model, tmp_path / "long")
    (tmp_path / "long/sentence_bert_config.json").write_text(json.dumps({"max_seq_length": most + 100}))
    assert roformer_cpp.Engine(tmp_path / "long", task="embed").embedding_info["max_length"] == most
    (tmp_path / "long.txt").write_text("a " * 2 * most)
    assert embed(tmp_path / "long", tmp_path / "long.npy", tmp_path / "long.txt")["tokens"] == most


def test_odd_lines(model, tmp_path):
    """A line of 10 MB, bytes that are not UTF-8, and zero bytes."""
    long = "ab cd " * 1_700_000
    lines = [long.encode(), b"\xff\xfeab", b"", b"a\0b"]
    (tmp_path / "a.txt").write_bytes(b"\n".join(lines) + b"\n")
    done = run("embed", "--model", model, "--input", tmp_path / "a.txt", "--output", tmp_path / "out.npy")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows"], report["full_texts"], report["replaced_bytes"]) == (4, 1, 2)
    assert "1 texts reached the limit of 24 tokens" in done.stderr and "2 ill-formed UTF-8" in done.stderr
    assert np.array_equal(np.load(tmp_path / "out.npy"), Embedder(model).embed([long[:400], *lines[1:]]))


def test_duplicates(model, vectors, tmp_path):
    order = random.Random(2).choices(range(len(TEXTS)), k=9000)  # more than a block
    (tmp_path / "a.txt").write_text("".join(TEXTS[i] + "\n" for i in order))
    assert embed(model, tmp_path / "out.npy", tmp_path / "a.txt")["texts"] == 9000
    assert np.array_equal(np.load(tmp_path / "out.npy"), vectors[order])


def test_empty_input(model, tmp_path):
    (tmp_path / "a.txt").write_text("")
    for name in ("out.npy", "out.jsonl"):
        assert embed(model, tmp_path / name, tmp_path / "a.txt")["rows"] == 0
    assert np.load(tmp_path / "out.npy").shape == (0, 24) and (tmp_path / "out.jsonl").read_text() == ""
    assert "must exist" in refused("embed", "--model", model, "--input", tmp_path / "b.txt")
    assert "must hold the files of a model" in refused("embed", "--model", tmp_path, "--input", tmp_path / "a.txt")
    cli_support.needs_parquet()
    embed(model, tmp_path / "empty.parquet", tmp_path / "a.txt")
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0


def many_lines(count):
    rng = random.Random(3)
    return [" ".join(rng.choices("abcdefgh", k=rng.randint(0, 12))) + "\n" for _ in range(count)]


@pytest.fixture
def killed(model, tmp_path):
    """The command of a run that was killed after a part of its lines, and its output."""
    output = tmp_path / "out.npy"
    arguments = ["embed", "--model", model, "--input", "-", "--output", output]
    text = "".join(many_lines(5000))
    code, out, _ = stopped(signal.SIGKILL, lambda: state_of(output)["rows"] > 0, *arguments, stdin=text)
    assert code == -signal.SIGKILL and out == ""
    return arguments, output


def test_killed_run_continues(killed, model, tmp_path):
    arguments, output = killed
    assert not output.exists()
    finished = state_of(output)["rows"]
    with output.with_name("out.npy.part").open("ab") as part:
        part.write(b"written after the last checkpoint")
    text = "".join(many_lines(12000))
    report = results(*arguments, "--token-budget", 100, stdin=text, threads=2)[0]
    assert report["rows"] == 12000 and report["texts"] == 12000 - finished
    (tmp_path / "a.txt").write_text(text)
    embed(model, tmp_path / "whole.npy", tmp_path / "a.txt")
    assert output.read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert not list(tmp_path.glob("*.part*"))


def test_other_settings_do_not_continue(killed, tmp_path):
    arguments, output = killed
    before, lines = state_of(output), many_lines(5000)
    text = "".join(lines)
    message = refused(*arguments, "--pooling", "cls", "--dtype", "float16", stdin=text)
    assert 'dtype "float32" (now "float16")' in message and 'pooling ["mean"] (now ["cls"])' in message
    assert "--restart" in message and "normalize" not in message
    other = [*lines[:10], "other\n", *lines[11:]]
    assert f"first {before['rows']} texts must be those" in refused(*arguments, stdin="".join(other))
    assert "must be those" in refused(*arguments, stdin="a\n")
    assert state_of(output) == before
    assert results(*arguments, "--pooling", "cls", "--restart", stdin=text)[0]["texts"] == 5000


def test_existing_output(model, vectors, tmp_path):
    (tmp_path / "a.txt").write_text(LINES)
    command = ["embed", "--model", model, "--input", tmp_path / "a.txt", "--output"]
    (tmp_path / "other.npy.part").write_text("mine")
    assert "remove it" in refused(*command, tmp_path / "other.npy")
    assert (tmp_path / "other.npy.part").read_text() == "mine"
    (tmp_path / "link.npy").symlink_to("out.npy")
    (tmp_path / "out.npy").write_text("mine")
    for name in ("out.npy", "link.npy"):
        for more in ([], ["--restart"]):
            message = refused(*command, tmp_path / name, *more)
            rule = f"[output] {tmp_path / name} must not exist, got a file (--overwrite replaces it)\n"
            assert message == rule and (tmp_path / "out.npy").read_text() == "mine"
    results(*command, tmp_path / "link.npy", "--overwrite")
    assert np.array_equal(np.load(tmp_path / "out.npy"), vectors) and (tmp_path / "link.npy").is_symlink()


def test_two_runs_at_once(model, tmp_path):
    output = tmp_path / "out.npy"
    arguments = ["embed", "--model", model, "--input", "-", "--output", output]
    first = started(*arguments, stdin="")
    cli_support.wait_for(lambda: output.with_name("out.npy.part.json").exists(), first, seconds=120)
    assert "one process at a time" in refused(*arguments, stdin="b\n")
    first.communicate("a\n")
    assert first.returncode == 0 and np.load(output).shape == (1, 24)


def test_full_disk(model, tmp_path):
    (tmp_path / "a.txt").write_text("".join(many_lines(20000)))
    arguments = ["embed", "--model", model, "--input", tmp_path / "a.txt", "--output", tmp_path / "out.npy"]
    limit = 1_000_000  # of 1.92 MB
    message = refused(*arguments, preexec_fn=cli_support.size_limit(limit))
    assert "out.npy.part] cannot write: File too large" in message and "continues there" in message
    rows = state_of(tmp_path / "out.npy")["rows"]
    assert 5000 < rows < 11000
    assert results(*arguments)[0]["texts"] == 20000 - rows
    embed(model, tmp_path / "whole.npy", tmp_path / "a.txt")
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_full_disk_of_parquet(model, tmp_path):
    """The incomplete file is removed, and the computed vectors stay: the same command ends the file."""
    cli_support.needs_parquet()
    output, temporary = tmp_path / "out.parquet", tmp_path / "out.parquet.tmp"
    temporary.symlink_to("/dev/full")
    (tmp_path / "a.txt").write_text("abc\n" * 20)
    arguments = ["embed", "--model", model, "--input", tmp_path / "a.txt", "--output", output]
    assert "out.parquet] cannot write" in refused(*arguments)
    assert not temporary.is_symlink() and state_of(output)["rows"] == 20
    results(*arguments)
    assert pq.read_table(output).num_rows == 20


def test_bad_record_keeps_what_is_finished(model, tmp_path):
    records = [json.dumps({"text": line.strip()}) for line in many_lines(6000)]
    (tmp_path / "a.jsonl").write_text("\n".join([*records[:5000], '{"label": 1}', *records[5000:]]))
    arguments = ["embed", "--model", model, "--input", tmp_path / "a.jsonl", "--output", tmp_path / "out.npy"]
    message = refused(*arguments)
    assert "a.jsonl line 5001" in message and "text" in message
    rows = state_of(tmp_path / "out.npy")["rows"]
    assert rows >= 4096
    (tmp_path / "a.jsonl").write_text("\n".join(records))
    assert results(*arguments)[0]["texts"] == 6000 - rows
    assert len(np.load(tmp_path / "out.npy")) == 6000


def test_similar_of_stored_vectors(model, tmp_path):
    (tmp_path / "a.txt").write_text(LINES)
    arguments = ["similar", "--model", model, "--query", "the cat", "--top-k", 3]
    embed(model, tmp_path / "e5.npy", tmp_path / "a.txt", "--dimensions", 5, "--dtype", "float16")
    assert len(results(*arguments, "--embeddings", tmp_path / "e5.npy", "--dimensions", 5)) == 3
    message = refused(*arguments, "--embeddings", tmp_path / "e5.npy", code=2)
    assert "--embeddings must have the 24 columns of the model's vectors, got 5 (--dimensions" in message
    np.save(tmp_path / "flat.npy", np.zeros(24, np.float32))
    assert "two dimensions" in refused(*arguments, "--embeddings", tmp_path / "flat.npy")
    np.save(tmp_path / "many.npy", np.zeros((7, 24), np.float32))
    message = refused(*arguments, "--embeddings", tmp_path / "many.npy", "--input", tmp_path / "a.txt")
    assert f"the 7 texts of --embeddings, got {len(TEXTS)}" in message
    assert "got neither" in refused(*arguments, code=2)


def test_similar_uses_prompts(model, tmp_path):
    folder = tmp_path / "model"
    save_encoder(folder)
    save_modules(folder, normalize=True, prompts={"query": "q: ", "document": "d: "})
    (tmp_path / "a.txt").write_text("the cat\nabc\n")
    row = results("similar", "--model", folder, "--query", "abc", "--input", tmp_path / "a.txt", "--top-k", 1)[0]
    query, *lines = Embedder(folder).embed(["q: abc", "d: the cat", "d: abc"]).astype(float)
    assert row["score"] == pytest.approx(max(query @ line for line in lines), abs=1e-6)
