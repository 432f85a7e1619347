"""Loads GNU OpenMP before torch and the engine do, with a setting of how its idle threads wait, for the whole process.

GNU OpenMP reads its settings once, when it is loaded; torch, the engine and the operators share the library that is
there first, by its name. Unless the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, or torch is already loaded, its
threads spin for a short time before they sleep, as in the program `roformer` (cli/src/program.cpp gives the reasons and
has the same count). The environment is restored.
"""

import ctypes
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

SPIN_COUNT = "10000"
_SPIN = "GOMP_SPINCOUNT"
_NAME = "libgomp.so.1"


def spec_of(module: str) -> ModuleSpec | None:
    """Where a module is, without importing it; None if it is not there or may not be imported."""
    try:
        return find_spec(module)
    except (ImportError, ValueError):
        return None


def load() -> None:
    if "torch" in sys.modules:
        return
    is_chosen = "OMP_WAIT_POLICY" in os.environ or _SPIN in os.environ
    if not is_chosen:
        os.environ[_SPIN] = SPIN_COUNT
    try:
        for path in (*_in_packages(), _NAME):
            try:
                ctypes.CDLL(path)
                return
            except OSError:
                continue
    finally:
        if not is_chosen:
            del os.environ[_SPIN]


def _in_packages() -> list[str]:
    """That of torch, where torch is installed, and that of this package."""
    torch = spec_of("torch")
    folders = list(torch.submodule_search_locations or []) if torch else []
    folders.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib takes longer to import
    return [f"{folder}/lib/{_NAME}" for folder in folders]
