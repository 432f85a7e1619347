"""Measures training by 1, 2 and 4 processes, and compares it with the cost model of docs/distributed.md.

    python bench/distributed.py --directory DIR

Every job trains the same run file (an encoder of 4 layers of width 256, 4 micro-batches of 1,024 tokens per step) with
one thread per process; one more job has one process of two threads. First the model's parameters are measured: the
seconds of the passes of a micro-batch, and latency and bandwidth of an all-reduce, by sums of 4 KB and 16 MB between as
many processes. Prints one JSON line per job: the prediction and the median of the measured steps.
"""

import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

import harness

import cli_support
from job_case import finish, free_port, job, start

MICRO_BATCHES, ROWS, LENGTH = 4, 8, 128
MODEL = dict(
    hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, max_position_embeddings=LENGTH
)
SUMS = """
import json, os, time, torch, torch.distributed as group
group.init_process_group("gloo")
def seconds(numbers, times):
    x = torch.zeros(numbers)
    group.all_reduce(x)
    took = []
    for _ in range(times):
        group.barrier()
        start = time.perf_counter()
        group.all_reduce(x)
        took.append(time.perf_counter() - start)
    return sorted(took)[times // 2]
small, large = seconds(1024, 200), seconds(4 << 20, 20)
if group.get_rank() == 0:
    print(json.dumps([small, large]))
group.destroy_process_group()
"""


def all_reduce(processes):
    """Latency in seconds, and seconds per byte that a rank sends, of a sum over this many processes."""
    if processes == 1:
        return 0.0, 0.0
    environment = os.environ | dict(OMP_NUM_THREADS="1", WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1")
    environment |= dict(MASTER_PORT=str(free_port()))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SUMS], env=environment | dict(RANK=str(rank)), stdout=subprocess.PIPE, text=True
        )
        for rank in range(processes)
    ]
    printed, *_ = [process.communicate()[0] for process in started]
    small, large = json.loads(printed)
    sent = 2 * (processes - 1) / processes * (16 << 20)
    return small, max(large - small, 0) / sent


def make_data(directory):
    if (directory / "data").exists():
        return
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 7))) for _ in range(3000)]
    texts = (" ".join(draw.choices(words, k=200)) for _ in range(3000))
    (directory / "corpus.txt").write_text("\n\n".join(texts))
    cli_support.run("vocab", "--input", directory / "corpus.txt", "--size", 4000, "--output", directory / "vocab.txt")
    prepare = ("--input", directory / "corpus.txt", "--model", directory, "--output", directory / "data")
    cli_support.run("prepare", *prepare, "--valid-fraction", "0.01")


def measure(directory, name, processes, threads, steps, **keys):
    """The medians of the lines of a job, without the first one; keys: of the run file."""
    config = cli_support.run_file(
        directory / f"{name}.json",
        model=MODEL,
        stages=[dict(max_length=LENGTH, batch=MICRO_BATCHES * ROWS, accumulate=MICRO_BATCHES, steps=steps)],
        log_every_steps=1,
        checkpoint_every_steps=steps,
        evaluate_batches=1,
        **keys,
    )
    arguments = ("pretrain", "--config", config, "--data", directory / "data", "--output", directory / name)
    arguments += ("--threads", threads)
    finish([start(arguments, None, 1, 0)] if processes == 1 else job(processes, *arguments))
    lines = [json.loads(line) for line in (directory / name / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["type"] == "train"][2:]
    keys = ("seconds", "tokens_per_second", "communication_seconds", "exposed_seconds", "slowest_seconds")
    return {key: statistics.median(line[key] for line in train) for key in keys if key in train[0]}


def predicted(processes, passes, weights):
    """By the cost model, from the seconds of the passes of a micro-batch and the bytes of the weights."""
    latency, per_byte = all_reduce(processes)
    sent = 2 * (processes - 1) / processes * weights
    slower = max(1, processes / os.cpu_count())
    compute = -(-MICRO_BATCHES // processes) * passes * slower
    communication = latency + sent * per_byte
    # The sum can be hidden behind the backward pass of the last micro-batch, which is two thirds of its passes.
    hidden = min(communication, 2 / 3 * passes * slower)
    return {
        "seconds": compute + communication - hidden,
        "communication_seconds": communication,
        "bytes_sent": round(sent),
        "all_reduce_latency_us": 1e6 * latency,
        "all_reduce_gb_per_s": 1e-9 / per_byte,
    }


def compare(directory, steps):
    for threads in (2, 1):
        alone = measure(directory, f"1x{threads}", 1, threads, steps)
        yield {"processes": 1, "threads": threads, "measured": alone}
    passes = alone["seconds"] / MICRO_BATCHES
    weights = (directory / "1x1" / "model.safetensors").stat().st_size
    for processes in (2, 4):
        prediction, what = predicted(processes, passes, weights), {"processes": processes, "threads": 1}
        measured = measure(directory, f"{processes}x1", processes, 1, steps)
        yield what | {"predicted": prediction, "measured": measured}
        after = measure(directory, f"{processes}x1-after", processes, 1, steps, reduce_overlap=False)
        yield what | {"reduce_overlap": False, "measured": after}


def main():
    parser = harness.options(__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make_data(given.directory)
    harness.finish(given, harness.shown(compare(given.directory, given.steps)), {})


if __name__ == "__main__":
    main()
