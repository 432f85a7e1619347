#!/usr/bin/env python3
"""Causal generation, compared with transformers: tokens per second of a random RoFormer-base (12 x 768, 50,000 tokens).

    bench/generate_peers.py [--precision float32 bfloat16] [--prompt 128] [--new 64] [--rounds 5]

Greedy search from one prompt, from eight prompts together, and with four beams. In float32 the new tokens are compared
first; a difference ends the run. Then the sides take turns; the best round of each side counts, including prompts. The
share compares the bytes of weights that a step must read, per second, with the bytes that a copy of 256 MiB reads and
writes per second, in the same rounds. Prints JSON lines.
"""

import argparse
import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

import tables  # noqa: E402

from rf_generation import CausalEngine  # noqa: E402

TABLES = ["generate_peers"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CASES = {
    "greedy": (1, {"do_sample": False}, {"search": "greedy"}),
    "greedy, 8 prompts": (8, {"do_sample": False}, {"search": "greedy", "batch": 8}),
    "4 beams": (1, {"do_sample": False, "num_beams": 4}, {"search": "beams", "beams": 4}),
}


def make_model(folder):
    torch.manual_seed(1)
    config = transformers.RoFormerConfig(is_decoder=True, use_cache=True)
    model = transformers.RoFormerForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.ndim > 1:
                parameter.mul_(2.0)  # so that tokens differ
    model.save_pretrained(folder)
    model.generation_config.pad_token_id = 0
    return model


def weights_of_a_token(config):
    """Elements of the matrices that each token is multiplied with."""
    hidden, inner = config.hidden_size, config.intermediate_size
    layers = config.num_hidden_layers * (4 * hidden * hidden + 2 * hidden * inner)
    return layers + hidden * config.embedding_size + config.embedding_size * config.vocab_size


def copy_bytes_per_second(source, target):
    start = time.perf_counter()
    target.copy_(source)
    return 2 * source.numel() * source.element_size() / (time.perf_counter() - start)


def seconds_of(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(name, model, engine, precision, options):
    count, theirs_options, ours_options = CASES[name]
    generator = np.random.default_rng(2)
    prompts = generator.integers(1, model.config.vocab_size, (count, options.prompt))
    new = options.new

    def theirs():
        out = model.generate(torch.tensor(prompts), max_new_tokens=new, eos_token_id=None, **theirs_options)
        return out[:, options.prompt :].tolist()

    def ours():
        results = engine.generate(list(prompts), max_new_tokens=new, **ours_options)
        return [of_prompt[0].ids for of_prompt in results]

    if precision == "float32" and ours() != theirs():
        raise SystemExit(f"{name}: the tokens must be those of transformers")
    source = torch.ones(64 << 20)
    target = torch.empty_like(source)
    best = {"ours": float("inf"), "theirs": float("inf"), "copy": 0.0}
    for _ in range(options.rounds):
        for side, call in (("ours", ours), ("theirs", theirs)):
            best[side] = min(best[side], seconds_of(call)[0])
        best["copy"] = max(best["copy"], copy_bytes_per_second(source, target))
    bytes_of_weights = weights_of_a_token(model.config) * DTYPES[precision].itemsize
    tokens = count * new
    line = {
        "case": name,
        "precision": precision,
        "prompt_tokens": options.prompt,
        "new_tokens": new,
        "tokens_per_second": round(tokens / best["ours"], 1),
        "transformers_tokens_per_second": round(tokens / best["theirs"], 1),
        "ratio": round(best["theirs"] / best["ours"], 2),
        "copy_gb_per_second": round(best["copy"] / 1e9, 1),
        "share_of_copy_bandwidth": round(bytes_of_weights * new / best["ours"] / best["copy"], 2),
    }
    print(json.dumps(line), flush=True)
    return line


def table(lines):
    """A row for each case."""
    titles = ["case", "precision", "tokens/s", "transformers", "ratio", "weights read, of a copy's bytes"]
    keys = ["case", "precision", "tokens_per_second", "transformers_tokens_per_second", "ratio"]
    rows = [[*(str(line[key]) for key in keys), str(line["share_of_copy_bandwidth"])] for line in lines]
    return tables.markdown([titles, *rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    tables.add_option(parser)
    options = parser.parse_args()
    lines = []
    torch.set_num_threads(options.threads)
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(folder)
        for precision in options.precision:
            engine = CausalEngine(folder, precision)
            model = model.to(DTYPES[precision])
            for name in options.cases:
                lines.append(compare(name, model, engine, precision, options))
    if options.update_docs:
        from peer_timing import machine

        tables.update_docs(TABLES[0], machine(), table(lines))


if __name__ == "__main__":
    main()
