"""Finds and loads the shared libraries that register the operators with PyTorch."""

import os
import warnings
from pathlib import Path

import torch

_OPS = "libroformer_ops.so"
_NN = "libroformer_nn.so"


def _folders() -> list[Path]:
    """The folders to search: only $ROFORMER_LIB_DIR if it is set, else the package's lib/ and the build."""
    if given := os.environ.get("ROFORMER_LIB_DIR"):
        return [Path(given)]
    package = Path(__file__).resolve().parent
    return [package / "lib", package.parents[1] / "build" / "release" / "lib"]


def load() -> bool:
    """Loads the operators, and the models if their library is in the same folder.

    Returns:
        Whether the models were loaded.

    Raises:
        ImportError: no operators in any of the folders, or they do not fit this version of PyTorch.
    """
    folders = _folders()
    folder = next((f for f in folders if (f / _OPS).exists()), None)
    if folder is None:
        looked = ", ".join(str(f) for f in folders)
        raise ImportError(
            f"[roformer_cpp] {_OPS} must be built and lie in one of the folders searched, got none in {looked}. "
            "Hint: run ./scripts/setup.sh, or cmake --preset release && cmake --build --preset release; "
            "set ROFORMER_LIB_DIR to the folder of another build"
        )
    _load(folder / _OPS)
    if warning := torch.ops.roformer.openmp_warning():
        warnings.warn(warning, RuntimeWarning, stacklevel=3)
    has_models = (folder / _NN).exists()
    if has_models:
        _load(folder / _NN)
    return has_models


def _load(path: Path) -> None:
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"[roformer_cpp] {path} must be built against the PyTorch that loads it, got {error} with PyTorch "
            f"{torch.__version__}. Hint: configure again with -DROFORMER_PYTHON=<this Python>"
        ) from error
