"""libroformer_core.so for the tests of its C functions. ROFORMER_LIB_DIR names its directory; without it,
build/release/lib."""

import ctypes
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def core():
    directory = pathlib.Path(os.environ.get("ROFORMER_LIB_DIR", ROOT / "build" / "release" / "lib"))
    library = ctypes.CDLL(str(directory / "libroformer_core.so"))
    library.rf_last_error.restype = ctypes.c_char_p
    return library
