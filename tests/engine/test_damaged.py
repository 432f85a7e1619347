"""Model directories that transformers wrote, damaged, and those of models that the engine does not have: each is
refused with a message that says what is wrong. tests/engine/damaged_test.cpp damages its own in more ways."""

import json
import struct

import numpy as np
import pytest
import transformers

from engine_case import make_oracle
from rf_engine import Engine, EngineError


def message_of(directory, **options):
    with pytest.raises(EngineError) as caught:
        Engine(directory, **options)
    message = str(caught.value)
    assert message.startswith("[") and "got" in message
    return message


@pytest.fixture(params=["RoFormer", "Bert"])
def directory(request, tmp_path):
    make_oracle(request.param, "ForMaskedLM").save_pretrained(tmp_path)
    return tmp_path


def change_config(directory, **keys):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_truncated(directory):
    path = directory / "model.safetensors"
    whole = path.read_bytes()
    assert len(whole) > 5 * 4096
    for size in [*range(0, len(whole), 4096), len(whole) - 1]:
        path.write_bytes(whole[:size])
        assert str(path) in message_of(directory)
    path.unlink()
    assert "model.safetensors" in message_of(directory)


def test_nan(directory):
    path = directory / "model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    for name, tensor in header.items():
        end = 8 + length + tensor["data_offsets"][1]
        bad = bytearray(data)
        bad[end - 4 : end] = np.float32("nan").tobytes()
        path.write_bytes(bad)
        message = message_of(directory)
        assert name in message and "nan" in message


TINY = {"vocab_size": 32, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (transformers.GPT2Config(vocab_size=32, n_embd=8, n_layer=1, n_head=2), "gpt2"),
        (transformers.DistilBertConfig(vocab_size=32, dim=8, n_heads=2, hidden_dim=8, n_layers=1), "distilbert"),
        (transformers.RobertaConfig(**TINY), "roberta"),
    ],
    ids=["gpt2", "distilbert", "roberta"],
)
def test_other_architectures(config, name, tmp_path):
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    message = message_of(tmp_path)
    assert f'"{name}"' in message
    for supported in ("roformer", "bert", "roformer_v2", "nezha", "rf_encoder"):
        assert f"{supported}," in message


@pytest.mark.parametrize(("key", "value"), [("use_bias", False), ("norm_type", "rms_norm")])
def test_half_a_roformer_v2(key, value, tmp_path):
    make_oracle("RoFormer", "Model").save_pretrained(tmp_path)
    change_config(tmp_path, **{key: value})
    message = message_of(tmp_path)
    assert key in message and "in a RoFormerV2" in message


@pytest.mark.parametrize(
    "architecture", ["BertForNextSentencePrediction", "RoFormerForObjectDetection", "LlamaForCausalLM"]
)
def test_unknown_heads(architecture, tmp_path):
    make_oracle("Bert" if architecture.startswith("Bert") else "RoFormer", "Model").save_pretrained(tmp_path)
    change_config(tmp_path, architectures=[architecture])
    assert architecture in message_of(tmp_path)


def test_quantized(tmp_path):
    make_oracle("Bert", "Model").save_pretrained(tmp_path)
    change_config(tmp_path, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    assert "quantization_config" in message_of(tmp_path)


def test_pickled_weights(tmp_path):
    """They may run code, so they are not read; the message says how to convert them."""
    make_oracle("Bert", "Model").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    message = message_of(tmp_path)
    assert "pytorch_model.bin" in message and "roformer_cpp.convert" in message


def test_an_encoder_without_the_head(tmp_path):
    """A bare model under a configuration that names a head."""
    make_oracle("RoFormer", "Model").save_pretrained(tmp_path)
    change_config(tmp_path, architectures=["RoFormerForMaskedLM"])
    assert "cls.predictions" in message_of(tmp_path)
    assert Engine(tmp_path, head="none").info.hidden_size == 24
