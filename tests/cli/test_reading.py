"""The inputs of vocab and prepare on the command line; the formats themselves are compared in tests/oracles."""

import gzip
import json

from cli_support import make_corpus, prepare, results, run, size_limit


def shards(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.rfs")}


def test_the_same_documents_in_every_way(prepared, tmp_path):
    texts = [path.read_text() for path in sorted((prepared / "corpus").glob("*.txt"))]
    lines = "".join(json.dumps({"doc": {"body": text}}) + "\n" for text in texts)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    want = shards(prepared / "data")
    field = ["--field", "doc.body"]
    assert prepare(prepared, tmp_path / "1", inputs=[prepared / "corpus" / "*.txt"])["documents"] == 16
    assert prepare(prepared, tmp_path / "2", *field, inputs=[corpus])["skipped_records"] == 0
    prepare(prepared, tmp_path / "3", *field, "--format", "jsonl", inputs="-", stdin=lines)
    skip = ["--format", "jsonl", "--skip-bad-records"]
    report = prepare(prepared, tmp_path / "4", *field, *skip, inputs="-", stdin=lines + "{")
    assert report["skipped_records"] == 1
    assert all(shards(tmp_path / number) == want for number in "1234")
    manifest = json.loads((tmp_path / "2" / "data.json").read_text())
    assert manifest["inputs"] == [str(corpus)]
    assert (manifest["input_format"], manifest["field"]) == ("auto", "doc.body")
    assert json.loads((tmp_path / "4" / "data.json").read_text())["skipped_records"] == 1

    size = ["--size", 150, "--output", tmp_path / "v" / "vocab.txt"]
    results("vocab", "--input", corpus / "b.jsonl.gz", *field, *size)
    assert (tmp_path / "v" / "vocab.txt").read_bytes() == (prepared / "vocabulary" / "vocab.txt").read_bytes()


def test_a_full_disk(prepared, tmp_path):
    given = ["--input", prepared / "corpus", "--model", prepared / "vocabulary", "--output", tmp_path / "data"]
    done = run("prepare", *given, preexec_fn=size_limit(1000))
    assert done.returncode == 1 and ".rfs" in done.stderr and "File too large" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_output_among_the_inputs_is_left_out(tmp_path):
    """A second vocab or prepare reads what the first one read, and says what it left out."""
    make_corpus(tmp_path / "corpus")
    corpus = tmp_path / "corpus"
    making = ["vocab", "--input", corpus, "--size", 120, "--output", corpus / "vocab.txt"]
    preparing = ["prepare", "--input", corpus, "--model", corpus, "--output", corpus / "data"]
    for command, key, left_out in ((making, "hash", "vocab.txt"), (preparing, "train_tokens", "data")):
        outputs = []
        for _ in range(2):
            done = run(*command)
            assert done.returncode == 0, done.stderr
            outputs.append(json.loads(done.stdout)[key])
        assert outputs[0] == outputs[1]
        assert f"left out of the input, because this command writes it: {corpus / left_out}" in done.stderr
