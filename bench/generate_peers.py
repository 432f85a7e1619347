#!/usr/bin/env python3
"""Causal generation, compared with transformers: tokens per second of a random RoFormer-base (12 x 768, 50,000 tokens).

Greedy search from one prompt, from eight prompts together, and with four beams. In float32 the new tokens are compared
first; a difference ends the run. The best round of each side counts, including prompts. The share compares the bytes of
weights that a step must read, per second, with the bytes that a copy of 256 MiB reads and writes per second, in the
same rounds.
"""

import ctypes
import tempfile

import harness
import numpy as np
import tables
import torch
import transformers
from harness import Windows

from rf_generation import CausalEngine

TABLES = ["generate_peers"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CASES = {  # prompts, their options and ours
    "greedy": (1, {}, {"search": "greedy"}),
    "greedy, 8 prompts": (8, {}, {"search": "greedy", "batch": 8}),
    "4 beams": (1, {"num_beams": 4}, {"search": "beams", "beams": 4}),
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


def compare(name, model, engine, precision, given):
    count, theirs_options, ours_options = CASES[name]
    prompts = np.random.default_rng(2).integers(1, model.config.vocab_size, (count, given.prompt))

    def theirs():
        options = {"max_new_tokens": given.new, "eos_token_id": None, "do_sample": False, **theirs_options}
        return model.generate(torch.tensor(prompts), **options)[:, given.prompt :].tolist()

    def ours():
        results = engine.generate(list(prompts), max_new_tokens=given.new, **ours_options)
        return [of_prompt[0].ids for of_prompt in results]

    if precision == "float32" and ours() != theirs():
        raise SystemExit(f"{name}: the tokens must be those of transformers")
    source = torch.ones(64 << 20)
    target = torch.empty_like(source)
    sides = [
        Windows("ours", ours, amount=count * given.new),
        Windows("theirs", theirs, amount=count * given.new),
        Windows("copy", lambda: target.copy_(source), amount=2 * source.nbytes),
    ]
    harness.take_turns(sides, given.rounds)
    ours_s, theirs_s, copy_s = (min(side.seconds) for side in sides)
    bytes_per_token = weights_of_a_token(model.config) * DTYPES[precision].itemsize / count
    return {
        "case": name,
        "precision": precision,
        "tokens/s": round(1 / ours_s, 1),
        "transformers": round(1 / theirs_s, 1),
        "ratio": round(theirs_s / ours_s, 2),
        "weights read, of a copy's bytes": round(bytes_per_token / ours_s * copy_s, 2),
    }


def main():
    parser = harness.options(__doc__, TABLES, rounds=5)
    parser.add_argument("--precision", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(folder)
        for precision in given.precision:
            engine, model = CausalEngine(folder, precision), model.to(DTYPES[precision])
            results += harness.shown(compare(name, model, engine, precision, given) for name in given.cases)
    harness.finish(given, results, {TABLES[0]: tables.of_dicts(results)})


if __name__ == "__main__":
    main()
