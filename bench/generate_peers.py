#!/usr/bin/env python3
"""Causal generation, compared with transformers: tokens per second of a random RoFormer-base (12 x 768, 50,000 tokens).

Greedy search from one prompt, from eight prompts together, and with four beams. In float32 the new tokens are compared
first; a difference ends the run. The best round of each side counts, including prompts. The share compares the bytes of
weights that a step must read, per second, with the bytes that a sum of 256 MiB reads per second, in the same rounds.

The second table has GGUF files of one Llama shape with random weights of each type. The logits must equal those of the
weights unpacked to float32, up to rounding; then the time of new tokens counts, without the time of the prompt.
"""

import ctypes
import itertools
import tempfile
from pathlib import Path

import harness
import numpy as np
import tables
import torch
import transformers
from gguf_peers import unpack
from harness import Windows

import tolerances as tol
from rf_generation import CausalEngine
from rotary_decoders import HALVES, random_blocks, write_keys

TABLES = ["generate_peers", "generate_peers stored"]
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
    sides = [
        Windows("ours", ours, amount=count * given.new),
        Windows("theirs", theirs, amount=count * given.new),
        reading(),
    ]
    harness.take_turns(sides, given.rounds)
    ours_s, theirs_s, byte_s = (min(side.seconds) for side in sides)
    bytes_per_token = weights_of_a_token(model.config) * DTYPES[precision].itemsize / count
    return {
        "case": name,
        "precision": precision,
        "tokens/s": round(1 / ours_s, 1),
        "transformers": round(1 / theirs_s, 1),
        "ratio": round(theirs_s / ours_s, 2),
        "weights read, of the stream": round(bytes_per_token / ours_s * byte_s, 2),
    }


def write_stored(path, types):
    """Writes a GGUF file whose matrices have the given types in turn; returns the bytes that a token reads."""
    import gguf

    config = transformers.LlamaConfig(
        **{"vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4},
        **{"num_attention_heads": 32, "num_key_value_heads": 4},
    )
    width, inner, keys = config.hidden_size, config.intermediate_size, config.hidden_size // 8
    shapes = {"attn_q": (width, width), "attn_k": (keys, width), "attn_v": (keys, width), "attn_output": (width, width)}
    shapes |= {"ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}
    named = {f"blk.{i}.{name}": shape for i in range(config.num_hidden_layers) for name, shape in shapes.items()}
    named |= {"token_embd": (config.vocab_size, width), "output": (config.vocab_size, width)}
    random, read = np.random.default_rng(1), 0
    kinds = itertools.cycle(gguf.GGMLQuantizationType[name] for name in types.split())
    writer = gguf.GGUFWriter(path, "llama")
    write_keys(writer, config)
    for name, shape in named.items():
        kind = next(kinds)
        if kind.name in HALVES:
            data = random_blocks(shape, kind, 0.02)
        else:
            data = gguf.quants.quantize(random.standard_normal(shape, np.float32) * np.float32(0.02), kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
        read += data.nbytes * (name != "token_embd")
    norms = [f"blk.{i}.{name}_norm" for i in range(config.num_hidden_layers) for name in ("attn", "ffn")]
    for name in [*norms, "output_norm"]:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


def reading():
    """A stream of reads, by the byte."""
    source = torch.ones(64 << 20)
    return Windows("reads", source.sum, amount=source.nbytes)


def stored(types, given):
    prompt = np.random.default_rng(2).integers(1, 32000, given.prompt)
    with tempfile.TemporaryDirectory() as folder:
        path, exact = Path(folder) / "model.gguf", Path(folder) / "float32.gguf"
        read = write_stored(path, types)
        unpack(path, exact)
        expected = CausalEngine(exact).logits([prompt[:16]])
        engine = CausalEngine(path)
        if np.abs(engine.logits([prompt[:16]]) - expected).max() > tol.T4_MAX * np.abs(expected).max():
            raise SystemExit(f"{types}: the logits must be those of the weights in float32")
        sides = [
            Windows(str(new), lambda new=new: engine.generate([prompt], max_new_tokens=new))
            for new in (1, 1 + given.new)
        ]
        harness.take_turns([*sides, stream := reading()], given.rounds)
    first, all_s = (min(side.seconds) for side in sides)
    token_s = (all_s - first) / given.new
    return {
        "weights": types,
        "prompt tokens/s": round(given.prompt / first),
        "new tokens/s": round(1 / token_s, 1),
        "stream, GB/s": round(1e-9 / min(stream.seconds), 1),
        "weights read, of the stream": round(read / token_s * min(stream.seconds), 2),
    }


def main():
    parser = harness.options(__doc__, TABLES, rounds=5)
    parser.add_argument("--precision", nargs="*", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--types", nargs="*", default=["F32", "BF16", "Q8_0", "Q4_K Q6_K"], help="of GGUF files")
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
    found = harness.shown(stored(types, given) for types in given.types)
    pages = {name: tables.of_dicts(rows) for name, rows in zip(TABLES, (results, found), strict=True) if rows}
    harness.finish(given, results + found, pages)


if __name__ == "__main__":
    main()
