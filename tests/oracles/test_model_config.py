"""model against transformers: configs, names, shapes and the loader's rules on files that transformers wrote."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from io_probe import ProbeError, io_probe
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
# What transformers 4 wrote into every config.json: read, never an error, and of no effect.
TRANSFORMERS_4_EXTRAS = {
    "torch_dtype": "float32",
    "transformers_version": "4.30.2",
    "torchscript": False,
    "use_bfloat16": False,
    "tf_legacy_loss": False,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
    "cross_attention_hidden_size": None,
    "max_length": 20,
    "min_length": 0,
    "do_sample": False,
    "early_stopping": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "num_return_sequences": 1,
    "output_scores": False,
    "return_dict_in_generate": False,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "remove_invalid_values": False,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "finetuning_task": None,
    "tokenizer_class": None,
    "prefix": None,
    "sep_token_id": None,
    "decoder_start_token_id": None,
    "task_specific_params": None,
    "gradient_checkpointing": False,
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
    config = config_of("RoFormerForMaskedLM", "plain")
    for values in (config.to_dict(), config.to_dict() | TRANSFORMERS_4_EXTRAS):
        (tmp_path / "config.json").write_text(json.dumps(values))
        seen = io_probe("config", tmp_path)
        for key, value in SMALL.items():
            assert seen[key] == value
        assert seen["transformers_version"] == values["transformers_version"]


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


@pytest.mark.parametrize("name", ["RoFormerForMaskedLM", "RoFormerForCausalLM"])
def test_converted_checkpoints(tmp_path, name):
    """No position table, tied copies present: what converters of the original checkpoints write (rules a, b, c)."""
    model = save_model(tmp_path, name)
    tensors = {key: value.clone() for key, value in model.state_dict().items()}
    del tensors["roformer.encoder.embed_positions.weight"]
    tensors["roformer.embeddings_project.weight"] = torch.eye(12)
    save_file(tensors, tmp_path / "model.safetensors")
    matched = io_probe("match", tmp_path, name, "forbid")
    assert matched["computed"] == ["roformer.encoder.embed_positions.weight"]
    assert sorted(matched["tied"]) == ["cls.predictions.decoder.bias", "cls.predictions.decoder.weight"]
    assert matched["ignored"] == ["roformer.embeddings_project.weight"]


@pytest.mark.parametrize("name", CLASSES[1:])
def test_task_model_from_bare_encoder_and_back(tmp_path, name):
    save_model(tmp_path, "RoFormerModel")
    bare = set(load_file(tmp_path / "model.safetensors"))
    matched = io_probe("match", tmp_path, name, "allow")
    assert set(matched["sources"]) == bare
    with pytest.raises(ProbeError, match="missing"):
        io_probe("match", tmp_path, name, "forbid")

    model = save_model(tmp_path, name)
    back = io_probe("match", tmp_path, "RoFormerModel", "forbid")
    assert set(back["load"]) == bare
    assert set(back["sources"]) == {f"roformer.{key}" for key in bare}
    saved = set(load_file(tmp_path / "model.safetensors"))
    assert set(back["ignored"]) == saved - set(back["sources"])
    assert matched["fresh"] == [key for key in model.state_dict() if key in set(back["ignored"])]


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "mish"}, 'hidden_act.*"mish"'),
        ({"use_bias": False}, "use_bias and norm_type.*false"),
        ({"norm_type": "rms_norm"}, "use_bias and norm_type.*rms_norm"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder.*true"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 8}}, "quantization_config"),
        ({"model_type": "bart"}, "model_type.*bart"),
        ({"hidden_size": 13}, "hidden_size.*13"),
    ],
)
def test_refused_configs(tmp_path, change, words):
    values = config_of("RoFormerModel", "plain").to_dict() | change
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ProbeError, match=words) as error:
        io_probe("config", tmp_path)
    assert "config.json]" in str(error.value)
