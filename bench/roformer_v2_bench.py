#!/usr/bin/env python3
"""Times RoFormerV2 relative to RoFormer (claim C-31: 1.3 times as fast at 128 tokens, 1.2 times at 512) in `roformer`.

The models have the same sizes and differ only in the family, with the activations of the published models (gelu, and
relu in RoFormerV2), on the same random ids. A training step is `roformer bench`: masked language model of 15 %, dropout
0.1, bfloat16 products, AdamW; inference is the engine's hidden states of the same rows in float32 or bfloat16. The two
take turns in windows of one program each; the result is the median over the windows of the ratio of tokens per second.
The claim's rule: a ratio whose interquartile range is above 1 is faster. The published numbers, measured on a GPU, are
shown next to ours.

    bench/roformer_v2_bench.py --model small [--update-docs]
    bench/roformer_v2_bench.py --model base [--update-docs]       (the published shapes: 12 layers of 768)
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]

import tables  # noqa: E402
from peer_timing import machine  # noqa: E402
from train_bench import MODELS, Server, bench_command, make_batches  # noqa: E402

import roformer_cpp  # noqa: E402
from rf_engine import Engine  # noqa: E402

TABLES = {"small": "roformer_v2_bench small", "base": "roformer_v2_bench base"}
FAMILIES = {
    "roformer": {"model_type": "roformer", "hidden_act": "gelu"},
    "roformer_v2": {"model_type": "roformer_v2", "hidden_act": "relu"},
}
PUBLISHED = {128: 1.3, 512: 1.2}
TOKENS_OF_BATCH = {"small": 4096, "base": 2048}


class Inference:
    def __init__(self, directory, ids, precision):
        self.engine = Engine(directory, precision=precision, head="none")
        self.rows = list(ids[0].astype(np.int32))
        self.tokens = ids[0].size

    def tokens_per_second(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.engine.hidden(self.rows)
        return steps * self.tokens / (time.perf_counter() - start)


def compared(sides, windows, steps):
    """{name: tokens per second}, and the ratios second / first of the windows."""
    for side in sides.values():
        side.tokens_per_second(1)
    speeds = {name: [] for name in sides}
    for window in range(windows):
        for name in list(sides) if window % 2 == 0 else reversed(list(sides)):
            speeds[name].append(sides[name].tokens_per_second(steps))
    first, second = speeds.values()
    ratios = sorted(b / a for a, b in zip(first, second, strict=True))
    return {name: round(statistics.median(values), 1) for name, values in speeds.items()}, ratios


def docs_table(results):
    titles = ["", "tokens of a row", "RoFormer", "RoFormerV2", "times as fast (quartiles)", "published, of a GPU"]
    rows = []
    for result in results:
        speeds = [f"{speed:,.0f}" for speed in result["tokens_per_second"].values()]
        low, high = result["quartiles"]
        ratio = f"{result['times_as_fast']:.2f} ({low:.2f} - {high:.2f})"
        rows.append([result["what"], str(result["batch"][1]), *speeds, ratio, str(result["published"] or "")])
    return tables.markdown([titles, *rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512], help="of a row")
    parser.add_argument("--windows", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2, help="steps of a window")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    build = os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")
    parser.add_argument("--binary", default=str(pathlib.Path(build) / "roformer"))
    tables.add_option(parser)
    arguments = parser.parse_args()
    results = []
    sizes = MODELS[arguments.model]
    for tokens in arguments.tokens:
        shape = (max(1, TOKENS_OF_BATCH[arguments.model] // tokens), tokens)
        ids, labels = make_batches(sizes["vocab_size"], shape, np.random.default_rng(1))
        with tempfile.TemporaryDirectory() as parent:
            folders = {name: os.path.join(parent, name) for name in FAMILIES}  # noqa: PTH118
            for name, folder in folders.items():
                model = roformer_cpp.build_model(sizes | FAMILIES[name], "RoFormerForMaskedLM", seed=1)
                model.save(folder)
                np.save(f"{folder}/ids.npy", ids)
                np.save(f"{folder}/labels.npy", labels)
            sides = {
                "training step": {
                    n: Server(bench_command(arguments.binary, f, arguments.threads)) for n, f in folders.items()
                }
            }
            for precision in ("float32", "bfloat16"):
                sides[f"inference, {precision}"] = {n: Inference(f, ids, precision) for n, f in folders.items()}
            for what, pair in sides.items():
                speeds, ratios = compared(pair, arguments.windows, arguments.steps)
                result = {
                    "bench": "roformer_v2",
                    "machine": machine(),
                    "model": arguments.model,
                    "what": what,
                    "batch": shape,
                    "threads": arguments.threads,
                    "tokens_per_second": speeds,
                    "times_as_fast": round(statistics.median(ratios), 3),
                    "quartiles": [round(q, 3) for q in statistics.quantiles(ratios, n=4)[::2]],
                    "published": PUBLISHED.get(tokens),
                    "windows": arguments.windows,
                }
                print(json.dumps(result), flush=True)
                results.append(result)
    if arguments.update_docs:
        tables.update_docs(TABLES[arguments.model], machine(), docs_table(results))


if __name__ == "__main__":
    main()
