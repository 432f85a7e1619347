"""metrics.jsonl of a run (docs/formats.md): all of it, and its new lines while the program writes them."""

import json
import os
import sys
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"
OF_RUNS = f"lr-*/seed-*/{NAME}"  # in the output directory of `roformer finetune`


def entry(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None if it is damaged."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_number(value: Any) -> bool:
    """Whether it is a finite number of float64."""
    largest = sys.float_info.max
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -largest <= value <= largest


def shown(line: bytes) -> str:
    return repr(line[:60].decode(errors="replace"))


def read_metrics(run_dir: str | os.PathLike, where: str) -> list[dict[str, Any]]:
    """The objects of RUN_DIR/metrics.jsonl, in order.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is not a JSON object; the message names file and line.
    """
    path = Path(run_dir) / NAME
    if not path.exists():
        raise FileNotFoundError(f"[{where}] a run must have {NAME}, got none in {run_dir}")
    entries = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if (value := entry(line)) is None:
            raise ValueError(f"[{where}] {path}:{number} must be a JSON object, got {shown(line)}")
        entries.append(value)
    return entries


def _has_step(value: dict[str, Any] | None) -> bool:
    return value is not None and type(value.get("step")) is int


class NewLines:
    """The lines that a run adds to its metrics: all lines of a new run, or the new lines of a run that continues. Make
    it before the program starts.

    The program appends whole lines. Before the first one of a resumed run it replaces the file if there are lines
    after the newest checkpoint, or damaged ones, and keeps it otherwise (train/src/metrics_log.h). So all lines of
    later steps than that checkpoint are new ones, once a file that must be replaced has been.
    """

    def __init__(self, run_dir: Path, *, is_new: bool = False):
        self._path = run_dir / NAME
        self._last_step, self._offset, self._stale = 0, 0, None
        if is_new:
            return
        numbers = (path.name.removeprefix("checkpoint-") for path in run_dir.glob("checkpoint-*"))
        self._last_step = max((int(n) for n in numbers if n.isascii() and n.isdigit()), default=0)
        try:
            with self._path.open("rb") as file:
                *lines, rest = file.read().split(b"\n")
                entries = [entry(line) for line in lines]
                if rest or any(not _has_step(e) or e["step"] > self._last_step for e in entries):
                    self._stale = os.fstat(file.fileno()).st_ino
        except OSError:
            pass

    def take(self) -> list[dict[str, Any]]:
        """Those written since the last call."""
        try:
            file = self._path.open("rb")
        except OSError:
            return []
        with file:
            if self._stale == os.fstat(file.fileno()).st_ino:
                return []
            self._stale = None
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._offset += len(whole) + 1
        entries = [entry(line) for line in whole.split(b"\n")]
        return [e for e in entries if _has_step(e) and e["step"] > self._last_step]


class NewLinesOfRuns:
    """The same of all runs in an output directory of `roformer finetune`, with each run's folder as ``"run"``."""

    def __init__(self, output: Path):
        self._output = output
        self._runs = {run: NewLines(run) for run in self._folders() if not (run / "result.json").exists()}
        self._finished = set(self._folders()) - set(self._runs)

    def _folders(self) -> list[Path]:
        """Those with metrics, in the order in which they were written last."""
        return [path.parent for path in sorted(self._output.glob(OF_RUNS), key=_modified)]

    def take(self) -> list[dict[str, Any]]:
        # Earlier runs have finished writing when a run appears, so lines are in the order of the runs.
        for run in self._folders():
            if run not in self._runs and run not in self._finished:
                self._runs[run] = NewLines(run, is_new=True)
        return [
            {"run": run.relative_to(self._output).as_posix(), **line}
            for run, lines in self._runs.items()
            for line in lines.take()
        ]


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
