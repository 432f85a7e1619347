"""Puts the package, the experiments and the tests' own modules on the path; the data that tests of training share."""

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
# Triton reads it when it is first imported, which torch.compile and transformers do, too: kernels for GPUs then run on
# CPU tensors (tests/gpu).
os.environ["TRITON_INTERPRET"] = "1"
sys.path[:0] = [str(TESTS.parent / "python"), str(TESTS), str(TESTS.parent)]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A folder with the prepared corpus "data"."""
    import cli_support

    folder = tmp_path_factory.mktemp("prepared")
    cli_support.make_data(folder)
    return folder


@pytest.fixture(scope="module")
def unregistered():
    """After the module, transformers has its own class of RoFormer's tokenizers again."""
    from transformers.models.auto.tokenization_auto import REGISTERED_TOKENIZER_CLASSES

    yield
    REGISTERED_TOKENIZER_CLASSES.pop("RoFormerTokenizer", None)


@pytest.fixture(scope="module")
def registered(unregistered):
    """`roformer_cpp.register()` for a module."""
    import roformer_cpp

    roformer_cpp.register()
    roformer_cpp.register()
