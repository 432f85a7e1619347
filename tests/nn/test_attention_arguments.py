"""The order of heads and tokens, the scale, and whose positions attention takes: arguments of attention and
linear_attention in Python, compared with torch's own formula and the float64 loops.
"""

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import tolerances as tol
from attention_reference import reference
from attention_terms import all_terms, data
from roformer_cpp import LinearAttention, Terms, attention, encoding, linear_attention

B, T, S, H = 2, 5, 7, 4
KERNELS = ["fused", "explicit", "ref"]


def heads_first(*tensors):
    """Copies [B, H, T, D] of tensors [B, T, H, D]."""
    return [x.transpose(1, 2).contiguous() for x in tensors]


def drawn(dtype=torch.float64, key_heads=2):
    torch.manual_seed(0)
    return data(B, T, S, H, key_heads, dtype)


@pytest.mark.parametrize("scale", [None, 0.2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_heads_first_is_torchs_order(kernel, scale):
    """R-ATT-04. As many tokens as heads would hide an exchange from the shapes: here the two sides have 4 of both."""
    torch.manual_seed(0)
    exact = [torch.randn(B, 4, 4, 6, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    given = torch.randn(B, 4, 4, 6, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(*exact, is_causal=True, scale=scale)
    truth = [expected, *torch.autograd.grad(expected, exact, given)]
    dtype = torch.float32 if kernel == "fused" else torch.float64
    leaves = [x.detach().to(dtype).requires_grad_() for x in exact]
    out = attention(*leaves, is_causal=True, kernel=kernel, heads_first=True, scale=scale)
    ours = [out, *torch.autograd.grad(out, leaves, given.to(dtype))]
    for got, want in zip(ours, truth, strict=True):
        torch.testing.assert_close(got.double(), want, atol=tol.FUSED_F32, rtol=0)


@pytest.mark.parametrize("kernel", ["explicit", "ref"])
def test_terms_and_masks_are_the_same_with_heads_first(kernel):
    q, k, v = drawn()
    terms = all_terms(B, T, S, H)
    mask = torch.rand(B, H, T, S, generator=torch.Generator().manual_seed(1)) < 0.7
    places = {"positions": torch.arange(2, 2 + T), "key_positions": torch.arange(S)}
    expected = reference(q, k, v, terms, *places.values(), mask.numpy())
    out = attention(*heads_first(q, k, v), terms, mask=mask, kernel=kernel, heads_first=True, **places)
    assert out.shape == (B, H, T, q.shape[3])
    torch.testing.assert_close(out.transpose(1, 2), torch.as_tensor(expected), atol=tol.T1_ATOL, rtol=tol.T1_RTOL)


@pytest.mark.parametrize("feature_map", ["elu", "favor"])
def test_linear_attention_heads_first(feature_map):
    q, k, v = drawn()
    plain = linear_attention(q, k, v, feature_map)
    turned = linear_attention(*heads_first(q, k, v), feature_map, heads_first=True)
    assert turned.shape == (B, H, T, q.shape[3])
    torch.testing.assert_close(turned.transpose(1, 2), plain, atol=tol.T1_ATOL, rtol=tol.T1_RTOL)
    layer = LinearAttention(q.shape[3], feature_map=feature_map).eval()
    out = layer(*heads_first(q, k, v), heads_first=True)
    torch.testing.assert_close(out.transpose(1, 2), layer(q, k, v), atol=tol.T1_ATOL, rtol=tol.T1_RTOL)


def test_linear_attention_scale():
    """relu(w . sqrt(s) x) + eps of Choromanski et al., for all pairs."""
    q, k, v = drawn(key_heads=H)
    projection = torch.randn(8, q.shape[3], dtype=torch.float64)

    def features(x):
        return (x * 0.3**0.5 @ projection.T).relu() + 1e-3

    weights = torch.einsum("bthf,bshf->bhts", features(q), features(k))
    expected = torch.einsum("bhts,bshd->bthd", weights / weights.sum(-1, keepdim=True), v)
    out = linear_attention(q, k, v, "relu", projection=projection, scale=0.3)
    torch.testing.assert_close(out, expected, atol=tol.LINEAR_F64, rtol=0)
    layer, options = LinearAttention(q.shape[3], feature_map="relu").eval(), {"scale": 0.3, "is_causal": True}
    rows = layer.projection.double()
    assert torch.equal(layer(q, k, v, **options), linear_attention(q, k, v, "relu", projection=rows, **options))


@pytest.mark.parametrize(("run", "message"), [
    (lambda *x: attention(*x, Terms(scale=1.0), scale=0.5), "[attention] scale must be given once, got 0.5 and"),
    (lambda *x: attention(*x, scale=float("nan")), "[attention] scale must be finite, got nan"),
    (lambda *x: linear_attention(*x, scale=0.5), "got 0.5 with elu"),
    (lambda *x: linear_attention(*x, "relu", scale=-0.5), "scale must be a number > 0 and go with feature_map"),
    (lambda *x: linear_attention(*x, "relu", Terms(scale=1.0), scale=0.5),
     "[linear_attention] scale must be given once, got 0.5 and the terms' 1.0"),
    (lambda q, k, v: attention(q[0], k, v, heads_first=True),
     "[attention] q must be [batch, heads, tokens, head_dim] (heads_first), got [5, 4, 6]"),
    (lambda q, k, v: linear_attention(q, k, v[0], heads_first=True),
     "[linear_attention] v must be [batch, heads, tokens, head_dim] (heads_first), got [7, 2, 6]"),
])  # fmt: skip
def test_what_is_refused(run, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(*drawn())


# ---- positions of terms ----

ENCODINGS = {"t5": {}, "alibi": {}, "rope": {}, "tupe-a": {"max_position_embeddings": 64}, "shaw": {}, "none": {}}


def encoded(name, positions, key_positions=None):
    heads = {"num_attention_heads": H, "head_dim": 6, "hidden_size": 6}
    torch.manual_seed(2)
    made = encoding(name, **heads, **ENCODINGS[name]).double()
    projections = tuple(torch.randn(H * 6, 6, dtype=torch.float64) for _ in range(3))
    return made.terms(positions, key_positions, projections=projections, dtype=torch.float64)


@pytest.mark.parametrize("kernel", ["explicit", "ref"])
@pytest.mark.parametrize("name", ENCODINGS)
def test_attention_takes_the_positions_of_the_terms(name, kernel):
    q, k, v = drawn()
    queries, keys = torch.tensor([9, 3, 4, 30, 2]), torch.arange(S) * 3
    terms = encoded(name, queries, keys)
    assert torch.equal(terms.positions, queries[None]) and torch.equal(terms.key_positions, keys[None])
    out = attention(q, k, v, terms, kernel=kernel)
    free = replace(terms, positions=None, key_positions=None)
    expected = attention(q, k, v, free, positions=queries, key_positions=keys, kernel=kernel)
    assert torch.equal(out, expected)
    same = attention(q, k, v, terms, positions=queries.int(), key_positions=keys.expand(B, S), kernel=kernel)
    assert torch.equal(same, expected)


@pytest.mark.parametrize("kernel", ["auto", "explicit"])
@pytest.mark.parametrize("name", ENCODINGS)
def test_terms_made_for_other_positions_are_refused(name, kernel):
    q, k, v = drawn()
    queries, keys = torch.arange(2, 2 + T), torch.arange(S)
    terms, rule = encoded(name, queries, keys), "terms must be made for the {} positions of the call, "
    other = keys.expand(B, S).clone()
    other[1, 3] = 40
    for places, side, message in (
        ((queries + 1, keys), "query", "3 at row 0, token 0, got terms for 2"),
        ((queries, other), "key", "40 at row 1, token 3, got terms for 3"),
    ):
        with pytest.raises(ValueError, match=re.escape(rule.format(side) + message)):
            attention(q, k, v, terms, positions=places[0], key_positions=places[1], kernel=kernel)
    few = {"positions": queries[1:], "key_positions": keys}
    with pytest.raises(ValueError, match=re.escape(rule.format("query") + "[1, 4], got terms for [1, 5]")):
        attention(q[:, 1:], k, v, terms, kernel=kernel, **few)


@pytest.mark.parametrize("kernel", ["fused", "explicit"])
def test_packed_sequences_take_the_positions_of_the_terms(kernel):
    torch.manual_seed(0)
    q, k, v = data(1, 6, 6, H, H, torch.float32)
    positions, ends = torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([0, 4, 6])
    t5 = encoding("t5", num_attention_heads=H)
    with torch.no_grad():
        t5.get_parameter("relative_attention_bias").normal_()
    terms = t5.terms(positions)
    out = attention(q, k, v, terms, cu_seqlens=ends, kernel=kernel)
    parts = [(*(x[:, a:b] for x in (q, k, v)), t5.terms(torch.arange(b - a))) for a, b in ((0, 4), (4, 6))]
    expected = torch.cat([attention(*part, kernel=kernel) for part in parts], 1)
    torch.testing.assert_close(out, expected, atol=tol.T3_ATOL, rtol=tol.T3_RTOL)
    with pytest.raises(ValueError, match="terms must be made for the query positions of the call"):
        attention(q, k, v, terms, cu_seqlens=ends, positions=torch.arange(6), kernel=kernel)
