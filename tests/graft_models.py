"""Small models of transformers for grafts and pictures of attention."""

import torch
import transformers

from tolerances import T4_MAX, T4_MEAN

SIZES = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 48, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
WINDOWS = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"] * 2}
DECODERS = {
    "Llama": GROUPED,
    "Mistral": GROUPED | {"sliding_window": 9},
    "Qwen2": {"num_key_value_heads": 2},
    "Qwen3": GROUPED,
    "Gemma": GROUPED,
    "Gemma3": GROUPED | WINDOWS | {"query_pre_attn_scalar": 20},
    "GPTNeoX": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
}
ENCODERS = {"ModernBert": {"local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}, "Bert": {}}
IDS = torch.randint(3, 100, (2, 40), generator=torch.Generator().manual_seed(0))


def make(family, **changes):
    """A model whose parameters are moved by N(0, 0.1^2)."""
    config = getattr(transformers, f"{family}TextConfig" if family == "Gemma3" else f"{family}Config")
    head = "ForCausalLM" if family in DECODERS else "ForMaskedLM"
    torch.manual_seed(0)
    made = config(**SIZES | (DECODERS | ENCODERS)[family] | changes)
    model = getattr(transformers, family + head)(made).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def assert_t4(ours, theirs, where=""):
    error, scale = (ours - theirs).abs(), theirs.abs().max()
    assert error.max() <= T4_MAX * scale and error.mean() <= T4_MEAN * scale, where
