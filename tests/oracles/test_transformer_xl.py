"""Transformer-XL's attention against transformers' XLNet (R-REL-03)."""

import pytest
import torch
from transformers.models.xlnet.configuration_xlnet import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetModel

import roformer_cpp
from tolerances import FLOAT32_FREQUENCIES

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
