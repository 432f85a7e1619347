"""Messages quote a part of a long value: names, keys, options, lists and numbers of a million characters."""

import re

import pytest
import torch

import roformer_cpp

LONG = "x" * 1_000_000
MANY = [7] * 500_000
CONFIG = dict(vocab_size=37, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20)
q = torch.ones(1, 3, 2, 8)
rope = roformer_cpp.encoding("rope", num_attention_heads=2, head_dim=8)
model = roformer_cpp.build_model(CONFIG | {"model_type": "roformer"})
ids = torch.ones(1, 3, dtype=torch.long)


class Custom(roformer_cpp.CustomEncoding):
    def __init__(self, shape, attribute=None, **keys):
        super().__init__()
        if attribute is not None:
            setattr(self, attribute, LONG)

    def shared(self, positions, key_positions, dtype):
        return LONG


def built(**keys):
    return roformer_cpp.build_model(CONFIG | {"model_type": "rf_encoder"} | keys)


def custom(attribute=None):
    roformer_cpp.register_encoding("custom", Custom)
    return roformer_cpp.encoding("custom", attribute=attribute)


CALLS = {
    "encoding name": lambda: roformer_cpp.encoding(LONG),
    "encoding key": lambda: roformer_cpp.encoding("rope", **{LONG: 1}),
    "encoding value": lambda: roformer_cpp.encoding("rope", layout=LONG),
    "encoding object": lambda: roformer_cpp.encoding("rope", rope_parameters={LONG: 1}),
    "encoding type": lambda: roformer_cpp.encoding("rope", rope_parameters={"rope_type": LONG}),
    "encoding number": lambda: roformer_cpp.encoding("rope", base=LONG),
    "encoding list": lambda: roformer_cpp.encoding("axial-nd", num_attention_heads=2, head_dim=8, grid_shape=MANY),
    "encoding list of texts": lambda: roformer_cpp.encoding("axial-nd", grid_shape=[LONG]),
    "pos_att_type": lambda: roformer_cpp.encoding("deberta", pos_att_type=[LONG]),
    "bias of dape": lambda: roformer_cpp.encoding("dape", bias=LONG),
    "not JSON": lambda: roformer_cpp.encoding("rope", layout={LONG}),
    "head_dim": lambda: roformer_cpp.encoding("rope", head_dim=LONG),
    "is_decoder": lambda: roformer_cpp.encoding("rope", is_decoder=LONG),
    "initializer_range": lambda: roformer_cpp.encoding("rope", initializer_range=LONG),
    "combine": lambda: roformer_cpp.combine_encodings(LONG),
    "register": lambda: roformer_cpp.register_encoding(MANY, Custom),
    "reads_vectors": lambda: custom("reads_vectors"),
    "scales_scores": lambda: custom("scales_scores"),
    "max_length": lambda: custom("max_length"),
    "shared": lambda: custom().terms(torch.arange(3)),
    "rope layout": lambda: roformer_cpp.rope(q, torch.arange(3), layout=LONG),
    "rope direction": lambda: roformer_cpp.rope(q, torch.arange(3), layout="pairs", direction=LONG),
    "rope type": lambda: roformer_cpp.rope(q, MANY, layout="pairs"),
    "rotate layout": lambda: roformer_cpp.rotate(q, torch.ones(1, 3, 4), torch.ones(1, 3, 4), layout=LONG),
    "terms layout": lambda: roformer_cpp.attention(q, q, q, roformer_cpp.Terms(layout=LONG)),
    "kernel": lambda: roformer_cpp.attention(q, q, q, kernel=LONG),
    "is_causal": lambda: roformer_cpp.attention(q, q, q, is_causal=LONG),
    "window": lambda: roformer_cpp.attention(q, q, q, window=MANY),
    "dropout": lambda: roformer_cpp.attention(q, q, q, dropout=LONG),
    "feature_map": lambda: roformer_cpp.linear_attention(q, q, q, LONG),
    "rope_site": lambda: roformer_cpp.linear_attention(q, q, q, rope_site=LONG),
    "linear kernel": lambda: roformer_cpp.linear_attention(q, q, q, kernel=LONG),
    "linear option": lambda: roformer_cpp.LinearAttention(8, **{LONG: 1}),
    "cu_seqlens": lambda: roformer_cpp.linear_attention(q, q, q, cu_seqlens=torch.arange(500_000)),
    "norm": lambda: roformer_cpp.EncoderLayer(16, 2, norm=LONG),
    "activation": lambda: roformer_cpp.EncoderLayer(16, 2, activation=LONG),
    "hidden_size": lambda: roformer_cpp.EncoderLayer(LONG, 2),
    "configuration key": lambda: built(**{LONG: 1}),
    "configuration value": lambda: built(hidden_act=LONG),
    "configuration number": lambda: built(vocab_size=LONG),
    "configuration list": lambda: built(position_encoding=MANY),
    "position_encoding": lambda: built(position_encoding=LONG),
    "position_encoding key": lambda: built(position_encoding={"type": "rope", LONG: 1}),
    "attention": lambda: built(attention=LONG),
    "model_type": lambda: built(model_type=LONG),
    "head": lambda: roformer_cpp.build_model(CONFIG, LONG),
    "seed": lambda: roformer_cpp.build_model(CONFIG, seed=10**4000),
    "model directory": lambda: roformer_cpp.load_model(LONG),
    "file of the directory": lambda: roformer_cpp.load_model("/tmp", dtype=LONG),
    "translation dtype": lambda: roformer_cpp.load_translation_model(LONG, dtype="float32"),
    "save": lambda: model.save(LONG),
    "bake": lambda: roformer_cpp.bake(LONG),
    "dropout_key": lambda: model(ids, dropout_key=LONG),
    "engine": lambda: roformer_cpp.Engine(LONG),
    "convert": lambda: roformer_cpp.convert(LONG, "/tmp/none"),
}


@pytest.mark.parametrize("name", CALLS)
def test_messages_have_a_length_that_can_be_read(name):
    with pytest.raises((ValueError, TypeError, RuntimeError, OSError)) as refused:
        CALLS[name]()
    message = str(refused.value)
    assert len(message) < 4500 and re.match(r"\[[a-z_ -]+\] ", message), message[:300]
