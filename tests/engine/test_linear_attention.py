"""The engine's linear attention against the modules of nn, which have tests of their own against the papers."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import roformer_cpp
import tolerances as tol
from engine_case import WIDE, assert_close, make_sequences, set_threads
from engine_modules import hidden_of, save, save_linear
from rf_engine import Engine, EngineError

MAPS = ["elu", "shen_original", "shen", "favor", "relu", "cosine"]
CAUSAL_MAPS = [name for name in MAPS if name != "shen_original"]
SITES = ["none", "before_map", "after_map"]
LENGTHS = (1, 40, 7, 2, 33)


@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize("site", SITES)
def test_hidden_states(feature_map, site, tmp_path):
    model = save_linear(tmp_path, feature_map, site)
    ids, types = make_sequences(LENGTHS)
    assert_close(Engine(tmp_path, token_budget=45).hidden(ids, types=types), hidden_of(model, ids, types))


@pytest.mark.parametrize("feature_map", CAUSAL_MAPS)
@pytest.mark.parametrize("site", SITES)
def test_causal_models(feature_map, site, tmp_path):
    model = save_linear(tmp_path, feature_map, site, head="RfEncoderForCausalLM", is_decoder=True)
    ids, types = make_sequences(LENGTHS)
    assert_close(Engine(tmp_path).hidden(ids, types=types), hidden_of(model, ids, types))


@pytest.mark.parametrize(
    "encoding",
    [
        "xpos",
        "none",
        ["learned", "rope"],
        {"type": "rope", "precision": "float32"},
        {"type": "rope", "layout": "halves", "partial_rotary_factor": 0.5},
    ],
)
@pytest.mark.parametrize("feature_map", ["elu", "favor"])
def test_encodings(feature_map, encoding, tmp_path):
    options = {"rotate_denominator": True, "eps": 0.01} | ({"num_features": 16} if feature_map == "favor" else {})
    model = save_linear(tmp_path, feature_map, "after_map", encoding, options=options, is_decoder=False)
    ids, types = make_sequences()
    assert_close(Engine(tmp_path).hidden(ids, types=types), hidden_of(model, ids, types))


def raise_keys(model, factor):
    """The largest exponent of a key's features rises by up to hundreds from key to key."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".key." in name:
                parameter.mul_(factor)


@pytest.mark.parametrize("eps", [0, 0.01])
@pytest.mark.parametrize("feature_map", ["shen", "favor"])
@pytest.mark.parametrize("length", [40, 300])
def test_running_maxima(feature_map, eps, length, tmp_path):
    """Against float64: where weights of keys are this far apart, float32 has other numbers than T4 on both sides."""
    model = save_linear(tmp_path, feature_map, "after_map", options={"eps": eps}, is_decoder=True)
    raise_keys(model, 30)
    model.save(tmp_path)
    exact = roformer_cpp.load_model(tmp_path, dtype="float64")
    ids, types = make_sequences((length, 3))
    ours, theirs, truth = Engine(tmp_path).hidden(ids, types=types), *(hidden_of(m, ids, types) for m in (model, exact))
    assert np.abs(ours - truth).max() <= max(2 * np.abs(theirs - truth).max(), tol.T4_MAX * np.abs(truth).max())


CALLS = [(name, False) for name in MAPS] + [(name, True) for name in CAUSAL_MAPS]


@pytest.mark.parametrize("feature_map, causal", CALLS)
def test_keys_that_are_left_out(feature_map, causal, tmp_path):
    model = save_linear(tmp_path, feature_map, "before_map", is_decoder=causal)
    ids, types = make_sequences()
    random = np.random.default_rng(4)
    attend = [np.append(True, random.random(len(row) - 1) < 0.6) for row in ids]
    if causal:
        attend[4][:3] = False  # queries without a key
    theirs = []
    with torch.no_grad():
        for row, type_row, kept in zip(ids, types, attend, strict=True):
            given = {"attention_mask": torch.tensor(kept)[None], "token_type_ids": torch.tensor(type_row)[None].long()}
            theirs.append(model.encode(torch.tensor(row)[None].long(), **given)[0].numpy())
    ours = Engine(tmp_path).hidden(ids, types=types, attend=attend)
    rows = np.concatenate(attend)  # the vectors of tokens that no query attends to have no meaning
    assert_close(ours[rows], np.concatenate(theirs)[rows])


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("feature_map, site", [("elu", "after_map"), ("favor", "after_map"), ("shen", "before_map")])
@pytest.mark.parametrize("causal", [False, True])
def test_bits(feature_map, site, causal, precision, tmp_path):
    model = save_linear(tmp_path, feature_map, site, is_decoder=causal, **WIDE)
    ids, types = make_sequences([1, 17, 64, 3, 130, 256, 1])
    engine = Engine(tmp_path, precision)
    set_threads(1)
    alone = [engine.hidden([i], types=[t]) for i, t in zip(ids, types, strict=True)]
    for budget, threads in ((1, 1), (200, 2), (4096, 3)):
        set_threads(threads)
        ours = Engine(tmp_path, precision, token_budget=budget).hidden(ids[::-1], types=types[::-1])
        assert np.array_equal(ours, np.concatenate(alone[::-1]))
    theirs = hidden_of(model, ids, types)
    error = np.abs(np.concatenate(alone) - theirs).max() / np.abs(theirs).max()
    assert error <= {"float32": 2e-5, "bfloat16": 0.05, "int8": 0.1}[precision]


def refused(directory, message):
    with pytest.raises(EngineError, match=message):
        Engine(directory)


def test_causal_shen_original_is_refused(tmp_path):
    """Its softmax over the sequence needs the keys to come; nn refuses it too."""
    save_linear(tmp_path, "elu", "after_map", head="RfEncoderForCausalLM", is_decoder=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["attention"]["feature_map"] = "shen_original"
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(tmp_path, "feature_map must not be shen_original in causal attention, got shen_original")


def test_other_configurations_and_weights(tmp_path):
    save_linear(tmp_path, "favor", "after_map")
    path = tmp_path / "model.safetensors"
    kept = load_file(path)
    name = "linear_attention.1.projection"
    save_file({k: v for k, v in kept.items() if k != name}, path, metadata={"format": "pt"})
    refused(tmp_path, f"must have {name}, got none")
    save_file(kept | {name: kept[name][:, 1:].copy()}, path, metadata={"format": "pt"})
    refused(tmp_path, rf"{name} must be \[\d+, 12\], got .*, 11\]")
    save_file(kept, path, metadata={"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    for changes, message in [
        ({"feature_map": "exp"}, "feature_map"),
        ({"rotate_denominator": True, "rope_site": "none"}, "rotate_denominator must be false"),
    ]:
        changed = config | {"attention": {"type": "linear"} | changes}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        refused(tmp_path, message)


def test_terms_of_pairs_are_refused(tmp_path):
    save("nezha", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"attention": {"type": "linear"}}))
    refused(tmp_path, "terms must be rotations, since linear attention has no pairwise terms, got key_table")


@pytest.mark.parametrize("encoding", ["log-n", {"type": "rope", "log_n": "position"}], ids=str)
def test_there_are_no_scores_to_scale(encoding, tmp_path):
    save(encoding, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"attention": {"type": "linear"}}))
    refused(tmp_path, "position_encoding must not scale scores by log n, since linear attention has none, got")
