"""The explicit path of attention (nn/src/attention_explicit.cpp) and the float64 loops (core/ref/attention*.cpp) agree:
values and every gradient, over random combinations of terms. Neither is written from the other.
"""

import pytest
import torch

import tolerances as tol
from attention_cases import make_case
from roformer_cpp import DistanceTable, Terms, attention


def values_and_gradients(case, kernel):
    leaves = {name: x.clone().requires_grad_() for name, x in case.leaves().items()}
    out = case.with_leaves(leaves).run(kernel)
    weights = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    # Not asked for by the result: a position bias without a key table.
    grads = torch.autograd.grad((out * weights).sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
    return {"out": out.detach()} | dict(zip(leaves, grads, strict=True))


@pytest.mark.parametrize("seed", range(120))
def test_explicit_equals_loops(seed):
    case = make_case(seed)
    explicit, loops = (values_and_gradients(case, kernel) for kernel in ("explicit", "ref"))
    for name, expected in loops.items():
        torch.testing.assert_close(
            explicit[name], expected, atol=tol.PATHS_F64, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("seed", range(20))
def test_auto_equals_loops_where_there_are_only_rotations(seed):
    case = make_case(seed, ("query", "key", "value"))
    automatic, loops = (values_and_gradients(case, kernel) for kernel in ("auto", "ref"))
    for name, expected in loops.items():
        torch.testing.assert_close(
            automatic[name], expected, atol=tol.PATHS_F64, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


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
