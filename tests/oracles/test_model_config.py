"""model against transformers: configs, names, shapes and the loader's rules on files that transformers wrote."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from io_probe import io_probe
from tolerances import POSITION_TABLE_ULPS

CLASSES = (
    "RoFormerModel",
    "RoFormerForMaskedLM",
    "RoFormerForCausalLM",
    "RoFormerForSequenceClassification",
    "RoFormerForMultipleChoice",
    "RoFormerForTokenClassification",
    "RoFormerForQuestionAnswering",
)
SMALL = {
    "vocab_size": 30,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "type_vocab_size": 3,
}
VARIANTS = {
    "plain": {},
    "projected": {"embedding_size": 8},
    "untied": {"embedding_size": 16, "tie_word_embeddings": False},
    "decoder": {"is_decoder": True, "add_cross_attention": True, "rotary_value": True},
    "five labels": {"num_labels": 5, "hidden_act": "gelu_new", "layer_norm_eps": 1e-7},
    "named labels": {"id2label": {0: "no", 1: "é"}, "label2id": {"no": 0, "é": 1}, "pad_token_id": 3},
    "one label": {"num_labels": 1, "problem_type": "regression", "hidden_act": "relu", "hidden_dropout_prob": 0},
    "summary": {"summary_type": "first", "bos_token_id": 1, "eos_token_id": [2, 3], "use_cache": False},
}


def config_of(name: str, variant: str) -> transformers.RoFormerConfig:
    return transformers.RoFormerConfig(architectures=[name], **(SMALL | VARIANTS[variant]))


def save_model(directory, name: str, variant: str = "plain"):
    torch.manual_seed(0)
    model = getattr(transformers, name)(config_of(name, variant))
    model.save_pretrained(directory)
    return model


def effective(config: transformers.RoFormerConfig) -> dict:
    """Everything but where the file came from and the dtype of its parameters."""
    values = config.to_dict()
    for key in ("_name_or_path", "dtype"):
        values.pop(key, None)
    return values


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CLASSES)
def test_configs_round_trip(tmp_path, name, variant):
    config = config_of(name, variant)
    config.save_pretrained(tmp_path / "in")
    (tmp_path / "out").mkdir()
    io_probe("config", tmp_path / "in", tmp_path / "out")
    again = transformers.RoFormerConfig.from_pretrained(tmp_path / "out")
    assert effective(again) == effective(config)
    assert again.num_labels == config.num_labels
    assert io_probe("config", tmp_path / "in") == io_probe("config", tmp_path / "out")


def test_whole_dict_of_transformers_is_read(tmp_path):
    values = config_of("RoFormerForMaskedLM", "plain").to_dict()
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


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CLASSES)
def test_names_and_shapes(tmp_path, name, variant):
    model = save_model(tmp_path, name, variant)
    saved = {key: list(tensor.shape) for key, tensor in load_file(tmp_path / "model.safetensors").items()}
    specs = io_probe("specs", tmp_path)
    assert {spec["name"]: spec["shape"] for spec in specs} == saved
    order = [key for key in model.state_dict() if key in saved]
    assert [spec["name"] for spec in specs] == order
    matched = io_probe("match", tmp_path, name, "forbid")
    assert matched["load"] == matched["sources"] == order
    assert not (matched["computed"] or matched["tied"] or matched["ignored"] or matched["fresh"])


def test_labels_renamed_after_construction(tmp_path):
    """transformers then saves label2id with its default names, and never reads it."""
    config = config_of("RoFormerForTokenClassification", "five labels")
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
