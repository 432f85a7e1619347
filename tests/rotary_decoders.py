"""Random perturbed decoders of transformers with rotary embeddings, as directories and as GGUF files."""

import numpy as np
import torch
import transformers

VOCAB = 71
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
)
LENGTHS = (1, 13, 7, 2, 40)
# What scalings need besides their type; the training length of 16 is within the sequences.
SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
}
FAMILIES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"num_key_value_heads": 1, "sliding_window": None}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {"num_key_value_heads": 2}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
}


def make_decoder(family, folder=None, spread=0.3, **changes):
    """A causal language model of a family, saved in a folder."""
    torch.manual_seed(5)
    config, model, own = FAMILIES[family]
    oracle = getattr(transformers, model)(getattr(transformers, config)(**(SIZES | own | changes)))
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter.add_(spread * torch.randn(parameter.shape))
    if folder is not None:
        oracle.save_pretrained(folder)
    return oracle.eval()


def make_rows(lengths=LENGTHS, vocab=VOCAB):
    random = np.random.default_rng(7)
    return [random.integers(3, vocab, n).astype(np.int32) for n in lengths]


def oracle_logits(oracle, row):
    with torch.no_grad():
        return oracle(torch.tensor(row)[None].long()).logits[0].numpy()
