"""Fixtures of the command line's tests: prepared data and a trained model, made once."""

import pytest

import cli_support


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    cli_support.make_data(folder)
    return folder


@pytest.fixture(scope="session")
def trained(prepared):
    """A finished run directory."""
    config = cli_support.run_file(prepared / "run.json", evaluate_every_steps=4)
    cli_support.results("pretrain", "--config", config, "--data", prepared / "data", "--output", prepared / "run")
    return prepared / "run"
