"""T5's buckets and attention against transformers (R-REL-04)."""

import numpy as np
import pytest
import torch
from transformers.models.t5.configuration_t5 import T5Config
from transformers.models.t5.modeling_t5 import T5Attention, T5EncoderModel

import roformer_cpp
from tolerances import SIGMAS, T3_ATOL, T3_RTOL


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    torch.manual_seed(0)
    config = T5Config(d_model=24, d_kv=8, num_heads=3, dropout_rate=0.0, is_decoder=causal)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.3)
    x = torch.randn(2, 150, 24)
    mask = torch.zeros(1, 1, 150, 150)
    if causal:
        mask = mask.masked_fill(torch.ones(150, 150).triu(1).bool(), torch.finfo(torch.float32).min)
    expected = theirs(x, mask=mask)[0].detach()

    q, k, v = (getattr(theirs, name)(x).unflatten(-1, (3, 8)) for name in "qkv")
    keys = {key: getattr(config, key) for key in ("relative_attention_num_buckets", "relative_attention_max_distance")}
    encoding = roformer_cpp.encoding("t5", num_attention_heads=3, head_dim=8, is_decoder=causal, **keys)
    with torch.no_grad():
        encoding.relative_attention_bias.copy_(theirs.relative_attention_bias.weight)
    terms = encoding.terms(torch.arange(150))
    ours = theirs.o(roformer_cpp.attention(q, k, v, terms, is_causal=causal).flatten(2)).detach()
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), T3_RTOL, T3_ATOL)


def test_projections_start_as_transformers_has_them():
    """Without 1/sqrt(D) in the scores: T5PreTrainedModel._init_weights, which is mesh_tensorflow's."""
    torch.manual_seed(0)
    config = T5Config(d_model=128, d_kv=32, num_heads=4, num_layers=1, num_decoder_layers=1, d_ff=64, vocab_size=30)
    theirs = T5EncoderModel(config).encoder.block[0].layer[0].SelfAttention
    sizes = dict(hidden_size=128, num_attention_heads=4, intermediate_size=64, num_hidden_layers=1, vocab_size=30)
    ours = dict(roformer_cpp.build_model({**sizes, "position_encoding": "t5"}).named_parameters())
    encoding = roformer_cpp.encoding("t5", num_attention_heads=4, head_dim=32, hidden_size=128)
    layer = roformer_cpp.Attention(128, 4, encoding)
    for name, weight in (("query", theirs.q.weight), ("key", theirs.k.weight)):
        for drawn in (ours[f"encoder.layer.0.attention.self.{name}.weight"], getattr(layer, name).weight):
            # Both are estimated from 128^2 draws.
            assert (drawn.std() / weight.std()).item() == pytest.approx(1, abs=SIGMAS / weight.numel() ** 0.5), name
