"""Configurations against transformers; names and shapes of weights: test_encoder_parity.py."""

import json

import numpy as np
import pytest
import transformers

from io_probe import io_probe
from tolerances import POSITION_TABLE_ULPS

SMALL = dict(vocab_size=30, hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20)
SMALL |= dict(max_position_embeddings=9, type_vocab_size=3)


def test_whole_dict_of_transformers_is_read(tmp_path):
    values = transformers.RoFormerConfig(**SMALL).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(values))
    seen = io_probe("config", tmp_path)
    for key in (*SMALL, "transformers_version"):
        assert seen[key] == values[key]


@pytest.mark.parametrize("family", [None, "roformer", "bert"])
def test_defaults_are_those_of_transformers(family, tmp_path):
    """Also of keys that count in training alone."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    seen = io_probe("config", tmp_path)
    defaults = transformers.AutoConfig.for_model(family or "roformer").to_dict()
    for key in seen.keys() - {"dtype"}:
        assert seen[key] == defaults[key], key


def test_labels_renamed_after_construction(tmp_path):
    """transformers then saves label2id with its default names, and never reads it."""
    config = transformers.RoFormerConfig(**SMALL, num_labels=5)
    config.id2label = dict(enumerate("abcde"))
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["label2id"]["LABEL_4"] == 4
    seen = io_probe("config", tmp_path)
    assert seen["id2label"] == {str(i): label for i, label in config.id2label.items()}
    assert seen["label2id"] == {label: i for i, label in config.id2label.items()}


@pytest.mark.parametrize(("rows", "dim"), [(7, 2), (1536, 64), (512, 70), (40, 6), (300, 128)])
def test_position_table(tmp_path, rows, dim):
    """R-ABS-04."""
    module = transformers.models.roformer.modeling_roformer.RoFormerSinusoidalPositionalEmbedding(rows, dim)
    expected = module.create_weight().numpy()
    io_probe("table", rows, dim, tmp_path / "table.npy")
    np.testing.assert_array_max_ulp(np.load(tmp_path / "table.npy"), expected, maxulp=POSITION_TABLE_ULPS)
