"""The explicit path of attention (nn/src/attention_explicit.cpp) and the float64 loops (core/ref/attention*.cpp) agree:
values and every gradient, over random combinations of terms. Neither is written from the other.
"""

from dataclasses import replace

import pytest
import torch

import tolerances as tol
from attention_cases import PARTS, make_case
from roformer_cpp import DistanceTable, Terms, attention


def values_and_gradients(case, kernel):
    leaves = {name: x.clone().requires_grad_() for name, x in case.leaves().items()}
    out = case.with_leaves(leaves).run(kernel)
    weights = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    # Not asked for by the result: a position bias without a key table.
    grads = torch.autograd.grad((out * weights).sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
    return {"out": out.detach()} | dict(zip(leaves, grads, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_explicit_equals_loops(seed):
    case = make_case(seed)
    explicit, loops = (values_and_gradients(case, kernel) for kernel in ("explicit", "ref"))
    for name, expected in loops.items():
        torch.testing.assert_close(
            explicit[name], expected, atol=tol.PATHS_F64, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_auto_is_explicit_in_float64():
    for seed in range(5):
        case = make_case(seed, ("bias",))
        assert torch.equal(case.run("auto"), case.run("explicit"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_auto_is_fused_elsewhere(dtype):
    for seed, part in enumerate(PARTS):
        case = make_case(seed, ("query", "key", part)).to(dtype)
        assert torch.equal(case.run("auto"), case.run("fused"))


def test_rotations_that_are_trained():
    """The fused kernel has their gradients, beside tables of unrotated vectors too."""
    plain, beside = make_case(0, ("query", "key", "value", "bias")), make_case(0, ("query", "key", "key_table"))
    for case in (plain, beside):
        auto, forced = (values_and_gradients(case.to(torch.float32), kernel) for kernel in ("auto", "fused"))
        exact = values_and_gradients(case, "ref")
        for name, expected in exact.items():
            assert torch.equal(auto[name], forced[name])
            torch.testing.assert_close(auto[name].double(), expected, atol=tol.FUSED_F32, rtol=tol.FUSED_F32)


def test_autocast_lowers_what_enters_the_fused_kernel():
    case = make_case(1, ("query", "bias")).to(torch.float32)
    lowered = replace(case, q=case.q.bfloat16(), k=case.k.bfloat16(), v=case.v.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        out = case.run("fused")
    assert out.dtype == torch.float32
    assert torch.equal(out, lowered.run("fused").float())


def test_a_gate_that_the_queries_are_computed_from():
    rows, k = (
        torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
        for shape in ((1, 4, 4), (1, 4, 1, 4))
    )
    terms = Terms(gate=DistanceTable(rows, -2, 1))

    def gradients(kernel):
        out = attention(rows.view(1, 4, 1, 4).sin(), k, k, terms, kernel=kernel)
        return torch.autograd.grad(out.square().sum(), (rows, k))

    for explicit, loops in zip(gradients("explicit"), gradients("ref"), strict=True):
        torch.testing.assert_close(explicit, loops, atol=tol.PATHS_F64, rtol=0)
