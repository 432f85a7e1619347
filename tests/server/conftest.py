"""Models that the tests of the server share."""

import pytest

from sentence_model import save_sentences
from server_case import save_models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An encoder of sentences."""
    folder = tmp_path_factory.mktemp("served") / "letters"
    folder.mkdir()
    return save_sentences(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One of each kind, by name."""
    return save_models(tmp_path_factory.mktemp("models"))
