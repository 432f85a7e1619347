"""The script `roformer` of an installed package: replaces itself by the package's program, except for commands in
Python."""

import importlib
import os
import sys

from ._library import program_environment

_IN_PYTHON = ("plot", "plot-attention", "train-embedding")


def main() -> None:
    name = next(iter(sys.argv[1:]), "")
    if name in _IN_PYTHON:
        command = importlib.import_module(f".{name.replace('-', '_')}", __package__)
        sys.exit(command.main(sys.argv[2:]))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "roformer")  # noqa: PTH100, PTH118, PTH120
    try:
        os.execve(program, [program, *sys.argv[1:]], program_environment(program))
    except OSError as error:
        sys.exit(f"[program] {program} must be the program of the package, got: {error.strerror}")
