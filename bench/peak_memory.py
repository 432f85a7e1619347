"""The peak memory of this process, as Linux counts it (in steps of about 256 KiB)."""

from collections.abc import Callable
from pathlib import Path


def peak_kib() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def added_kib(work: Callable[[], object]) -> int:
    """The memory that `work` adds to the memory at its start."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    before = peak_kib()
    work()
    return peak_kib() - before
