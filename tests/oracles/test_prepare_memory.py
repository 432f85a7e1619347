"""prepare in bounded memory: the peak does not grow with a file, nor with a document of a text file, and a JSON line of
100 MB works. Killed, it leaves nothing under the name of the output."""

import gzip
import json
import resource
import subprocess
import time

import pytest
from tokenizer_probe import write_vocabulary

from cli_support import PROGRAM
from tokenizer_texts import SPECIALS

PROBE = PROGRAM.parent / "tests" / "data_probe"
MB = 1_000_000
SENTENCE = "some words of every day, and a few more of them than that; "
TOKENS = 15


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    words = dict.fromkeys(SENTENCE.replace(",", "").replace(";", "").split())
    write_vocabulary(folder / "vocab.txt", [*SPECIALS, *words, ",", ";"])
    return folder


def arguments(path, model, threads=2, **options):
    given = {"model": str(model), "output": str(model.parent / "out"), "threads": threads}
    return json.dumps({"inputs": [str(path)], "prepare": given, **options})


def prepare(path, model, **options):
    """The report, and the peak of resident memory in MB."""
    done = subprocess.run([PROBE, arguments(path, model, **options)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    return report, report["peak_bytes"] / MB


def packed(path, head, block, megabytes):
    """Writes `head`, then `block` again and again up to this size, with gzip."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head)
        for _ in range(megabytes):
            file.write(block * (MB // len(block)))
    return path


def test_memory_does_not_grow_with_the_file(tmp_path, model):
    line = json.dumps({"text": SENTENCE * 20}).encode() + b"\n"
    peaks = []
    for megabytes in (20, 120):
        path = packed(tmp_path / "a.jsonl.gz", b"", line, megabytes)
        report, peak = prepare(path, model)
        assert report["tokens"] == report["documents"] * 20 * TOKENS
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 20, peaks


@pytest.mark.parametrize(("rule", "documents"), [("file", 1), ("line", 2), ("blank-line", 1)])
def test_memory_does_not_grow_with_a_document(tmp_path, model, rule, documents):
    """Also where it is the first, which waits for the split that has none while it is not too long; nor with a line of
    spaces."""
    block = b" " * 1000 if rule == "blank-line" else SENTENCE.encode()
    path = packed(tmp_path / "a.txt.gz", b"" if rule == "file" else b"some\n\n", block, 100)
    report, peak = prepare(path, model, documents=rule)
    assert report["documents"] == documents and peak < 100, peak
    assert report["tokens"] == 1 if rule == "blank-line" else report["tokens"] > 1_600_000 * TOKENS


def test_a_json_line_of_100_mb(tmp_path, model):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "' + SENTENCE * (100 * MB // len(SENTENCE)) + '\\n"}\n{"text": "some"}\n')
    report, peak = prepare(path, model)
    assert report["documents"] == 2 and report["tokens"] == 100 * MB // len(SENTENCE) * TOKENS + 1
    assert peak < 400, peak


def test_fewer_threads_than_asked_for(tmp_path, model):
    def limit():  # leaves room for the stacks of some of them
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    (tmp_path / "a.txt").write_text(SENTENCE)
    command = [PROBE, arguments(tmp_path / "a.txt", model, threads=1000)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert json.loads(done.stdout)["tokens"] == TOKENS, done


def test_a_kill_leaves_no_output(tmp_path, model):
    (tmp_path / "a.txt").write_text(SENTENCE)
    child = subprocess.Popen([PROBE, arguments("-", model)], stdin=subprocess.PIPE)
    child.stdin.write(SENTENCE.encode() * 100_000)
    child.stdin.flush()
    deadline = time.monotonic() + 60
    while not (tmp_path / "out.preparing").exists():
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert not (tmp_path / "out").exists()
    report, _ = prepare(tmp_path / "a.txt", model)
    assert report["documents"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "model", "out"]
