"""Kills processes of training jobs at random moments and continues them.

Each job must end with the bits of one that was never disturbed; docs/distributed.md has the figures.

    python bench/distributed_kills.py --kills 200 --directory DIR

A job of 2 or 4 processes trains a small model with a checkpoint every few steps. A process, the first one too, gets
SIGKILL at a moment that is uniform from its start to the expected end, so that starts, steps, checkpoints and their
publication are hit; all are started again with --resume until the run is finished. Exit code 1 if a job hangs, or its
bits differ.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

import cli_support  # noqa: E402
from job_case import RUN, finish, job, outcomes  # noqa: E402

STEPS = 150
STARTED = "loss curves, at any time"
LONG = {
    **RUN,
    "stages": [dict(max_length=16, batch=8, accumulate=4, steps=STEPS)],
    "checkpoint_every_steps": 3,
    "log_every_steps": 5,
    "evaluate_every_steps": 50,
}


def end_those_that_wait(processes, seconds=6):
    """As torchrun does: processes that wait for a killed one to join would do so until their time limit."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(process.poll() is None for process in processes):
        time.sleep(0.02)
    for process in processes:
        if process.poll() is None:
            process.kill()


def run_disturbed(size, arguments, seconds, draw, output):
    """One run to its end. How many kills it took, and how many of them while a checkpoint was unfinished."""
    kills, during = 0, 0
    while True:
        processes = job(size, *arguments, *(["--resume"] if kills else []))
        end = time.monotonic() + draw.uniform(0, seconds)
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.002)
        victim = draw.randrange(size)
        if processes[victim].poll() is None:
            processes[victim].kill()
            kills += 1
            during += any(output.glob(".checkpoint-*.tmp"))
            end_those_that_wait(processes)
        results = outcomes(processes, seconds=60)
        # Once the job has started, the others must have ended by themselves.
        if results[0][0] == -9 and victim != 0 and STARTED in results[0][2]:
            raise SystemExit(f"rank 0 waited for a killed process: {results[0][2]}")
        codes = [code for code, _, _ in results]
        if all(code == 0 for code in codes):
            return kills, during


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    draw = random.Random(options.seed)
    cli_support.make_data(options.directory)
    total = {"kills": 0, "during_checkpoints": 0, "runs": 0, "different": 0}
    for sharding in ("none", "optimizer"):
        for size in (2, 4):
            name = f"{size}-{sharding}"
            config = cli_support.run_file(options.directory / f"{name}.json", **{**LONG, "sharding": sharding})
            common = ("pretrain", "--config", config, "--data", options.directory / "data", "--output")
            start = time.monotonic()
            finish(job(size, *common, options.directory / name))
            seconds = time.monotonic() - start
            expected = (options.directory / name / "model.safetensors").read_bytes()
            aim = options.kills * (1 + 2 * (sharding == "optimizer") + (size == 4)) // 4
            while total["kills"] < aim:
                output = options.directory / f"{name}-{total['runs']}"
                kills, during = run_disturbed(size, (*common, output), 1.3 * seconds, draw, output)
                total["kills"] += kills
                total["during_checkpoints"] += during
                total["runs"] += 1
                total["different"] += (output / "model.safetensors").read_bytes() != expected
                print(json.dumps({"processes": size, "sharding": sharding, **total}), flush=True)
    return 1 if total["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
