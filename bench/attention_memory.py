#!/usr/bin/env python3
"""Memory of fused attention in addition to its inputs, outputs and gradients: one head of 64, float32, RoPE.

    bench/attention_memory.py [--tokens T ..] [--threads N ..] [--calls N] [--update-docs]

Each figure comes from a separate process: the increase of the process's peak by a call of forward and backward, minus
the output and the gradients of q, k and v, which the call creates. It is the maximum over several calls, since threads
keep work space between calls. Blocks of 128 KiB and more are returned to the system (glibc's MALLOC_MMAP_THRESHOLD_),
so freed outputs that malloc would keep do not count.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peak_memory import added_kib  # noqa: E402
from peer_timing import machine  # noqa: E402

import roformer_cpp  # noqa: E402

TABLES = ["attention_memory"]
HEAD_DIM = 64


def additional_mb(tokens: int, calls: int) -> float:
    """Peak memory that the calls add to this process, minus their outputs and gradients."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = torch.randn(4, 1, tokens, 1, HEAD_DIM, generator=generator).unbind()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    positions = torch.arange(tokens)
    rope = roformer_cpp.encoding("rope", num_attention_heads=1, head_dim=HEAD_DIM)
    terms = rope.terms(positions)

    def work() -> None:
        for _ in range(calls):
            out = roformer_cpp.attention(*leaves, terms, positions=positions, kernel="fused")
            torch.autograd.grad(out, leaves, grad)
            del out

    few = [x[:, :64] for x in leaves]  # a small call first: programs and their threads take memory too
    small = roformer_cpp.attention(*few, rope.terms(positions[:64]), positions=positions[:64], kernel="fused")
    torch.autograd.grad(small, few, grad[:, :64])
    made_bytes = 4 * grad.nbytes
    return (added_kib(work) * 1024 - made_bytes) / 1e6


def measured(tokens: int, threads: int, calls: int) -> float:
    command = [sys.executable, __file__, "--calls", str(calls), "--one", str(tokens)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MALLOC_MMAP_THRESHOLD_": str(2**17)}
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 65536])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--one", type=int, metavar="TOKENS", help="print the figure of this process, and end")
    tables.add_option(parser)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(additional_mb(arguments.one, arguments.calls)))
        return
    lines = [["tokens", "threads", "MB in addition to inputs, output and gradients"]]
    for tokens in arguments.tokens:
        for threads in arguments.threads:
            lines.append([f"{tokens:,}", str(threads), f"{measured(tokens, threads, arguments.calls):.0f}"])
            print("  ".join(f"{cell:>8}" for cell in lines[-1]), flush=True)
    if arguments.update_docs:
        tables.update_docs(TABLES[0], machine(), tables.markdown(lines))


if __name__ == "__main__":
    main()
