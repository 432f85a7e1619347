#!/usr/bin/env python3
"""Counts lines that differ between translations with and without the cache of keys and values, and between batch sizes.

    bench/translation_cache.py --model DIR --input a.en b.en [--beams 4] [--threads 2]

Prints a JSON line for each way: seconds, and the lines that differ from the first way. If two translations have almost
equal scores, another order of sums may decide (docs/translation.md).
"""

import tempfile
import time
from pathlib import Path

import harness

from cli_support import run

WAYS = [(4096,), (512,), (32768,), (4096, "--no-cache")]


def translations(given, source, batch_tokens, *more):
    options = ("--model", given.model, "--input", source, "--beams", given.beams, "--batch-tokens", batch_tokens)
    done = run("translate", *options, *more, threads=given.threads)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.split("\n")[:-1]


def compare(given, source):
    first = None
    for way in WAYS:
        start = time.perf_counter()
        lines = translations(given, source, *way)
        seconds = round(time.perf_counter() - start, 1)
        first = first or lines
        different = sum(a != b for a, b in zip(first, lines, strict=True))
        yield {
            "batch_tokens": " ".join(map(str, way)),
            "lines": len(lines),
            "different": different,
            "characters": sum(len(line) + 1 for line in lines),
            "seconds": seconds,
        }


def main():
    parser = harness.options(__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, nargs="+", required=True)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.txt"
        source.write_text("".join(path.read_text(encoding="utf-8") for path in given.input), encoding="utf-8")
        harness.finish(given, harness.shown(compare(given, source)), {})


if __name__ == "__main__":
    main()
