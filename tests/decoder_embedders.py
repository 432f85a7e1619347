"""Random perturbed embedders with the blocks of decoders, as directories of transformers and sentence-transformers."""

import json

import torch
import transformers

from rotary_decoders import SAMPLES, SIZES, SPECIALS, make_tokenizer
from sentence_model import save_modules

GEMMA = dict(num_key_value_heads=1, head_dim=24, query_pre_attn_scalar=20, sliding_window=9)
TWO_WAYS = {"use_bidirectional_attention": True}
# A case: the stem of the classes, and keys of the configuration.
CASES = {
    "qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 24}),
    "qwen3-bidirectional": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 24, "is_causal": False}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "qwen2-bidirectional": ("Qwen2", {"num_key_value_heads": 2, "is_causal": False}),
    "qwen2-windows": ("Qwen2", {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 5,
                                "max_window_layers": 1}),
    "qwen3-layer-types": ("Qwen3", {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 6,
                                      "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "mistral-windows": ("Mistral", {"num_key_value_heads": 1, "sliding_window": 7}),
    "mistral-windows-bidirectional": ("Mistral", {"num_key_value_heads": 1, "sliding_window": 7, "is_causal": False}),
    "llama-bidirectional": ("Llama", {"num_key_value_heads": 2, "is_causal": False}),
    "gemma3": ("Gemma3Text", GEMMA | {"num_hidden_layers": 7}),
    "gemma3-bidirectional": ("Gemma3Text", GEMMA | TWO_WAYS | {"num_hidden_layers": 7}),
    "gemma3-even-window": ("Gemma3Text", GEMMA | TWO_WAYS | {"num_hidden_layers": 7, "sliding_window": 8}),
    "gemma3-scaled": ("Gemma3Text", GEMMA | {"attention_bias": True, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}},
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
}  # fmt: skip


def make_bare(case, folder=None, head="Model", spread=0.3, **changes):
    """A model without a head, or with one, saved in a folder."""
    torch.manual_seed(5)
    stem, own = CASES[case]
    config = getattr(transformers, f"{stem}Config")(**(SIZES | own | changes))
    stem = "Gemma3" if stem == "Gemma3Text" and head == "ForCausalLM" else stem
    oracle = getattr(transformers, stem + head)(config)
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter.add_(spread * torch.randn(parameter.shape))
    oracle.set_attn_implementation("eager")
    if folder is not None:
        oracle.save_pretrained(folder)
    return oracle.eval()


def ending_tokenizer(folder, **settings):
    """Byte pairs whose template adds the end of the text, as Qwen3-Embedding's."""
    from tokenizers import processors

    pieces = make_tokenizer()
    end = (SPECIALS[0], pieces.token_to_id(SPECIALS[0]))
    pieces.post_processor = processors.TemplateProcessing(
        single=f"$A {end[0]}", pair=f"$A {end[0]} $B:1 {end[0]}:1", special_tokens=[end]
    )
    settings = {"eos_token": end[0], "pad_token": end[0], "padding_side": "left"} | settings
    transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, **settings).save_pretrained(folder)
    return pieces


PROMPTS = {"query": "Instruct: find what answers\nQuery:", "document": ""}
TEXTS = [*SAMPLES, "a", "", "the quick " * 30]


def make_sentences(case, folder, pooling="lasttoken", **changes):
    """A directory of sentence-transformers: Transformer, Pooling, Normalize, and prompts."""
    vocab = ending_tokenizer(folder, model_max_length=64).get_vocab_size()
    make_bare(case, folder, vocab_size=vocab, **changes)
    more = {"prompts": PROMPTS, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    settings = {"pooling_mode": pooling, "embedding_dimension": SIZES["hidden_size"], "include_prompt": True}
    save_modules(folder, settings, normalize=True, **more)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": False}))


def theirs_of(oracle, row):
    with torch.no_grad():
        return oracle(torch.tensor(row)[None].long()).last_hidden_state[0].numpy()


T5 = dict(vocab_size=71, d_model=64, d_kv=24, d_ff=96, num_layers=3, num_heads=4, pad_token_id=0)


def make_t5(folder, spread=0.2, stem="T5", **changes):
    """An encoder of T5."""
    torch.manual_seed(5)
    config = getattr(transformers, f"{stem}Config")(**(T5 | changes))
    oracle = getattr(transformers, f"{stem}EncoderModel")(config)
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter.add_(spread * torch.randn(parameter.shape))
    oracle.set_attn_implementation("eager")
    oracle.save_pretrained(folder)
    return oracle.eval()
