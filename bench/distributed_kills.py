"""Kills processes of training jobs at random moments and continues them.

Each job must end with the same bits as an undisturbed one; docs/distributed.md has the figures.

    python bench/distributed_kills.py --kills 200 --directory DIR [--minutes 20]

A job of 2 or 4 processes, with AdamW's moments divided among them or not, trains a small model with a checkpoint every
few steps. A process, the first one too, gets SIGKILL at a moment that is uniform from its start to the expected end, so
that starts, steps, checkpoints and their publication are hit; all are started again with --resume until the run is
finished. Exit code 1 if a job hangs, or its bits differ.

Each run is drawn from the seed and its number. After each run, the totals are printed.
"""

import json
import random
import time
from pathlib import Path

import harness

import cli_support
from job_case import RUN, finish, job, outcomes

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
    """One run to its end. Returns the number of kills, and the number during an unfinished checkpoint."""
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
        # Once the job has started, the others must have ended on their own.
        if results[0][0] == -9 and victim != 0 and STARTED in results[0][2]:
            raise SystemExit(f"rank 0 waited for a killed process: {results[0][2]}")
        codes = [code for code, _, _ in results]
        if all(code == 0 for code in codes):
            return kills, during


def total(runs):
    kills = {}
    for run in runs:
        name = f"{run['processes']} processes, sharding {run['sharding']}"
        kills[name] = kills.get(name, 0) + run["kills"]
    numbers = {key: sum(run[key] for run in runs) for key in ("kills", "during_checkpoints", "different")}
    return {"runs": len(runs), **numbers, "of": kills}


def undisturbed(folder, size, arguments):
    """The bits of an undisturbed run, and its seconds."""
    start = time.monotonic()
    finish(job(size, *arguments, folder))
    return (folder / "model.safetensors").read_bytes(), time.monotonic() - start


def main():
    parser = harness.options(__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--directory", type=Path, required=True, help="a new one")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    given.directory.mkdir(parents=True)
    cli_support.make_data(given.directory)
    runs, expected, output = [], {}, given.directory / "disturbed"
    while sum(run["kills"] for run in runs) < given.kills and time.monotonic() < end:
        draw = random.Random(f"{given.seed} {len(runs)}")
        size, sharding = draw.choice((2, 4)), draw.choice(("none", "optimizer"))
        name = f"{size}-{sharding}"
        config = cli_support.run_file(given.directory / f"{name}.json", **{**LONG, "sharding": sharding})
        common = ("pretrain", "--config", config, "--data", given.directory / "data", "--output")
        if name not in expected:
            expected[name] = undisturbed(given.directory / name, size, common)
        bits, seconds = expected[name]
        kills, during = run_disturbed(size, (*common, output), 1.3 * seconds, draw, output)
        different = (output / "model.safetensors").read_bytes() != bits
        run = dict(processes=size, sharding=sharding, kills=kills, during_checkpoints=during, different=different)
        runs.append(run)
        output.rename(given.directory / f"{'different' if different else 'equal'}-{len(runs)}")
        print(json.dumps(total(runs)), flush=True)
    harness.finish(given, runs, {})
    return int(any(run["different"] for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())
