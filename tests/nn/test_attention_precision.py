"""Attention in 16 and 32 bits: long sequences beside the plain formula, terms of another dtype, weights that are nearly
zero. Errors of each term are in tests/core/attention_fused_test.cpp, those of each encoding in test_encodings.py."""

import pytest
import torch

import tolerances as tol
from attention_terms import all_terms, data, positions_of
from roformer_cpp import attention

SHAPE = (1, 24, 24, 2, 1)


def largest_error(out, expected):
    return (out.double() - expected).abs().max().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_long_plain_sequence(dtype):
    """Beyond the length to which bfloat16 takes explicit products, with and without a mask."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1100, 1, 8).to(dtype) for _ in range(3))
    exact = attention(q.double(), k.double(), v.double(), is_causal=True, kernel="explicit")
    plain_scores = (q[:, :, 0] @ k[:, :, 0].mT) / 8**0.5
    plain = plain_scores.masked_fill(~torch.ones(1100, 1100, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    bound = tol.LOW_PRECISION_RATIO * largest_error((plain @ v[:, :, 0]).unsqueeze(2), exact)
    for options in ({"is_causal": True}, {"mask": torch.ones(1, 1, 1100, 1100, dtype=torch.bool).tril()}):
        for kernel in ("auto", "explicit"):
            assert largest_error(attention(q, k, v, kernel=kernel, **options), exact) <= bound


@pytest.mark.parametrize("terms_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_terms_may_be_of_another_dtype(dtype, terms_dtype):
    torch.manual_seed(0)
    tensors, terms = data(*SHAPE, dtype=dtype), all_terms(*SHAPE[:4], dtype=terms_dtype)
    places = dict(zip(("positions", "key_positions"), positions_of("steps", *SHAPE[:3]), strict=True))
    outs = [attention(*tensors, terms, **places, kernel=kernel) for kernel in ("explicit", "ref")]
    assert outs[0].dtype == outs[1].dtype == dtype
    bounds = {torch.float64: (tol.T1_ATOL, tol.T1_RTOL), torch.float32: (tol.T3_ATOL, tol.T3_RTOL)}
    atol, rtol = bounds.get(dtype, (tol.BF16_ATTENTION, tol.BF16_ATTENTION))
    torch.testing.assert_close(*outs, atol=atol, rtol=rtol)


def test_weights_below_normal_numbers_are_zero():
    """Products of subnormal numbers would be some 100 times slower."""
    numbers = [1.0, 0.0], [0.0, 0.0, -90.0, 0.0], [1.0, 1.0, 2e38, 1.0]
    out = attention(*(torch.tensor(x).reshape(1, -1, 1, 2) for x in numbers), scale=1.0)
    assert torch.equal(out, torch.ones_like(out))
