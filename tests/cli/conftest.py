"""Fixtures of the command line's tests: a trained model, made once."""

import pytest

import cli_support


@pytest.fixture(scope="session")
def trained(prepared):
    """A finished run directory."""
    config = cli_support.run_file(prepared / "run.json", evaluate_every_steps=4)
    cli_support.results("pretrain", "--config", config, "--data", prepared / "data", "--output", prepared / "run")
    return prepared / "run"
