"""Writes the metrics of a run for TensorBoard: `python -m roformer_cpp.tensorboard RUN_DIR [LOG_DIR]`.

RUN_DIR is a directory of `roformer pretrain` or `finetune`; of a fine-tuning each run becomes one of TensorBoard's.
LOG_DIR is by default RUN_DIR/tensorboard: `tensorboard --logdir LOG_DIR` shows it. While a run is trained from Python,
roformer_cpp.TensorBoard writes the same as a callback. Needs the package tensorboard, and no PyTorch.
"""

import argparse
import os
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from . import _checks, _metrics
from ._command import exit_code

_WHERE = "tensorboard"
# Keys of a line that say what its numbers are about.
_NO_SCALARS = ("type", "step", "run", "length")


def scalars(metrics: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line of metrics for a callback that logs to another tool, by the names ``train/loss``,
    ``evaluation/accuracy``, ``length/512/loss`` and so on.

        roformer_cpp.pretrain(
            run, "data", "model", callback=lambda line: wandb.log(roformer_cpp.scalars(line), step=line["step"])
        )

    Args:
        metrics: a line, as callbacks get it. Numbers that are None, and texts, are left out.
    """
    if not isinstance(metrics, dict):
        raise TypeError(f"[{_WHERE}] metrics must be a dictionary, got {_checks.kind(metrics)}")
    prefix = str(metrics.get("type", "metrics")) + (f"/{metrics['length']}" if "length" in metrics else "")
    return {
        f"{prefix}/{name}": value
        for name, value in metrics.items()
        if name not in _NO_SCALARS and _metrics.is_number(value)
    }


class TensorBoard(AbstractContextManager):
    """A callback of training that writes the metrics of a run as scalars for TensorBoard, each as it comes.

        roformer_cpp.pretrain("run.json", "data", "model", callback=roformer_cpp.TensorBoard("logs/model"))

    Tags are the names of :func:`scalars`. Numbers of `finetune` go to a folder for each run. If a run was stopped and
    resumed, TensorBoard hides the earlier numbers of repeated steps.

    Args:
        log_dir: folder of the event files, made if it is missing.

    Raises:
        ImportError: the package tensorboard is not installed.
    """

    def __init__(self, log_dir: str | os.PathLike):
        self.log_dir = _checks.path(_WHERE, "log_dir", log_dir)
        given = f"[{_WHERE}] the package tensorboard must be installed", ". Hint: pip install tensorboard"
        self._events, self._summaries, writer = (
            _checks.needed(f"tensorboard.{module}", *given)
            for module in ("compat.proto.event_pb2", "compat.proto.summary_pb2", "summary.writer.event_file_writer")
        )
        self._open_writer = writer.EventFileWriter
        self._writers: dict[str, Any] = {}

    def __call__(self, metrics: dict[str, Any]) -> None:
        """Writes a line of metrics, on to the disk."""
        step = _checks.integer(_WHERE, "the step of metrics", metrics.get("step"))
        writer = self._writer(_checks.text(_WHERE, "the run of metrics", metrics.get("run", "")), step)
        make = self._summaries.Summary.Value
        values = [make(tag=name, simple_value=value) for name, value in scalars(metrics).items()]
        self._add(writer, step, summary=self._summaries.Summary(value=values))
        writer.flush()

    def _writer(self, run: str, step: int) -> Any:
        if run not in self._writers:
            writer = self._open_writer(os.path.join(self.log_dir, run))  # noqa: PTH118 - an empty run adds nothing
            # Replaces the numbers that a stopped run wrote from this step on.
            self._add(writer, step, session_log=self._events.SessionLog(status=self._events.SessionLog.START))
            self._writers[run] = writer
        return self._writers[run]

    def _add(self, writer: Any, step: int, **what: Any) -> None:
        writer.add_event(self._events.Event(wall_time=time.time(), step=step, **what))

    def close(self) -> None:
        """Closes the files; a later line opens others."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def __exit__(self, *error: object) -> None:
        self.close()


def write(run_dir: str | os.PathLike, log_dir: str | os.PathLike | None = None) -> Path:
    """Writes what a run, or each run of a fine-tuning, has recorded until now, and returns the folder.

    Args:
        run_dir: directory with ``metrics.jsonl``, or of `finetune` with ``lr-*/seed-*/metrics.jsonl``.
        log_dir: folder of the event files. Default: ``tensorboard`` in the run's.

    Raises:
        ImportError: the package tensorboard is not installed.
        OSError: the metrics are missing.
        ValueError: a line of the metrics is damaged.
    """
    run_dir = Path(_checks.path(_WHERE, "the run", run_dir))
    log_dir = run_dir / "tensorboard" if log_dir is None else Path(log_dir)
    paths = sorted(run_dir.glob(_metrics.OF_RUNS))
    runs = {path.parent.relative_to(run_dir).as_posix(): path.parent for path in paths} or {"": run_dir}
    with TensorBoard(log_dir) as board:
        for run, folder in runs.items():
            for line in _metrics.read_metrics(folder, _WHERE):
                board({**line, "run": run})
    return log_dir


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m roformer_cpp.tensorboard", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run_dir", help="a directory of `roformer pretrain` or `finetune`")
    parser.add_argument("log_dir", nargs="?", help="folder to write to (default: RUN_DIR/tensorboard)")
    arguments = parser.parse_args()
    return exit_code(lambda: print(write(arguments.run_dir, arguments.log_dir)))


if __name__ == "__main__":
    sys.exit(main())
