"""Finds and loads the module `roformer_cpp._engine`: in the package, or in the build of a checkout."""

import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _library
from ._openmp import spec_of

_NAME = "roformer_cpp._engine"


def find() -> Path | None:
    """The file of the module."""
    if not _library.given_folder() and (spec := spec_of(_NAME)):
        return Path(spec.origin)
    paths = (folder / f"_engine{suffix}" for folder in _library.folders() for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.exists()), None)


def load() -> ModuleType:
    """The module. If it is missing or does not fit this Python, ImportError says what to build."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    path = find()
    if path is None:
        looked = ", ".join(str(folder) for folder in _library.folders())
        raise ImportError(
            f"[roformer_cpp] the module _engine for Python {sys.version_info[0]}.{sys.version_info[1]} must be built, "
            f"got none in {looked}. {_library.HINT}"
        )
    loader = ExtensionFileLoader(_NAME, str(path))
    module = module_from_spec(spec_from_file_location(_NAME, path, loader=loader))
    try:
        loader.exec_module(module)
    except ImportError as error:
        raise ImportError(f"[roformer_cpp] {path} must be built for this Python and machine, got: {error}") from error
    sys.modules[_NAME] = module
    return module


def give_warnings(opened: Any, *, stacklevel: int) -> None:
    """Warns of what an object of the module has noted, for the caller's line at this level."""
    for message in opened.take_warnings():
        warnings.warn(message, stacklevel=stacklevel + 1)
