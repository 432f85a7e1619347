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

import os
import statistics
import tempfile
from pathlib import Path

import harness
import numpy as np
import tables
from harness import Server, Windows
from train_bench import MODELS, bench_command, save_batches, stepping

import roformer_cpp
from rf_engine import Engine

TABLES = {"small": "roformer_v2_bench small", "base": "roformer_v2_bench base"}
FAMILIES = {
    "RoFormer": {"model_type": "roformer", "hidden_act": "gelu"},
    "RoFormerV2": {"model_type": "roformer_v2", "hidden_act": "relu"},
}
PUBLISHED = {128: 1.3, 512: 1.2}
TOKENS_OF_BATCH = {"small": 4096, "base": 2048}


def inference(name, directory, ids, precision, steps):
    engine = Engine(directory, precision=precision, head="none")
    rows = list(ids.astype(np.int32))

    def call():
        for _ in range(steps):
            engine.hidden(rows)

    return Windows(name, call, amount=steps * ids.size)


def pairs_of_sides(model, tokens, folder, steps, threads):
    """{what is timed: the sides of both families}"""
    sizes = MODELS[model]
    shape = (max(1, TOKENS_OF_BATCH[model] // tokens), tokens)
    pairs = {}
    for name, keys in FAMILIES.items():
        directory = str(folder / name)
        roformer_cpp.build_model(sizes | keys, "RoFormerForMaskedLM", seed=1).save(directory)
        ids, _ = save_batches(directory, sizes["vocab_size"], shape)
        training = stepping(name, Server(bench_command(directory, threads)), steps, shape[0] * tokens)
        pairs.setdefault("training step", []).append(training)
        for precision in ("float32", "bfloat16"):
            side = inference(name, directory, ids[0], precision, steps)
            pairs.setdefault(f"inference, {precision}", []).append(side)
    return pairs


def compare(model, tokens, windows, steps, threads):
    with tempfile.TemporaryDirectory() as folder:
        for what, sides in pairs_of_sides(model, tokens, Path(folder), steps, threads).items():
            harness.take_turns(sides, windows)
            low, middle, high = statistics.quantiles(harness.ratios(*sides), n=4)
            yield {
                "": what,
                "tokens of a row": tokens,
                **{side.name: f"{1 / side.median:,.0f}" for side in sides},
                "times as fast (quartiles)": f"{middle:.2f} ({low:.2f} - {high:.2f})",
                "published, of a GPU": PUBLISHED.get(tokens, ""),
            }


def main():
    parser = harness.options(__doc__, TABLES)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512], help="of a row")
    parser.add_argument("--windows", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2, help="steps of a window")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    results = []
    for tokens in given.tokens:
        results += harness.shown(compare(given.model, tokens, given.windows, given.steps, given.threads))
    harness.finish(given, results, {TABLES[given.model]: tables.of_dicts(results)})


if __name__ == "__main__":
    main()
