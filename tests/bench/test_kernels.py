"""bench/kernels.py: every case is verified and timed; wrong results are refused before they are timed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).resolve().parents[2] / "bench"
KERNELS = {"rope", "attention", "linear-attention", "norm", "gelu", "linear"}


@pytest.fixture(scope="module")
def kernels():
    sys.path.insert(0, str(BENCH))
    import kernels

    yield kernels
    sys.path.remove(str(BENCH))


def run(*arguments):
    command = [sys.executable, BENCH / "kernels.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_case_is_verified_and_timed(tmp_path):
    path = tmp_path / "results.jsonl"
    done = run("--tiny", "--rounds", 1, "--window-ms", 0, "--threads", 1, "--filter", "", "--json", path)
    assert done.returncode == 0, done.stderr
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert all(first["machine"].values()) and first["rounds"] == 1
    sides = {}
    for line in lines:
        rate = "gflop_per_s" if re.match("(linear-)?attention/|linear/", line["case"]) else "gigabytes_per_s"
        assert line[rate] > 0 and line["median_us"] > 0
        assert line["side"] != "ours" or line["ours_times_as_fast"] == 1
        sides.setdefault(line["case"], []).append(line["side"])
    assert {name.split("/")[0] for name in sides} == KERNELS
    for name, names in sides.items():
        assert names == (["ours", "copy"] if name.startswith("rope/") else ["ours", "torch"])


def test_cases_have_the_sizes_of_their_names(kernels):
    names = [case.name for case in kernels.cases("^attention/", tiny=False)]
    for shape in ("8x128", "2x512", "1x2048"):
        for dtype in ("float32", "bfloat16"):
            for which in ("forward", "forward-backward"):
                assert {f"attention/{bias}/{shape}/{dtype}/{which}" for bias in ("plain", "t5")} <= set(names)
    (case,) = kernels.cases("^attention/plain/2x512/float32/forward$", tiny=False)
    assert [list(x.shape) for x in case.inputs()] == 3 * [[2, 512, 12, 64]]


def zeros(function, dim):
    return lambda *x: 0 * function(*x)


def exchanged(function, dim):
    return lambda *x: function(*x).roll(1, dim)


def not_numbers(function, dim):
    return lambda *x: function(*x) + torch.nan


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("wrong", [zeros, exchanged, not_numbers])
def test_wrong_results_are_refused(kernels, kernel, wrong):
    for case in kernels.cases(f"^{kernel}/", tiny=True):
        kernels.verify(case)
        heads_first = case.name.startswith("rope/htd")
        tokens = (2 if heads_first else 1) if kernel in ("rope", "attention", "linear-attention") else 0
        case.ours = wrong(case.ours, tokens)
        with pytest.raises(SystemExit, match=f"ours of {re.escape(case.name)}: the .* must be within"):
            kernels.verify(case)


@pytest.mark.parametrize("kernel", ["norm/block", "linear-attention"])
def test_a_wrong_peer_is_refused(kernels, kernel):
    for case in kernels.cases(f"^{kernel}/", tiny=True):
        case.torch, case.plain = zeros(case.torch, 0), case.formula
        with pytest.raises(SystemExit, match=f"torch of {re.escape(case.name)}: the .* must be within"):
            kernels.verify(case)


def test_bad_filters():
    for pattern, message in (("(", "must be a regular expression"), ("nothing", "must match a case")):
        done = run("--tiny", "--list", "--filter", pattern)
        assert done.returncode == 1 and message in done.stderr
