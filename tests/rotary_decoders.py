"""Random perturbed decoders of transformers with rotary embeddings, as directories and as GGUF files."""

import itertools

import numpy as np
import torch
import transformers

VOCAB = 71
SIZES = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
SIZES |= dict(max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
LENGTHS = (1, 13, 7, 2, 40)
# What scalings need besides their type; the training length of 16 is within the sequences.
SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
}
GROUPED = {"num_key_value_heads": 2}
NARROW = GROUPED | {"head_dim": 24}
EXPERTS = GROUPED | {"num_experts_per_tok": 2, "num_local_experts": 4}
MIXED = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
SHARE = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 3.0]}
LONGROPE |= {"long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0], "original_max_position_embeddings": 16}
PASSED = {"original_max_position_embeddings": 32}  # by the new tokens of a prompt of 21
PHI3 = GROUPED | {"pad_token_id": 0}
FAMILIES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"num_key_value_heads": 1, "sliding_window": None}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", NARROW),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {"num_key_value_heads": 1, "head_dim": 24,
               "query_pre_attn_scalar": 20, "sliding_window": 9}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", NARROW),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", NARROW | {"query_pre_attn_scalar": 20, "sliding_window": 9,
               "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}),
    "phi": ("PhiConfig", "PhiForCausalLM", GROUPED | {"rope_parameters": SHARE}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", PHI3),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", GROUPED | {"rope_parameters": SHARE, "use_qkv_bias": True}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", GROUPED),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", GROUPED | {"no_rope_layer_interval": 2, "pad_token_id": 0}),
    "granite": ("GraniteConfig", "GraniteForCausalLM", GROUPED | {"embedding_multiplier": 3.0,
                "attention_multiplier": 0.1, "residual_multiplier": 0.4, "logits_scaling": 3.0}),
    "cohere": ("CohereConfig", "CohereForCausalLM", GROUPED | {"logit_scale": 0.25}),
    "cohere2": ("Cohere2Config", "Cohere2ForCausalLM", GROUPED | MIXED | {"logit_scale": 0.25}),
    "exaone4": ("Exaone4Config", "Exaone4ForCausalLM", GROUPED | MIXED),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_inner": 96}),
    "gptj": ("GPTJConfig", "GPTJForCausalLM", {"n_inner": 96, "rotary_dim": 8}),
    "falcon": ("FalconConfig", "FalconForCausalLM", {"ffn_hidden_size": 96}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", EXPERTS),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", EXPERTS | {"head_dim": 24, "moe_intermediate_size": 40}),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM", EXPERTS | MIXED | {"head_dim": 24, "rope_parameters": YARN,
                "swiglu_limit": 1.5}),
    "olmoe": ("OlmoeConfig", "OlmoeForCausalLM", GROUPED | {"num_experts": 4, "num_experts_per_tok": 2}),
    "granitemoe": ("GraniteMoeConfig", "GraniteMoeForCausalLM", EXPERTS | {"embedding_multiplier": 3.0,
                   "attention_multiplier": 0.1, "residual_multiplier": 0.4, "logits_scaling": 3.0}),
    "hyperclovax": ("HyperCLOVAXConfig", "HyperCLOVAXForCausalLM", GROUPED | {"embedding_multiplier": 3.0,
                    "attention_multiplier": None, "residual_multiplier": 0.4, "logits_scaling": 3.0}),
    "vaultgemma": ("VaultGemmaConfig", "VaultGemmaForCausalLM", NARROW | MIXED | {"query_pre_attn_scalar": 20,
                   "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}),
    "olmo": ("OlmoConfig", "OlmoForCausalLM", GROUPED),
    "olmo3": ("Olmo3Config", "Olmo3ForCausalLM", GROUPED | MIXED | {"rope_parameters": {"full_attention": YARN |
              {"truncate": True}, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    "ministral": ("MinistralConfig", "MinistralForCausalLM", NARROW | MIXED),
    "glm": ("GlmConfig", "GlmForCausalLM", NARROW | {"pad_token_id": 0, "rope_parameters": SHARE}),
    "glm4": ("Glm4Config", "Glm4ForCausalLM", NARROW | {"pad_token_id": 0, "rope_parameters": SHARE}),
    "helium": ("HeliumConfig", "HeliumForCausalLM", GROUPED | {"head_dim": 16, "attention_bias": True}),
    "ernie4_5": ("Ernie4_5Config", "Ernie4_5ForCausalLM", NARROW),
    "seed_oss": ("SeedOssConfig", "SeedOssForCausalLM", NARROW),
    "starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", GROUPED | {"sliding_window": 9}),
    "arcee": ("ArceeConfig", "ArceeForCausalLM", NARROW),
    "nemotron": ("NemotronConfig", "NemotronForCausalLM", GROUPED | {"rope_parameters": SHARE}),
    "jais2": ("Jais2Config", "Jais2ForCausalLM", GROUPED),
    "persimmon": ("PersimmonConfig", "PersimmonForCausalLM", {"rope_parameters": SHARE}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {}),
    "mpt": ("MptConfig", "MptForCausalLM", {}),
    "opt": ("OPTConfig", "OPTForCausalLM", {"ffn_dim": 96}),
    "gpt_neo": ("GPTNeoConfig", "GPTNeoForCausalLM", {"window_size": 9, "attention_types": [[["local", "global"], 1],
                [["local"], 1]]}),
    "gpt_bigcode": ("GPTBigCodeConfig", "GPTBigCodeForCausalLM", {"n_inner": 96}),
}  # fmt: skip
# Variants of a family, and what tests call them.
VARIANTS = {
    "gemma2-uncapped": ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "phi3-longrope": ("phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16}),
    "phi3-longrope-passed": ("phi3", {"rope_parameters": LONGROPE | PASSED, **PASSED}),
    "phi3-partial": ("phi3", {"rope_parameters": SHARE, "sliding_window": 9}),
    "stablelm-parallel": ("stablelm", {"use_parallel_residual": True, "use_qkv_bias": False}),
    "smollm3-listed": ("smollm3", {"no_rope_layers": [0, 1, 1]}),
    "exaone4-whole": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "falcon-heads": ("falcon", {"multi_query": False, "bias": True}),
    "falcon-sequential": ("falcon", {"parallel_attn": False}),
    "falcon-groups": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-one-norm": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    "qwen3-moe-ones": ("qwen3_moe", {"norm_topk_prob": True, "decoder_sparse_step": 2}),
    "mixtral-windows": ("mixtral", {"sliding_window": 7}),
    "mixtral-tanh": ("mixtral", {"hidden_act": "tanh"}),
    "llama-relu": ("llama", {"hidden_act": "relu"}),
    "gemma3-relu2": ("gemma3", {"hidden_activation": "relu2", "layer_types": MIXED["layer_types"]}),
    "falcon-alibi": ("falcon", {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}),
    "stablelm-norms": ("stablelm", {"qk_layernorm": True}),
    "cohere-norms": ("cohere", {"use_qk_norm": True}),
    "phi-norms": ("phi", {"qk_layernorm": True}),
    "smollm3-windows": ("smollm3", {"use_sliding_window": True, "sliding_window": 9}),
    "qwen3-moe-dense": ("qwen3_moe", {"mlp_only_layers": [1]}),
    "qwen3-moe-windows": ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 9}),
    "ministral-alike": ("ministral", {"layer_types": None}),
    "glm-without-biases": ("glm", {"attention_bias": False}),
    "hyperclovax-without-norms": ("hyperclovax", {"use_post_norm": False, "attention_multiplier": 0.1}),
    "ernie4_5-biases": ("ernie4_5", {"use_bias": True}),
    "seed_oss-biases": ("seed_oss", {"attention_bias": False, "attention_out_bias": True, "mlp_bias": True}),
    "starcoder2-without-biases": ("starcoder2", {"use_bias": False}),
    "persimmon-without-norms": ("persimmon", {"qk_layernorm": False}),
    "opt-galactica": ("opt", {"enable_bias": False, "activation_function": "gelu"}),
    "opt-without-weights": ("opt", {"layer_norm_elementwise_affine": False}),
    "gpt_bigcode-heads": ("gpt_bigcode", {"multi_query": False}),
}


def make_decoder(family, folder=None, spread=0.3, **changes):
    """A causal language model of a family, saved in a folder."""
    torch.manual_seed(5)
    config, model, own = FAMILIES[family]
    oracle = getattr(transformers, model)(getattr(transformers, config)(**(SIZES | own | changes)))
    oracle.set_attn_implementation("eager")  # which alone has soft caps and sinks
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


ARCHITECTURES = {"phi": "phi2", "cohere": "command-r", "gemma3_text": "gemma3", "mixtral": "llama"}
ARCHITECTURES |= {"gpt_oss": "gpt-oss"}
# Families whose queries and keys llama.cpp's converter reorders.
PERMUTED = ("llama", "mixtral", "granite", "granitemoe", "smollm3", "olmo", "arcee")


def architecture(config):
    import gguf

    named = ARCHITECTURES.get(config.model_type, config.model_type.replace("_", ""))
    named = config.model_type if config.model_type in gguf.MODEL_ARCH_NAMES.values() else named
    return next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == named)


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
    by_head = config.model_type in ("gpt_neox", "bloom") or not getattr(config, "multi_query", True)
    changes = {"attn_qkv": (by_part, config.num_attention_heads)} if by_head else {}
    if config.model_type in PERMUTED:
        changes |= {"attn_q": (as_pairs, config.num_attention_heads), "attn_k": (as_pairs, config.num_key_value_heads)}
    for name in oracle.state_dict():
        spellings = (name, name.removeprefix("transformer."), name.replace(".router.", ".router.layer."))
        file = next(filter(None, (names.get_name(each, (".weight", ".bias")) for each in spellings)), None)
        apart = ".experts." in name or name.endswith("sinks")  # in expert_tensors()
        if file is not None and not apart and not (file == "output.weight" and config.tie_word_embeddings):
            yield file, name, *changes.get(file.split(".")[-2], (None, 0))


def as_stored(weight, file, config):
    """Norms of Gemma and Nemotron as they multiply, and GPT-2's matrices as [out, in]."""
    if config.model_type.startswith(("gemma", "nemotron")) and file.endswith("norm.weight"):
        return weight + np.float32(1)
    turns = config.model_type == "gpt2" and weight.ndim == 2 and file.startswith("blk.")
    return np.ascontiguousarray(weight.T) if turns else weight


def expert_tensors(oracle):
    """(name in the file, array) of what llama.cpp stores of experts otherwise: gates and the other half apart."""
    for name, value in oracle.state_dict().items():
        part = name.split(".")[-1].removesuffix("_bias")
        if ".experts." not in name and not name.endswith("sinks"):
            continue
        layer, array = name.split(".")[2], value.numpy()
        end = "bias" if name.endswith("_bias") else "weight"
        if oracle.config.model_type == "gpt_oss" and array.ndim == 3:
            array = array.swapaxes(1, 2)
        if part == "sinks":
            yield f"blk.{layer}.attn_sinks.weight", array
        elif part == "down_proj":
            yield f"blk.{layer}.ffn_down_exps.{end}", array
        else:
            half = array.shape[1] // 2
            taken = oracle.config.model_type == "gpt_oss"
            gate, up = (array[:, ::2], array[:, 1::2]) if taken else (array[:, :half], array[:, half:])
            yield f"blk.{layer}.ffn_gate_exps.{end}", gate
            yield f"blk.{layer}.ffn_up_exps.{end}", up


# Keys of transformers' configurations, and the methods of the writer.
WRITTEN = {key: f"add_{key}" for key in ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")}
WRITTEN |= {"logit_scale": "add_logit_scale", "logits_scaling": "add_logit_scale"}
WRITTEN |= {f"{part}_multiplier": f"add_{part}_scale" for part in ("residual", "embedding", "attention")}
WRITTEN |= {"use_parallel_residual": "add_parallel_residual", "num_local_experts": "add_expert_count"}
WRITTEN |= {"num_experts_per_tok": "add_expert_used_count", "moe_intermediate_size": "add_expert_feed_forward_length"}


def write_keys(writer, config):
    import gguf

    heads = config.num_attention_heads
    own = getattr(config, "head_dim", None)
    head_dim = own or config.hidden_size // heads
    ignored = config.model_type in ("bloom", "mpt")  # which have 4 times the width
    widths = [getattr(config, key, None) for key in ("ffn_hidden_size", "n_inner", "intermediate_size")]
    writer.add_context_length(getattr(config, "max_seq_len", None) or getattr(config, "max_position_embeddings", 64))
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(4 * config.hidden_size if ignored else next(filter(None, widths)))
    writer.add_head_count(heads)
    keys = 1 if getattr(config, "multi_query", False) else getattr(config, "num_key_value_heads", heads)
    writer.add_head_count_kv(keys)
    if own:
        writer.add_key_length(own)
        writer.add_value_length(own)
    for key, method in WRITTEN.items():
        if getattr(config, key, None) is not None:
            getattr(writer, method)(getattr(config, key))
    if config.model_type == "exaone4" and config.sliding_window is not None:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    rms = getattr(config, "rms_norm_eps", None)
    layer = [getattr(config, f"{key}norm_{end}", None) for key in ("layer_", "") for end in ("eps", "epsilon")]
    writer.add_layer_norm_rms_eps(rms) if rms else writer.add_layer_norm_eps(next(filter(None, layer), 1e-5))
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    if rope:
        writer.add_rope_freq_base(rope["rope_theta"])
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if config.model_type == "gpt_oss":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    return rope, head_dim


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


# Values of types of 32 elements that are stored exactly: the extreme one, which each block has, and others.
EXACT = {"Q8_0": (127, range(-127, 128)), "Q4_0": (-8, range(-8, 8)), "MXFP4": (6, [0, 0.5, 1, -1.5, 2, -3, 4, -6])}


def exact_values(shape, kind):
    extreme, others = EXACT[kind]
    values = np.random.default_rng(shape).choice(np.array(others, np.float32), (int(np.prod(shape)) // 32, 32))
    values[:, 0] = extreme
    return (values / np.float32(2 ** (np.log2(abs(extreme)) // 1 + 3))).reshape(shape)


def close_gguf(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(oracle, path, dtype="F32", tokenizer=None, extra=None, drop=(), experts="F32", **options):
    """Writes the weights of `oracle` in types of ggml, matrices in turn, and gives the oracle what they are after that
    rounding. extra: further keys, values are (method of the writer, value); tokenizer: of the library tokenizers, with
    its `pre`; experts: their type, and both get random values of it; options: of the writer."""
    import gguf

    config = oracle.config
    writer = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[architecture(config)], **options)
    rope, head_dim = write_keys(writer, config)
    for method, value in (extra or {}).items():
        getattr(writer, method)(value)
    if tokenizer is not None:
        add_tokenizer(writer, *tokenizer)
    if rope.get("rope_type") == "llama3":
        plain = rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / oracle.model.rotary_emb.inv_freq.numpy()).astype(np.float32))
    kinds = itertools.cycle(gguf.GGMLQuantizationType[name] for name in dtype.split())
    state = oracle.state_dict()
    for file, array in expert_tensors(oracle):
        kind = gguf.GGMLQuantizationType[experts if array.ndim == 3 else "F32"]
        if kind.name in EXACT:
            array[...] = exact_values(array.shape, kind.name)
        data = gguf.quants.quantize(np.ascontiguousarray(array, np.float32), kind)
        writer.add_tensor(file, data, raw_dtype=kind)
    for file, name, change, heads in gguf_names(oracle):
        weight = state[name].numpy()
        if change is not None:
            weight = change(weight, heads)
        weight = np.ascontiguousarray(as_stored(weight, file, config), np.float32)
        stored = gguf.GGMLQuantizationType.F32 if weight.ndim == 1 else next(kinds)
        data = random_blocks(weight.shape, stored) if stored.name in HALVES else gguf.quants.quantize(weight, stored)
        if file not in drop:
            writer.add_tensor(file, data, raw_dtype=stored)
        if dtype == "F32":
            continue
        rounded = gguf.quants.dequantize(data, stored).reshape(weight.shape)
        if change is not None:
            rounded = undo(change, rounded, heads)
        state[name].copy_(torch.tensor(rounded))
    close_gguf(writer)
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
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIALS, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(SAMPLES * 20, trainer)
    return tokenizer
