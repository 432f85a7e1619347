#!/usr/bin/env python3
"""Generation from a GGUF file, compared with llama.cpp: perplexity first, then tokens per second.

    bench/gguf_peers.py MODEL.gguf TEXTS [--tokens 4096] [--new 64] [--threads 1] [--rounds 5] [--update-docs]

Needs the packages gguf and llama-cpp-python, which `pip install` compiles for this CPU. TEXTS: JSON lines with a "text"
each; the first is read, by llama.cpp's tokenizer for both sides. Ours computes with the quantised weights exactly;
llama.cpp rounds the other factor of each product to 8 bits. So our perplexity of windows of 512 tokens must equal
llama.cpp's with the weights unpacked to float32, to 0.1 %. Then the sides take turns with prompts of 512 and of 128
tokens; the best round of each side counts.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

import harness
import numpy as np
import tables
from harness import Windows

from engine_case import set_threads
from rf_generation import CausalEngine

TABLES = ["gguf_peers"]
AGREE = 1e-3  # relative, of perplexities
WINDOW = 512
PROMPTS = (512, 128)


class Ours:
    def __init__(self, path, threads):
        set_threads(threads)
        self.engine = CausalEngine(path)

    def logits(self, ids):
        return self.engine.vocabulary_logits([ids], range(len(ids)))

    def generate(self, prompt, new):
        return self.engine.generate([prompt], max_new_tokens=new)[0][0].ids


class Llama:
    def __init__(self, path, threads):
        from llama_cpp import Llama

        options = {"n_ctx": 2 * WINDOW, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
        self.model = Llama(str(path), **options)
        self.of_all = Llama(str(path), logits_all=True, **options)

    def tokenize(self, text):
        return self.model.tokenize(text.encode(), add_bos=False)

    def logits(self, ids):
        self.of_all.reset()
        self.of_all.eval(ids)
        return self.of_all.scores[: len(ids)]

    def generate(self, prompt, new):
        self.model.reset()
        return list(itertools.islice(self.model.generate(prompt, temp=0.0, reset=False), new))


def unpack(path, target):
    """Writes a GGUF file again with float32 tensors."""
    import gguf

    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        x = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, x.astype(np.float32).reshape([int(d) for d in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def perplexity(side, windows):
    """Of the tokens of each window after its first."""
    sums = []
    for ids in windows:
        logits = side.logits(ids)[:-1].astype(np.float64)
        largest = logits.max(1, keepdims=True)
        logits -= largest + np.log(np.exp(logits - largest).sum(1, keepdims=True))
        sums.append(logits[np.arange(len(ids) - 1), ids[1:]])
    return float(np.exp(-np.concatenate(sums).mean()))


def timed(sides, ids, given):
    """A row for each prompt: milliseconds to its first token, and tokens per second after it."""
    for length in PROMPTS:
        calls = {
            (name, new): Windows(f"{name} {new}", lambda side=side, new=new, p=ids[:length]: side.generate(p, new))
            for name, side in sides.items()
            for new in (1, 1 + given.new)
        }
        harness.take_turns(list(calls.values()), given.rounds)
        best = {key: min(side.seconds) for key, side in calls.items()}
        first = {name: best[name, 1] for name in sides}
        rate = {name: given.new / (best[name, 1 + given.new] - best[name, 1]) for name in sides}
        yield {
            "prompt": length,
            "threads": given.threads,
            "first token, ms": f"{first['ours'] * 1e3:.0f}",
            "of llama.cpp": f"{first['llama.cpp'] * 1e3:.0f}",
            "its time / ours": f"{first['llama.cpp'] / first['ours']:.2f}",
            "new tokens/s": f"{rate['ours']:.1f}",
            "llama.cpp's": f"{rate['llama.cpp']:.1f}",
            "our rate / its": f"{rate['ours'] / rate['llama.cpp']:.2f}",
        }


def main():
    parser = harness.options(__doc__, TABLES, rounds=5)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--tokens", type=int, default=4096, help="of the text")
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    sides = {"ours": Ours(given.model, given.threads), "llama.cpp": Llama(given.model, given.threads)}
    with given.texts.open(encoding="utf-8") as file:
        ids = sides["llama.cpp"].tokenize(json.loads(next(file))["text"])[: given.tokens]
    windows = [ids[i : i + WINDOW] for i in range(0, len(ids) - WINDOW + 1, WINDOW)]
    with tempfile.TemporaryDirectory() as folder:
        unpack(given.model, Path(folder) / "float32.gguf")
        exact = perplexity(Llama(Path(folder) / "float32.gguf", given.threads), windows)
    ours, theirs = (perplexity(side, windows) for side in sides.values())
    text = (
        f"Perplexity of {len(windows)} windows of {WINDOW} tokens: ours {ours:.4f}, llama.cpp's {theirs:.4f}, and "
        f"{exact:.4f} with the weights unpacked to float32."
    )
    print(text, flush=True)
    if not abs(ours / exact - 1) <= AGREE:
        sys.exit(f"[bench] our perplexity must be that of llama.cpp in float32 to {AGREE}, got {ours} and {exact}")
    results = harness.shown(timed(sides, ids, given))
    harness.finish(given, results, {TABLES[0]: f"{text}\n\n{tables.of_dicts(results)}"})


if __name__ == "__main__":
    main()
