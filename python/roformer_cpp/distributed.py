"""Training by several processes, which torchrun, Slurm or Ray start: ``torchrun -m roformer_cpp.pretrain ..``.

The processes run the program's own commands (docs/distributed.md). Python makes the process group of
``torch.distributed``, and C++ takes it by its name.
"""

import argparse
import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from . import _child, _library
from .training import File, run_file

_LIBRARY = "libroformer_cli.so"
_HELP = """\
Under torchrun, every process runs this command, and the first one writes and prints. Options of the launcher:
  --backend TEXT     Backend of torch.distributed; default: gloo
  --timeout SECONDS  Longest wait for another process before the job ends; default: 600
All other options are those of `roformer {command}`:

"""


def main(command: str, arguments: Sequence[str] | None = None) -> int:
    """What ``python -m roformer_cpp.<command>`` does in each process. Alone, it is ``roformer <command>``.

    Returns:
        The exit code of the program.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(_HELP.format(command=command))
        sys.stdout.flush()
        return _run([command, "--help"], "")
    parser = argparse.ArgumentParser(prog=f"python -m roformer_cpp.{command}", add_help=False, allow_abbrev=False)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--timeout", type=_seconds, default=600.0)
    own, arguments = parser.parse_known_args(arguments)
    # A worker that torchrun starts again goes on from the newest checkpoint.
    if command == "pretrain" and _restarts() > 0 and "--resume" not in arguments:
        arguments.append("--resume")
    try:
        with _process_group(own.backend, own.timeout) as group:
            return _run([command, *arguments], group)
    except _NoGroup as error:
        print(error, file=sys.stderr)
        return 1


def pretrain(
    run: File | dict[str, Any] | None,
    data: File,
    output: File,
    *,
    resume: bool = False,
    seed: int | None = None,
    threads: int | None = None,
) -> None:
    """Trains a language model together with the other processes of ``torch.distributed``'s default group, which the
    caller has made; every one of them calls this. Without a group, this process trains alone.

    Args:
        run: the run file, or its keys as a dictionary. With ``resume`` it may be None: the run's own.
        data: the directory that ``prepare`` made: the same content for every process.
        output: directory of the run, on a file system that all processes share.
        resume, seed, threads: as of :func:`roformer_cpp.pretrain`.

    Raises:
        RuntimeError: training ended early; the reason is on standard error of the first process, and the exception has
            the program's exit code.
    """
    import torch.distributed

    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    group = torch.distributed.group.WORLD.group_name if there else ""
    with run_file(run) as config:
        options = _child.options(
            "pretrain", config=config, data=data, output=output, resume=resume, seed=seed, threads=threads
        )
        code = _run(["pretrain", *options], group)
    if code != 0:
        raise RuntimeError(
            f"[distributed] pretrain must end with exit code 0, got {code}; standard error has the reason"
        )


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class _NoGroup(RuntimeError):
    pass


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text}")
    return value


@contextmanager
def _process_group(backend: str, timeout: float):
    """The name of the group that torchrun's variables describe; "" if there are none."""
    if "RANK" not in os.environ:
        yield ""
        return
    import torch.distributed
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=timeout)
    try:
        store, rank, size = next(rendezvous("env://", timeout=limit))
        # torchrun keeps its store when it starts workers again; what those before have written is not for them.
        store = torch.distributed.PrefixStore(f"start-{_restarts()}", store)
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise _NoGroup(
            f"[distributed] rank {os.environ['RANK']} of {os.environ.get('WORLD_SIZE')} must reach the others at "
            f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}, got: {reason}"
        ) from error
    yield torch.distributed.group.WORLD.group_name
    # Not after an error: the others may be gone, and the process ends.
    torch.distributed.destroy_process_group()


def _run(arguments: Sequence[str], group: str) -> int:
    import torch  # noqa: F401 - the libraries that train use the one of this process

    folder = next((folder for folder in _library.folders() if (folder / _LIBRARY).exists()), None)
    if folder is None:
        raise ImportError(f"[roformer_cpp] {_LIBRARY} must be built, got none. {_library.HINT}")
    program = ctypes.CDLL(str(folder / _LIBRARY), ctypes.RTLD_GLOBAL)
    words = [b"roformer", *(os.fsencode(str(word)) for word in arguments)]
    return program.rf_cli_main_of_job(len(words), (ctypes.c_char_p * (len(words) + 1))(*words), group.encode())
