"""A line of which only the first tokens count takes little more memory than its bytes."""

import json
import os
import subprocess
import sys

import pytest

from cli_support import PROGRAM, results
from sentence_model import save_classifier

LINE_BYTES = 20_000_000
# Of memory for a byte of the line: it is read, and may be copied to a record and to a text of its own.
MOST_BYTES_PER_BYTE = 4
# A process of its own, since Linux counts the memory of the parent as the child's until it runs its program.
PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_bytes(*arguments, stdin):
    """The most memory that the command has at once; it must succeed."""
    command = [sys.executable, "-S", "-c", PEAK, PROGRAM, *map(str, arguments)]
    with stdin.open("rb") as file:
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE, env=environment, timeout=600, check=True)
    return 1024 * int(done.stdout)


@pytest.fixture(scope="module")
def commands(sentence_encoder, tmp_path_factory):
    classifier, text = tmp_path_factory.mktemp("classifier"), ["--format", "text", "--input", "-"]
    save_classifier(classifier, 3)
    cut = ["--max-length", 24, "--truncation", "longest-first"]
    return {
        "embed": ["embed", "--model", sentence_encoder, *text],
        "predict": ["predict", "--model", classifier, "--max-length", 24, *text],
        "tokenize": ["tokenize", "--model", sentence_encoder, *cut],
    }


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A short line and long ones: words, words with accents that are normalised, and bytes that are not UTF-8."""
    folder = tmp_path_factory.mktemp("lines")
    for name, word in {"words": b"ab cd ", "accents": "äb ç ".encode(), "bad": b"ab \xff\xfe "}.items():
        (folder / f"{name}.txt").write_bytes(word * (LINE_BYTES // len(word)) + b"\n")
        (folder / f"{name}-begin.txt").write_bytes(word * 100 + b"\n")
    return folder


@pytest.mark.parametrize("case", ["embed words", "embed accents", "embed bad", "predict words", "tokenize words"])
def test_memory(commands, lines, case):
    command, line = case.split()
    small = peak_bytes(*commands[command], stdin=lines / f"{line}-begin.txt")
    large = peak_bytes(*commands[command], stdin=lines / f"{line}.txt")
    assert large - small < MOST_BYTES_PER_BYTE * LINE_BYTES


def test_results_are_those_of_the_beginning(commands, lines):
    for command, arguments in commands.items():
        for line in ("words", "accents") + (("bad",) if command != "predict" else ()):
            files = ((lines / f"{line}{end}.txt").read_text(errors="surrogateescape") for end in ("", "-begin"))
            long, begin = (results(*arguments, stdin=text, errors="surrogateescape") for text in files)
            assert json.dumps(long) == json.dumps(begin), (command, line)
