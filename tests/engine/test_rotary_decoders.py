"""Decoders of the layouts of Llama and GPT-NeoX, in Hugging Face directories, beside transformers."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import tolerances as tol
from engine_case import assert_close, set_threads
from rf_engine import EngineError
from rf_generation import CausalEngine, Decoder, grow
from rotary_decoders import LENGTHS, SCALINGS, VOCAB, make_decoder, make_rows, oracle_logits


def check_logits(oracle, engine):
    rows = make_rows()
    ours = np.split(engine.logits(rows), np.cumsum(LENGTHS)[:-1])
    for row, logits in zip(rows, ours, strict=True):
        assert_close(logits, oracle_logits(oracle, row))


CASES = {
    "llama": ("llama", {}),
    "grouped-by-one": ("llama", {"num_key_value_heads": 1}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "wide-heads": ("llama", {"head_dim": 24}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "gpt-neox": ("gpt_neox", {}),
    "gpt-neox-whole": ("gpt_neox", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}}),
    "gpt-neox-sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "gpt-neox-tanh": ("gpt_neox", {"hidden_act": "gelu_new"}),
    "gpt-neox-without-biases": ("gpt_neox", {"attention_bias": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_logits(case, tmp_path):
    family, changes = CASES[case]
    oracle = make_decoder(family, tmp_path, **changes)
    check_logits(oracle, CausalEngine(tmp_path))


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_scalings(family, scaling, tmp_path):
    share = {"partial_rotary_factor": 0.5} if family == "gpt_neox" else {}
    parameters = {"rope_type": scaling, "rope_theta": 500.0, **SCALINGS[scaling], **share}
    oracle = make_decoder(family, tmp_path, rope_parameters=parameters)
    check_logits(oracle, CausalEngine(tmp_path))
    plain = make_decoder(family, rope_parameters={"rope_type": "default", "rope_theta": 500.0, **share})
    row = make_rows()[-1]
    differs = np.abs(oracle_logits(oracle, row) - oracle_logits(plain, row)).max() > 1000 * tol.T4_MAX
    assert differs == (scaling != "default")
