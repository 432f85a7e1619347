"""Models that the tests of the server share."""

import pytest

from sentence_model import save_sentences
from server_case import save_models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "letters"
    folder.mkdir()
    return save_sentences(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))
