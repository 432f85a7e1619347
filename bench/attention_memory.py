#!/usr/bin/env python3
"""Memory of fused attention in addition to its inputs, outputs and gradients: one head of 64, float32, RoPE.

Each figure comes from a separate process: the increase of the process's peak by a call of forward and backward, minus
the output and the gradients of q, k and v, which the call creates. It is the maximum over several calls, since threads
keep work space between calls.
"""

import argparse
import json
import os
import subprocess
import sys

import harness
import tables
import torch

import roformer_cpp

TABLES = ["attention_memory"]
HEAD_DIM = 64


def additional_mb(tokens: int, calls: int) -> float:
    """Peak memory that the calls add to this process, minus their outputs and gradients."""
    harness.return_freed_memory()
    q, k, v, grad = torch.randn(4, 1, tokens, 1, HEAD_DIM).unbind()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    rope = roformer_cpp.encoding("rope", num_attention_heads=1, head_dim=HEAD_DIM)

    def train(count: int, times: int) -> None:
        positions = torch.arange(count)
        terms = rope.terms(positions)
        for _ in range(times):
            few = [x[:, :count] for x in leaves]
            out = roformer_cpp.attention(*few, terms, positions=positions, kernel="fused")
            torch.autograd.grad(out, few, grad[:, :count])
            del out

    train(64, 1)  # a small call first: programs and their threads take memory too
    return (harness.added_kib(lambda: train(tokens, calls)) * 1024 - 4 * grad.nbytes) / 1e6


def measured(tokens: int, threads: int, calls: int) -> float:
    command = [sys.executable, __file__, "--calls", str(calls), "--one", str(tokens)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    parser = harness.options(__doc__, TABLES)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 65536])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(additional_mb(given.one, given.calls)))
        return
    lines = [["tokens", "threads", "MB in addition to inputs, output and gradients"]]
    for tokens in given.tokens:
        for threads in given.threads:
            lines.append([f"{tokens:,}", str(threads), f"{measured(tokens, threads, given.calls):.0f}"])
    harness.finish(given, lines, {TABLES[0]: tables.markdown(lines)})


if __name__ == "__main__":
    main()
