"""Shared by the benchmarks against other libraries: the machine's description, and timing in interleaved windows."""

import ctypes
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

import roformer_cpp

ROOT = Path(__file__).resolve().parents[1]
PAUSE_S = 0.05  # lets the other side's worker threads go to sleep


@dataclass
class Windows:
    """A side of a comparison: a call, and the seconds that a tensor took in each window."""

    name: str
    call: Callable[[], object]
    tensors: int = field(default=1, kw_only=True)  # worked on by one call
    calls: int = field(default=1, kw_only=True)  # in one window
    seconds: list[float] = field(default_factory=list, kw_only=True)


def take_turns(
    sides: list[Windows], rounds: int, window_s: float, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Times all sides in turn in short windows, `rounds` times. clock: in seconds."""
    for side in sides:
        side.call()
        start = clock()
        side.call()
        side.calls = max(1, round(window_s / (clock() - start)))
    for _ in range(rounds):
        for side in sides:
            time.sleep(PAUSE_S)
            side.call()
            start = clock()
            for _ in range(side.calls):
                side.call()
            side.seconds.append((clock() - start) / side.calls / side.tensors)


def median_ratio(numerator: Windows, denominator: Windows) -> float:
    """How many times as fast the second is: the median over rounds of time / time."""
    return statistics.median(a / b for a, b in zip(numerator.seconds, denominator.seconds, strict=True))


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str:
    """The tree's commit, with -dirty if files differ; the pages that contain the tables do not count."""
    if shutil.which("git") is None:
        return "unknown"
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    others = ["--", ".", ":!docs/benchmarks"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *others], capture_output=True, check=False).returncode
    return "unknown" if head.returncode else head.stdout.strip() + "-dirty" * bool(changed)


def keep_freed_memory() -> None:
    """Tells glibc's malloc to serve every block from its heap and not to give freed ones back to the system."""
    trim_threshold, mmap_max = -1, -4  # malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if not (mallopt and mallopt(mmap_max, 0) and mallopt(trim_threshold, 2**31 - 1)):
        print("malloc stays as it comes: no mallopt in this C library", file=sys.stderr)


def machine() -> dict:
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "target": roformer_cpp.target(),
        "torch": torch.__version__,
        "commit": commit(),
    }
