"""Rotary models in pairs and in halves, against NumPy and transformers."""

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file

import roformer_cpp
import tolerances as tol
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


def scores(tensors, layout, rotary_dim, x, heads=2):
    """q.k of the first layer in float64, [H, T, S]: pair i is a complex number, rotated by its position."""

    def side(name):
        prefix = f"encoder.layer.0.attention.self.{name}"
        y = x @ tensors[f"{prefix}.weight"].astype(np.float64).T + tensors[f"{prefix}.bias"]
        y = y.reshape(len(x), heads, -1)
        rotated, rest = y[..., :rotary_dim], y[..., rotary_dim:]
        half = rotary_dim // 2
        a, b = (rotated[..., 0::2], rotated[..., 1::2]) if layout == "pairs" else (rotated[..., :half], rotated[..., half:])  # fmt: skip  # noqa: E501
        angles = np.arange(len(x))[:, None] / 10000 ** (2 * np.arange(half) / rotary_dim)
        return (a + 1j * b) * np.exp(1j * angles)[:, None], rest

    (q, q_rest), (k, k_rest) = side("query"), side("key")
    return np.einsum("thd,shd->hts", q, k.conj()).real + np.einsum("thd,shd->hts", q_rest, k_rest)


def test_scores_stay_the_same(tmp_path, factor=0.5):
    save(ROPE | {"partial_rotary_factor": factor}, tmp_path / "pairs")
    done = roformer_cpp.convert(tmp_path / "pairs", tmp_path / "halves", layout="halves")
    assert done["layout"] == "halves"
    x = np.random.default_rng(0).standard_normal((9, 24))
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("pairs", "halves"))
    rotary_dim = int(12 * factor)
    expected = scores(before, "pairs", rotary_dim, x)
    assert_allclose(scores(after, "halves", rotary_dim, x), expected, rtol=tol.T1_RTOL, atol=tol.SUM_ATOL)
    assert np.abs(scores(after, "pairs", rotary_dim, x) - expected).max() > tol.VISIBLE


@pytest.mark.parametrize("encoding", LAYOUTS, ids=json.dumps)
def test_results_stay_the_same(encoding, tmp_path):
    model = save(encoding, tmp_path / "a", is_decoder=True)
    other = "pairs" if "mrope" in json.dumps(encoding) else "halves"
    roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout=other)
    ids, types = make_sequences()
    changed = roformer_cpp.load_model(tmp_path / "b")
    assert_close(hidden_of(changed, ids, types), hidden_of(model, ids, types))
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
    "make, message",
    [
        (lambda d: save("t5", d), "layout needs a model whose position encoding rotates, got t5"),
        (
            lambda d: save(["rope", {"type": "t5", "scale": "sqrt"}], d),
            "without stored terms and other tables, got rope, t5",
        ),
        (lambda d: save(["rope", "nezha"], d), "without stored terms and other tables, got rope, nezha"),
        (lambda d: save_linear(d, "elu", "after_map"), "layout needs softmax attention, got linear"),
    ],
)
def test_models_whose_layout_stays(make, message, tmp_path):
    make(tmp_path / "a")
    with pytest.raises(ValueError, match=rf"^\[convert\] .*{message}"):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout="halves")
    assert not (tmp_path / "b").exists()


@pytest.mark.filterwarnings("ignore:.*the stored one is used")
def test_a_table_of_its_own_keeps_its_layout(tmp_path):
    make_oracle("RoFormer", "Model").bfloat16().save_pretrained(tmp_path / "a")
    with pytest.raises(ValueError, match="layout needs the computed position table, got another one"):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "b", layout="halves")
