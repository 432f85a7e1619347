#!/usr/bin/env python3
"""How the time and memory of linear attention grow with the number of positions.

    bench/linear_attention.py [--rounds N] [--json FILE] [--update-docs]

Features elu + 1, one head of 64, float32, causal, RoPE in the numerator (arXiv 2104.09864 Eq. 19), on one thread. After
a comparison with float64, 2^14 to 2^20 positions: the slope of log time over log positions, and the increase of the
process's peak memory by a call, without its results. bench/kernels.py compares the speed of the kernel with torch.
"""

import math
import statistics
from concurrent.futures import ThreadPoolExecutor

import harness
import torch
from kernels import HEAD_DIM, linear_attention_case
from verified import OURS, verify, windows

TABLES = ["linear_attention"]
SCALING = [2**14, 2**16, 2**18, 2**20]


def scaling(rounds: int) -> dict:
    """Best of `rounds` for each length, in a call of one head on one thread."""
    best, added = [], []
    for tokens in SCALING:
        case = linear_attention_case(tokens, heads=1, causal=True, which="forward")
        side = windows(case, OURS, [case.inputs()])
        results_kib = 4 * tokens * (HEAD_DIM + 1) / 1024  # and denominators
        added.append(harness.added_kib(side.call) - results_kib)
        harness.take_turns([side], rounds)
        best.append(min(side.seconds))
    slope = statistics.linear_regression([math.log(t) for t in SCALING], [math.log(s) for s in best]).slope
    times = {str(t): 1e3 * s for t, s in zip(SCALING, best, strict=True)}
    return {"forward_ms": times, "slope": slope, "added_kib": max(added)}


def growth(grown: dict) -> str:
    positions = " / ".join(f"{int(tokens):,}" for tokens in grown["forward_ms"])
    times = " / ".join(f"{ms:.1f}" for ms in grown["forward_ms"].values())
    return (
        f"On one thread, causal, {positions} positions take {times} ms: time grows with the power\n"
        f"{grown['slope']:.3f} of their number. A call adds at most {grown['added_kib']:.0f} KiB to the peak of the "
        "process's memory, which\nthe system counts in steps of 256 KiB."
    )


def main() -> None:
    given = harness.options(__doc__, TABLES, rounds=7).parse_args()
    harness.return_freed_memory()
    torch.set_num_threads(1)
    verify(linear_attention_case(300, heads=1, causal=True, which="forward"))
    with ThreadPoolExecutor(1) as fresh_thread:  # a thread without work space
        grown = fresh_thread.submit(scaling, given.rounds).result()
    harness.finish(given, grown, {TABLES[0]: growth(grown)})


if __name__ == "__main__":
    main()
