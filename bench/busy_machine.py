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
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402

TABLES = ["busy_machine"]
SPINS = [0, 300, 1000, 3000, 10000, 30000, 300000]
ONE_THREAD = "one thread"
FORWARD_SHAPE = (4, 64)
STEPS = {"training": 3, "inference": 30}
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
            print(json.dumps({"tokens": steps * ids.numel(), "seconds": seconds}), flush=True)


def start_servers(directory, binary, spins, threads):
    """By kind of work and variant."""
    from train_bench import Server, bench_command

    servers = {}
    for variant in [*spins, ONE_THREAD]:
        count = 1 if variant == ONE_THREAD else threads
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        environment |= {"OMP_NUM_THREADS": str(count), "GOMP_SPINCOUNT": str(0 if count == 1 else variant)}
        commands = {
            "training": bench_command(binary, directory, count),
            "inference": [sys.executable, __file__, "--serve-forward", directory],
        }
        for kind, command in commands.items():
            servers[kind, variant] = Server(command, environment)
    for server in servers.values():
        server.tokens_per_second(2)  # warm-up, and the model is read
    return servers


def measure(servers, load, rounds):
    """Tokens per second by kind of work, variant and state: a list over the rounds."""
    speeds = {(*key, state): [] for key in servers for state in ("idle", "busy")}
    for _ in range(rounds):
        for state, to_load in (("idle", signal.SIGSTOP), ("busy", signal.SIGCONT)):
            for process in load:
                process.send_signal(to_load)
            time.sleep(SETTLE_S)
            for (kind, variant), server in servers.items():
                speed = server.tokens_per_second(STEPS[kind])
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
    columns = [(kind, state) for kind in STEPS for state in ("idle", "busy")]
    lines = [["spin count", *(f"{kind}, {state}" for kind, state in columns)]]
    shares = relative(speeds)
    for variant in dict.fromkeys(variant for _, variant, _ in speeds):
        cells = [
            f"{shares[kind, variant, state]:.2f} ({statistics.median(speeds[kind, variant, state]):,.0f})"
            for kind, state in columns
        ]
        lines.append([str(variant), *cells])
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spins", type=int, nargs="+", default=SPINS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--load", type=int, default=os.cpu_count(), help="processes that compete (default: cores)")
    parser.add_argument("--serve-forward", metavar="DIR", help=argparse.SUPPRESS)
    tables.add_option(parser)
    arguments = parser.parse_args()
    if arguments.serve_forward:
        return serve_forward(arguments.serve_forward)

    import numpy as np
    import transformers
    from peer_timing import machine
    from train_bench import MODELS, SHAPES, make_batches

    transformers.logging.set_verbosity_error()
    binary = pathlib.Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "roformer"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the load ends with this program
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.load)]
    try:
        for process in load:
            process.send_signal(signal.SIGSTOP)
        with tempfile.TemporaryDirectory() as directory:
            transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**MODELS["small"])).save_pretrained(directory)
            ids, labels = make_batches(MODELS["small"]["vocab_size"], SHAPES["small"], np.random.default_rng(1))
            np.save(f"{directory}/ids.npy", ids)
            np.save(f"{directory}/labels.npy", labels)
            servers = start_servers(directory, binary, arguments.spins, os.cpu_count())
        speeds = measure(servers, load, arguments.rounds)
    finally:
        for process in load:
            process.kill()
    lines = tables.markdown(table(speeds))
    print(lines)
    if arguments.update_docs:
        tables.update_docs(TABLES[0], machine(), lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
