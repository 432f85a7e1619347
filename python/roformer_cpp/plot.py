"""Draws what a command of training measured: `python -m roformer_cpp.plot DIR [--output picture.png]`.

Of a run directory its loss curve, from metrics.jsonl of `roformer pretrain` and `finetune`: one JSON object per line,
with "type" either "train", "evaluation" or "length"; of a directory of `roformer compare` the held-out losses of its
runs, from table.csv; of a directory of `roformer finetune` the confusion matrix of report.json. Losses are in nats per
predicted token.
"""

import argparse
import csv
import json
import sys
from pathlib import Path

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
    """Writes a picture of training loss, held-out loss and the unigram baseline against the step."""
    train = [entry for entry in metrics if entry.get("type") == "train"]
    held_out = [entry for entry in metrics if entry.get("type") == "evaluation"]
    if not train and not held_out:
        raise ValueError("[plot] metrics.jsonl must hold at least one train or evaluation line, got none")
    with picture(output) as figure:
        axes = figure.subplots()
        axes.plot([e["step"] for e in train], [e["loss"] for e in train], "-", linewidth=1, label="training")
        if held_out:
            axes.plot([e["step"] for e in held_out], [e["loss"] for e in held_out], "o-", label="held out")
            if "unigram_loss" in held_out[-1]:  # of a language model
                axes.axhline(held_out[-1]["unigram_loss"], color="gray", linestyle="--", label="unigram, held out")
        axes.set_xlabel("optimizer step")
        axes.set_ylabel("loss")
        axes.legend()


def plot_comparison(table, output):
    """Writes a picture of table.csv: a row for each encoding, a dot for each run, a colour for each length."""
    with Path(table).open(newline="", encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    encodings = list(dict.fromkeys(run["encoding"] for run in runs))
    with picture(output, height=1.2 + 0.3 * len(encodings)) as figure:
        axes = figure.subplots()
        for key in (key for key in runs[0] if key.startswith("loss_")):
            dots = [(float(run[key]), encodings.index(run["encoding"])) for run in runs if run[key] not in ("", "nan")]
            axes.plot(*zip(*dots, strict=True) if dots else ([], []), "o", label=f"{key.removeprefix('loss_')} tokens")
        axes.set_yticks(range(len(encodings)), encodings)
        axes.invert_yaxis()
        axes.set_xlabel("held-out loss, nats per token")
        axes.legend()


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


def main():
    parser = argparse.ArgumentParser(prog="python -m roformer_cpp.plot", description=__doc__)
    parser.add_argument(
        "run_dir", help="a directory of `roformer pretrain`, `finetune` or `compare`, or one of their runs"
    )
    parser.add_argument("--output", help="picture to write (default: loss.png, confusion.png or comparison.png there)")
    arguments = parser.parse_args()
    folder = Path(arguments.run_dir)
    found = next((name for name in _DRAWN if (folder / name).exists()), _metrics.NAME)
    picture_name, draw = _DRAWN[found]
    return exit_code(lambda: draw(folder / found, arguments.output or folder / picture_name))


if __name__ == "__main__":
    sys.exit(main())
