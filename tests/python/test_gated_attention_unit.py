"""The gated attention unit against its formula in float64, written here in torch's operators: forward, gradients,
masks, packed sequences, the rules of GAU-alpha, and bad input."""

import math

import pytest
import torch

import roformer_cpp
import tolerances as tol

B, T, C, E, S = 2, 11, 24, 40, 16
LENGTH = 8  # of log n


def rotated(x, theta=10000.0):
    """RoPE of [B, T, s] at the positions 0, 1, .., pairs (2i, 2i+1)."""
    freqs = theta ** (-torch.arange(0, x.size(-1), 2, dtype=torch.float64) / x.size(-1))
    angles = torch.arange(x.size(-2), dtype=torch.float64)[:, None] * freqs
    even, odd = x[..., ::2], x[..., 1::2]
    turned = (even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin())
    return torch.stack(turned, -1).flatten(-2)


def formula(unit, x, *, rope=True, log_n=False, allowed=None):
    """The result for x of float64; allowed: [T, T], true where a query may attend to a key."""
    weights = {name: parameter.double() for name, parameter in unit.named_parameters()}
    zero = torch.zeros(1, dtype=torch.float64)
    inner = torch.nn.functional.silu(x @ weights["input.weight"].t() + weights.get("input.bias", zero))
    inner_size = unit.sizes[0]
    gate, value, z = inner[..., :inner_size], inner[..., inner_size : 2 * inner_size], inner[..., 2 * inner_size :]
    q, k = (z * weights["scale"][i] + (weights["offset"][i] if "offset" in weights else 0) for i in (0, 1))
    if rope:
        q, k = rotated(q), rotated(k)
    scores = q @ k.transpose(1, 2) / math.sqrt(z.size(-1))
    if log_n:
        scores = scores * math.log(x.size(1)) / math.log(LENGTH)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    mixed = torch.softmax(scores, -1) @ value
    return (gate * mixed) @ weights["output.weight"].t() + weights.get("output.bias", zero)


def made(encoding="rope", dtype=torch.float64, **arguments):
    """A unit whose parameters are moved by N(0, 0.3)."""
    torch.manual_seed(4)
    options = {"log_n": "length", "max_position_embeddings": LENGTH} if encoding == "log-n" else {}
    terms = None
    if encoding:
        terms = roformer_cpp.encoding("rope", num_attention_heads=1, head_dim=S, **options)
    unit = roformer_cpp.GatedAttentionUnit(C, terms, intermediate_size=E, key_size=S, **arguments).to(dtype)
    with torch.no_grad():
        for parameter in unit.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return unit, torch.randn(B, T, C, dtype=dtype)


@pytest.mark.parametrize("encoding", (None, "rope", "log-n"))
@pytest.mark.parametrize("plain", (False, True))  # plain: without biases and offsets, as in GAU-alpha
def test_the_formula(encoding, plain):
    unit, x = made(encoding, bias=not plain, offset=not plain)
    assert (unit.offset is None) == plain and len(list(unit.parameters())) == (3 if plain else 6)
    expected = formula(unit, x, rope=encoding is not None, log_n=encoding == "log-n")
    assert (unit(x) - expected).abs().max() <= tol.MODEL_F64 * expected.abs().max()
    if encoding:
        other = formula(unit, x, rope=False, log_n=encoding == "log-n")
        assert (unit(x) - other).abs().max() > 0.01 * expected.abs().max()


def test_fused_float32():
    """The kernel in tiles has values wider than its keys."""
    unit, x = made(dtype=torch.float32)
    expected = formula(unit, x.double())
    out = unit(x, kernel="fused")
    assert (out - expected).abs().max() <= tol.T4_MAX * expected.abs().max()
    assert torch.equal(unit(x), out)
    unit, x = made(dtype=torch.float32, dropout=0.5)
    assert not torch.equal(unit(x), unit(x)) and torch.equal(unit.eval()(x), unit(x))


@pytest.mark.parametrize("is_causal", (False, True))
def test_gradients(is_causal):
    """Of the input and every parameter, against torch's own of the formula."""
    unit, x = made(is_causal=is_causal)
    allowed = torch.ones(T, T, dtype=torch.bool).tril() if is_causal else None
    direction = torch.randn(B, T, C, dtype=torch.float64)
    x.requires_grad_()
    inputs = [x, *unit.parameters()]
    ours = torch.autograd.grad((unit(x) * direction).sum(), inputs)
    theirs = torch.autograd.grad((formula(unit, x, allowed=allowed) * direction).sum(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        assert b.abs().max() > 1e-3
        assert (a - b).abs().max() <= tol.GRADIENT_F64 * b.abs().max()


def test_masks_and_packed_sequences():
    unit, x = made()
    mask = torch.ones(B, 1, 1, T, dtype=torch.bool)
    mask[..., 7:] = False
    expected = formula(unit, x, allowed=mask[0, 0, 0].expand(T, T))
    assert (unit(x, mask=mask) - expected).abs().max() <= tol.MODEL_F64 * expected.abs().max()
    packed = unit(x[:1], cu_seqlens=torch.tensor([0, 4, T]))
    for begin, end in ((0, 4), (4, T)):
        alone = formula(unit, x[:1, begin:end])
        assert (packed[:, begin:end] - alone).abs().max() <= tol.MODEL_F64 * alone.abs().max()
