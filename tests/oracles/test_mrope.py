"""The encoding `mrope` beside the rotary module of transformers' Qwen2-VL."""

import pytest
import torch
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding

import roformer_cpp

HEAD_DIM, TRAINED = 24, 64
PARAMETERS = [
    {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 5, 3]},
    {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4, "mrope_section": [2, 5, 5]},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4,
     "mrope_section": [4, 4, 4]},
]  # fmt: skip


def positions_BTA(batch=2, tokens=50, below=200):
    return torch.randint(0, below, (batch, tokens, 3), generator=torch.Generator().manual_seed(0))


def their_rows(parameters, axes_BTA):
    config = Qwen2VLTextConfig(hidden_size=HEAD_DIM, num_attention_heads=1, num_key_value_heads=1,
                               max_position_embeddings=TRAINED, rope_parameters=dict(parameters))  # fmt: skip
    return Qwen2VLRotaryEmbedding(config)(torch.zeros(1), axes_BTA.permute(2, 0, 1))


@pytest.mark.parametrize("parameters", PARAMETERS, ids=lambda parameters: parameters["rope_type"])
def test_float32_rows_bit_for_bit(parameters):
    axes = positions_BTA(batch=1)  # their length is that of the whole batch
    encoding = roformer_cpp.encoding("mrope", head_dim=HEAD_DIM, max_position_embeddings=TRAINED,
                                     rope_parameters=parameters, precision="float32")  # fmt: skip
    cos, sin = their_rows(parameters, axes)
    terms = encoding.terms(axes)
    rotation = terms.query
    assert torch.equal(rotation.cos, cos[..., : HEAD_DIM // 2])
    assert torch.equal(rotation.sin, sin[..., : HEAD_DIM // 2])
    assert terms.layout == "halves"  # of its apply_rotary_pos_emb
