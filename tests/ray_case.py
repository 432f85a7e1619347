"""Helpers of the tests of Ray: a cluster, the actors of this process, and killing them."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli_support import ROOT

CPUS = 4
STORE_BYTES = 100 * 2**20
TITLE = "ray::MapWorker(MapBatches(Embedder))"


@contextmanager
def cluster():
    """Ray, connected to a cluster of this machine."""
    import ray

    path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        ray.init(num_cpus=CPUS, include_dashboard=False, object_store_memory=STORE_BYTES, log_to_driver=False)
        yield ray
        ray.shutdown()


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
