"""Helpers of the tests of Ray: the actors of this process, and killing them."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

TITLE = "ray::MapWorker(MapBatches(Embedder))"


def is_installed():
    return find_spec("ray") is not None


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _is_ours(pid):
    """Whether this process started it, itself or through others."""
    while pid > 1:
        if (pid := _parent(pid)) == os.getpid():
            return True
    return False


def actors():
    """The numbers of the processes that embed for this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_text().startswith(TITLE) and _is_ours(int(path.name)):
                found.append(int(path.name))
        except OSError:  # it has ended
            pass
    return sorted(found)


def kill(pid):
    """Whether there was such a process to kill."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
