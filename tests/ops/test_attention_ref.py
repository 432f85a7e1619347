"""The float64 reference of attention over terms (core/ref/attention*.cpp) behind kernel="ref": values against the loops
of attention_reference.py (R-ATT-02), gradients against finite differences (R-ATT-05).
"""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import tolerances as tol
from attention_cases import PARTS, make_case

# Too many inputs for every pairing of them: each term alone, none, all, and cases with a choice of terms. A position
# bias shows only where there is a key table.
ALONE = [(), *((part, "key_table") if part == "position_bias" else (part,) for part in PARTS)]
VALUES = [(seed, parts) for parts in [*ALONE, PARTS] for seed in range(2)] + [(seed, None) for seed in range(20)]
GRADIENTS = [(0, parts) for parts in ALONE] + [(seed, None) for seed in range(5)]


@pytest.mark.parametrize(("seed", "parts"), VALUES)
def test_values(seed, parts):
    case = make_case(seed, parts)
    np.testing.assert_allclose(case.run("ref"), case.expected(), atol=tol.T1_ATOL, rtol=tol.T1_RTOL)


@pytest.mark.parametrize(("seed", "parts"), GRADIENTS)
def test_gradients(seed, parts):
    case = make_case(seed, parts)
    names = list(case.leaves())

    def function(*leaves):
        return case.with_leaves(dict(zip(names, leaves, strict=True))).run("ref")

    assert gradcheck(function, [x.requires_grad_() for x in case.leaves().values()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_computed_in_float64_and_rounded_once(dtype):
    case = make_case(3, PARTS).to(dtype)
    exact = case.to(torch.float64)
    leaves = {name: x.requires_grad_() for name, x in case.leaves().items()}
    exact_leaves = [x.requires_grad_() for x in exact.leaves().values()]
    out, exact_out = case.run("ref"), exact.run("ref")
    assert out.dtype == dtype and torch.equal(out, exact_out.to(dtype))
    grads = torch.autograd.grad(out.sum(), list(leaves.values()))
    exact_grads = torch.autograd.grad(exact_out.sum(), exact_leaves)
    for name, grad, exact_grad in zip(leaves, grads, exact_grads, strict=True):
        assert torch.equal(grad, exact_grad.to(dtype)), name


def test_any_strides():
    case = make_case(3, PARTS)
    plain = case.run("ref")
    views = {name: x.mT.contiguous().mT if x.dim() > 1 else x for name, x in case.leaves().items()}
    assert torch.equal(case.with_leaves(views).run("ref"), plain)


def test_gradients_of_some_inputs():
    case = make_case(4, ("key", "bias"))
    case.terms.bias.rows.requires_grad_()
    (alone,) = torch.autograd.grad(case.run("ref").square().sum(), case.terms.bias.rows)
    for x in case.leaves().values():
        x.requires_grad_()
    (among_all,) = torch.autograd.grad(case.run("ref").square().sum(), case.terms.bias.rows)
    assert torch.equal(alone, among_all) and alone.any()
