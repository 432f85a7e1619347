"""config.json of decoders with the keys that authors publish, older ones too, over small weights: the engine gives what
transformers computes for the same values; and keys that are refused."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine_case import assert_close, assert_refused
from rf_generation import CausalEngine
from rotary_decoders import MIXED, YARN, make_decoder, make_rows, oracle_logits

SHARED = {"attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "rope_scaling": None,
          "torch_dtype": "bfloat16", "transformers_version": "4.44.0", "use_cache": True}  # fmt: skip
GPT = {"activation_function": "gelu_new", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "initializer_range": 0.02,
       "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
       "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
       "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}}  # fmt: skip


def rotation(theta, **other):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | other}


PUBLISHED_YARN = {"beta_fast", "beta_slow", "factor", "original_max_position_embeddings", "rope_type"}


def own_code(name):
    classes = {"AutoConfig": f"configuration_{name}.Config", "AutoModelForCausalLM": f"modeling_{name}.Model"}
    return {"auto_map": classes}


# A case: the family and what transformers' class gets; keys of the file, besides sizes.
PUBLISHED = {
    "gpt2": ("gpt2", {"n_inner": 256, "intermediate_size": 256}, GPT | {"n_ctx": 1024}),
    "gpt-j-6b": ("gptj", {"n_inner": 256, "intermediate_size": 256}, GPT | {
        "gradient_checkpointing": False, "n_inner": None, "rotary": True, "rotary_dim": 8, "scale_attn_weights": True,
        "tie_word_embeddings": False, "tokenizer_class": "GPT2Tokenizer"}),
    "falcon-7b": ("falcon", {"ffn_hidden_size": 256}, own_code("falcon") | {
        "alibi": False, "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0, "bias": False,
        "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "multi_query": True,
        "new_decoder_architecture": False, "parallel_attn": True}),
    "falcon-rw-1b": ("falcon", {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True,
                                "ffn_hidden_size": 256}, own_code("falcon") | {
        "alibi": True, "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0, "bias": True,
        "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "multi_query": False,
        "new_decoder_architecture": False, "parallel_attn": False}),
    "bloom-560m": ("bloom", {}, {
        "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0, "attention_softmax_in_fp32": True,
        "bias_dropout_fusion": True, "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5,
        "masked_softmax_fusion": True, "n_embed": 64, "n_inner": None, "n_layer": 3, "offset_alibi": 100,
        "pretraining_tp": 1, "skip_bias_add": True, "skip_bias_add_qkv": False, "use_cache": True}),
    "mpt-7b": ("mpt", {}, own_code("mpt") | {
        "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "attn_type":
                        "multihead_attention", "attn_uses_sequence_id": False, "clip_qkv": None, "prefix_lm": False,
                        "qk_ln": False, "softmax_scale": None},
        "d_model": 64, "emb_pdrop": 0, "embedding_fraction": 1.0, "expansion_ratio": 4, "init_device": "cpu",
        "learned_pos_emb": True, "logit_scale": None, "max_seq_len": 2048, "n_heads": 4, "n_layers": 3,
        "no_bias": True, "norm_type": "low_precision_layernorm", "resid_pdrop": 0, "use_cache": False}),
    "mpt without keys of attention": ("mpt", {}, {
        "attn_config": None, "d_model": 64, "hidden_size": None, "max_seq_len": 2048, "n_heads": 4, "n_layers": 3}),
    "opt-125m": ("opt", {}, {
        "_remove_final_layer_norm": False, "activation_dropout": 0.0, "activation_function": "relu",
        "attention_dropout": 0.0, "do_layer_norm_before": True, "dropout": 0.1, "ffn_dim": 96, "init_std": 0.02,
        "layerdrop": 0.0, "word_embed_proj_dim": 64}),
    "TinyStories-1M": ("gpt_neo", {"intermediate_size": 256}, {
        "activation_function": "gelu_new", "attention_dropout": 0, "attention_layers": ["local", "global", "local"],
        "attention_types": [[["local", "global"], 1], [["local"], 1]], "embed_dropout": 0, "gradient_checkpointing":
        False, "layer_norm_epsilon": 1e-5, "num_heads": 4, "num_layers": 3, "resid_dropout": 0, "window_size": 9}),
    "gpt_neo by layers": ("gpt_neo", {"intermediate_size": 256, "attention_types": [[["local"], 2], [["global"], 1]]}, {
        "attention_layers": ["local", "local", "global"], "attention_types": [[["global", "local"], 12]],
        "intermediate_size": None, "num_heads": 4, "num_layers": 3, "window_size": 9}),
    "gpt_bigcode-santacoder": ("gpt_bigcode", {"activation_function": "gelu_pytorch_tanh"}, GPT | {
        "activation_function": "gelu_fast", "attention_softmax_in_fp32": True, "multi_query": True, "n_inner": 96,
        "num_key_value_heads": 1, "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True}),
    "starcoder2-3b": ("starcoder2", rotation(999999.4420358813), {
        "attention_dropout": 0.1, "embedding_dropout": 0.1, "hidden_act": "gelu_pytorch_tanh", "initializer_range":
        0.018042, "mlp_type": "default", "norm_epsilon": 1e-5, "norm_type": "layer_norm", "residual_dropout": 0.1,
        "rope_theta": 999999.4420358813, "sliding_window": 9, "use_bias": True, "use_cache": True}),
    "persimmon-8b-base": ("persimmon", rotation(25000.0, partial_rotary_factor=0.5), {
        "hidden_act": "relu2", "initializer_range": 0.02, "layer_norm_eps": 1e-5, "num_key_value_heads": 4,
        "partial_rotary_factor": 0.5, "qk_layernorm": True, "rope_theta": 25000.0, "use_cache": True}),
    "HyperCLOVAX-SEED-Think-14B": ("hyperclovax", rotation(1e8) | {"attention_multiplier": 0.0078125}, SHARED | {
        "attention_multiplier": 0.0078125, "embedding_multiplier": 3.0, "hidden_act": "silu", "logits_scaling": 3.0,
        "mlp_bias": False, "residual_multiplier": 0.4, "rope_theta": 1e8, "use_post_norm": True} |
        own_code("hyperclovax")),
    "ERNIE-4.5-0.3B-PT": ("ernie4_5", rotation(5e5), own_code("ernie4_5") | {
        "head_dim": 24, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True,
        "use_bias": False, "use_cache": False}),
    "OLMo-1B-hf": ("olmo", {}, SHARED | {"clip_qkv": None, "hidden_act": "silu", "pretraining_tp": 1,
                   "rope_theta": 10000.0, "tie_word_embeddings": False}),
    "phi-2": ("phi", rotation(1e4, partial_rotary_factor=0.5), SHARED | {
        "embd_pdrop": 0.0, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
        "qk_layernorm": False, "resid_pdrop": 0.1, "rope_theta": 10000.0, "tie_word_embeddings": False}),
    "Phi-3-mini-4k-instruct": ("phi3", {"sliding_window": 7}, SHARED | own_code("phi3") | {
        "embd_pdrop": 0.0, "hidden_act": "silu", "original_max_position_embeddings": 64, "resid_pdrop": 0.0,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 7, "tie_word_embeddings": False}),
    "gemma-2b": ("gemma", {}, SHARED | {
        "head_dim": 24, "hidden_act": "gelu", "hidden_activation": None, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}),
    "gemma-2-2b": ("gemma2", {"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "sliding_window": 4096,
                              "final_logit_softcapping": 30.0}, SHARED | {
        "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0,
        "head_dim": 24, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 4096}),
    "stablelm-2-1_6b": ("stablelm", rotation(1e4, partial_rotary_factor=0.25), {
        "hidden_act": "silu", "initializer_range": 0.02, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
        "rope_theta": 10000, "tie_word_embeddings": False, "use_qkv_bias": True, "use_cache": True}),
    "granite-3.1-2b-instruct": ("granite", rotation(5e6) | {
        "attention_multiplier": 0.0625, "embedding_multiplier": 12.0, "logits_scaling": 8.0, "rms_norm_eps": 1e-5,
        "residual_multiplier": 0.22, "tie_word_embeddings": True}, SHARED | {
        "attention_dropout": 0.1, "attention_multiplier": 0.0625, "embedding_multiplier": 12.0, "hidden_act": "silu",
        "logits_scaling": 8.0, "mlp_bias": False, "residual_multiplier": 0.22, "rms_norm_eps": 1e-5,
        "rope_theta": 5000000.0, "tie_word_embeddings": True}),
    "SmolLM3-3B": ("smollm3", rotation(5e6) | {"no_rope_layers": [1, 0, 1]}, SHARED | {
        "hidden_act": "silu", "layer_types": ["full_attention"] * 3, "max_window_layers": 28, "mlp_bias": False,
        "no_rope_layer_interval": 4, "no_rope_layers": [1, 0, 1], "pretraining_tp": 2, "rms_norm_eps": 1e-6,
        "rope_theta": 5000000.0, "sliding_window": None, "use_sliding_window": False}),
    "SmolLM3 with windows": ("smollm3", rotation(5e6) | {"no_rope_layers": [0, 1, 0], "use_sliding_window": True,
                             "sliding_window": 9}, SHARED | {
        "no_rope_layers": [0, 1, 0], "rope_theta": 5000000.0, "sliding_window": 9, "use_sliding_window": True}),
    "SmolLM3 with windows by interval": ("smollm3", rotation(5e6) | {"use_sliding_window": True, "sliding_window": 9},
                                         SHARED | {"no_rope_layer_interval": 2, "rope_theta": 5000000.0,
                                                   "sliding_window": 9, "use_sliding_window": True}),
    "Ministral-8B": ("ministral", {"layer_types": None}, SHARED | {
        "head_dim": 24, "hidden_act": "silu", "rope_theta": 10000.0, "sliding_window": 9}),
    "Olmo-3-1025-7B": ("olmo3", {"num_hidden_layers": 5, "layer_types": None, "rope_parameters": {
        "full_attention": YARN | {"truncate": True, "rope_theta": 5e5}, "sliding_attention": {"rope_type": "default"}}},
        SHARED | {
        "hidden_act": "silu", "rope_scaling": {key: value for key, value in YARN.items() if key in PUBLISHED_YARN},
        "rope_theta": 500000, "sliding_window": 9}),
    "OLMo-2-1124-7B": ("olmo2", rotation(5e5) | {"rms_norm_eps": 1e-6}, SHARED | {
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 500000, "tie_word_embeddings": False}),
    "c4ai-command-r-v01": ("cohere", rotation(8e6) | {"logit_scale": 0.0625}, SHARED | {
        "hidden_act": "silu", "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "model_max_length": 131072,
        "pretraining_tp": 1, "rope_theta": 8000000.0, "use_qk_norm": False}),
    "c4ai-command-r7b-12-2024": ("cohere2", rotation(5e4) | {"num_hidden_layers": 5, "layer_types": None}, SHARED | {
        "_sliding_window_pattern": 4, "cache_implementation": "hybrid", "head_dim": 16, "hidden_act": "silu",
        "layer_norm_eps": 1e-5, "layer_switch": 4, "logit_scale": 0.25, "order_of_interleaved_layers":
        "local_attn_first", "position_embedding_type": "rope_gptj", "rope_theta": 50000, "rotary_pct": 1.0,
        "sliding_window": 9, "sliding_window_pattern": 4, "use_embedding_sharing": True, "use_gated_activation": True,
        "use_parallel_block": True, "use_parallel_embedding": True}),
    "EXAONE-4.0-32B": ("exaone4", rotation(1e6), SHARED | MIXED | {
        "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 1000000, "sliding_window_pattern":
        "LGL", "tie_word_embeddings": False}),
    "Mixtral-8x7B-v0.1": ("mixtral", {}, SHARED | {
        "hidden_act": "silu", "num_experts_per_tok": 2, "num_local_experts": 4, "output_router_logits": False,
        "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None,
        "tie_word_embeddings": False}),
    "Qwen3-30B-A3B": ("qwen3_moe", rotation(1e6) | {"norm_topk_prob": True}, SHARED | {
        "decoder_sparse_step": 1, "head_dim": 24, "hidden_act": "silu", "max_window_layers": 48, "mlp_only_layers": [],
        "moe_intermediate_size": 40, "norm_topk_prob": True, "num_experts": 4, "num_experts_per_tok": 2,
        "output_router_logits": False, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
        "sliding_window": None, "tie_word_embeddings": False, "use_sliding_window": False}),
    "gpt-oss-20b": ("gpt_oss", {"swiglu_limit": 7.0}, SHARED | MIXED | {
        "attention_bias": True, "experts_per_token": 2, "head_dim": 24, "hidden_act": "silu", "initial_context_length":
        4096, "num_experts_per_tok": 2, "num_local_experts": 4, "output_router_logits": False, "rms_norm_eps": 1e-5,
        "rope_scaling": {key: value for key, value in YARN.items() if key != "rope_theta"}, "rope_theta": 500.0,
        "router_aux_loss_coef": 0.9, "swiglu_limit": 7.0, "tie_word_embeddings": False}),
}  # fmt: skip
SIZES = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "intermediate_size", "max_position_embeddings", "n_embd", "n_layer", "n_head", "n_positions", "model_type",
         "architectures", "bos_token_id", "eos_token_id", "pad_token_id"}  # fmt: skip


def publish(folder, keys):
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    sizes = {key: saved[key] for key in saved.keys() & SIZES}
    if {"n_embd", "multi_query", "n_layer", "d_model", "window_size", "ffn_dim"} & saved.keys():  # their own keys
        sizes.pop("intermediate_size", None)
    path.write_text(json.dumps(sizes | keys))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_keys(name, tmp_path):
    family, values, keys = PUBLISHED[name]
    oracle = make_decoder(family, tmp_path, **values)
    publish(tmp_path, keys)
    if name == "gpt2":  # whose file has no prefix, and masks beside the weights
        path = tmp_path / "model.safetensors"
        weights = {key.removeprefix("transformer."): value for key, value in load_file(path).items()}
        masks = {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 64, 64), np.float32)) for i in range(3)}
        save_file(weights | masks, path)
    engine = CausalEngine(tmp_path)
    for row in make_rows((1, 40)):
        assert_close(engine.logits([row]), oracle_logits(oracle, row))


REFUSED = [
    ("c4ai-command-r7b-12-2024", {"use_qk_norm": True}, "use_qk_norm must be absent"),
    ("c4ai-command-r7b-12-2024", {"position_embedding_type": "alibi"}, "must be absent or rope_gptj, got .alibi"),
    ("falcon-7b", {"apply_residual_connection_post_layernorm": True}, "norm must be absent, .* for falcon, got true"),
    ("falcon-rw-1b", {"is_causal": False}, "is_causal must be .* ALiBi, got false"),
    ("mpt-7b", {"attn_config": {"alibi": False}}, "attn_config.alibi must be absent or true"),
    ("mpt-7b", {"attn_config": {"clip_qkv": 6.0}}, "attn_config.clip_qkv must be .* null"),
    ("mpt-7b", {"no_bias": False}, "no_bias must be absent or true, got false"),
    ("mpt-7b", {"attn_config": {"sliding_window_size": 512}}, "sliding_window_size must be .* -1"),
    ("bloom-560m", {"slow_but_exact": True, "pretraining_tp": 2}, "absent or 1 with slow_but_exact, .*, got 2"),
    ("Olmo-3-1025-7B", {"rope_theta": 1e4}, "rope_theta of an olmo3 must be 500000, .*, got 10000"),
    ("Olmo-3-1025-7B", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "olmo3 must have a rope_type, got"),
    ("TinyStories-1M", {"attention_layers": ["global", "sliding", "local"]}, "must be 3 of global and local, got"),
    ("TinyStories-1M", {"window_size": None}, "window_size must be given, got none"),
    ("phi-2", {"partial_rotary_factor": 0.45}, r"an even number of elements, at least 2: 16 \* 0.45 comes to 7"),
    ("opt-125m", {"num_key_value_heads": 2}, "num_key_value_heads must be absent, .*, got 2"),
    ("opt-125m", {"do_layer_norm_before": False}, "do_layer_norm_before must be true"),
    ("opt-125m", {"word_embed_proj_dim": 32}, "word_embed_proj_dim must be hidden_size, got 32"),
    ("TinyStories-1M", {"attention_types": [[["global", "local"], 1]], "attention_layers": None},
     r"attention_types must be lists of global and local .* of 3 layers, got"),
    ("OLMo-1B-hf", {"clip_qkv": 8.0}, "clip_qkv must be absent"),
    ("falcon-7b", {"new_decoder_architecture": True, "parallel_attn": False, "num_kv_heads": 2},
     "parallel_attn must be true with new_decoder_architecture, got false"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ("gpt-j-6b", {"n_head": 2.5}, "n_head must be an integer from 1 to .*, got 2.5"),
    ("gpt-j-6b", {"scale_attn_weights": False}, "scale_attn_weights must be true, got false"),
    ("gemma-2-2b", {"use_bidirectional_attention": True}, "use_bidirectional_attention must be"),
    ("gemma-2-2b", {"attn_logit_softcapping": -1}, "attn_logit_softcapping must be"),
    ("SmolLM3-3B", {"no_rope_layers": [1, "no", 1]}, "no_rope_layers must have a 0 or 1 for"),
    ("SmolLM3-3B", {"no_rope_layers": [1, 0]}, "each of 3 layers, got .1,0."),
    ("SmolLM3-3B", {"layer_types": ["sliding_attention"] * 3}, "must be true with layer_types of sliding_attention"),
    ("Qwen3-30B-A3B", {"mlp_only_layers": [0.5]}, r"mlp_only_layers must be .*, got \[0.5\]"),
    ("Qwen3-30B-A3B", {"decoder_sparse_step": None}, "decoder_sparse_step must be given, got none"),
    ("Qwen3-30B-A3B", {"moe_intermediate_size": None}, "moe_intermediate_size must be given, got none"),
    ("Qwen3-30B-A3B", {"use_sliding_window": "yes"}, "use_sliding_window must be .*, got .yes"),
    ("falcon-7b", {"new_decoder_architecture": True, "multi_query": "yes"}, "multi_query must be"),
    ("bloom-560m", {"slow_but_exact": "yes"}, "slow_but_exact must be .*, got .yes"),
    ("Qwen3-30B-A3B", {"num_experts": None}, "num_local_experts or num_experts must be given, got none"),
    ("Mixtral-8x7B-v0.1", {"num_experts_per_tok": None}, "num_experts_per_tok must be given"),
    ("Mixtral-8x7B-v0.1", {"num_experts_per_tok": 5}, "num_experts_per_tok must be"),
    ("gpt-oss-20b", {"rope_scaling": None}, "rope_parameters must be given in a gpt_oss"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_refused_keys(name, changes, message, tmp_path):
    family, values, keys = PUBLISHED[name]
    make_decoder(family, tmp_path, **values)
    publish(tmp_path, keys | changes)
    assert_refused(tmp_path, message)
