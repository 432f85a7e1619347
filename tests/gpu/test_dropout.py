"""The kernel of roformer::dropout for GPUs, in Triton's interpreter: the bits of the CPU's operator, whose generator
tests/ops/test_dropout.py checks."""

import pytest
import torch

import tolerances
from roformer_cpp import rope as _operators  # noqa: F401 - loads the operators
from roformer_cpp.gpu.dropout import dropout

on_cpu = torch.ops.roformer.dropout


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("count", "p", "seed", "stream"),
    [(1, 0.3, 0, 0), (7, 0.999, 1, 2), (8, 0.5, -1, 2**40 + 3), (9001, 0.1, 2**62, -5), (8192, 0.0, 2**63 - 1, 16)],
)
def test_values(count, p, seed, stream, dtype):
    x = (torch.randn(count, generator=torch.Generator().manual_seed(0)) + 3).to(dtype)
    y, expected = dropout(x, p, seed, stream), on_cpu(x, p, seed, stream)
    assert torch.equal(y == 0, expected == 0)
    # The interpreter rounds to bfloat16 toward zero.
    rtol = tolerances.DROPOUT_EPS_FACTOR * torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0.0
    torch.testing.assert_close(y, expected, rtol=rtol, atol=0.0)


@pytest.mark.usefixtures("implementation")
def test_thresholds():
    """p in the middle between two thresholds, with numbers of both in the mask; the largest p that is allowed."""
    x = torch.ones(2**16)
    for p in (4.5 / 65536, 1 - 2**-16):
        assert torch.equal(dropout(x, p, 11, 12), on_cpu(x, p, 11, 12))
    x = torch.randn(6, 5)  # strides do not change the mask
    assert torch.equal(dropout(x.T, 0.5, 1, 1), on_cpu(x.T, 0.5, 1, 1))


def test_empty_and_bad_arguments():
    assert dropout(torch.empty(0, 3), 0.5, 1, 1).shape == (0, 3)
    with pytest.raises(ValueError, match=r"\[dropout\] p must be in"):
        dropout(torch.zeros(3), 1.0, 1, 1)
