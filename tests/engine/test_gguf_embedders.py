"""Embedders in GGUF files, written by llama.cpp's package gguf, beside transformers and the directory that it saves."""

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import roformer_cpp
from cli_support import refused
from decoder_embedders import make_bare
from engine_case import assert_close, make_oracle
from foreign_encoders import SIZES, WINDOWS
from rf_engine import EngineError
from rf_generation import CausalEngine
from rotary_decoders import add_tokenizer, close_gguf, make_tokenizer
from sentence_model import TEXTS, WORDS, save_tokenizer, unit

POOLINGS = {1: lambda x: x.mean(0), 2: lambda x: x[0], 3: lambda x: x[-1]}
# architecture: (the model of transformers, its tokenizer, pooling_type, keys of the tokenizer)
WORD_KEYS = {"bos_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1, "padding_token_id": 0}
ENDS = {"add_bos_token": True, "add_eos_token": True}
CASES = {
    "bert": ("words", 1, {}),
    "bert-cased": ("words", 2, {"normalizer.lowercase": False}),
    "roberta": ("roberta-bpe", 2, {}),
    "nomic-bert": ("words", 1, {}),
    "modern-bert": ("modern-bert", 2, ENDS),
    "qwen3": ("qwen2", 3, {"add_eos_token": True}),
    "gemma-embedding": ("qwen2", 1, ENDS),
}
NAMES = {"bert-cased": "bert", "roberta": "bert"}
VOCAB = 330


def make(case, folder):
    if case == "qwen3":
        return make_bare("qwen3", folder, vocab_size=VOCAB)
    if case == "gemma-embedding":
        return make_bare("gemma3-even-window", folder, vocab_size=VOCAB, query_pre_attn_scalar=24)  # the head size
    if case.startswith("bert"):
        oracle = make_oracle("Bert", "Model", vocab_size=len(WORDS))
    elif case == "nomic-bert":
        oracle = make_oracle("NomicBert", "Model", **(SIZES | {"vocab_size": len(WORDS)}))
    elif case == "roberta":
        oracle = make_oracle("Roberta", "Model", vocab_size=VOCAB, type_vocab_size=1, pad_token_id=0)
    else:
        oracle = make_oracle("ModernBert", "Model", **(SIZES | WINDOWS | {"vocab_size": VOCAB, "pad_token_id": 1}))
    oracle.set_attn_implementation("eager")
    oracle.save_pretrained(folder)
    return oracle


def write_keys(writer, config, pooling):
    rope = getattr(config, "rope_parameters", None) or {}
    offset = config.pad_token_id + 1 if config.model_type == "roberta" else 0
    writer.add_context_length(config.max_position_embeddings - offset)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if getattr(config, "num_key_value_heads", None):
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(config.head_dim)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(getattr(config, "layer_norm_eps", None) or config.norm_eps)
    if config.model_type != "qwen3":
        writer.add_causal_attention(False)
    if config.model_type == "modernbert":
        writer.add_sliding_window(config.local_attention)
        writer.add_sliding_window_pattern(3)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(8)  # of the file, which the class halves
    if rope:
        writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if "sliding_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    if pooling is not None:
        writer.add_uint32(f"{writer.arch}.pooling_type", pooling)


def write_tokenizer(writer, kind, keys):
    if kind != "words":
        add_tokenizer(writer, make_tokenizer(digits=False), kind)
    else:
        control = [token.startswith("[") for token in WORDS]
        phantom = [
            token if is_control else token[2:] if token.startswith("##") else "\u2581" + token
            for token, is_control in zip(WORDS, control, strict=True)
        ]
        writer.add_tokenizer_model("bert")
        writer.add_token_list(phantom)
        writer.add_token_types([3 if is_control else 1 for is_control in control])
        keys = WORD_KEYS | keys
    for key, value in keys.items():
        (writer.add_bool if isinstance(value, bool) else writer.add_uint32)(f"tokenizer.ggml.{key}", value)


def write(case, folder, oracle, pooling="own", dense=()):
    kind, own, keys = CASES[case]
    architecture = NAMES.get(case, case)
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(str(path), architecture)
    write_keys(writer, oracle.config, own if pooling == "own" else pooling)
    write_tokenizer(writer, kind, keys)
    which = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(which, oracle.config.num_hidden_layers)
    for name, weight in load_file(folder / "model.safetensors").items():
        if name.startswith("pooler."):
            continue
        file = names.get_name(name, (".weight", ".bias")) or names.get_name("model." + name, (".weight", ".bias"))
        if file.startswith("position_embd") and case == "roberta":
            weight = weight[oracle.config.pad_token_id + 1 :]
        if case == "gemma-embedding" and file.endswith("norm.weight"):
            weight = weight + np.float32(1)
        writer.add_tensor(file, np.ascontiguousarray(weight, np.float32))
    for name, weight in dense:
        writer.add_tensor(name, weight)
    close_gguf(writer)
    return path


def ids_of(case, folder, texts):
    kind, _, keys = CASES[case]
    if kind == "words":
        save_tokenizer(folder, do_lower_case="cased" not in case)
        tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case="cased" not in case)
        return [tokenizer(text)["input_ids"] for text in texts]
    pieces = make_tokenizer(digits=False)
    front, end = ([i] * (kind == "roberta-bpe" or f"add_{name}_token" in keys) for i, name in ((1, "bos"), (2, "eos")))
    return [front + pieces.encode(text).ids + end for text in texts]


