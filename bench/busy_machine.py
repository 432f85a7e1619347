#!/usr/bin/env python3
"""Measures the cost of spinning idle OpenMP threads, on an idle machine and on one whose cores have other work.

    bench/busy_machine.py [--spins 0 3000 ..] [--rounds N] [--load N] [--update-docs]

Two kinds of work, on the small model of bench/train_bench.py: training steps by the program, and forward passes of a
few short texts by the library. Each runs once for every spin count (GOMP_SPINCOUNT; 0 sleeps immediately, 300000 is GNU
OpenMP's default), and on one thread. In a round all take turns, first alone and then with `--load` processes that
compute without a pause (default: one per core). A figure is the median over the rounds of a count's speed, divided by
the speed of the best count in the same round and state: 1.00 loses nothing.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import harness
import tables
from harness import Server

TABLES = ["busy_machine"]
SPINS = [0, 300, 1000, 3000, 10000, 30000, 300000]
ONE_THREAD = "one thread"
FORWARD_SHAPE = (4, 64)
STEPS = {"training": 3, "inference": 30}
STATES = {"idle": signal.SIGSTOP, "busy": signal.SIGCONT}  # and what the load is sent
SETTLE_S = 0.2  # until the previous state's processes have stopped and this state's run


def serve_forward(directory):
    """`steps N` on stdin: N forward passes."""
    import torch

    import roformer_cpp

    model = roformer_cpp.load_model(directory)
    ids = torch.randint(5, 8000, FORWARD_SHAPE, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        for line in sys.stdin:
            steps = int(line.split()[1])
            start = time.perf_counter()
            for _ in range(steps):
                model(ids)
            seconds = time.perf_counter() - start
            harness.shown([{"tokens": steps * ids.numel(), "seconds": seconds}])


def tokens_per_second(server, steps):
    answer = server.ask(f"steps {steps}")
    return answer["tokens"] / answer["seconds"]


def start_servers(spins, threads):
    """By kind of work and variant."""
    import transformers
    from train_bench import MODELS, SHAPES, bench_command, save_batches

    transformers.logging.set_verbosity_error()
    servers = {}
    with tempfile.TemporaryDirectory() as directory:
        transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**MODELS["small"])).save_pretrained(directory)
        save_batches(directory, MODELS["small"]["vocab_size"], SHAPES["small"])
        for variant in [*spins, ONE_THREAD]:
            count = 1 if variant == ONE_THREAD else threads
            environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
            environment |= {"OMP_NUM_THREADS": str(count), "GOMP_SPINCOUNT": str(0 if count == 1 else variant)}
            inference = [sys.executable, __file__, "--serve-forward", directory]
            servers["training", variant] = Server(bench_command(directory, count), environment)
            servers["inference", variant] = Server(inference, environment)
        for server in servers.values():
            server.ask("steps 2")  # warm-up, and the model is read
    return servers


def measure(servers, load, rounds):
    """Tokens per second by kind of work, variant and state: a list over the rounds."""
    speeds = {(*key, state): [] for key in servers for state in STATES}
    for _ in range(rounds):
        for state, to_load in STATES.items():
            for process in load:
                process.send_signal(to_load)
            time.sleep(SETTLE_S)
            for (kind, variant), server in servers.items():
                speed = tokens_per_second(server, STEPS[kind])
                speeds[kind, variant, state].append(speed)
                print(f"{kind}, {state}, {variant}: {speed:,.0f} tokens/s", file=sys.stderr, flush=True)
    return speeds


def relative(speeds):
    """The median over the rounds of a speed divided by the best of its round, kind and state."""
    result = {}
    for (kind, variant, state), values in speeds.items():
        rivals = [other for (k, _, s), other in speeds.items() if (k, s) == (kind, state)]
        best = [max(of_round) for of_round in zip(*rivals, strict=True)]
        result[kind, variant, state] = statistics.median(v / b for v, b in zip(values, best, strict=True))
    return result


def table(speeds):
    def entries():
        for (kind, variant, state), share in relative(speeds).items():
            median = statistics.median(speeds[kind, variant, state])
            yield (str(variant),), f"{kind}, {state}", f"{share:.2f} ({median:,.0f})"

    return tables.pivot(["spin count"], entries())


def main():
    parser = harness.options(__doc__, TABLES, rounds=9)
    parser.add_argument("--spins", type=int, nargs="+", default=SPINS)
    parser.add_argument("--load", type=int, default=os.cpu_count(), help="processes that compete (default: cores)")
    parser.add_argument("--serve-forward", metavar="DIR", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve_forward:
        serve_forward(given.serve_forward)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the load ends with this program
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.load)]
    try:
        for process in load:
            process.send_signal(signal.SIGSTOP)
        speeds = measure(start_servers(given.spins, os.cpu_count()), load, given.rounds)
    finally:
        for process in load:
            process.kill()
    harness.finish(given, [[*key, values] for key, values in speeds.items()], {TABLES[0]: table(speeds)})


if __name__ == "__main__":
    main()
