#!/usr/bin/env python3
"""Compares the kernels of core (C interface) with torch eager: runs `roformer bench` and writes its results as tables.

    bench/kernels.py [--tables rope attention ...] [--rounds N] [--threads N] [--update-docs]

The program verifies and times (roformer bench --help says how); this script calls it once for each table.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402

PROGRAM = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "roformer"
TABLES = {
    "rope": "kernels rope",
    "rope-cached": "kernels rope-cached",
    "attention": "kernels attention",
    "linear-attention": "kernels linear-attention",
    "rows": "kernels rows",
    "linear": "kernels linear",
}
YARDSTICK = "linear/plain/1024x768x3072"  # rate of matrix products in the run that times attention
OPTIONS = {
    "rope": ["--filter", "^rope/"],
    "rope-cached": ["--filter", "^rope/.*/4096/", "--sets", "1"],
    "attention": ["--filter", f"^(attention|{YARDSTICK})/", "--peers"],
    "linear-attention": ["--filter", "^linear-attention/", "--peers"],
    "rows": ["--filter", "^(norm|gelu|softmax|cross-entropy)/", "--peers"],
    "linear": ["--filter", "^linear/", "--peers"],
}


def run(options):
    """The machine, and the results of all sides by case."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.jsonl")
        subprocess.run([PROGRAM, "bench", *options, "--json", path], check=True)
        first, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    cases = {}
    for line in lines:
        cases.setdefault(line["case"], {})[line["side"]] = line
    return first["machine"], cases


def rope_rows(cases):
    """Speed relative to a copy of the same bytes."""
    kinds = [f"{layout}-{place}" for place in ("out-of-place", "in-place") for layout in ("pairs", "halves")]
    rows = {}
    for name, sides in cases.items():
        _, variant, positions, dtype = name.split("/")
        order, kind = variant.split("-", 1)
        key = (f"[{','.join(order.upper())}]", positions, dtype)
        rows.setdefault(key, {})[kind] = f"{sides['copy']['ours_times_as_fast']:.2f}"
    titles = [", ".join(kind.split("-", 1)).replace("-", " ") for kind in kinds]
    return [["data", "positions", "dtype", *titles], *([*key, *(row[k] for k in kinds)] for key, row in rows.items())]


def peer_rows(cases):
    """A row for both passes of a case: our rate, the speed relative to torch, and for attention its share of the rate
    of a linear layer of the same type in the same run."""
    any_attention = any(name.startswith("attention/") for name in cases)
    passes = ["forward", "forward-backward"]
    unit = "GFLOP/s" if "gflop_per_s" in next(iter(cases.values()))["ours"] else "GB/s"
    rows = {}
    for name, sides in cases.items():
        *what, dtype, which = name.split("/")
        rate = sides["ours"].get("gflop_per_s") or sides["ours"]["gigabytes_per_s"]
        cells = [f"{rate:.0f}", f"{sides['torch']['ours_times_as_fast']:.2f}"]
        if any_attention:
            cells.append(f"{rate / cases[f'{YARDSTICK}/{dtype}/{which}']['ours']['gflop_per_s']:.2f}")
        rows.setdefault(" ".join([*what, dtype]), {})[which] = cells
    columns = [unit, "of torch", *["of a linear layer"] * any_attention]
    titles = [f"{which}, {column}" for which in ("forward", "with backward") for column in columns]
    empty = [""] * len(columns)
    return [
        ["kernel", *titles],
        *([what, *(c for p in passes for c in row.get(p, empty))] for what, row in rows.items()),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--rounds", type=int, help="windows of each side (default: the program's)")
    parser.add_argument("--threads", type=int, help="threads of every side (default: all)")
    tables.add_option(parser)
    arguments = parser.parse_args()
    common = [f"--{key}={value}" for key in ("rounds", "threads") if (value := getattr(arguments, key))]
    for name in arguments.tables:
        machine, cases = run([*OPTIONS[name], *common])
        table = tables.markdown((rope_rows if name.startswith("rope") else peer_rows)(cases))
        print(table, flush=True)
        if arguments.update_docs:
            tables.update_docs(TABLES[name], machine, table)


if __name__ == "__main__":
    main()
