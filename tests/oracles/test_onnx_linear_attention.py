"""ONNX files of linear attention against our own modules in float64, which other tests compare with the papers."""

import numpy as np
import pytest
import torch

import roformer_cpp
from engine_case import SIZES, assert_close, make_sequences
from engine_modules import hidden_of, save_linear
from onnx_case import OPSETS, kept, padded, run

ROPE = {"type": "rope"}
MAPS = ("elu", "shen_original", "shen", "favor", "relu", "cosine")


def check(directory, opset):
    roformer_cpp.export_onnx(directory, directory / "model.onnx", opset=opset)
    ids, types = make_sequences()
    batch = padded(ids, types)
    ours = kept(run(directory / "model.onnx", *batch)["last_hidden_state"], batch[1])
    assert_close(ours, hidden_of(roformer_cpp.load_model(directory, dtype="float64"), ids, types))


SITES = ("after_map", "before_map", "none")


@pytest.mark.parametrize(
    ("feature_map", "site", "opset"),
    [(name, site, OPSETS[(i + j) % 2]) for i, name in enumerate(MAPS) for j, site in enumerate(SITES)],
)
def test_feature_maps(feature_map, site, opset, tmp_path):
    save_linear(tmp_path, feature_map, site)
    check(tmp_path, opset)


@pytest.mark.parametrize(
    "feature_map, options, encoding, opset",
    [
        ("elu", {"rotate_denominator": True, "eps": 0.5}, "rope", 17),
        ("favor", {"num_features": 10, "feature_eps": 0.01, "orthogonal": False}, "rope", 23),
        ("favor", {"eps": 1e-3, "num_features": 12}, ROPE | {"partial_rotary_factor": 0.5, "layout": "halves"}, 17),
        ("relu", {}, "xpos", 23),
        ("elu", {}, ["learned", "rope"], 17),
    ],
)
def test_options(feature_map, options, encoding, opset, tmp_path):
    save_linear(tmp_path, feature_map, "after_map", encoding=encoding, options=options)
    check(tmp_path, opset)


@pytest.mark.parametrize("feature_map", MAPS)
def test_rows_without_any_token(feature_map, tmp_path):
    """The attention of such a row is 0, and the other rows are what they were."""
    model = save_linear(tmp_path, feature_map, "before_map")
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    ids, mask, types = padded(*make_sequences())
    mask[1] = 0
    ours = run(tmp_path / "model.onnx", ids, mask, types)["last_hidden_state"]
    assert ours.shape[-1] == SIZES["hidden_size"] and np.isfinite(ours).all()
    with torch.no_grad():
        theirs = model.encode(*map(torch.as_tensor, (ids, mask)), token_type_ids=torch.as_tensor(types)).numpy()
    assert_close(ours[1], theirs[1])
    assert_close(kept(ours, mask), kept(theirs, mask))
