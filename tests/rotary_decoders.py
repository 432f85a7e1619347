"""Random perturbed decoders of transformers with rotary embeddings, as directories and as GGUF files."""

import itertools

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
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
}
FAMILIES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"num_key_value_heads": 1, "sliding_window": None}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"num_key_value_heads": 2, "head_dim": 24}),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {"num_key_value_heads": 1, "head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": 9},
    ),
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


# ---- GGUF files, by the package gguf of llama.cpp ----


def architecture(config):
    import gguf

    return next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == config.model_type.replace("_", ""))


def as_pairs(weight, heads):
    """Rows of queries or keys in the order of pairs (2i, 2i + 1), as llama.cpp's converter writes a Llama's."""
    rows = weight.shape[0]
    return weight.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def by_part(weight, heads):
    """Rows of a fused projection: all queries, all keys, all values."""
    rows = weight.shape[0]
    return weight.reshape(heads, 3, rows // heads // 3, -1).swapaxes(0, 1).reshape(weight.shape)


def undo(change, weight, heads):
    """The rows where `change` found them."""
    order = change(np.arange(len(weight))[:, None], heads)[:, 0]
    back = np.empty_like(weight)
    back[order] = weight
    return back


def gguf_names(oracle):
    """(name in the file, name in transformers, the order of its rows or None, heads)."""
    import gguf

    config = oracle.config
    names = gguf.get_tensor_name_map(architecture(config), config.num_hidden_layers)
    changes = {"attn_qkv": (by_part, config.num_attention_heads)}
    if config.model_type == "llama":
        changes |= {"attn_q": (as_pairs, config.num_attention_heads), "attn_k": (as_pairs, config.num_key_value_heads)}
    for name in oracle.state_dict():
        file = names.get_name(name, (".weight", ".bias"))
        if not (file == "output.weight" and config.tie_word_embeddings):
            yield file, name, *changes.get(file.split(".")[-2], (None, 0))


# Types that the package reads only: where a block has its scale, and its minimum in steps of the scale.
HALVES = {"Q2_K": {80: 1, 82: 1.5}, "Q3_K": {108: 1}, "Q4_K": {0: 1, 2: 7.5}, "Q5_K": {0: 1, 2: 15.5}, "Q6_K": {208: 1}}
HALVES |= {"IQ4_NL": {0: 1}, "IQ4_XS": {0: 1}}


def random_blocks(shape, kind, size=0.15):
    """Weights of about this magnitude."""
    import gguf

    elements, size_bytes = gguf.GGML_QUANT_SIZES[kind]
    row_bytes = shape[1] // elements * size_bytes
    blocks = np.random.default_rng(shape).integers(0, 256, (shape[0] * row_bytes // size_bytes, size_bytes), np.uint8)

    def scale_by(factor):
        for at, steps in HALVES[kind.name].items():
            blocks[:, at : at + 2] = np.array([factor * steps], np.float16).view(np.uint8)

    scale_by(1)
    scale_by(size / gguf.quants.dequantize(blocks, kind).std())
    return blocks.reshape(shape[0], row_bytes)


def write_gguf(oracle, path, dtype="F32", tokenizer=None, extra=None, drop=(), **options):
    """Writes the weights of `oracle` in types of ggml, matrices in turn, and gives the oracle what they are after that
    rounding. extra: further keys, values are (method of the writer, value); tokenizer: of the library tokenizers, with
    its `pre`; options: of the writer."""
    import gguf

    config = oracle.config
    neox = config.model_type == "gpt_neox"
    writer = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[architecture(config)], **options)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    head_dim = config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if neox:
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_parallel_residual(config.use_parallel_residual)
        writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_dimension_count(head_dim)
    for method, value in (extra or {}).items():
        getattr(writer, method)(value)
    if tokenizer is not None:
        add_tokenizer(writer, *tokenizer)
    if rope["rope_type"] == "llama3":
        plain = rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / oracle.model.rotary_emb.inv_freq.numpy()).astype(np.float32))
    kinds = itertools.cycle(gguf.GGMLQuantizationType[name] for name in dtype.split())
    state = oracle.state_dict()
    for file, name, change, heads in gguf_names(oracle):
        weight = state[name].numpy()
        if change is not None:
            weight = change(weight, heads)
        weight = np.ascontiguousarray(weight, np.float32)
        stored = gguf.GGMLQuantizationType.F32 if weight.ndim == 1 else next(kinds)
        data = random_blocks(weight.shape, stored) if stored.name in HALVES else gguf.quants.quantize(weight, stored)
        if file not in drop:
            writer.add_tensor(file, data, raw_dtype=stored)
        rounded = gguf.quants.dequantize(data, stored).reshape(weight.shape)
        if change is not None:
            rounded = undo(change, rounded, heads)
        state[name].copy_(torch.tensor(rounded))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer, tokenizer, pre):
    import json

    model = json.loads(tokenizer.to_str())["model"]
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


# ---- tokenizers ----

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SAMPLES = [
    "The quick brown fox, aged 12345, jumps over 67 lazy dogs; isn't it? We're 3.14",
    "höhe 2³ 日本 ½ ⅷ x²  3  4\n\n 5\t٣٤ don't we'll  end ",
    "<|im_start|>user\nHow many are 1,000?<|im_end|>\n",
]


def make_tokenizer(digits=True, size=330):
    """Byte-level BPE as SmolLM's, or without its splitting of digits as GPT-NeoX's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    steps = [pre_tokenizers.Digits(individual_digits=True), level]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if digits else level
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(SAMPLES * 20, trainer)
    return tokenizer
