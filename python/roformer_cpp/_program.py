"""The script `roformer` of an installed package: replaces itself by the program in it, except for pictures."""

import os
import sys
from importlib import import_module

from ._library import program_environment


def main() -> None:
    if sys.argv[1:2] in (["plot"], ["plot-attention"]):
        module = import_module("." + sys.argv[1].replace("-", "_"), __package__)
        sys.exit(module.main(sys.argv[2:]))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "roformer")  # noqa: PTH100, PTH118, PTH120
    try:
        os.execve(program, [program, *sys.argv[1:]], program_environment(program))
    except OSError as error:
        sys.exit(f"[program] {program} must be the program of the package, got: {error.strerror}")
