"""Fixtures of the command line's tests: models, made once."""

import pytest

import cli_support
from sentence_model import save_encoder, save_modules


@pytest.fixture(scope="session")
def trained(prepared):
    """A finished run directory."""
    config = cli_support.run_file(prepared / "run.json", evaluate_every_steps=4)
    cli_support.results("pretrain", "--config", config, "--data", prepared / "data", "--output", prepared / "run")
    return prepared / "run"


@pytest.fixture(scope="session")
def sentence_encoder(tmp_path_factory):
    """A model directory of sentence-transformers, which normalizes its vectors; not to be changed."""
    folder = tmp_path_factory.mktemp("sentence")
    save_encoder(folder)
    save_modules(folder, normalize=True)
    return folder
