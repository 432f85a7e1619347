"""The operators that take the place of the kernels on GPUs without Triton, on CPU tensors, against the CPU's."""

import pytest
import torch

import tolerances as tol
from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu import fallback

OPS = torch.ops.roformer


@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize("direction", ["forward", "transpose"])
def test_rotate(layout, direction):
    x = torch.randn(2, 5, 3, 10)
    cos, sin = OPS.rope_table(torch.arange(5)[None], torch.rand(4, dtype=torch.float64), None, 1.5)
    ours = fallback.rotate(x, cos, sin, layout, direction=direction)
    theirs = OPS.rotate(x, cos, sin, layout, direction=direction)
    assert torch.allclose(ours, theirs, rtol=tol.GPU_FLOAT32, atol=tol.GPU_FLOAT32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_draws_the_same_numbers(dtype):
    x = torch.randn(7, 33, dtype=dtype)
    assert torch.equal(fallback.dropout(x, 0.3, 5, 9) != 0, OPS.dropout(x, 0.3, 5, 9) != 0)
    assert torch.allclose(fallback.dropout(x, 0.5, 5, 9), OPS.dropout(x, 0.5, 5, 9))


def test_rope_and_its_table_are_those_of_the_cpu():
    x, positions = torch.randn(1, 5, 2, 8), torch.arange(5)
    assert torch.equal(fallback.rope(x, positions, layout="pairs"), OPS.rope(x, positions, layout="pairs"))
    changed = x.clone()
    fallback.rope_(changed, positions, layout="pairs")
    assert torch.equal(changed, OPS.rope(x, positions, layout="pairs"))
    freqs = torch.rand(4, dtype=torch.float64)
    assert all(map(torch.equal, fallback.rope_table(positions, freqs), OPS.rope_table(positions, freqs)))
