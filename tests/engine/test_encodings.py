"""The engine's position encodings against the modules of nn, which have tests of their own against their papers."""

import re

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import roformer_cpp
from cli_support import results
from encoding_files import INFOS, sweep_keys
from engine_case import SIZES, assert_close, assert_refused, change_config, make_sequences
from engine_modules import hidden_of, save
from rf_engine import Engine, EngineError

HEAD_DIM = SIZES["hidden_size"] // SIZES["num_attention_heads"]
# With a term that the engine has no rows of, and which that is.
LACKING = {
    **{name: ({"type": name} | sweep_keys(name, HEAD_DIM), info["engine_lacks"])
       for name, info in INFOS.items() if not info["engine"]},
    "floater beside sinusoids": (["sinusoidal", "floater"], "vectors added to the input of every layer"),
    "alibi and fox": (["alibi", "fox"], "key_score (kappa)"),
}  # fmt: skip
HOPE = {"rope_type": "hope", "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 6, "long_factor": [3.0, 1.0, 2.0, 5.0, 1.5, 4.0]}
LONGROPE |= {"original_max_position_embeddings": 6}
FLOAT32 = {"precision": "float32"}
LONG = (1, 40, 7, 2, 33)  # beyond max_position_embeddings, which is 32

CASES = {
    **{name: {"type": name} | sweep_keys(name, HEAD_DIM) for name, info in INFOS.items() if info["engine"]},
    "rope halves": {"type": "rope", "layout": "halves", "partial_rotary_factor": 0.5},
    "rope values": {"type": "rope", "rotary_value": True},
    "rope trained": {"type": "rope", "trainable": True},
    "rope trained logarithms": {"type": "rope", "trainable": "log"},
    "rope yarn": {"type": "rope", "rope_parameters": YARN},
    "rope dynamic": {"type": "rope", "rope_parameters": DYNAMIC},
    "rope longrope": {"type": "rope", "rope_parameters": LONGROPE},
    "rope hope": {"type": "rope", "rope_parameters": HOPE},
    "rope hope float32": {"type": "rope", "rope_parameters": HOPE} | FLOAT32,
    "rope clipped float32": {"type": "rope", "rope_parameters": {"rope_type": "clipped", "clip_low_n": 4}} | FLOAT32,
    "rope log n": {"type": "rope", "log_n": "position", "rotary_value": True},
    "rope log n of the length": {"type": "rope", "log_n": "length"},
    "log-n of the length": {"type": "log-n", "rule": "length"},
    "axial-nd of three sizes": {"type": "axial-nd", "axes_dims_rope": [2, 4, 4], "grid_shape": [9, 2, 3]},
    "alibi and log-n": ["alibi", {"type": "log-n", "original_max_position_embeddings": 3}],
    "mrope dynamic": {"type": "mrope", "rope_parameters": DYNAMIC | {"mrope_section": [2, 1, 3]}},
    "rope float32": {"type": "rope"} | FLOAT32,
    "rope float32 trained": {"type": "rope", "trainable": True} | FLOAT32,
    "rope float32 trained logarithms": {"type": "rope", "trainable": "log"} | FLOAT32,
    "rope float32 longrope": {"type": "rope", "rope_parameters": LONGROPE} | FLOAT32,
    "axial float32": {"type": "axial", "grid_width": 3} | FLOAT32,
    "xpos float32": {"type": "xpos", "scale_base": 8} | FLOAT32,
    "xpos 8": {"type": "xpos", "scale_base": 8},
    "xpos longrope": {"type": "xpos", "scale_base": 8, "rope_parameters": LONGROPE},
    "sinusoidal half": {"type": "sinusoidal", "layout": "half"},
    "sinusoidal of scaled words": {"type": "sinusoidal", "scale_embedding": True},
    "learned and sinusoidal of scaled words": ["learned", {"type": "sinusoidal", "scale_embedding": True}],
    "sinusoidal sine-only": {"type": "sinusoidal", "layout": "sine-only"},
    "nezha 3": {"type": "nezha", "max_relative_position": 3},
    "shaw 3": {"type": "shaw", "max_relative_position": 3},
    "shaw without values": {"type": "shaw", "max_relative_position": 3, "values": False},
    "t5 sqrt": {"type": "t5", "scale": "sqrt"},
    "deberta buckets": {"type": "deberta", "position_buckets": 8, "max_relative_positions": 20},
    "deberta paper": {"type": "deberta", "p2c": "paper", "share_att_key": True},
    "deberta p2c, shared": {"type": "deberta", "pos_att_type": ["p2c"], "share_att_key": True},
    "transformer-xl tied": {"type": "transformer-xl", "untie_r": False, "clamp_len": 7},
    "sinusoidal and rope": ["sinusoidal", "rope"],
    "learned, rope and alibi": ["learned", "rope", "alibi"],
    "rope, nezha and t5": ["rope", {"type": "nezha", "max_relative_position": 2}, {"type": "t5", "scale": "sqrt"}],
    "huang-m3 and rope": ["huang-m3", "rope"],
    "huang-m1, shaw and learned": ["huang-m1", "shaw", "learned"],
    "shaw and rope trained": ["shaw", {"type": "rope", "trainable": True}],
}


def is_limited(encoding):
    """Whether it reads no more than max_position_embeddings."""
    parts = encoding if isinstance(encoding, list) else [encoding]
    return any(INFOS[part if isinstance(part, str) else part["type"]]["lengths"] == "table" for part in parts)


@pytest.mark.parametrize("name", CASES)
def test_hidden_states(name, tmp_path):
    model = save(CASES[name], tmp_path)
    ids, types = make_sequences(*(() if is_limited(CASES[name]) else (LONG,)))
    engine = Engine(tmp_path, token_budget=45)
    ours, theirs = engine.hidden(ids, types=types), hidden_of(model, ids, types)
    assert_close(ours, theirs)
    assert np.array_equal(engine.hidden(ids[::-1], types=types[::-1])[-len(ids[0]) :], ours[: len(ids[0])])
    if name in INFOS:
        check_lengths(engine, INFOS[name]["lengths"])


def check_lengths(engine, lengths):
    longest = {"table": 32, "stored": 2048, "all": 2049}[lengths]
    assert np.isfinite(engine.hidden([np.ones(longest, np.int32)])).all()
    if longest < 2049:
        with pytest.raises(EngineError, match="roformer bake" if longest == 2048 else "32"):
            engine.hidden([np.ones(longest + 1, np.int32)])


@pytest.mark.parametrize("name", ["xpos", "rope dynamic", "alibi", "shaw 3", "tupe-r", "sinusoidal", "huang-m3"])
def test_other_positions(name, tmp_path):
    model = save(CASES[name], tmp_path)
    ids, types = make_sequences()
    draw = np.random.default_rng(2)
    positions = [np.sort(draw.choice(32, len(row), replace=False)) for row in ids]
    ours = Engine(tmp_path).hidden(ids, types=types, positions=positions)
    assert_close(ours, hidden_of(model, ids, types, positions))


CAUSAL = [("rope", "bert"), ("xpos", "roformer"), ("shaw", "roformer"), ("t5", "bert"), ("huang-m3", "roformer")]


@pytest.mark.parametrize("name, family", CAUSAL)
def test_families_and_causal_models(name, family, tmp_path):
    changes = {"family": family, "is_decoder": True, "rotary_value": name in ("rope", "xpos")}
    model = save(CASES[name], tmp_path, "RfEncoderForCausalLM", **changes)
    ids, types = make_sequences()
    assert_close(Engine(tmp_path).hidden(ids, types=types), hidden_of(model, ids, types))


def test_nezha_of_transformers_4(tmp_path):
    """Its directories have no file of terms, and no option of ours."""
    model = save({"type": "nezha", "max_relative_position": 5}, tmp_path, family="bert", hidden_act="gelu")
    theirs = dict(model_type="nezha", architectures=["NezhaModel"], max_relative_position=5)
    change_config(tmp_path, **theirs, position_encoding=None, attention=None, family=None)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({f"nezha.{name}": value for name, value in tensors.items()}, tmp_path / "model.safetensors")
    ids, types = make_sequences(LONG)
    assert_close(Engine(tmp_path).hidden(ids, types=types), hidden_of(model, ids, types))


def test_stored_table(tmp_path):
    """A RoFormer's own table in 16 bits is used, as transformers does, and a longer sequence is refused."""
    save("rope", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "encoder.embed_positions.weight"
    tensors[name] = torch.from_numpy(tensors[name]).bfloat16().float().numpy()
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.warns(UserWarning, match="differs from the computed table"):
        model = roformer_cpp.load_model(tmp_path)
    ids, types = make_sequences()
    engine = Engine(tmp_path)
    assert_close(engine.hidden(ids, types=types), hidden_of(model, ids, types))
    with pytest.raises(EngineError, match="must be below the 32 rows of the checkpoint's own position table, got 39"):
        engine.hidden(make_sequences(LONG)[0])


@pytest.mark.parametrize("name, positions, message", [
    ("alibi", range(2049), "at most the 2048 positions of position_terms.safetensors, got 2049; .* --length 2049 "),
    ("tupe-a", (31, 32), "at most the 32 positions that the encoding reads, got 33"),
    ("axial-nd of three sizes", range(55), r"in 0..53, those of the grid_shape \[9, 2, 3\], got 54"),
    ("learned", range(33), "positions must be below the 32 of the trained table, got 32"),
    ("xpos 8", range(2000), "a sequence must span at most 479 positions for products of float32 .* got 2000"),
])  # fmt: skip
def test_too_long(name, positions, message, tmp_path):
    save(CASES[name], tmp_path)
    with pytest.raises(EngineError, match=message):
        Engine(tmp_path).hidden([np.ones(len(positions), np.int32)], positions=[np.array(positions)])


def test_dynamic_frequencies_of_precision_float32(tmp_path):
    model = save({"type": "rope", "rope_parameters": DYNAMIC} | FLOAT32, tmp_path)
    ids, types = make_sequences()
    engine = Engine(tmp_path)
    assert_close(engine.hidden(ids, types=types), hidden_of(model, ids, types))
    with pytest.raises(EngineError, match="must stay within the training length 32 here, got position 39"):
        engine.hidden(make_sequences(LONG)[0])


@pytest.mark.parametrize("name", LACKING)
def test_a_term_that_the_engine_lacks_is_named(name, tmp_path):
    encoding, term = LACKING[name]
    save(encoding, tmp_path)
    assert_refused(tmp_path, f'rows by distance or by position, got "{re.escape(term)}" from')


def test_words_are_scaled_by_one_encoding(tmp_path):
    """Of a configuration that nothing else has read."""
    save(["sinusoidal", "sinusoidal"], tmp_path)
    twice = [{"type": "sinusoidal", "scale_embedding": True}] * 2
    assert_refused(tmp_path, "word embeddings must be changed by one encoding, got 2", position_encoding=twice)


def test_missing_and_stale_files(tmp_path):
    save("shaw", tmp_path)
    terms = tmp_path / "position_terms.safetensors"
    kept = terms.read_bytes()
    terms.unlink()
    assert_refused(tmp_path, r"got none in .*; roformer bake --model .* writes it")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["position_encoding.layer.1.key"] = tensors["position_encoding.layer.1.key"] + np.float32(1)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    terms.write_bytes(kept)
    assert_refused(tmp_path, "got those of others; roformer bake --model")


@pytest.mark.parametrize("encoding", ["learned", {"type": "rope", "trainable": True}], ids=["learned", "rope"])
def test_weights_that_are_no_floats(encoding, tmp_path):
    save(encoding, tmp_path)
    path = tmp_path / "model.safetensors"
    kept = load_file(path)
    (tensor,) = (name for name in kept if name.startswith("position_encoding."))
    save_file(kept | {tensor: kept[tensor].astype(np.int64)}, path, metadata={"format": "pt"})
    assert_refused(tmp_path, f"F16, BF16, F32 or F64, got I64 for {tensor}")


def test_int8_with_few_positions(tmp_path):
    """Opening a model in int8 computes texts of its own, which are no longer than what is stored."""
    model = save("tupe-a", tmp_path)
    results("bake", "--model", tmp_path, "--length", 5)
    ids, types = make_sequences((1, 5, 3))
    ours, theirs = Engine(tmp_path, "int8").hidden(ids, types=types), hidden_of(model, ids, types)
    assert np.abs(ours - theirs).max() <= 0.1 * np.abs(theirs).max()
