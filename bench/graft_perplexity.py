"""Perplexity of a trained decoder by position, with other rotations grafted and without training.

Reads the beginning of a file of lines {"text": ..}, and writes a line of a table when a graft is done.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import roformer_cpp


def grafts(length: int, times: int) -> dict[str, dict]:
    """By the rows of the table; length: of training, times: how much longer the text is."""
    return {
        "none (its rotation)": {"encoding": "rope"},
        "linear": {"encoding": "linear", "factor": float(times)},
        "NTK": {"encoding": "ntk", "factor": float(times)},
        "dynamic NTK": {"encoding": "dynamic", "factor": float(times)},
        "YaRN": {"encoding": "yarn", "factor": float(times)},
        "log n": {"encoding": "log-n"},
        "p-RoPE 0.75": {"encoding": "proportional", "partial_rotary_factor": 0.75},
        "ReRoPE": {"encoding": "rerope", "window": length // 2},
        "Self-Extend": {"encoding": "self-extend", "window": length // 4, "group_size": 2 * times},
        "DCA": {"encoding": "dca", "window": length // 4, "chunk_size": length * 3 // 4},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file, or a directory of transformers")
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines with a text each; the first is read")
    parser.add_argument("--tokens", type=int, required=True, help="how many tokens of it")
    parser.add_argument("--length", type=int, help="tokens of training (default: max_position_embeddings)")
    parser.add_argument("--grafts", help="names of rows, separated by commas (default: all)")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of weights and caches")
    parser.add_argument("--chunk", type=int, default=512, help="tokens of a forward pass")
    options = parser.parse_args()
    where = (
        (options.model.parent, {"gguf_file": options.model.name}) if options.model.is_file() else (options.model, {})
    )
    tokenizer = AutoTokenizer.from_pretrained(where[0], **where[1])
    model = AutoModelForCausalLM.from_pretrained(where[0], **where[1], dtype=getattr(torch, options.dtype)).eval()
    with options.texts.open(encoding="utf-8") as file:
        text = json.loads(next(file))["text"]
    tokens = torch.tensor(tokenizer(text)["input_ids"])[: options.tokens]
    length = options.length or model.config.max_position_embeddings
    times = -(-len(tokens) // length)
    edges = [edge for edge in (length * 2**i for i in range(20)) if edge < len(tokens)] + [len(tokens)]
    print("| graft | " + " | ".join(f"to {edge:,}" for edge in edges) + " | minutes |", flush=True)
    print("|---|" + "---|" * (len(edges) + 1))
    rows = grafts(length, times)
    for name in options.grafts.split(",") if options.grafts else rows:
        begin = time.perf_counter()
        with roformer_cpp.grafted(model, **rows[name]):
            found = roformer_cpp.perplexity_by_position(model, tokens, edges=edges, chunk=options.chunk)["model"]
        minutes = (time.perf_counter() - begin) / 60
        print(f"| {name} | " + " | ".join(f"{x:.2f}" for x in found) + f" | {minutes:.1f} |", flush=True)


if __name__ == "__main__":
    main()
