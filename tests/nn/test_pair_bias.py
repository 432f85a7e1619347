"""A dense number for each query and key: views of it, infinities, its dtype, and what it costs in memory. Its values
and gradients are those of attention's paths (tests/ops/test_attention_ref.py, tests/core/attention_fused_test.cpp)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tolerances as tol
from roformer_cpp import Terms, attention

B, H, D = 3, 4, 8
BENCH = Path(__file__).resolve().parents[2] / "bench"


def drawn(batch, heads, queries, keys):
    torch.manual_seed(0)
    vectors = [torch.randn(B, tokens, H, D, dtype=torch.float64) for tokens in (queries, keys, keys)]
    return *vectors, torch.randn(batch, heads, queries, keys, dtype=torch.float64)


KERNELS = [("explicit", torch.float64), ("ref", torch.float64), ("fused", torch.float32)]


@pytest.mark.parametrize(("kernel", "dtype"), KERNELS)
def test_views_are_read_in_place(kernel, dtype):
    """Slices of a larger array, an expanded one, and one whose last dimension is not contiguous."""
    q, k, v, _ = (x.to(dtype) for x in drawn(1, 1, 6, 7))
    large = torch.randn(B, H, 9, 12, dtype=dtype)
    for view in (large[:, :, 2:8, 3:10], large[:1, :1, :6, :7].expand(B, H, 6, 7), large.mT[:, :, :6, :7]):
        leaves = [view.clone().requires_grad_(), view.detach().requires_grad_()]
        outs = [attention(q, k, v, Terms(pair_bias=x), kernel=kernel) for x in leaves]
        assert torch.equal(*outs)
        grads = [torch.autograd.grad(out.square().sum(), x)[0] for out, x in zip(outs, leaves, strict=True)]
        assert torch.equal(*grads) and grads[0].any()


def test_minus_infinity_leaves_a_pair_out():
    q, k, v, pairs = (x.float() for x in drawn(1, H, 50, 70))
    closed = torch.rand(1, H, 50, 70) < 0.5
    closed[:, :, 3] = True
    given = pairs.masked_fill(closed, -torch.inf).requires_grad_()
    out = attention(q, k, v, Terms(pair_bias=given), kernel="fused")
    masked = attention(q, k, v, Terms(pair_bias=pairs), mask=~closed, kernel="fused")
    torch.testing.assert_close(out, masked, atol=tol.T2_ATOL, rtol=0)
    assert out[:, 3].eq(0).all()
    (grad,) = torch.autograd.grad(out.square().sum(), given)
    assert grad.isfinite().all() and grad[closed].eq(0).all() and grad[~closed].ne(0).any()


def test_gradient_keeps_its_dtype():
    q, k, v, pairs = (x.bfloat16() for x in drawn(1, H, 6, 7))
    pairs.requires_grad_()
    out = attention(q, k, v, Terms(pair_bias=pairs), kernel="fused")
    assert out.dtype == torch.bfloat16 and torch.autograd.grad(out.sum(), pairs)[0].dtype == torch.bfloat16


MEMORY = """
import sys
sys.path.insert(0, sys.argv[1])
from harness import added_kib
import torch
from roformer_cpp import Terms, attention

def call(tokens, pairs):
    leaves = [torch.randn(2, tokens, 2, 16).requires_grad_() for _ in range(3)] + [pairs]
    out = attention(*leaves[:3], Terms(pair_bias=pairs), kernel="fused")
    torch.autograd.grad(out.sum(), leaves)

call(64, torch.randn(1, 1, 64, 64, requires_grad=True))
pairs = torch.randn(1, 1, 3000, 3000, requires_grad=True)
print(added_kib(lambda: call(3000, pairs)) * 1024 / pairs.nbytes)
"""


def test_no_other_memory_of_that_size():
    """Forward and backward add one array of the shape, the gradient: no copy of it, no scores, no sums of heads."""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "MALLOC_MMAP_THRESHOLD_": str(2**17)}
    command = [sys.executable, "-c", MEMORY, str(BENCH)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert 1 <= json.loads(done.stdout) < tol.PAIR_BIAS_ARRAYS
