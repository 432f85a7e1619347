"""Draws the metrics of training commands: `python -m roformer_cpp.plot DIR .. [--output picture.png]`.

For a run directory it draws the loss curve, from metrics.jsonl of `roformer pretrain` and `finetune`: one JSON object
per line, with "type" either "train", "evaluation" or "length". For a directory of `roformer compare` it draws the
held-out losses of its runs and, at the shortest and the longest length, against their cost, from table.csv. For a
directory of `roformer finetune` it draws the confusion matrix of report.json. For several directories, or a directory
without these files, it draws the loss curves of all runs in them, in one picture. Losses are in nats per predicted
token.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from statistics import fmean

from . import _metrics
from ._command import exit_code
from ._style import picture


def read_metrics(run_dir):
    """The objects of RUN_DIR/metrics.jsonl, in order. Raises OSError or ValueError naming the file and line."""
    entries = _metrics.read_metrics(run_dir, "plot")
    for number, entry in enumerate(entries, 1):
        drawn = entry.get("type") in ("train", "evaluation")
        for key in ["step", "loss"] * drawn + ["unigram_loss"] * (drawn and "unigram_loss" in entry):
            if not _metrics.is_number(entry.get(key)):
                where = f"[plot] {Path(run_dir) / _metrics.NAME}:{number}"
                raise ValueError(f'{where} must have a number as "{key}", got {str(entry)[:60]}')
    return entries


def plot_loss(metrics, output):
    """Writes a picture of training loss, held-out loss and the unigram baseline against the step.

    Args:
        metrics: the lines of a run, or a dictionary of several runs by name, drawn without a baseline.
    """
    runs = metrics if isinstance(metrics, dict) else {"": metrics}
    with picture(output) as figure:
        axes = figure.subplots()
        for name, lines in runs.items():
            train, held_out = ([e for e in lines if e.get("type") == kind] for kind in ("train", "evaluation"))
            if not train and not held_out:
                raise ValueError("[plot] metrics.jsonl must hold at least one train or evaluation line, got none")
            (line,) = axes.plot([e["step"] for e in train], [e["loss"] for e in train], "-", linewidth=1)
            line.set_label(name or "training")
            if held_out:
                points = [e["step"] for e in held_out], [e["loss"] for e in held_out]
                style = dict(color=line.get_color(), label=f"{name}, held out") if name else dict(label="held out")
                axes.plot(*points, "o-", **style)
                if not name and "unigram_loss" in held_out[-1]:  # of a language model
                    axes.axhline(held_out[-1]["unigram_loss"], color="gray", linestyle="--", label="unigram, held out")
        axes.set_xlabel("optimizer step")
        axes.set_ylabel("loss")
        axes.legend()


def plot_comparison(table, output):
    """Writes a picture of table.csv: a row for each encoding, a dot for each run, a colour for each length; and the
    means over the seeds at the shortest and the longest length against the time of a step."""
    with Path(table).open(newline="", encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    if not runs:
        raise ValueError(f"[plot] {table} must hold runs, got none")
    encodings = list(dict.fromkeys(run["encoding"] for run in runs))
    lengths = [key for key in runs[0] if key.startswith("loss_")]
    with picture(output, width=14, height=max(4, 1.2 + 0.3 * len(encodings))) as figure:
        axes, cost = figure.subplots(1, 2)
        for key, mark in {lengths[0]: "o", lengths[-1]: "x"}.items():
            points = {}
            for encoding in encodings:
                done = [r for r in runs if r["encoding"] == encoding and r[key] not in ("", "nan")]
                if done:
                    points[encoding] = [fmean(float(r[column]) for r in done) for column in ("step_ms", key)]
            cost.plot(*zip(*points.values(), strict=True) if points else ([], []), mark, label=_tokens(key))
            for encoding, point in points.items():
                cost.annotate(encoding, point, textcoords="offset points", xytext=(4, 2), fontsize=7)
        cost.set_xlabel("milliseconds per step")
        cost.set_ylabel("held-out loss, nats per token, mean over the seeds")
        cost.legend()
        for key in lengths:
            dots = [(float(run[key]), encodings.index(run["encoding"])) for run in runs if run[key] not in ("", "nan")]
            axes.plot(*zip(*dots, strict=True) if dots else ([], []), "o", label=_tokens(key))
        axes.set_yticks(range(len(encodings)), encodings)
        axes.invert_yaxis()
        axes.set_xlabel("held-out loss, nats per token")
        axes.legend()


def _tokens(column):
    return f"{column.removeprefix('loss_')} tokens"


def plot_confusion(report, output):
    """Writes a picture of report.json: rows are gold classes, columns predicted ones, darker the greater parts."""
    confusion = json.loads(Path(report).read_text(encoding="utf-8")).get("confusion")
    if confusion is None:
        raise ValueError(f"[plot] {report} must hold a confusion matrix, got the report of a task without one")
    labels, counts = confusion["labels"], confusion["counts"]
    with picture(output, width=2 + 0.5 * len(labels), height=1.5 + 0.5 * len(labels)) as figure:
        axes = figure.subplots()
        axes.imshow([[count / max(1, sum(row)) for count in row] for row in counts], cmap="Blues", vmin=0, vmax=1.5)
        for i, row in enumerate(counts):
            for j, count in enumerate(row):
                axes.text(j, i, count, ha="center", va="center")
        axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
        axes.set_yticks(range(len(labels)), labels)
        axes.grid(visible=False)
        axes.set_xlabel("predicted")
        axes.set_ylabel("gold")


_DRAWN = {
    _metrics.NAME: ("loss.png", lambda path, output: plot_loss(read_metrics(path.parent), output)),
    "table.csv": ("comparison.png", plot_comparison),
    "report.json": ("confusion.png", plot_confusion),
}


def write_csv(runs, path):
    """Writes every line of metrics of several runs as CSV. runs: a dictionary of the lines by the names of the runs."""
    keys = dict.fromkeys(key for lines in runs.values() for line in lines for key in line)
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["run", *keys])
        writer.writeheader()
        writer.writerows({"run": name} | line for name, lines in runs.items() for line in lines)


def _draw(folders, output, table):
    found = next((name for name in _DRAWN if (folders[0] / name).exists()), None)
    if table or len(folders) > 1 or found is None:
        paths = {folder: sorted(folder.rglob(_metrics.NAME)) for folder in folders}
        if empty := [folder for folder, of_folder in paths.items() if not of_folder]:
            raise FileNotFoundError(f"[plot] every directory must have {_metrics.NAME} in it, got none in {empty[0]}")
        runs = {str(path.parent): read_metrics(path.parent) for each in paths.values() for path in each}
    if table:
        write_csv(runs, table)
    if len(folders) > 1 or found is None:
        plot_loss(runs, output or "loss.png")
    else:
        picture_name, draw = _DRAWN[found]
        draw(folders[0] / found, output or folders[0] / picture_name)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m roformer_cpp.plot", description=__doc__)
    parser.add_argument(
        "run_dir",
        nargs="+",
        type=Path,
        help="directories of `roformer pretrain`, `finetune` or `compare`, or of their runs",
    )
    parser.add_argument(
        "--output",
        help="picture to write (default: loss.png, confusion.png or comparison.png there; of several: ./loss.png)",
    )
    parser.add_argument("--csv", help="also write every line of metrics of all runs in the directories to this file")
    arguments = parser.parse_args(arguments)
    return exit_code(lambda: _draw(arguments.run_dir, arguments.output, arguments.csv))


if __name__ == "__main__":
    sys.exit(main())