def expected(case, folder, oracle, texts, dense=()):
    with torch.no_grad():
        hidden = (oracle(torch.tensor([ids])).last_hidden_state[0] for ids in ids_of(case, folder, texts))
        rows = torch.stack([POOLINGS[CASES[case][1]](states) for states in hidden])
    for _, weight in dense:
        rows = rows @ torch.tensor(weight).T
    return unit(rows).numpy()


SHORT = [*TEXTS[:4], "The QUICK brown fox", "isn't it 12345?", "a b", "Abc DE"]


@pytest.mark.parametrize("case", CASES)
def test_vectors(case, tmp_path):
    oracle = make(case, tmp_path)
    generator = np.random.default_rng(4)
    shapes = [("dense_2.weight", (80, 64)), ("dense_3.weight", (64, 80))] if case == "gemma-embedding" else []
    dense = [(name, generator.standard_normal(shape).astype(np.float32)) for name, shape in shapes]
    path = write(case, tmp_path, oracle, dense=dense)
    texts = [text for text in SHORT if text and (CASES[case][0] != "qwen2" or not any(c.isdigit() for c in text))]
    assert_close(roformer_cpp.Engine(path).embed(texts), expected(case, tmp_path, oracle, texts, dense))


def test_the_directory_gives_the_same(tmp_path):
    path = write("bert", tmp_path, make("bert", tmp_path))
    save_tokenizer(tmp_path, do_lower_case=True)
    ours = roformer_cpp.Engine(tmp_path, normalize=True).embed(TEXTS)
    assert np.array_equal(roformer_cpp.Engine(path).embed(TEXTS), ours)


@pytest.mark.parametrize("pooling", [None, 0, 4, 9])
def test_poolings_that_are_refused(tmp_path, pooling):
    path = write("bert", tmp_path, make("bert", tmp_path), pooling)
    rule = "a pooling must be given for a GGUF file without pooling_type"
    if pooling:
        rule = f"bert.pooling_type must be 0 (none), 1 (mean), 2 (cls) or 3 (last), got {pooling}"
    assert rule in refused("embed", "--model", path, "--text", "a")


def test_encoders_do_not_generate(tmp_path):
    path = write("bert", tmp_path, make("bert", tmp_path))
    with pytest.raises(EngineError):
        CausalEngine(path).generate([np.array([5, 6], np.int32)])
    key = b"bert.attention.causal\7\0\0\0"
    path.write_bytes(path.read_bytes().replace(key + b"\0", key + b"\1"))
    with pytest.raises(EngineError, match=r"bert\.attention\.causal must be false for an encoder, got true"):
        CausalEngine(path)
