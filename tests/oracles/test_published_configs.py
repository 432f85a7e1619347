"""config.json with the keys that authors publish, older ones too, over small weights: the engine gives what
transformers computes for the same values."""

import json

import numpy as np
import pytest

from decoder_embedders import make_bare, make_t5, theirs_of
from engine_case import assert_close, assert_refused
from foreign_encoders import make_encoder
from rf_engine import Engine

SIZES = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
SIZES |= {"intermediate_size", "max_position_embeddings", "d_model", "d_kv", "d_ff", "num_layers", "num_heads"}
MODERN = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 51, "classifier_activation": "gelu",
    "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 51,
    "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 52,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
    "local_attention": 8, "local_rope_theta": 10000.0, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "pad_token_id": 1,
    "position_embedding_type": "absolute", "reference_compile": None, "repad_logits_with_grad": False,
    "sep_token_id": 52, "sparse_pred_ignore_index": -100, "sparse_prediction": False, "tie_word_embeddings": True,
}  # fmt: skip
GTE = {
    "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm", "logn_attention_clip1": False, "logn_attention_scale": False, "pack_qkv": True,
    "pad_token_id": 1, "position_embedding_type": "rope", "rope_scaling": None, "rope_theta": 160000,
    "type_vocab_size": 1, "unpad_inputs": "true", "use_memory_efficient_attention": "true",
}  # fmt: skip
ARCTIC = "modeling_hf_alibaba_nlp_gte.GteModel"
OWN_QWEN = {"AutoModel": "modeling_qwen.Qwen2Model", "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM"}
XLM = {
    "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "classifier_dropout": None, "eos_token_id": 2,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
    "output_past": True, "pad_token_id": 1, "position_embedding_type": "absolute", "type_vocab_size": 1,
    "use_cache": True,
}  # fmt: skip


def encoder(family, **values):
    return lambda folder: make_encoder(family, "Model", folder, **values)


def rotation(theta, **other):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | other}


def two_rotations(local):
    bases = {"full_attention": 160000.0, "sliding_attention": local}
    return {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}}


# What makes the weights, with the values under the keys of transformers 5; the published keys besides those of sizes.
PUBLISHED = {
    "granite-embedding-30m-english": (
        encoder("roberta", type_vocab_size=2, layer_norm_eps=1e-12),
        XLM | {"architectures": ["RobertaModel"], "model_type": "roberta", "type_vocab_size": 2,
               "layer_norm_eps": 1e-12, "gradient_checkpointing": False},
    ),
    "multilingual-e5-base, snowflake-arctic-embed-l-v2.0, bge-m3": (
        encoder("xlm-roberta", pad_token_id=1, layer_norm_eps=1e-5),
        XLM | {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"},
    ),
    "gte-modernbert-base, granite-embedding-english-r2": (
        encoder("modernbert", **two_rotations(10000.0)),
        MODERN | {"architectures": ["ModernBertModel"]},
    ),
    "mmBERT-base": (
        encoder("modernbert", **two_rotations(160000.0)),
        MODERN | {"architectures": ["ModernBertForMaskedLM"], "local_rope_theta": 160000,
                  "position_embedding_type": "sans_pos"},
    ),
    "snowflake-arctic-embed-m-v2.0": (
        encoder("gte", type_vocab_size=1, **rotation(160000.0)),
        GTE | {"architectures": ["GteModel"], "model_type": "gte", "auto_map": {"AutoModel": ARCTIC},
               "matryoshka_dimensions": [256]},
    ),
    "gte-multilingual-base": (
        encoder("gte", type_vocab_size=1, **rotation(20000.0)),
        GTE | {"architectures": ["NewModel"], "model_type": "new", "auto_map": {"AutoModel": "modeling.NewModel"},
               "rope_theta": 20000},
    ),
    "gte-Qwen2-1.5B-instruct, stella_en_1.5B_v5": (
        lambda folder: make_bare("qwen2-bidirectional", folder, **rotation(1e6)),
        {"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "auto_map": OWN_QWEN, "bos_token_id": 1,
         "eos_token_id": 1, "hidden_act": "silu", "initializer_range": 0.02, "is_causal": False,
         "max_window_layers": 21, "model_type": "qwen2", "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
         "sliding_window": 131072, "tie_word_embeddings": False, "use_cache": True, "use_sliding_window": False},
    ),
    "e5-mistral-7b-instruct": (
        lambda folder: make_bare("mistral-windows", folder, sliding_window=4096, rms_norm_eps=1e-5),
        {"architectures": ["MistralModel"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
         "initializer_range": 0.02, "model_type": "mistral", "pad_token_id": 2, "rms_norm_eps": 1e-05,
         "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False, "use_cache": False},
    ),
    "sentence-t5-base": (
        make_t5,
        {"architectures": ["T5EncoderModel"], "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1,
         "feed_forward_proj": "relu", "gradient_checkpointing": False, "initializer_factor": 1.0,
         "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
         "num_decoder_layers": 12, "output_past": True, "pad_token_id": 0, "relative_attention_num_buckets": 32,
         "task_specific_params": {"summarization": {"prefix": "summarize: "}}, "use_cache": True},
    ),
    "all-mpnet-base-v2": (
        encoder("mpnet", layer_norm_eps=1e-5),
        {"architectures": ["MPNetForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
         "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
         "layer_norm_eps": 1e-05, "model_type": "mpnet", "pad_token_id": 1, "relative_attention_num_buckets": 32},
    ),
}  # fmt: skip


def publish(folder, keys):
    path = folder / "config.json"
    sizes = {key: value for key, value in json.loads(path.read_text()).items() if key in SIZES}
    path.write_text(json.dumps(sizes | keys))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_keys(name, tmp_path):
    make, keys = PUBLISHED[name]
    oracle = make(tmp_path)
    publish(tmp_path, keys)
    random = np.random.default_rng(7)
    rows = [random.integers(3, 58, count).astype(np.int32) for count in (1, 13, 50)]
    assert_close(Engine(tmp_path, head="none").hidden(rows), np.concatenate([theirs_of(oracle, row) for row in rows]))


GTE_QWEN, ARCTIC_M = "gte-Qwen2-1.5B-instruct, stella_en_1.5B_v5", "snowflake-arctic-embed-m-v2.0"
REFUSED = [
    (GTE_QWEN, {"is_causal": None}, "auto_map must be absent, or name modeling_qwen"),  # whose class does not read it
    (GTE_QWEN, {"auto_map": {"AutoModel": "modeling.Other"}}, "auto_map must be absent, or name modeling_qwen"),
    (ARCTIC_M, {"logn_attention_scale": True}, "logn_attention_scale must"),
    (ARCTIC_M, {"auto_map": None}, "position_embedding_type must be"),  # a key of GTE's in transformers' class
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_refused_keys(name, changes, message, tmp_path):
    make, keys = PUBLISHED[name]
    make(tmp_path)
    publish(tmp_path, keys | changes)
    assert_refused(tmp_path, message, options={"head": "none"})
