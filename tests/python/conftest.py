"""Fixtures of the tests of training from Python: prepared data, and a run of the command line."""

import pytest

import cli_support
from training_case import RUN


@pytest.fixture(scope="session")
def data(prepared):
    return prepared / "data"


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """A run of the command: its directory, and what it printed."""
    folder = tmp_path_factory.mktemp("command")
    config = cli_support.run_file(folder / "run.json", **RUN)
    (printed,) = cli_support.results("pretrain", "--config", config, "--data", data, "--output", folder / "run")
    return folder / "run", printed
