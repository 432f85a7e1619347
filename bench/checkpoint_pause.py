"""Measures how long training pauses for a checkpoint, and how much writing it slows the steps meanwhile.

    python bench/checkpoint_pause.py --directory DIR [--program OTHER_BUILD/roformer] [--processes N]

Trains the same run with a checkpoint every `--every` steps and, in turn, with one at the end only. Training pauses
outside of the steps, and the metrics contain the seconds of the steps. The pause of a checkpoint is therefore the time
of a whole run minus the time of its steps, divided by the number of checkpoints. Slower steps during writing are
reported separately. With --profile, the profile of a step with a checkpoint also shows the pause. With --program
another build of the program is measured in the same way.

Prints a JSON line: seconds of a step and outside of all steps, with checkpoints and without, the pause per checkpoint,
and the bytes of a checkpoint.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import harness
from distributed import make_data
from harness import PROGRAM

import cli_support
from job_case import finish, job

LENGTH = 64


def run_file(directory, name, options, every):
    return cli_support.run_file(
        directory / f"{name}.json",
        model=dict(
            hidden_size=options.width,
            num_hidden_layers=options.layers,
            num_attention_heads=options.width // 64,
            intermediate_size=4 * options.width,
            max_position_embeddings=LENGTH,
        ),
        stages=[dict(max_length=LENGTH, batch=options.batch, accumulate=options.processes, steps=options.steps)],
        log_every_steps=1,
        checkpoint_every_steps=every,
        keep_checkpoints=1,
        evaluate_batches=1,
    )


def train(directory, name, options, every):
    """Seconds of a step (median) and outside of all steps, and the largest memory of a process."""
    output = directory / name
    shutil.rmtree(output, ignore_errors=True)
    config = run_file(directory, name, options, every)
    arguments = ("pretrain", "--config", config, "--data", directory / "data", "--output", output)
    arguments += ("--threads", options.threads)
    if options.profile and every <= options.steps:
        arguments += ("--profile", f"{2 * every}:{2 * every}")
    start = time.monotonic()
    if options.processes > 1:
        (report,) = finish(job(options.processes, *arguments))
    else:
        command = [options.program, *map(str, arguments)]
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        report = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    whole = time.monotonic() - start
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [line["seconds"] for line in lines if line["type"] == "train"]
    return statistics.median(steps), whole - sum(steps), report["peak_rss_bytes"]


def standstill(run_dir):
    """Milliseconds of the stage `checkpoint` in the tables of a profile, by rank."""
    found = {}
    for table in sorted(run_dir.glob("profile-*.txt")):
        match = re.search(r"^ *([\d.]+) +[\d.]+ +checkpoint$", table.read_text(), re.MULTILINE)
        found[table.name.split(".")[1]] = float(match[1])
    return found


def main():
    parser = harness.options(__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=PROGRAM)
    sizes = dict(processes=1, threads=1, width=512, layers=8, batch=8, steps=40, every=8, repeats=3)
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--profile", action="store_true", help="the step of the second checkpoint")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    make_data(options.directory)
    outside, steps, peak = {"with": [], "without": []}, {"with": [], "without": []}, {}
    still = {}
    for repeat in range(options.repeats):
        for name, every in (("with", options.every), ("without", options.steps + 1)):
            step, rest, peak[name] = train(options.directory, name, options, every)
            steps[name].append(step)
            outside[name].append(rest)
        if options.profile:
            still[repeat] = standstill(options.directory / "with")
    (checkpoint,) = (options.directory / "with").glob("checkpoint-*")
    checkpoints = options.steps // options.every - 1  # that of the end is in both kinds of runs
    added = statistics.median(outside["with"]) - statistics.median(outside["without"])
    result = {
        "processes": options.processes,
        "step_seconds": {name: statistics.median(each) for name, each in steps.items()},
        "outside_seconds": outside,
        "standing_still_seconds": added / checkpoints,
        "peak_rss_bytes": peak,
        "checkpoint_bytes": sum(path.stat().st_size for path in checkpoint.iterdir()),
    }
    if still:
        result["profiled_ms"] = still
    harness.finish(options, harness.shown([result]), {})


if __name__ == "__main__":
    main()
