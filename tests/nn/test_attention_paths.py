"""The explicit path of attention (nn/src/attention_explicit.cpp) and the float64 loops (core/ref/attention*.cpp) agree:
values and every gradient, over random combinations of terms. Neither is written from the other.
"""

import pytest
import torch

import tolerances as tol
from attention_cases import make_case


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
