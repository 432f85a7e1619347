"""EmbeddingGemma 2's text model beside transformers: alone, and inside a model of several media."""

import json

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from decoder_embedders import theirs_of
from engine_case import assert_close, assert_low_precision, assert_refused
from foreign_encoders import make_encoder, rows_of
from rf_engine import Engine

FAMILY = "embedding_gemma2_text"
BASES = {"full_attention": {"rope_theta": 500.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}
SHARE = {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 0.25, "factor": 2.0}
FULL, SLIDING = "full_attention", "sliding_attention"
OPTIONS = {
    "a share of wide heads": {"rope_parameters": BASES | {FULL: SHARE}, "global_head_dim": 32},
    "a longer scaling": {"rope_parameters": BASES | {FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 70.0}}},
    "heads of one size": {"global_head_dim": 10, "num_global_key_value_heads": 2},
    "heads of keys alone": {"global_head_dim": 10, "num_global_key_value_heads": 4},
    "biases": {"attention_bias": True, "hidden_activation": "silu"},
    "narrow windows": {"sliding_window": 1, "layer_types": [SLIDING, SLIDING, FULL, FULL]},
    "no windows": {"layer_types": [FULL] * 4, "hidden_activation": "relu"},
    "eleven layers": {"num_hidden_layers": 11, "sliding_window_pattern": 4},
}


def assert_as(oracle, folder):
    """With the same bits in a batch and alone. test_onnx_families.py has graphs, of rows that transformers pads."""
    rows, engine = rows_of((1, 40, 7)), Engine(folder)
    ours = engine.hidden(rows)
    assert_close(ours, np.concatenate([theirs_of(oracle, row) for row in rows]))
    assert np.array_equal(ours, np.concatenate([engine.hidden([row]) for row in rows]))


@pytest.mark.parametrize("options", OPTIONS)
def test_options(options, tmp_path):
    assert_as(make_encoder(FAMILY, "Model", tmp_path, **OPTIONS[options]), tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window_pattern": 2, "global_head_dim": 18, "num_global_key_value_heads": 1},
        {"layer_types": [SLIDING, FULL, SLIDING, SLIDING]},  # the last has no window nevertheless
    ],
)
def test_what_the_class_derives(changes, tmp_path):
    make_encoder(FAMILY, "Model", tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    absent = {"layer_types", "per_layer_config", "rope_parameters"} if len(changes) > 1 else set()
    path.write_text(json.dumps({key: value for key, value in config.items() if key not in absent} | changes))
    assert_as(transformers.AutoModel.from_pretrained(tmp_path).eval(), tmp_path)


def save_inside(folder):
    text = make_encoder(FAMILY, "Model", folder / "text")
    others = {"vision_config": None, "audio_config": None}
    config = transformers.EmbeddingGemma2Config(text_config=text.config.to_dict(), **others)
    whole = transformers.EmbeddingGemma2Model(config)
    whole.language_model.load_state_dict(text.state_dict())
    whole.eval().save_pretrained(folder)
    return whole


def test_text_inside(tmp_path):
    """What reads images and sound is not opened."""
    whole, path = save_inside(tmp_path), tmp_path / "model.safetensors"
    assert_as(whole, tmp_path)
    assert np.array_equal(*(Engine(folder).hidden(rows_of((9,))) for folder in (tmp_path, tmp_path / "text")))
    other = {f"{name}.weight": np.ones(3, np.float32) for name in ("vision_tower.a", "embed_audio.b")}
    save_file(load_file(path) | other, path)
    assert_as(whole, tmp_path)
    save_file(load_file(path) | {"language_model.more": np.ones(3, np.float32)}, path)
    assert_refused(tmp_path, r"language_model\.more")
    rule = "text_config must have the keys of embedding_gemma2_text, got"
    assert_refused(tmp_path, f"{rule} .*gemma3_text", text_config={"model_type": "gemma3_text"})
    assert_refused(tmp_path, "vocab_size must be given, got none", text_config={"hidden_size": 48})
    assert_refused(tmp_path, f"{rule} none", text_config=None)


WIDE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "global_head_dim": 128, "embedding_dim": 192}
WIDE |= {"hidden_size_per_layer_input": 128}


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_low_precision(precision, tmp_path):
    oracle, rows = make_encoder(FAMILY, "Model", tmp_path, **WIDE), rows_of((40,))
    ours, theirs = Engine(tmp_path, precision).hidden(rows), theirs_of(oracle, rows[0])
    assert_low_precision(ours.ravel(), theirs.ravel(), Engine(tmp_path).hidden(rows).ravel())


OWN = {"1": {"head_dim": 18, "num_key_value_heads": 1}, "3": {"head_dim": 18, "num_key_value_heads": 1}}


def test_refused(tmp_path):
    make_encoder(FAMILY, "Model", tmp_path)
    for changes, message in (
        ({"per_layer_config": OWN | {"4": {"head_dim": 18}}}, "per_layer_config must be of layers from 0 to 3, got"),
        ({"per_layer_config": OWN | {"-1": {"head_dim": 18}}}, "per_layer_config must be of layers from 0 to 3, got"),
        ({"per_layer_config": OWN | {"03": {"head_dim": 18}}}, "per_layer_config must be of layers from 0 to 3, got"),
        ({"per_layer_config": OWN | {"3": {"head_dim": 20}}}, "one type must have heads of one size, got 18 and 20"),
        ({"per_layer_config": OWN | {"3": {"head_dim": 0}}}, r"per_layer_config\.3\.head_dim must be .*, got 0"),
        ({"per_layer_config": OWN | {"3": {"skip": ["mlp"]}}}, r"config\.3 must be an object of head_dim and"),
        ({"per_layer_config": OWN | {"3": 18}}, r"per_layer_config\.3 must be an object of head_dim and .*, got 18"),
        ({"per_layer_config": OWN | {"3": {"num_key_value_heads": 3}}}, "must divide num_attention_heads, 4, got 3"),
        ({"per_layer_config": 5}, "per_layer_config must be an object, got 5"),
        ({"per_layer_config": None}, r"layers\.1\.self_attn.* must have the shape"),
        ({"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input must be an integer from 1 to .*, got 0"),
        ({"embedding_dim": 0}, "embedding_dim must be an integer from 1 to .*, got 0"),
        ({"layer_types": [FULL] * 3}, "layer_types must be .* each of the 4 layers, got"),
        ({"layer_types": 3}, "layer_types must be a list, got 3"),
        ({"num_key_value_heads": 3}, "query heads must be a multiple of key heads, got 4 and 3"),
        ({"hidden_activation": "mish"}, "hidden_activation must be gelu, gelu_new, .*, got .mish"),
        ({"rope_parameters": {FULL: BASES[FULL]}}, "rope_parameters must have a rotation for each of"),
        ({"head_dim": 11}, "head|rotat"),
        ({"num_experts": 8}, "num_experts must be"),
    ):
        assert_refused(tmp_path, message, **changes)
