"""Draws the loss curve of a run directory: `python -m roformer_cpp.plot RUN_DIR [--output loss.png]`.

Reads metrics.jsonl of `roformer pretrain` and `finetune`: one JSON object per line, with "type" either "train",
"evaluation" or "length". Losses are in nats per predicted token.
"""

import argparse
import sys
from pathlib import Path

from . import _metrics
from ._command import exit_code
from ._style import picture


def _is_number(value):
    limit = sys.float_info.max
    return isinstance(value, int | float) and not isinstance(value, bool) and -limit <= value <= limit


def read_metrics(run_dir):
    """The objects of RUN_DIR/metrics.jsonl, in order. Raises OSError or ValueError naming the file and line."""
    entries = _metrics.read_metrics(run_dir, "plot")
    for number, entry in enumerate(entries, 1):
        drawn = entry.get("type") in ("train", "evaluation")
        for key in ["step", "loss"] * drawn + ["unigram_loss"] * (drawn and "unigram_loss" in entry):
            if not _is_number(entry.get(key)):
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


def main():
    parser = argparse.ArgumentParser(prog="python -m roformer_cpp.plot", description=__doc__)
    parser.add_argument("run_dir", help="a run directory of `roformer pretrain`, or of a run of `roformer finetune`")
    parser.add_argument("--output", help="picture to write (default: RUN_DIR/loss.png)")
    arguments = parser.parse_args()
    output = arguments.output or Path(arguments.run_dir) / "loss.png"
    return exit_code(lambda: plot_loss(read_metrics(arguments.run_dir), output))


if __name__ == "__main__":
    sys.exit(main())
