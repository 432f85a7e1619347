"""Decoders of the layouts of Llama and GPT-NeoX, in Hugging Face directories, beside transformers."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import tolerances as tol
from engine_case import assert_close, assert_low_precision, assert_refused, change_config, set_threads
from rf_generation import CausalEngine, check_grown
from rotary_decoders import FAMILIES, LENGTHS, SCALINGS, VARIANTS, VOCAB, make_decoder, make_rows, oracle_logits


def check_logits(oracle, engine):
    rows = make_rows()
    for row, logits in zip(rows, np.split(engine.logits(rows), np.cumsum(LENGTHS)[:-1]), strict=True):
        assert_close(logits, oracle_logits(oracle, row))


# tests/oracles/test_saved_models.py has the families' own configurations.
CASES = {
    "grouped-by-one": ("llama", {"num_key_value_heads": 1}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "wide-heads": ("llama", {"head_dim": 24}),
    "gpt-neox-whole": ("gpt_neox", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}}),
    "gpt-neox-sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "gpt-neox-tanh": ("gpt_neox", {"hidden_act": "gelu_new"}),
    "gpt-neox-without-biases": ("gpt_neox", {"attention_bias": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_logits(case, tmp_path):
    family, changes = CASES[case]
    check_logits(make_decoder(family, tmp_path, **changes), CausalEngine(tmp_path))


# What the engine's own layers do not have in Llama, GPT-NeoX and Gemma 3, which the cases above have.
OTHERS = [family for family in FAMILIES if family not in ("llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gemma3")]
ODD = {"hidden_size": 72, "num_attention_heads": 6, "vocab_size": 83, "intermediate_size": 44}
WIDTHS = {"gpt2": "n_inner", "gptj": "n_inner", "falcon": "ffn_hidden_size"}
# Families that differ in what their layers compute.
MECHANISMS = ["gemma2", "granite", "olmo2", "smollm3", "cohere", "phi3", "gpt2", "falcon-groups", "qwen3_moe"]
MECHANISMS += ["gpt_oss", "falcon-alibi", "stablelm-norms", "nemotron", "gpt_neo"]
SHAPES = [(name, "even") for name in (*OTHERS, *VARIANTS)]
SHAPES += [(name, "odd") for name in (*MECHANISMS, "gptj", "bloom", "mpt")]


def case_of(name):
    return VARIANTS.get(name, (name, {}))


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_families(name, shape, tmp_path):
    """Logits, and what transformers generates with its cache for 64 tokens."""
    family, changes = case_of(name)
    sizes = {} if shape == "even" else ODD | {WIDTHS.get(family, "intermediate_size"): ODD["intermediate_size"]}
    oracle = make_decoder(family, tmp_path, max_position_embeddings=128, **(changes | sizes))
    engine = CausalEngine(tmp_path)
    check_logits(oracle, engine)
    (row,) = make_rows((21,))
    check_generation(oracle, engine, row, 64)


def check_generation(oracle, engine, row, tokens, beams=1):
    ids = torch.tensor(row)[None].long()
    options = {"max_new_tokens": tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    theirs = oracle.generate(ids, attention_mask=torch.ones_like(ids), num_beams=beams, **options)
    search = {} if beams == 1 else {"search": "beams", "beams": beams}
    assert engine.generate([row], max_new_tokens=tokens, **search)[0][0].ids == theirs[0, len(row) :].tolist()


@pytest.mark.parametrize("family", ["falcon-alibi", "bloom", "mpt"])
def test_far_keys(family, tmp_path):
    """Slopes and positions that bfloat16 rounds, in batches and with a cache."""
    family, changes = case_of(family)
    oracle = make_decoder(family, tmp_path, max_position_embeddings=700, num_attention_heads=16, **changes)
    engine, rows = CausalEngine(tmp_path), make_rows((700, 5, 300))
    whole = np.split(engine.logits(rows), np.cumsum([len(row) for row in rows])[:-1])
    for row, logits in zip(rows, whole, strict=True):
        assert_close(logits, oracle_logits(oracle, row))
    check_grown(engine, rows, 100, lambda i, length: whole[i][length - 1], 1)


LOW = [("llama", "int8"), ("gpt_neox", "bfloat16"), *((name, "bfloat16") for name in MECHANISMS)]


@pytest.mark.parametrize(("name", "precision"), LOW)
def test_low_precision(name, precision, tmp_path):
    """In weights as they are initialised, of a size at which attention is not yet uniform; a cache changes no bit."""
    family, changes = case_of(name)
    oracle = make_decoder(family, tmp_path, spread=0.05, **changes)
    (row,) = make_rows((40,))
    engine = CausalEngine(tmp_path, precision)
    ours = engine.logits([row])
    assert_low_precision(ours, oracle_logits(oracle, row), CausalEngine(tmp_path).logits([row]))
    check_grown(engine, [row], 7, lambda i, length: ours[length - 1], 1)


def test_blocks_of_4_bits(tmp_path):
    """gpt-oss as it is published, whose experts are MXFP4; beside the weights that transformers makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    oracle = make_decoder("gpt_oss", tmp_path)
    weights, random = load_file(tmp_path / "model.safetensors"), np.random.default_rng(2)
    for name, parameter in oracle.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            del weights[name]
            experts, width, rows = parameter.shape
            blocks = random.integers(0, 256, (experts, rows, width // 32, 16), np.uint8)
            scales = random.integers(122, 126, blocks.shape[:3], np.uint8)
            weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            packed = convert_moe_packed_tensors(torch.tensor(blocks), torch.tensor(scales), dtype=torch.float32)
            parameter.data.copy_(packed)
    save_file(weights, tmp_path / "model.safetensors")
    change_config(tmp_path, quantization_config={"quant_method": "mxfp4"})
    check_logits(oracle, CausalEngine(tmp_path))
    message = r"quantization_config must be absent or of mxfp4, got .*fp8"
    assert_refused(tmp_path, message, quantization_config={"quant_method": "fp8"})


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scalings(scaling, tmp_path):
    family = ("llama", "gpt_neox")[list(SCALINGS).index(scaling) % 2]
    share = {"partial_rotary_factor": 0.5} if family == "gpt_neox" else {}
    parameters = {"rope_type": scaling, "rope_theta": 500.0, **SCALINGS[scaling], **share}
    oracle = make_decoder(family, tmp_path, rope_parameters=parameters)
    check_logits(oracle, CausalEngine(tmp_path))
    plain = make_decoder(family, rope_parameters={"rope_type": "default", "rope_theta": 500.0, **share})
    row = make_rows()[-1]
    differs = np.abs(oracle_logits(oracle, row) - oracle_logits(plain, row)).max() > 1000 * tol.T4_MAX
    assert differs == (scaling != "default")


BITS = [("llama", "float32"), ("gpt_neox", "bfloat16"), ("llama", "bfloat16"), ("gpt_neox", "int8")]


@pytest.mark.parametrize("family, precision", BITS)
def test_bits(family, precision, tmp_path):
    """A cache of fewer heads than queries have changes no bit, nor do threads and other sequences."""
    make_decoder(family, tmp_path, max_position_embeddings=300)
    engine = CausalEngine(tmp_path, precision)
    rows = make_rows((1, 64, 3, 130, 65, 3))
    whole = [engine.logits([row]) for row in rows]
    for threads, longest_step in ((1, 1), (2, 50), (3, 300)):
        set_threads(threads)
        check_grown(engine, rows, longest_step, lambda i, length: whole[i][length - 1], threads)


MAMBA = {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}


def test_bad_config(tmp_path):
    make_decoder("llama", tmp_path)
    (tmp_path / "generation_config.json").unlink()
    for changes, message in (
        (MAMBA, 'model_type "mamba" is not supported, because it needs a recurrence; the page docs/engine.md'),
        ({"quantization_config": {"bits": 4}}, r"weights must not be quantised \(quantization_config\), got"),
        ({"num_key_value_heads": 3}, "query heads must be a multiple of key heads, got 4 and 3"),
        ({"hidden_act": "mish"}, "hidden_act must be gelu, gelu_new, relu, relu2, silu or tanh, got .mish"),
        ({"hidden_size": None}, "hidden_size must be given, got none"),
        ({"vocab_size": "many"}, r"vocab_size must be an integer from 1 to \d+, got \"many\""),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be"),
        ({"eos_token_id": [2, VOCAB]}, r"eos_token_id must be a token from 0 to 70, got 71"),
        ({"model_type": "mistral", "sliding_window": -1}, r"sliding_window must be an integer from 1 to \d+, got -1"),
        ({"attention_bias": True}, r"LlamaForCausalLM must be .* got 12 missing, the first .*0.self_attn.q_proj.bias"),
        ({"intermediate_size": 100}, r"mlp.down_proj.weight. must have the shape \[64, 100\] by .*, got \[64, 96\]"),
        ({"num_hidden_layers": 2}, "tensors must be those of LlamaForCausalLM, got .*layers.2"),
        ({"num_hidden_layers": 4}, "got 9 missing, the first .model.layers.3.self_attn.q_proj.weight. of shape"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "one rotation that is known"),
    ):
        assert_refused(tmp_path, message, **changes)


WINDOWS = {
    "mistral": ("mistral", {"num_key_value_heads": 1, "sliding_window": 7}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "gemma3": ("gemma3", {"sliding_window": 9, "sliding_window_pattern": 2}),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_windows(case, tmp_path):
    """Shorter than the sequences: the logits, those that a cache gives, and what transformers' own cache generates."""
    family, changes = WINDOWS[case]
    oracle = make_decoder(family, tmp_path, max_position_embeddings=300, **changes)
    engine = CausalEngine(tmp_path)
    check_logits(oracle, engine)
    rows = make_rows((1, 64, 3, 70))
    whole = [engine.logits([row]) for row in rows]
    for longest_step in (1, 50):
        check_grown(engine, rows, longest_step, lambda i, length: whole[i][length - 1], longest_step)
    for row in rows[2:]:
        for beams in (1, 3):
            check_generation(oracle, engine, row, 12, beams)


def test_bad_weights(tmp_path):
    make_decoder("llama", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name][3, 5] = np.nan
    save_file(weights, tmp_path / "model.safetensors")
    assert_refused(tmp_path, rf"weights must be finite in float32, got nan in {name}\[3, 5\]")
