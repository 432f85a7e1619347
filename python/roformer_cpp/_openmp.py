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
        for path in _of_torch():
            _opened(path)
        if not _opened(_NAME, os.RTLD_NOLOAD) and not _opened(f"{os.path.dirname(__file__)}/lib/{_NAME}"):  # noqa: PTH120
            _opened(_NAME)
    finally:
        if not is_chosen:
            del os.environ[_SPIN]


def _of_torch() -> list[str]:
    """Those in the packages of torch; some builds of torch give theirs another name."""
    spec = spec_of("torch")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return [
        entry.path
        for folder in folders
        for libraries in (f"{folder}/lib", f"{folder}.libs")
        if os.path.isdir(libraries)  # noqa: PTH112 - pathlib takes longer to import
        for entry in os.scandir(libraries)
        if entry.name.startswith("libgomp") and ".so" in entry.name
    ]


def _opened(path: str, mode: int = 0) -> bool:
    try:
        ctypes.CDLL(path, mode | os.RTLD_NOW)
    except OSError:
        return False
    return True
