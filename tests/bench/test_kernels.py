"""bench: every case of kernels.py is verified and timed; wrong results are refused before they are timed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import kernels  # noqa: E402
import verified  # noqa: E402

KERNELS = {"rope", "attention", "linear-attention", "norm", "gelu", "linear"}


SCRIPT = "import harness, runpy; harness.PAUSE_S = 0; runpy.run_path('kernels.py', run_name='__main__')"


def test_every_case_is_verified_and_timed(tmp_path):
    path = tmp_path / "results.json"
    options = ("--tiny", "--rounds", "1", "--window-ms", "0", "--threads", "1", "--filter", "", "--json", path)
    subprocess.run([sys.executable, "-c", SCRIPT, *options], stdout=subprocess.DEVNULL, check=True, cwd=BENCH)
    document = json.loads(path.read_text())
    assert all(document["machine"].values())
    sides = {}
    for result in document["results"]:
        assert result["unit"] == ("GFLOP/s" if re.match("(linear-)?attention/|linear/", result["case"]) else "GB/s")
        assert result["rate"] > 0 and result["median_us"] > 0
        assert result["side"] != "ours" or result["ours_times_as_fast"] == 1
        sides.setdefault(result["case"], []).append(result["side"])
    assert {name.split("/")[0] for name in sides} == KERNELS
    for name, names in sides.items():
        assert names == ["ours", "copy" if name.startswith("rope/") else "torch"]


def test_cases_have_the_sizes_of_their_names():
    (case,) = kernels.cases("^attention/plain/2x512/float32/forward$", tiny=False)
    assert [list(x.shape) for x in case.inputs()] == 3 * [[2, 512, 12, 64]]


@pytest.mark.parametrize(("side", "factor"), [("ours", 0), ("ours", torch.nan), ("torch", 0)])
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_wrong_results_are_refused(kernel, side, factor):
    for case in kernels.cases(f"^{kernel}/", tiny=True):
        right = case.sides.get(side)
        if right is None:  # the copy, with which rope is compared
            continue
        case.sides[side] = lambda *x, right=right: factor * right(*x)
        with pytest.raises(SystemExit, match=f"{side} of {re.escape(case.name)}: the output must be within"):
            verified.verify(case)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_wrong_gradient_is_refused(dtype):
    (case,) = kernels.cases(f"^attention/t5/.*/{dtype}/forward-backward", tiny=True)
    inputs = case.inputs()
    grad = torch.randn_like(inputs[0])
    truth = verified.Truth.of(case.formula, inputs, case.leaves, grad)
    ours = verified.results(case.sides["ours"], inputs, case.leaves, grad)
    assert truth.fault(ours) is None and truth.fault(ours[:1]) is None
    for i, name in enumerate(["output", *(f"gradient of input {i}" for i in range(3))]):
        for wrong in (ours[i] * 0, ours[i].roll(1, 2), ours[i] + torch.nan, ours[i][:, :3]):
            assert f"the {name} must be within" in truth.fault([*ours[:i], wrong, *ours[i + 1 :]])


def test_bad_filters():
    for pattern, message in (("(", "must be a regular expression"), ("nothing", "must match a case")):
        with pytest.raises(SystemExit, match=message):
            kernels.cases(pattern, tiny=True)
