#!/usr/bin/env python3
"""Measures the memory of `roformer prepare` on a large file, and the processor time with one and two threads.

    bench/prepare_memory.py [--megabytes 1000] [--text FILE] [--model DIR_WITH_VOCAB] [--update-docs]

Writes JSON lines of FILE's text, repeatedly, to a temporary file, and prepares it: the largest resident memory, the
seconds by the clock, and the processor seconds of all threads.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import harness
import tables
from harness import PROGRAM, ROOT

TABLES = ["prepare_memory"]


def write_lines(path, text, megabytes):
    lines = "".join(json.dumps({"text": line}) + "\n" for line in text.splitlines() if line.strip()).encode()
    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(lines)


def measure(path, model, output, threads):
    command = [PROGRAM, "prepare", "--input", path, "--model", model, "--output", output, "--threads", str(threads)]
    done = harness.measured(command)
    return {
        "threads": threads,
        "GB of jsonl": f"{path.stat().st_size / 1e9:.2f}",
        "resident MiB, at most": round(done.peak_kib / 1024, 1),
        "seconds": round(done.wall_s, 2),
        "processor seconds": round(done.cpu_s, 2),
    }


def main():
    parser = harness.options(__doc__, TABLES)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--text", type=Path, default=ROOT / "LICENSE")
    parser.add_argument("--model", type=Path, help="default: a vocabulary trained on the text")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, model = folder / "a.jsonl", given.model or folder / "model"
        write_lines(path, given.text.read_text(encoding="utf-8"), given.megabytes)
        if given.model is None:
            vocab = [PROGRAM, "vocab", "--input", given.text, "--format", "text", "--output", model / "vocab.txt"]
            subprocess.run(vocab, check=True, stdout=subprocess.DEVNULL)
        results = harness.shown(measure(path, model, folder / "data", threads) for threads in (1, 2))
    harness.finish(given, results, {TABLES[0]: tables.of_dicts(results)})


if __name__ == "__main__":
    main()
