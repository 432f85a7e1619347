"""experiments/results/data.sha256 names every file that the recorded results were made from."""

import hashlib

import pytest

from cli_support import ROOT, results

SUMS = dict(reversed(line.split("  ")) for line in (ROOT / "experiments/results/data.sha256").read_text().splitlines())
DATA = ROOT.parent / "shared" / "data"


def test_every_file_that_an_experiment_reads_has_a_sum():
    listed = [name for row in results("reproduce", "--list", "--scale", "small") for name in row["data"]]
    assert len(listed) > 40 and sorted(SUMS) == sorted(set(listed))


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_the_sums_are_those_of_the_files():
    here = {name: DATA / name for name in SUMS if (DATA / name).exists()}
    assert len(here) > 40
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in here.items()} == {
        name: SUMS[name] for name in here
    }
