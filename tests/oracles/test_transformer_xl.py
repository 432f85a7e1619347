"""Transformer-XL's attention against transformers' XLNet (R-REL-03)."""

import numpy as np
import pytest
import torch
from transformers.models.xlnet.configuration_xlnet import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

import roformer_cpp
from tolerances import FLOAT32_FREQUENCIES, GOLDEN_RTOL

TOKENS, HEADS, HEAD_DIM, WIDTH = 13, 2, 6, 12


@pytest.mark.parametrize("clamp", [-1, 4])
def test_relative_attention(clamp):
    torch.manual_seed(0)
    config = XLNetConfig(
        vocab_size=5, d_model=WIDTH, n_head=HEADS, n_layer=1, d_inner=8, attn_type="bi", dropout=0.0, clamp_len=clamp
    )
    model = XLNetModel(config)
    theirs = model.layer[0].rel_attn.double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.5)
    x = torch.randn(TOKENS, 2, WIDTH, dtype=torch.float64)  # tokens first
    distances = model.relative_positional_encoding(TOKENS, TOKENS, bsz=2).double()
    q, k, v = (torch.einsum("ibh,hnd->ibnd", x, getattr(theirs, name)) for name in "qkv")
    r = torch.einsum("ibh,hnd->ibnd", distances, theirs.r)
    expected = theirs.rel_attn_core(q, k, v, r).detach().transpose(0, 1)

    shape = {"num_attention_heads": HEADS, "head_dim": HEAD_DIM, "hidden_size": WIDTH}
    encoding = roformer_cpp.encoding("transformer-xl", clamp_len=clamp, **shape).double()
    with torch.no_grad():
        encoding.get_parameter("layer.0.r_weight").copy_(theirs.r.flatten(1).T)
        encoding.get_parameter("layer.0.r_w_bias").copy_(theirs.r_w_bias)
        encoding.get_parameter("layer.0.r_r_bias").copy_(theirs.r_r_bias)
    terms = encoding.terms(torch.arange(TOKENS), dtype=torch.float64)
    ours = roformer_cpp.attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), terms).detach()
    assert (ours - expected).abs().max() < FLOAT32_FREQUENCIES * expected.abs().max()


def test_relative_shift():
    """Their shift of products with keys by falling distance is our indexing; their queries are the last of the keys."""
    queries, keys = 3, 5
    distances = range(keys, -queries, -1)  # as XLNet lays them out
    products = torch.randn(1, 1, queries, len(distances), dtype=torch.float64)
    shifted = XLNetRelativeAttention.rel_shift_bnij(products, klen=keys)[0, 0]
    for i in range(queries):
        for j in range(keys):
            assert shifted[i, j] == products[0, 0, i, distances.index(i + keys - queries - j)]
    table = roformer_cpp.DistanceTable(torch.eye(len(distances), dtype=torch.float64).flip(0)[None], 1 - queries, keys)
    terms = roformer_cpp.Terms(key_table=table, scale=1.0)
    q = products[0].transpose(0, 1)[None]
    values = torch.eye(keys, dtype=torch.float64)[None, :, None, :]
    out = roformer_cpp.attention(
        q,
        torch.zeros(1, keys, 1, len(distances), dtype=torch.float64),
        values,
        terms,
        positions=torch.arange(keys - queries, keys),
        key_positions=torch.arange(keys),
    )
    np.testing.assert_allclose(out[0, :, 0].numpy(), shifted.softmax(-1).numpy(), GOLDEN_RTOL)
