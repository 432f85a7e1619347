"""Measures training by 1, 2 and 4 processes, and compares it with the cost model of docs/distributed.md.

    python bench/distributed.py --directory DIR

Every job trains the same run file (an encoder of 4 layers of width 256, 4 micro-batches of 1,024 tokens per step) with
one thread per process; one more job has one process of two threads. First the model's parameters are measured: the
seconds of the passes of a micro-batch, and latency and bandwidth of an all-reduce, by sums of 4 KB and 16 MB between as
many processes. Prints one JSON line per job: the prediction and the median of the measured steps.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

import cli_support  # noqa: E402
from job_case import finish, free_port, job, start  # noqa: E402

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
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SUMS],
            env=dict(
                os.environ,
                OMP_NUM_THREADS="1",
                RANK=str(rank),
                WORLD_SIZE=str(processes),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            ),
            stdout=subprocess.PIPE,
            text=True,
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
    options = ("--config", config, "--data", directory / "data", "--output", directory / name, "--threads", threads)
    if processes == 1:
        finish([start(("pretrain", *options), None, 1, 0)])
    else:
        finish(job(processes, "pretrain", *options))
    lines = [json.loads(line) for line in (directory / name / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["type"] == "train"][2:]
    keys = ("seconds", "tokens_per_second", "communication_seconds", "exposed_seconds", "slowest_seconds")
    return {key: statistics.median(line[key] for line in train) for key in keys if key in train[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    make_data(options.directory)
    alone = measure(options.directory, "1x1", 1, 1, options.steps)
    passes = alone["seconds"] / MICRO_BATCHES
    weights = (options.directory / "1x1" / "model.safetensors").stat().st_size
    cores = os.cpu_count()
    print(json.dumps({"processes": 1, "threads": 1, "measured": alone}))
    print(
        json.dumps({"processes": 1, "threads": 2, "measured": measure(options.directory, "1x2", 1, 2, options.steps)})
    )
    for processes in (2, 4):
        latency, per_byte = all_reduce(processes)
        sent = 2 * (processes - 1) / processes * weights
        compute = -(-MICRO_BATCHES // processes) * passes * max(1, processes / cores)
        communication = latency + sent * per_byte
        # The sum can be hidden behind the backward pass of the last micro-batch, which is two thirds of its passes.
        hidden = min(communication, 2 / 3 * passes * max(1, processes / cores))
        predicted = {
            "seconds": compute + communication - hidden,
            "communication_seconds": communication,
            "bytes_sent": round(sent),
            "all_reduce_latency_us": 1e6 * latency,
            "all_reduce_gb_per_s": 1e-9 / per_byte,
        }
        measured = measure(options.directory, f"{processes}x1", processes, 1, options.steps)
        print(json.dumps({"processes": processes, "threads": 1, "predicted": predicted, "measured": measured}))
        after = measure(options.directory, f"{processes}x1-after", processes, 1, options.steps, reduce_overlap=False)
        print(json.dumps({"processes": processes, "threads": 1, "reduce_overlap": False, "measured": after}))


if __name__ == "__main__":
    main()
