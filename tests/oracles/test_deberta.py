"""DeBERTa's attention and its log buckets against transformers (R-REL-06)."""

import numpy as np
import pytest
import torch
from transformers.models.deberta_v2.configuration_deberta_v2 import DebertaV2Config
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

import roformer_cpp
from tolerances import FLOAT32_SCALE, T3_ATOL, T3_RTOL

TOKENS, HEADS, HEAD_DIM, WIDTH = 40, 2, 6, 12


def compare(dtype: torch.dtype, **config) -> tuple[np.ndarray, np.ndarray]:
    """Attention of both on the same weights, [B,T,H*D]."""
    torch.manual_seed(0)
    settings = {"pos_att_type": ["c2p", "p2c"], "max_relative_positions": 9, "position_buckets": -1, **config}
    settings |= {"hidden_size": WIDTH, "num_attention_heads": HEADS}
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    theirs = DisentangledSelfAttention(DebertaV2Config(relative_attention=True, **settings, **without))
    encoding = roformer_cpp.encoding("deberta", head_dim=HEAD_DIM, **settings)
    theirs, encoding = theirs.to(dtype).eval(), encoding.to(dtype)
    with torch.no_grad():
        for parameter in (*theirs.parameters(), encoding.rel_embeddings):
            parameter.normal_(0, 0.5)
        for name, parameter in encoding.named_parameters():
            if name.startswith("layer.0."):
                module, kind = name.removeprefix("layer.0.").rsplit("_", 1)
                parameter.copy_(theirs.get_parameter(f"{module}.{kind}"))
    x = torch.randn(2, TOKENS, WIDTH, dtype=dtype)
    expected = theirs(x, torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool), rel_embeddings=encoding.rel_embeddings)[0]

    projections = [getattr(theirs, f"{name}_proj") for name in ("query", "key", "value")]
    weights = (*(p.weight for p in projections), *(p.bias for p in projections))
    terms = encoding.terms(torch.arange(TOKENS), projections=weights, dtype=dtype)
    q, k, v = (p(x).unflatten(-1, (HEADS, HEAD_DIM)) for p in projections)
    return roformer_cpp.attention(q, k, v, terms).flatten(2).detach().numpy(), expected.detach().numpy()


CONFIGS = [
    {},
    {"share_att_key": True},
    {"pos_att_type": ["c2p"]},
    {"pos_att_type": ["p2c"]},
    {"pos_att_type": ["c2p"], "share_att_key": True},
    {"position_buckets": 8, "max_relative_positions": 30},
    {"position_buckets": 8, "max_relative_positions": 30, "share_att_key": True},
    {"position_buckets": 6, "max_relative_positions": 12, "pos_att_type": ["p2c"]},
]


@pytest.mark.parametrize("config", CONFIGS)
def test_attention(config):
    """By the code, not by the paper's delta(j, i)."""
    ours, expected = compare(torch.float32, **config)
    np.testing.assert_allclose(ours, expected, T3_RTOL, T3_ATOL)
    ours, expected = compare(torch.float64, **config)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=FLOAT32_SCALE * np.abs(expected).max())
