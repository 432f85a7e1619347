"""What bench/attention_peers.py asks of a side before it times it: our kernel passes, wrong results do not."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def attention_peers():
    sys.path.insert(0, str(BENCH))
    yield importlib.import_module("attention_peers")
    sys.path.remove(str(BENCH))


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def case(request, attention_peers):
    return attention_peers.Case(2, 150, request.param, bias=True)


def test_our_results_are_accepted(case):
    assert case.truth.fault(case.results(case.ours)) is None


def test_wrong_results_are_refused(case, attention_peers):
    ours = case.results(case.ours)
    rows, case.rows = case.rows, None
    without_bias = case.results(case.ours)
    case.rows = rows
    wrong = {
        "zeros": [torch.zeros_like(x) for x in ours],
        "heads exchanged": [x.roll(1, dims=2) for x in ours],
        "no bias": without_bias,
        "not a number": [torch.full_like(x, torch.nan) for x in ours],
    }
    for name, results in wrong.items():
        for i, result in enumerate(attention_peers.RESULTS):
            one_wrong = [*ours[:i], results[i], *ours[i + 1 :]]
            assert f"the {result} must be within" in (case.truth.fault(one_wrong, attention_peers.RESULTS) or ""), name
