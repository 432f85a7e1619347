"""The engine's linear attention against the modules of nn, which have tests of their own against the papers."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import roformer_cpp
import tolerances as tol
from engine_case import WIDE, assert_close, assert_refused, make_sequences, set_threads
from engine_modules import hidden_of, save, save_linear
from rf_engine import Engine

MAPS = ["elu", "shen_original", "shen", "favor", "relu", "cosine"]
CAUSAL_MAPS = [name for name in MAPS if name != "shen_original"]
SITES = ["none", "before_map", "after_map"]
LENGTHS = (1, 40, 7, 2, 33)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("feature_map", MAPS)
def test_hidden_states(feature_map, site, tmp_path):
    """Each map and each site in a causal model and in another one."""
    causal = feature_map in CAUSAL_MAPS and (MAPS.index(feature_map) + SITES.index(site)) % 2 == 1
    head = {"head": "RfEncoderForCausalLM"} if causal else {}
    model = save_linear(tmp_path, feature_map, site, **head, is_decoder=causal)
    ids, types = make_sequences(LENGTHS)
    assert_close(Engine(tmp_path, token_budget=45).hidden(ids, types=types), hidden_of(model, ids, types))


HALF = {"type": "rope", "layout": "halves", "partial_rotary_factor": 0.5}
ENCODINGS = [("elu", "xpos"), ("favor", "none"), ("elu", ["learned", "rope"]), ("elu", HALF), ("favor", HALF)]
ENCODINGS += [("favor", {"type": "rope", "precision": "float32"})]


@pytest.mark.parametrize("feature_map, encoding", ENCODINGS)
def test_encodings(feature_map, encoding, tmp_path):
    options = {"rotate_denominator": True, "eps": 0.01} | ({"num_features": 16} if feature_map == "favor" else {})
    model = save_linear(tmp_path, feature_map, "after_map", encoding, options=options, is_decoder=False)
    ids, types = make_sequences()
    assert_close(Engine(tmp_path).hidden(ids, types=types), hidden_of(model, ids, types))


RUNNING = [("shen", 0, 300), ("shen", 0.01, 40), ("favor", 0, 40), ("favor", 0.01, 300)]


@pytest.mark.parametrize("feature_map, eps, length", RUNNING)
def test_running_maxima(feature_map, eps, length, tmp_path):
    """Against float64: where weights of keys are this far apart, float32 has other numbers than T4 on both sides."""
    model = save_linear(tmp_path, feature_map, "after_map", options={"eps": eps}, is_decoder=True)
    with torch.no_grad():  # the largest exponent of a key's features rises by up to hundreds from key to key
        for name, parameter in model.named_parameters():
            if ".key." in name:
                parameter.mul_(30)
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
    rows = np.concatenate(attend)  # the vectors of tokens that no query attends to have no meaning
    assert_close(Engine(tmp_path).hidden(ids, types=types, attend=attend)[rows], np.concatenate(theirs)[rows])


BITS = [("elu", False, "bfloat16"), ("elu", True, "float32"), ("favor", False, "float32"), ("favor", True, "int8")]
BITS += [("shen", False, "int8"), ("shen", True, "bfloat16")]


@pytest.mark.parametrize("feature_map, causal, precision", BITS)
def test_bits(feature_map, causal, precision, tmp_path):
    site = "before_map" if feature_map == "shen" else "after_map"
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


def test_other_weights(tmp_path):
    save_linear(tmp_path, "favor", "after_map")
    path = tmp_path / "model.safetensors"
    kept = load_file(path)
    name = "linear_attention.1.projection"
    for changed, message in (
        ({}, f"must have {name}, got none"),
        ({name: kept[name][:, 1:].copy()}, rf"{name} must be \[\d+, 12\], got .*, 11\]"),
    ):
        save_file({k: v for k, v in kept.items() if k != name} | changed, path, metadata={"format": "pt"})
        assert_refused(tmp_path, message)


def test_other_configurations(tmp_path):
    save_linear(tmp_path, "elu", "after_map", head="RfEncoderForCausalLM", is_decoder=True)
    for attention, message in (
        ({"feature_map": "exp"}, "feature_map"),
        ({"rotate_denominator": True, "rope_site": "none"}, "rotate_denominator must be false"),
        # Its softmax over the sequence needs the keys to come.
        ({"feature_map": "shen_original"}, "feature_map must not be shen_original in causal attention, got shen_orig"),
    ):
        assert_refused(tmp_path, message, attention={"type": "linear"} | attention)


PAIRS = "terms must be rotations, since linear attention has no pairwise terms, got key_table"
LOG_N = "position_encoding must not scale scores by log n, since linear attention has none, got"


@pytest.mark.parametrize(
    "encoding, message",
    [("nezha", PAIRS), ("log-n", LOG_N), ({"type": "rope", "log_n": "position"}, LOG_N)],
    ids=str,
)
def test_encodings_of_scores_are_refused(encoding, message, tmp_path):
    save(encoding, tmp_path)
    assert_refused(tmp_path, message, attention={"type": "linear"})
