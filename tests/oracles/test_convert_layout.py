"""Rotary models in pairs and in halves, against NumPy and transformers."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file

import roformer_cpp
from convert_case import WORDS, check_outputs
from engine_case import assert_close, make_oracle, make_sequences
from engine_modules import hidden_of, save, save_linear
from rf_engine import Engine

ROPE = {"type": "rope"}
LAYOUTS = [
    ROPE,
    ROPE | {"partial_rotary_factor": 0.5},
    ROPE | {"rotary_value": True, "partial_rotary_factor": 0.5},
    ROPE | {"trainable": True, "rope_theta": 500.0},
    ROPE | {"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
    {"type": "axial", "grid_width": 4},
    {"type": "mrope", "rope_parameters": {"rope_type": "default", "mrope_section": [3, 2, 1]}},
    {"type": "xpos", "scale_base": 64},
    ["learned", "rope"],
]


@pytest.mark.parametrize("encoding", LAYOUTS, ids=json.dumps)
def test_results_stay_the_same(encoding, tmp_path):
    model = save(encoding, tmp_path / "a", is_decoder=True)
    other = "pairs" if "mrope" in json.dumps(encoding) else "halves"
    roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout=other)
    ids, types = make_sequences()
    assert_close(hidden_of(roformer_cpp.load_model(tmp_path / "b"), ids, types), hidden_of(model, ids, types))
    assert_close(Engine(tmp_path / "b").hidden(ids, types=types), hidden_of(model, ids, types))
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert any(not np.array_equal(a[name], b[name]) for name in b)


def test_there_and_back(tmp_path):
    """transformers opens what came back, with every bit of its tensors."""
    oracle = make_oracle("RoFormer", "ForMaskedLM")
    oracle.save_pretrained(tmp_path / "a")
    (tmp_path / "a" / "vocab.txt").write_text("\n".join(WORDS))
    roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout="halves")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["model_type"] == "rf_encoder" and config["architectures"] == ["RfEncoderForMaskedLM"]
    assert config["position_encoding"] == {"type": "rope", "layout": "halves"}
    assert not any("embed_positions" in name for name in load_file(tmp_path / "b" / "model.safetensors"))
    assert (tmp_path / "b" / "vocab.txt").exists()
    roformer_cpp.convert(tmp_path / "b", tmp_path / "c", layout="pairs")
    a, c = (load_file(tmp_path / name / "model.safetensors") for name in "ac")
    assert a.keys() == c.keys()
    assert all(np.array_equal(a[name], c[name]) for name in a if "embed_positions" not in name)
    check_outputs(tmp_path / "c", oracle)
    done = roformer_cpp.convert(tmp_path / "c", tmp_path / "d", layout="pairs")  # has it already
    assert done["layout"] == "pairs"
    assert load_file(tmp_path / "d" / "model.safetensors").keys() == a.keys()


def test_other_dtypes(tmp_path):
    """The numbers of bfloat16 are moved, not rounded."""
    save(ROPE | {"rope_theta": 500.0}, tmp_path / "a")
    path = tmp_path / "a" / "model.safetensors"
    tensors = {name: tensor.bfloat16() for name, tensor in load_tensors(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout="halves")
    roformer_cpp.convert(tmp_path / "b", tmp_path / "c", layout="pairs")
    again = load_tensors(tmp_path / "c" / "model.safetensors")
    assert all(torch.equal(tensor, again[name]) and tensor.dtype == again[name].dtype
               for name, tensor in tensors.items())  # fmt: skip


@pytest.mark.parametrize(
    "encoding, message",
    [
        ("t5", "layout needs a model whose position encoding rotates, got t5"),
        (["rope", {"type": "t5", "scale": "sqrt"}], "without stored terms and other tables, got rope, t5"),
        (["rope", "nezha"], "without stored terms and other tables, got rope, nezha"),
        ("linear", "layout needs softmax attention, got linear"),
    ],
)
def test_models_whose_layout_stays(encoding, message, tmp_path):
    save_linear(tmp_path / "a", "elu", "after_map") if encoding == "linear" else save(encoding, tmp_path / "a")
    with pytest.raises(ValueError, match=rf"^\[convert\] .*{message}"):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout="halves")
    assert not (tmp_path / "b").exists()


@pytest.mark.filterwarnings("ignore:.*the stored one is used")
def test_a_table_of_its_own_keeps_its_layout(tmp_path):
    make_oracle("RoFormer", "Model").bfloat16().save_pretrained(tmp_path / "a")
    with pytest.raises(ValueError, match="layout needs the computed position table, got another one"):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout="halves")
