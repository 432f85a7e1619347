"""roformer::dropout against the Philox generator in NumPy (the rule is in core/include/rf/dropout.h)."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import tolerances
from roformer_cpp import attention  # noqa: F401 - registers the operators

dropout = torch.ops.roformer.dropout
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def philox(seed, stream, blocks):
    """Philox4x32-10 (Salmon et al. 2011) of counters (j low, j high, stream low, stream high): uint32 [blocks, 4]."""
    low = np.uint64(0xFFFFFFFF)
    j = np.arange(blocks, dtype=np.uint64)
    seed, stream = np.uint64(seed % 2**64), np.uint64(stream % 2**64)
    c = [j & low, j >> np.uint64(32), np.full_like(j, stream & low), np.full_like(j, stream >> np.uint64(32))]
    k = [seed & low, seed >> np.uint64(32)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, -1).astype(np.uint32)


def kept(count, p, seed, stream):
    words = philox(seed, stream, -(-count // 8))
    return np.stack([words & 0xFFFF, words >> 16], -1).reshape(-1)[:count] >= round(65536 * p)


def test_philox_known_answer():
    # Random123's known-answer vectors of philox4x32-10: counter 0 under key 0.
    assert [hex(w) for w in philox(0, 0, 1)[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("seed", "stream"), [(0, 0), (1, 2), (-1, 2**40 + 3), (2**62, -5)])
@pytest.mark.parametrize("count", [1, 7, 8, 1001])
def test_the_mask_is_the_generators(count, seed, stream, dtype):
    x = (torch.randn(count, generator=torch.Generator().manual_seed(0)) + 3).to(dtype)
    y = dropout(x, 0.3, seed, stream)
    keep = torch.from_numpy(kept(count, 0.3, seed, stream))
    p = round(65536 * 0.3) / 65536
    expected = torch.where(keep, x.double() / (1 - p), 0.0)
    assert torch.equal(y == 0, ~keep)
    rtol = tolerances.DROPOUT_EPS_FACTOR * torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), expected, rtol=rtol, atol=0.0)


def test_other_strides_p_zero_and_no_elements():
    x = torch.randn(6, 5)
    assert torch.equal(dropout(x.T, 0.5, 1, 1), dropout(x.T.contiguous(), 0.5, 1, 1))
    y = dropout(x, 0.0, 1, 1)
    assert torch.equal(y, x) and y.data_ptr() != x.data_ptr()
    assert dropout(torch.empty(0, 3), 0.5, 1, 1).shape == (0, 3)


def test_derivatives():
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: dropout(x, 0.4, 9, 1).exp(), x)
    assert gradgradcheck(lambda x: dropout(x, 0.4, 9, 1).exp(), x)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_operator_contract(dtype, requires_grad):
    torch.library.opcheck(dropout.default, (torch.randn(3, 5).to(dtype).requires_grad_(requires_grad), 0.3, 1, 2))


def test_compiled_equals_eager_for_every_stream():
    compilations = []

    def backend(graph, inputs):
        compilations.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def function(x, stream):
        return dropout(x.sin(), 0.5, 1, stream).cos()

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for stream in range(2, 8):
        x = torch.randn(3, 5, requires_grad=True)
        eager, other = function(x, stream), compiled(x, stream)
        assert torch.equal(eager, other)
        assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (eager, other)))
    assert len(compilations) <= 2, "one for the first stream, one for all others"


def test_errors():
    for p, message in ((1.0, r"in \[0, 1 - 2\^-17\), got 1$"), (-0.1, ".* got -0.1$"), (float("nan"), ".* got nan$")):
        with pytest.raises(ValueError, match=rf"\[dropout\] p must be {message}"):
            dropout(torch.ones(3), p, 1, 1)
    with pytest.raises(ValueError, match=r"\[dropout\] x must be float32, .* got Long$"):
        dropout(torch.ones(3).long(), 0.1, 1, 1)
