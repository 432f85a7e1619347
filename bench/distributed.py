"""Training by several processes, measured, and predicted by the cost model of docs/distributed.md.

steps: 1, 2 and 4 processes train the same run file (an encoder of 4 layers of width 256, 4 micro-batches of 1,024
tokens per step) with one thread each; one more job has one process of two threads. First the model's parameters are
measured: the seconds of the passes of a micro-batch, and latency and bandwidth of an all-reduce, by sums of 4 KB and
16 MB between as many processes. Prints one JSON line per job: the prediction and the median of the measured steps.

checkpoints: how long training pauses for a checkpoint, and how much writing it slows the steps meanwhile. The same run
has a checkpoint every `--every` steps and, in turn, one at the end only. The pause of a checkpoint is the time of a
whole run minus the time of its steps, divided by the number of checkpoints.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import harness

import cli_support
from job_case import finish, free_port, job, start

MICRO_BATCHES, ROWS, LENGTH = 4, 8, 128
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


# ---- the cost model


def bytes_sent(workers, gradients):
    """By each worker, in a ring."""
    return 2 * (workers - 1) / workers * gradients


def exposed(communication, passes):
    """Seconds of a sum that the backward pass of the last micro-batch, two thirds of its passes, does not hide."""
    return communication - min(communication, 2 / 3 * passes)


# ---- runs


def make_data(directory):
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / "data").exists():
        return
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 7))) for _ in range(3000)]
    texts = (" ".join(draw.choices(words, k=200)) for _ in range(3000))
    (directory / "corpus.txt").write_text("\n\n".join(texts))
    cli_support.run("vocab", "--input", directory / "corpus.txt", "--size", 4000, "--output", directory / "vocab.txt")
    prepare = ("--input", directory / "corpus.txt", "--model", directory, "--output", directory / "data")
    cli_support.run("prepare", *prepare, "--valid-fraction", "0.01")


def train(directory, name, processes, threads, *, width, layers, length, **keys):
    """The command's output, the seconds of the whole run, and the lines of its training steps; keys: of the run
    file."""
    model = dict(hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64)
    model |= dict(intermediate_size=4 * width, max_position_embeddings=length)
    keys = dict(log_every_steps=1, evaluate_batches=1, keep_checkpoints=1) | keys
    config = cli_support.run_file(directory / f"{name}.json", model=model, **keys)
    output = directory / name
    shutil.rmtree(output, ignore_errors=True)
    arguments = ("pretrain", "--config", config, "--data", directory / "data", "--output", output)
    arguments += ("--threads", threads)
    began = time.monotonic()
    (report,) = finish([start(arguments, None, 1, 0)] if processes == 1 else job(processes, *arguments))
    whole = time.monotonic() - began
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return report, whole, [line for line in lines if line["type"] == "train"]


# ---- steps


def all_reduce(processes):
    """Latency in seconds, and seconds per byte that a rank sends, of a sum over this many processes."""
    environment = os.environ | dict(OMP_NUM_THREADS="1", WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1")
    environment |= dict(MASTER_PORT=str(free_port()))
    command = [sys.executable, "-c", SUMS]
    started = [
        subprocess.Popen(command, env=environment | dict(RANK=str(rank)), stdout=subprocess.PIPE, text=True)
        for rank in range(processes)
    ]
    printed, *_ = [process.communicate()[0] for process in started]
    small, large = json.loads(printed)
    return small, max(large - small, 0) / bytes_sent(processes, 16 << 20)


def measured(directory, name, processes, threads, steps, **keys):
    """The medians of the lines of a job, without the first two."""
    stage = dict(max_length=LENGTH, batch=MICRO_BATCHES * ROWS, accumulate=MICRO_BATCHES, steps=steps)
    keys |= dict(stages=[stage], checkpoint_every_steps=steps)
    *_, lines = train(directory, name, processes, threads, width=256, layers=4, length=LENGTH, **keys)
    names = ("seconds", "tokens_per_second", "communication_seconds", "exposed_seconds", "slowest_seconds")
    return {name: statistics.median(line[name] for line in lines[2:]) for name in names if name in lines[2]}


def predicted(processes, passes, weights):
    """From the seconds of the passes of a micro-batch and the bytes of the weights."""
    latency, per_byte = all_reduce(processes)
    sent = bytes_sent(processes, weights)
    passes *= max(1, processes / os.cpu_count())
    communication = latency + sent * per_byte
    return {
        "seconds": -(-MICRO_BATCHES // processes) * passes + exposed(communication, passes),
        "communication_seconds": communication,
        "bytes_sent": round(sent),
        "all_reduce_latency_us": 1e6 * latency,
        "all_reduce_gb_per_s": 1e-9 / per_byte,
    }


def compare_steps(given):
    directory, steps = given.directory, given.steps
    for threads in (2, 1):
        alone = measured(directory, f"1x{threads}", 1, threads, steps)
        yield {"processes": 1, "threads": threads, "measured": alone}
    passes = alone["seconds"] / MICRO_BATCHES
    weights = (directory / "1x1" / "model.safetensors").stat().st_size
    for processes in (2, 4):
        prediction, what = predicted(processes, passes, weights), {"processes": processes, "threads": 1}
        overlapped = measured(directory, f"{processes}x1", processes, 1, steps)
        yield what | {"predicted": prediction, "measured": overlapped}
        after = measured(directory, f"{processes}x1-after", processes, 1, steps, reduce_overlap=False)
        yield what | {"reduce_overlap": False, "measured": after}


# ---- checkpoints


def pauses(given):
    outside, steps, peak = {"with": [], "without": []}, {"with": [], "without": []}, {}
    stage = dict(max_length=64, batch=given.batch, accumulate=given.processes, steps=given.steps)
    keys = dict(width=given.width, layers=given.layers, length=64, stages=[stage])
    for _ in range(given.repeats):
        for name, every in (("with", given.every), ("without", given.steps + 1)):
            report, whole, lines = train(
                given.directory, name, given.processes, given.threads, checkpoint_every_steps=every, **keys
            )
            seconds = [line["seconds"] for line in lines]
            steps[name].append(statistics.median(seconds))
            outside[name].append(whole - sum(seconds))
            peak[name] = report["peak_rss_bytes"]
    (checkpoint,) = (given.directory / "with").glob("checkpoint-*")
    checkpoints = given.steps // given.every - 1  # without the last one, which both kinds of runs write
    added = statistics.median(outside["with"]) - statistics.median(outside["without"])
    yield {
        "processes": given.processes,
        "step_seconds": {name: statistics.median(each) for name, each in steps.items()},
        "outside_seconds": outside,
        "standing_still_seconds": added / checkpoints,
        "peak_rss_bytes": peak,
        "checkpoint_bytes": sum(path.stat().st_size for path in checkpoint.iterdir()),
    }


def main():
    parser = harness.options(__doc__)
    parser.add_argument("what", choices=WORK)
    parser.add_argument("--directory", type=Path, required=True, help="for data and runs")
    sizes = dict(steps=None, processes=1, threads=1, width=512, layers=8, batch=8, every=8, repeats=3)
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    given = parser.parse_args()
    given.steps = given.steps or {"checkpoints": 40}.get(given.what, 20)
    make_data(given.directory)
    harness.finish(given, harness.shown(WORK[given.what](given)), {})


WORK = {"steps": compare_steps, "checkpoints": pauses}

if __name__ == "__main__":
    main()
