"""Finds the libraries of the package, and loads the libraries that register operators with PyTorch."""

import os
import sys
import warnings
from pathlib import Path

from ._openmp import spec_of

OPS = "libroformer_ops.so"
NN = "libroformer_nn.so"
HINT = (
    "Hint: run ./scripts/setup.sh, or cmake --preset release && cmake --build --preset release; "
    "set ROFORMER_LIB_DIR to the folder of another build"
)


def given_folder() -> str | None:
    return os.environ.get("ROFORMER_LIB_DIR") or None


def folders() -> list[Path]:
    """The folders to search: only $ROFORMER_LIB_DIR if it is set, else the package's lib/ and the build."""
    if given := given_folder():
        return [Path(given)]
    package = Path(__file__).resolve().parent
    found = [package / "lib", package.parents[1] / "build" / "release" / "lib"]
    # An editable installation has the package's Python files elsewhere.
    if (module := spec_of("roformer_cpp._engine")) and module.origin:
        found.append(Path(module.origin).parent / "lib")
    return found


def has_operators() -> bool:
    """Whether torch is installed, and the library of operators for it."""
    return spec_of("torch") is not None and any((folder / OPS).exists() for folder in folders())


def program() -> str:
    """The program `roformer` of the package, or of the build whose libraries it uses."""
    places = [place for folder in folders() for place in (folder.parent / "bin", folder.parent)]
    for place in places:
        if (place / "roformer").is_file():
            return str(place / "roformer")
    looked = ", ".join(str(place) for place in places)
    raise ImportError(f"[roformer_cpp] the program roformer must be built, got none in {looked}. {HINT}")


def program_environment(program: str) -> dict[str, str]:
    """This process's environment for the program. The program of a wheel looks for PyTorch next to the package. If
    PyTorch is elsewhere, as with system packages, LD_LIBRARY_PATH names its libraries. On a GPU the program starts
    itself inside the Python of ROFORMER_PYTHON, by default this one."""
    environment = {"ROFORMER_PYTHON": sys.executable, **os.environ}
    package = Path(program).parents[1]
    if package != Path(__file__).resolve().parent or (package.parent / "torch").exists():
        return environment
    torch = spec_of("torch")
    if torch is not None and torch.origin:
        known = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(Path(torch.origin).parent / "lib"), known]))
    return environment


def check_given_folder() -> None:
    """Raises ImportError if $ROFORMER_LIB_DIR has neither the operators nor the module of the engine."""
    if not any(path.name == OPS or path.name.startswith("_engine.") for path in Path(given_folder()).glob("*")):
        raise ImportError(_missing())


def _missing() -> str:
    looked = ", ".join(str(folder) for folder in folders())
    return (
        f"[roformer_cpp] {OPS} must be built and lie in one of the folders searched, got none in {looked}. {HINT}; "
        "a wheel has it if its build found PyTorch (docs/python.md)"
    )


def load() -> bool:
    """Loads the operators, and the models if their library is in the same folder; whether it is. ImportError: no
    operators in any of the folders, or they do not fit this version of PyTorch."""
    import torch

    from .gpu import library as gpu

    folder = next((f for f in folders() if (f / OPS).exists()), None)
    if folder is None:
        raise ImportError(_missing())
    _load(folder / OPS)
    gpu.register()
    if warning := torch.ops.roformer.openmp_warning():
        warnings.warn(warning, RuntimeWarning, stacklevel=3)
    has_models = (folder / NN).exists()
    if has_models:
        _load(folder / NN)
    return has_models


def _load(path: Path) -> None:
    import torch

    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"[roformer_cpp] {path} must be built against the PyTorch that loads it, got {error} with PyTorch "
            f"{torch.__version__}. Hint: configure again with -DROFORMER_PYTHON=<this Python>"
        ) from error
