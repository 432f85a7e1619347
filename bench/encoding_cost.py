#!/usr/bin/env python3
"""Attention with whole encodings, relative to RoPE: 12 heads of 64 in float32, forward and with backward.

    bench/encoding_cost.py [--tokens N] [--rounds N] [--encodings NAME ...] [--kernel NAME] [--update-docs]

A call computes an encoding's terms from its parameters and attends with them, in the fused kernel unless --kernel names
another; the backward reaches queries, keys, values and the parameters. bench/attention_peers.py --encodings times the
kernel alone, with given terms. This script counts the CPU time of one thread, so other programs on the machine hardly
disturb it. The sides take turns; a ratio is the median of the ratios within a round.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peer_timing import Windows, keep_freed_memory, machine, median_ratio, take_turns  # noqa: E402

import roformer_cpp  # noqa: E402

TABLES = ["encoding_cost"]
HEADS, HEAD_DIM = 12, 64
ENCODINGS = ["alibi", "t5", "kerple-log", "kerple-power", "sandwich", "fire", "fox", "huang-m1", "huang-m3", "path"]


def windows(name, tokens, backward, kernel):
    torch.manual_seed(0)
    shape = {"num_attention_heads": HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": tokens}
    causal = {each["name"]: each["needs_causal"] for each in roformer_cpp.encodings()}
    encoding = roformer_cpp.encoding(name, **shape, is_decoder=causal[name])
    positions = torch.arange(tokens)
    q, k, v, y = (torch.randn(1, tokens, HEADS, HEAD_DIM) for _ in range(4))
    if not backward:

        def forward():
            with torch.inference_mode():
                terms = encoding.terms(positions, queries=q, keys=k, hidden_states=q.flatten(2))
                roformer_cpp.attention(q, k, v, terms, kernel=kernel)

        return Windows(name, forward)
    inputs = [x.requires_grad_() for x in (q, k, v)] + [x for x in encoding.parameters() if x.requires_grad]

    def training():
        terms = encoding.terms(positions, queries=q, keys=k, hidden_states=q.flatten(2))
        out = roformer_cpp.attention(q, k, v, terms, kernel=kernel)
        torch.autograd.grad(out, inputs, y)

    return Windows(name, training)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--encodings", nargs="+", metavar="NAME", default=ENCODINGS)
    parser.add_argument("--kernel", choices=["fused", "explicit"], default="fused")
    tables.add_option(parser)
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    results = {}
    for backward in (False, True):
        sides = [windows(name, arguments.tokens, backward, arguments.kernel) for name in ["rope", *arguments.encodings]]
        take_turns(sides, arguments.rounds, window_s=0.15, clock=time.thread_time)
        for side in sides:
            milliseconds = 1e3 * statistics.median(side.seconds)
            results.setdefault(side.name, []).extend([f"{milliseconds:.1f}", f"{median_ratio(side, sides[0]):.2f}"])
    passes = ["forward", "forward and backward"]
    titles = [f"{which}, {column}" for which in passes for column in ("ms", "of RoPE")]
    table = tables.markdown([[f"{arguments.tokens} tokens", *titles], *([name, *row] for name, row in results.items())])
    print(table)
    if arguments.update_docs:
        tables.update_docs(TABLES[0], machine(), table)


if __name__ == "__main__":
    main()
