"""Training by several processes, which torchrun, Slurm or Ray start: ``torchrun -m roformer_cpp.pretrain ..``.

The processes run the program's own commands (docs/distributed.md). Python makes the process group of
``torch.distributed``, and C++ takes it by its name.
"""

import argparse
import ctypes
import importlib
import json
import os
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from . import _child, _library
from .training import File, run_file

_LIBRARY = "libroformer_cli.so"
_MISUSE = 2  # the program's exit code for a wrong command line
_SHARED = "Under torchrun, every process runs this command, and the first one writes and prints. "
_SHARED_OPTIONS = """\
  --backend TEXT     Backend of torch.distributed; default: gloo, and nccl for tensors on GPUs
  --timeout SECONDS  Longest wait for another process before the job ends; default: 600
"""
_ALONE = ("compare", "train-translation")  # commands of one process
_HELP = """\
{shared}Options of the launcher:
  --import MODULE    Python module to load before, such as one that registers encodings; several times for several
{more}The other options are the options of `roformer {command}`:

"""


def main(command: str, arguments: Sequence[str] | None = None) -> int:
    """The entry point of ``python -m roformer_cpp.<command>``, in each process. Alone, it is ``roformer <command>``.

    Returns:
        The exit code of the program.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if {"-h", "--help"} & set(arguments):
        shared, more = ("", "") if command in _ALONE else (_SHARED, _SHARED_OPTIONS)
        sys.stdout.write(_HELP.format(command=command, shared=shared, more=more))
        sys.stdout.flush()
        return _run([command, "--help"], "")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--import", dest="modules", action="append", default=[])
    parser.add_argument("--backend", default=None)
    parser.add_argument("--timeout", type=_seconds, default=600.0)
    try:
        own, arguments = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        return _misuse(f"[usage] {error.argument_name} {error.message}")
    for module in own.modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return _misuse(f"[usage] --import must be a module that can be loaded, got {module} ({reason})")
    if "RANK" in os.environ and command in _ALONE:
        return _misuse(f"[distributed] {command} must be run by one process, got rank {os.environ['RANK']}")
    if "RANK" not in os.environ:
        return _run([command, *arguments], "")
    try:
        group, says_misuse = _make_group(own.backend, own.timeout, arguments)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    if command == "pretrain" and os.environ["RANK"] == "0" and _is_started_again(arguments):
        arguments.append("--resume")
    code = _run([command, *arguments], group, says_misuse=says_misuse)
    sys.stdout.flush()
    if code == _MISUSE and not says_misuse:
        time.sleep(2)  # torchrun ends all processes when one has ended; the first one is to say why before
    if code != 0:
        os._exit(code)  # the end of the group would wait for processes that are gone
    import torch.distributed

    torch.distributed.destroy_process_group()
    return code


def pretrain(
    run: File | dict[str, Any] | None,
    data: File,
    output: File,
    *,
    resume: bool = False,
    seed: int | None = None,
    threads: int | None = None,
    profile: str | None = None,
    device: str | None = None,
) -> None:
    """Trains a language model together with the other processes of ``torch.distributed``'s default group, which the
    caller has made. Every process calls this. Without a group, this process trains alone.

    Args:
        run: the run file, or its keys as a dictionary. With ``resume`` it may be None: the run's own.
        data: the directory that ``prepare`` made: the same content for every process.
        output: directory of the run, on a file system that all processes share.
        resume, seed, threads, profile, device: as of :func:`roformer_cpp.pretrain`.

    Raises:
        RuntimeError: training ended early; the reason is on standard error of the first process, and the exception has
            the program's exit code.
    """
    arguments = dict(locals())
    import torch.distributed

    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    group = torch.distributed.group.WORLD.group_name if there else ""
    with run_file(run) as config:
        code = _run(["pretrain", *_child.options("pretrain", arguments | {"config": config})], group)
    if code != 0:
        raise RuntimeError(
            f"[distributed] pretrain must end with exit code 0, got {code}; standard error has the reason"
        )


def _is_started_again(arguments: list[str]) -> bool:
    """Whether torchrun has started this job before, in this output directory. If so, it continues without --resume.
    A hidden file in the directory keeps the job's identity."""
    job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    output = next((word.partition("=")[2] for word in arguments if word.startswith("--output=")), None)
    if output is None and "--output" in arguments[:-1]:
        output = arguments[arguments.index("--output") + 1]
    if output is None or "--resume" in arguments or job == "none":
        return False
    file = Path(output) / ".job"
    if file.is_file():
        return file.read_text() == job
    if not Path(output).exists() or not any(Path(output).iterdir()):
        Path(output).mkdir(parents=True, exist_ok=True)
        file.write_text(job)
    return False


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text}")
    return value


