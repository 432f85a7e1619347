"""The float64 reference of attention over terms (core/ref/attention*.cpp) behind kernel="ref": values against the loops
of attention_reference.py (R-ATT-02), gradients against finite differences (R-ATT-05).
"""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import tolerances as tol
from attention_cases import PARTS, make_case

SEEDS = range(20)
# Too many inputs for every pairing of them: two seeds for each term, and cases with a choice of terms.
SINGLE = [(part,) for part in PARTS]


def with_companions(parts):
    """A position bias shows only where there is a key table."""
    return (*parts, "key_table") if parts == ("position_bias",) else parts


def assert_equals_loops(case):
    np.testing.assert_allclose(case.run("ref"), case.expected(), atol=tol.T1_ATOL, rtol=tol.T1_RTOL)


@pytest.mark.parametrize("seed", SEEDS)
def test_values_of_any_terms(seed):
    assert_equals_loops(make_case(seed))


@pytest.mark.parametrize("parts", [(), *SINGLE, PARTS], ids=lambda parts: "+".join(parts) or "none")
def test_values_of_each_term(parts):
    for seed in range(2):
        assert_equals_loops(make_case(seed, with_companions(parts)))


def check_gradients(case):
    names = list(case.leaves())

    def function(*leaves):
        return case.with_leaves(dict(zip(names, leaves, strict=True))).run("ref")

    assert gradcheck(function, [x.requires_grad_() for x in case.leaves().values()])


@pytest.mark.parametrize("parts", [(), *SINGLE], ids=lambda parts: "+".join(parts) or "none")
def test_gradients_of_each_term(parts):
    check_gradients(make_case(0, with_companions(parts)))


@pytest.mark.parametrize("seed", range(5))
def test_gradients_of_any_terms(seed):
    check_gradients(make_case(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_computed_in_float64_and_rounded_once(dtype):
    case = make_case(3, PARTS).to(dtype)
    exact = case.to(torch.float64)
    leaves = {name: x.requires_grad_() for name, x in case.leaves().items()}
    exact_leaves = [x.requires_grad_() for x in exact.leaves().values()]
    out, exact_out = case.run("ref"), exact.run("ref")
    assert out.dtype == dtype
    assert torch.equal(out, exact_out.to(dtype))
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
    assert torch.equal(alone, among_all)
    assert alone.any()
