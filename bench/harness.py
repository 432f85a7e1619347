"""Shared by the benchmarks: where modules lie, the machine's description, timing in turns, options and results.

Importing it makes the package and the helpers of tests/ and tests/oracles importable.
"""

import argparse
import ctypes
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tables

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release"))
PROGRAM = BUILD / "roformer"
PAUSE_S = 0.05  # lets the other side's worker threads go to sleep
METHOD = """\
Results are verified before anything is timed, and a wrong one ends the run. Then the sides take turns, in short windows
with pauses between them; a ratio is the median of the ratios within a round. Sides that are not installed are left out;
stderr says why. ROFORMER_BUILD_DIR names another build to measure.
"""

sys.path[:0] = [str(ROOT / folder) for folder in ("python", "tests", "tests/oracles")]


# ---- timing ----


@dataclass
class Windows:
    """A side of a comparison: a call, and the seconds per amount of work in each window."""

    name: str
    call: Callable[[], object]
    amount: float = field(default=1, kw_only=True)  # work of one call, by which its seconds are divided
    seconds: list[float] = field(default_factory=list, kw_only=True)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def take_turns(
    sides: list[Windows], rounds: int, window_s: float = 0.0, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Times all sides in turn, `rounds` times, in windows of about `window_s`, each after a call that does not count.
    0: a window is one call, for calls so long that this call matters little. clock: in seconds."""
    calls = {}
    for side in sides:
        side.call()
        start = clock()
        if window_s:
            side.call()
        calls[side.name] = max(1, round(window_s / (clock() - start)))
    for _ in range(rounds):
        for side in sides:
            time.sleep(PAUSE_S)
            if window_s:
                side.call()
            start = clock()
            for _ in range(calls[side.name]):
                side.call()
            side.seconds.append((clock() - start) / calls[side.name] / side.amount)


def ratios(numerator: Windows, denominator: Windows) -> list[float]:
    """How many times as fast the second is, in each round."""
    return [a / b for a, b in zip(numerator.seconds, denominator.seconds, strict=True)]


def median_ratio(numerator: Windows, denominator: Windows) -> float:
    return statistics.median(ratios(numerator, denominator))


class Server:
    """A program that works on command: a line in, a line of JSON out."""

    def __init__(self, command: list, environment: dict | None = None):
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=environment, **streams)

    def ask(self, command: str) -> dict:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended with code {self.process.wait()}")
        return json.loads(line)


@dataclass
class Measured:
    """The seconds of a process that has ended."""

    wall_s: float
    cpu_s: float  # user and system


def measured(command: list) -> Measured:
    """Runs a process that must succeed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        if status:
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"status {status}")
    return Measured(wall, usage.ru_utime + usage.ru_stime)


# ---- memory ----


def peak_kib() -> int:
    """The peak memory of this process, as Linux counts it (in steps of about 256 KiB)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def added_kib(work: Callable[[], object]) -> int:
    """The memory that `work` adds to the memory at its start."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    before = peak_kib()
    work()
    return peak_kib() - before


def set_malloc(*settings: tuple[int, int]) -> None:
    """Settings of glibc's malloc by the numbers of malloc.h; other C libraries keep theirs."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if not (mallopt and all(mallopt(*setting) for setting in settings)):
        print("malloc stays as it comes: no mallopt in this C library", file=sys.stderr)


def keep_freed_memory() -> None:
    """Serves every block from the heap and never returns freed blocks to the system."""
    trim_threshold, mmap_max = -1, -4
    set_malloc((mmap_max, 0), (trim_threshold, 2**31 - 1))


def return_freed_memory() -> None:
    """Returns freed blocks of 128 KiB and more to the system, so they do not count as memory of the process."""
    mmap_threshold = -3
    set_malloc((mmap_threshold, 2**17))


# ---- the machine ----


def commit() -> str:
    """The tree's commit, with -dirty if files differ; the pages that contain the tables do not count."""
    if shutil.which("git") is None:
        return "unknown"
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    others = ["--", ".", ":!docs/benchmarks"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *others], capture_output=True, check=False).returncode
    return "unknown" if head.returncode else head.stdout.strip() + "-dirty" * bool(changed)


def machine() -> dict:
    import torch

    import roformer_cpp

    return {
        "cpu": tables.cpu_facts(Path("/proc/cpuinfo").read_text(encoding="utf-8")).get(
            "model name", platform.machine()
        ),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "target": roformer_cpp.target(),
        "torch": torch.__version__,
        "commit": commit(),
    }


# ---- rows of tokens ----


def padded(sequences: list) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of ids as an array with zeros after them, and its mask."""
    ids = np.zeros((len(sequences), max(map(len, sequences))), np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return ids, mask


# ---- options and results ----


def options(doc: str, table_ids: Iterable[str] = (), rounds: int | None = None) -> argparse.ArgumentParser:
    """A parser with the options that the scripts share: --rounds if it has a default, --update-docs for tables."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, epilog=METHOD if rounds else None, formatter_class=formatter)
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds, help="windows of each side (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and results as JSON too")
    if table_ids:
        update = "replace this script's tables on this CPU's page of docs/benchmarks"
        parser.add_argument("--update-docs", action="store_true", help=update)
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of a script whose sides are in this process, which gets --threads and keeps freed memory."""
    import torch

    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of every side")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    return given


def shown(results: Iterable[dict]) -> list[dict]:
    """The results, each printed as a line of JSON when it is known."""
    known = []
    for result in results:
        print(json.dumps(result, ensure_ascii=False), flush=True)
        known.append(result)
    return known


def finish(given: argparse.Namespace, results: object, texts: dict[str, str]) -> None:
    """Prints the tables, which are given by their ids, and writes what the options ask for."""
    for table_id, text in texts.items():
        print(text, flush=True)
        if given.update_docs:
            tables.update_docs(table_id, machine(), text)
    if given.json:
        document = {"machine": machine(), "results": results}
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
