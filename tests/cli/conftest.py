"""Fixtures of the command line's tests: models, made once."""

import shutil

import pytest

import cli_support
import task_files
from sentence_model import save_sentences


@pytest.fixture(scope="session")
def trained(prepared):
    """A finished run directory."""
    config = cli_support.run_file(prepared / "run.json", evaluate_every_steps=4)
    cli_support.results(*cli_support.pretrain(prepared, config, prepared / "run"))
    return prepared / "run"


@pytest.fixture(scope="session")
def sentence_encoder(tmp_path_factory):
    """A model directory of sentence-transformers, which normalizes its vectors; not to be changed."""
    return save_sentences(tmp_path_factory.mktemp("sentence"))


@pytest.fixture
def model(sentence_encoder):
    return sentence_encoder


@pytest.fixture(scope="session")
def tuned_once(trained, tmp_path_factory):
    """A finished fine-tuning of an epoch, not to be changed, and its files."""
    folder = tmp_path_factory.mktemp("tuned")
    files = task_files.write_splits(folder, task_files.classification, train=16, valid=9)
    cli_support.results(*task_files.options(trained, files, folder / "out", "classification", "--epochs", 1))
    return folder / "out", files


@pytest.fixture
def tuned_copy(trained, tuned_once, tmp_path):
    """A copy of it, and the command that made it."""
    copy = shutil.copytree(tuned_once[0], tmp_path / "copy")
    return copy, task_files.options(trained, tuned_once[1], copy, "classification", "--epochs", 1)
