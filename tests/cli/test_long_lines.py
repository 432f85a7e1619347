"""A line of which only the first tokens count takes little more memory than its bytes."""

import json
import os
import subprocess
import sys

import pytest

from cli_support import PROGRAM, results
from engine_case import make_oracle
from sentence_model import save_encoder, save_modules

LINE_BYTES = 20_000_000
# Of memory for a byte of the line: it is read, and may be copied to a record and to a text of its own.
MOST_BYTES_PER_BYTE = 4
# A process of its own, since Linux counts the memory of the parent as the child's until it runs its program.
PEAK = (
    "import resource, subprocess, sys\n"
    "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
    "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def peak_bytes(*arguments, stdin):
    """The most memory that the command has at once; it must succeed."""
    command = [sys.executable, "-S", "-c", PEAK, PROGRAM, *map(str, arguments)]
    with stdin.open("rb") as file:
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE, env=environment, timeout=600, check=True)
    code, peak_kib = map(int, done.stdout.split())
    assert code == 0, arguments
    return peak_kib * 1024


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ("sentence", "tuned"):
        (folder / name).mkdir()
    save_encoder(folder / "sentence")
    save_modules(folder / "sentence")
    save_encoder(folder / "tuned")
    make_oracle("Bert", "ForSequenceClassification").save_pretrained(folder / "tuned")
    return folder


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A short line and long ones: words, words with accents that are normalised, and bytes that are not UTF-8."""
    folder = tmp_path_factory.mktemp("lines")
    for name, word in {"words": b"ab cd ", "accents": "äb ç ".encode(), "bad": b"ab \xff\xfe "}.items():
        (folder / f"{name}.txt").write_bytes(word * (LINE_BYTES // len(word)) + b"\n")
        (folder / f"{name}-begin.txt").write_bytes(word * 100 + b"\n")
    return folder


def commands(models):
    text = ["--format", "text", "--input", "-"]
    return {
        "embed": ["embed", "--model", models / "sentence", *text],
        "predict": ["predict", "--model", models / "tuned", "--max-length", 24, *text],
        "tokenize": ["tokenize", "--model", models / "sentence", "--max-length", 24, "--truncation", "longest-first"],
    }


@pytest.mark.parametrize(
    ("command", "line"), [("embed", "words"), ("embed", "accents"), ("embed", "bad"), ("predict", "words"),
                          ("tokenize", "words")]
)  # fmt: skip
def test_memory(models, lines, command, line):
    arguments = commands(models)[command]
    small = peak_bytes(*arguments, stdin=lines / f"{line}-begin.txt")
    large = peak_bytes(*arguments, stdin=lines / f"{line}.txt")
    assert large - small < MOST_BYTES_PER_BYTE * LINE_BYTES


def test_results_are_those_of_the_beginning(models, lines):
    for command, arguments in commands(models).items():
        for line in ("words", "accents") + (("bad",) if command != "predict" else ()):
            long, begin = (
                results(*arguments, stdin=(lines / f"{line}{end}.txt").read_bytes().decode(errors="surrogateescape"),
                        errors="surrogateescape")
                for end in ("", "-begin")
            )  # fmt: skip
            assert json.dumps(long) == json.dumps(begin), (command, line)
