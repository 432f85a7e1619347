"""Fixtures of the tests of training from Python: prepared data, and a run of the command line; of those of reports."""

import pytest

import cli_support
from report_support import make, write_results
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


@pytest.fixture
def directory(tmp_path):
    """Made-up results, which a test may change."""
    return write_results(tmp_path / "reproduced")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """(report.html, report.md, their folder)"""
    folder = tmp_path_factory.mktemp("report")
    return *make(write_results(folder / "reproduced"), folder), folder