def _misuse(message: str) -> int:
    """Says it, if this is the first process of the machine."""
    if os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0":
        print(message, file=sys.stderr)
    return _MISUSE


def _is_first_with(arguments: list[str], store: Any, rank: int) -> bool:
    """Whether no process before this one is known to have the same arguments, and to say what is wrong with them."""
    words = json.dumps(arguments)
    if rank == 0:
        store.set("roformer/arguments", words)
        return True
    return store.get("roformer/arguments").decode() != words


def _default_backend() -> str:
    """Numbers of the job are on the CPU also where weights and gradients are on GPUs."""
    import torch.distributed

    has_gpus = torch.cuda.is_available() and torch.distributed.is_nccl_available()
    return "cpu:gloo,cuda:nccl" if has_gpus else "gloo"


def _make_group(backend: str | None, timeout: float, arguments: list[str]) -> tuple[str, bool]:
    """Makes the group that torchrun's variables describe; its name, and whether this process says what is wrong with
    these arguments of the program."""
    import torch.distributed
    from torch.distributed.rendezvous import rendezvous

    backend = backend or _default_backend()
    limit = timedelta(seconds=timeout)
    try:
        store, rank, size = next(rendezvous("env://", timeout=limit))
        store = torch.distributed.PrefixStore(_agreed_start(store, rank, size, timeout), store)
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        says_misuse = _is_first_with(arguments, store, rank)
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise RuntimeError(
            f"[distributed] rank {os.environ['RANK']} of {os.environ.get('WORLD_SIZE')} must reach the others at "
            f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}, got: {reason}"
        ) from error
    return torch.distributed.group.WORLD.group_name, says_misuse


def _agreed_start(store: Any, rank: int, size: int, timeout: float) -> str:
    """A name for this start that all ranks have. torchrun keeps its store when it starts workers again, and agents
    count starts differently, so the values of earlier workers must not be mistaken for current ones.

    Every other rank asks with its own number, and rank 0 answers each number until all have taken an answer.
    """
    own = uuid.uuid4().hex
    if rank != 0:
        store.set(f"roformer/ask/{rank}", own)
        start = store.get(f"roformer/answer/{own}").decode()
        store.set(f"roformer/joined/{start}/{rank}", "1")
        return start
    missing, answered = set(range(1, size)), set()
    end = time.monotonic() + timeout
    while missing:
        for other in sorted(missing):
            if store.check([f"roformer/joined/{own}/{other}"]):
                missing.remove(other)
            elif store.check([f"roformer/ask/{other}"]):
                number = store.get(f"roformer/ask/{other}").decode()
                if number not in answered:
                    store.set(f"roformer/answer/{number}", own)
                    answered.add(number)
        if time.monotonic() > end:
            raise TimeoutError(f"rank {min(missing)} did not join within {timeout:g} s")
        time.sleep(0.01)
    return own


def _run(arguments: Sequence[str], group: str, *, says_misuse: bool = True) -> int:
    import torch

    if torch.cuda.is_available():
        from . import _torch  # noqa: F401 - the kernels of GPUs
    folder = next((folder for folder in _library.folders() if (folder / _LIBRARY).exists()), None)
    if folder is None:
        raise ImportError(f"[roformer_cpp] {_LIBRARY} must be built, got none. {_library.HINT}")
    program = ctypes.CDLL(str(folder / _LIBRARY), ctypes.RTLD_GLOBAL)
    words = ["roformer", *map(str, arguments)]
    with ExitStack() as files:
        try:
            for place, word in enumerate(words):
                option = "--config=" * word.startswith("--config=")
                if option or words[place - 1] == "--config":
                    words[place] = option + files.enter_context(run_file(word.removeprefix(option)))
        except (ImportError, OSError, ValueError) as error:
            if says_misuse:
                print(error, file=sys.stderr)
            return 1
        argv = (ctypes.c_char_p * (len(words) + 1))(*map(os.fsencode, words))
        return program.rf_cli_main_of_job(len(words), argv, group.encode(), int(says_misuse))
