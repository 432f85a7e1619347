#!/usr/bin/env python3
"""Counts lines that differ between translations with and without the cache of keys and values, and between batch sizes.

    bench/translation_cache.py --model DIR --input a.en b.en [--beams 4] [--threads 2]

Prints a JSON line for each way: seconds, and the lines that differ from the first way. If two translations have almost
equal scores, another order of sums may decide (docs/translation.md).
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from cli_support import run  # noqa: E402

WAYS = [("4096",), ("512",), ("32768",), ("4096", "--no-cache")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, nargs="+", required=True)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    text = "".join(path.read_text(encoding="utf-8") for path in options.input)
    first = None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.txt"
        source.write_text(text, encoding="utf-8")
        for way in WAYS:
            start = time.perf_counter()
            done = run(
                "translate", "--model", options.model, "--input", source, "--beams", options.beams,
                "--batch-tokens", *way, threads=options.threads,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            lines = done.stdout.split("\n")[:-1]
            first = first or lines
            different = sum(a != b for a, b in zip(first, lines, strict=True))
            seconds = round(time.perf_counter() - start, 1)
            print(json.dumps({"batch_tokens": " ".join(way), "lines": len(lines), "different": different,
                              "characters": len(done.stdout), "seconds": seconds}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
