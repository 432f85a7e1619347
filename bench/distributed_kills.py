"""Kills processes of training jobs at random moments and continues them.

Each job must end with the same bits as an undisturbed one; docs/distributed.md has the figures.

    python bench/distributed_kills.py --kills 200 --directory DIR [--minutes 20]

A job of 2 or 4 processes, with AdamW's moments divided among them or not, trains a small model with a checkpoint every
few steps. A process, the first one too, gets SIGKILL at a moment that is uniform from its start to the expected end, so
that starts, steps, checkpoints and their publication are hit; all are started again with --resume until the run is
finished. Exit code 1 if a job hangs, or its bits differ.

Finished runs are recorded in DIR/kills.jsonl: a call adds runs until the file contains the requested number of kills of
the present build. Each run is drawn from the seed and its number. After each run, the totals are printed.
"""

import hashlib
import json
import random
import shutil
import time
from pathlib import Path

import harness
from harness import PROGRAM

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


class Record:
    """The finished runs of all calls, a JSON line each; runs of another build of the program do not count."""

    def __init__(self, path, build):
        self.path, self.build = path, build
        lines = path.read_text().splitlines() if path.exists() else []
        self.runs = [run for run in map(json.loads, lines) if run["build"] == build]

    def add(self, **run):
        self.runs.append({**run, "build": self.build})
        with self.path.open("a") as file:
            file.write(json.dumps(self.runs[-1]) + "\n")

    def total(self):
        kills = {}
        for run in self.runs:
            name = f"{run['processes']} processes, sharding {run['sharding']}"
            kills[name] = kills.get(name, 0) + run["kills"]
        return {
            "runs": len(self.runs),
            "kills": sum(run["kills"] for run in self.runs),
            "during_checkpoints": sum(run["during_checkpoints"] for run in self.runs),
            "different": sum(not run["same"] for run in self.runs),
            "of": kills,
        }


def build_of_program():
    """Changes when the program does."""
    libraries = sorted((PROGRAM.parent / "lib").glob("libroformer_*.so"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in libraries)).hexdigest()[:16]


def undisturbed(folder, size, arguments, build):
    """The bits of an undisturbed run, and its seconds; kept in `folder` for later calls."""
    note = folder / "undisturbed.json"
    if not note.exists() or (kept := json.loads(note.read_text()))["build"] != build:
        shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        finish(job(size, *arguments, folder))
        kept = {"build": build, "seconds": time.monotonic() - start}
        note.write_text(json.dumps(kept))
    return (folder / "model.safetensors").read_bytes(), kept["seconds"]


def main():
    parser = harness.options(__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of all calls with this directory and build")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    given.directory.mkdir(parents=True, exist_ok=True)
    if not (given.directory / "data").exists():
        cli_support.make_data(given.directory)
    build = build_of_program()
    record = Record(given.directory / "kills.jsonl", build)
    while record.total()["kills"] < given.kills and time.monotonic() < end:
        draw = random.Random(f"{given.seed} {len(record.runs)}")
        size, sharding = draw.choice((2, 4)), draw.choice(("none", "optimizer"))
        name = f"{size}-{sharding}"
        config = cli_support.run_file(given.directory / f"{name}.json", **{**LONG, "sharding": sharding})
        common = ("pretrain", "--config", config, "--data", given.directory / "data", "--output")
        expected, seconds = undisturbed(given.directory / name, size, common, build)
        output = given.directory / "disturbed"
        shutil.rmtree(output, ignore_errors=True)
        kills, during = run_disturbed(size, (*common, output), 1.3 * seconds, draw, output)
        same = (output / "model.safetensors").read_bytes() == expected
        record.add(processes=size, sharding=sharding, kills=kills, during_checkpoints=during, same=same)
        if not same:
            output.rename(given.directory / f"different-{len(record.runs)}")
        print(json.dumps(record.total()), flush=True)
    harness.finish(given, record.runs, {})
    return 1 if record.total()["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
