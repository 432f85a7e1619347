"""Vocabularies of SentencePiece in GGUF files, and names of splitting expressions, against transformers."""

import json
import random

import gguf
import pytest
from test_sentencepiece import trained
from test_unigram import HOSTILE, charsmap
from tokenizer_probe import check_texts, random_texts, refusal, sentence_texts
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import import_protobuf
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

KINDS = {
    "llama": ("llama", "LlamaTokenizer"),
    "phi3": ("llama", "LlamaTokenizer"),
    "gemma3": ("llama", "GemmaTokenizer"),
    "t5": ("t5", "T5Tokenizer"),
}


def write(path, family, model, tokens, **arrays):
    writer = gguf.GGUFWriter(str(path), family)
    writer.add_string("tokenizer.ggml.model", model)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    for key, value in arrays.items():
        if isinstance(value, str):
            writer.add_string(f"tokenizer.ggml.{key}", value)
        else:
            writer.add_array(f"tokenizer.ggml.{key}", value)
    for key, names in (("bos", ("<s>", "<bos>")), ("eos", ("</s>", "<eos>"))):
        if (found := [tokens.index(name) for name in names if name in tokens]) and model != "gpt2":
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", found[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def contents(family):
    model, name = KINDS[family]
    proto = import_protobuf().ModelProto.FromString(trained(name))
    tokens = [piece.piece for piece in proto.pieces]
    scores = [piece.score for piece in proto.pieces]
    types = [piece.type for piece in proto.pieces]
    if family == "gemma3":
        tokens[-1], types[-1] = "  ", 4
    if family == "t5":
        tokens += [f"[PAD{900 + i}]" for i in range(104)]
        scores += [0.0] * 104
        types += [4] * 104
    return model, tokens, scores, types


@pytest.mark.parametrize("family", KINDS)
def test_vocabularies_of_sentencepiece(tmp_path, family):
    model, tokens, scores, types = contents(family)
    path = write(tmp_path / "model.gguf", family, model, tokens, scores=scores, token_type=types)
    described = {"tokenizer_type": model, "tokens": tokens, "scores": scores, "token_type": types}
    theirs, _ = convert_gguf_tokenizer(family, described)
    texts = list(sentence_texts(2000, 7, [*HOSTILE, "<s>", "</s>", "<extra_id_3>", "<eos>"]))
    if family == "t5":  # whose tokens of the second kind llama.cpp's files lack
        texts = [text for text in texts if "<extra_id" not in text and "<s>" not in text and "<pad>" not in text]
    check_texts(path, texts, lambda text: theirs.encode(text, add_special_tokens=False))


def test_a_map_of_characters(tmp_path):
    """Which transformers leaves out, as the tokenizer.json of the same vocabulary has it."""
    model, tokens, scores, types = contents("t5")
    mapped = charsmap()
    path = write(tmp_path / "m.gguf", "t5", model, tokens, scores=scores, token_type=types, precompiled_charsmap=mapped)
    plain = write(tmp_path / "p.gguf", "t5", model, tokens, scores=scores, token_type=types)
    described = {"tokenizer_type": model, "tokens": tokens, "scores": scores, "token_type": types}
    theirs, _ = convert_gguf_tokenizer("t5", described)
    check_texts(plain, ["\ufb01ne"], lambda text: theirs.encode(text, add_special_tokens=False))
    check_texts(path, ["fine"], lambda text: theirs.encode(text, add_special_tokens=False))
    theirs.normalizer = normalizers.Precompiled(charsmap())
    texts = [text for text in sentence_texts(500, 8, HOSTILE) if "<" not in text]
    check_texts(path, texts, lambda text: theirs.encode(text, add_special_tokens=False))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"scores": [0.5]}, "tokenizer.ggml.scores must be one for each"),
        ({"scores": ["a"]}, "must be an array of 32-bit reals"),
        ({"precompiled_charsmap": [1, 2]}, "must be an array of bytes"),
    ],
    ids=str,
)
def test_refused_by_name(tmp_path, change, named):
    model, tokens, scores, types = contents("t5")
    arrays = {"scores": scores, "token_type": types} | change
    assert named in refusal(write(tmp_path / "model.gguf", "t5", model, tokens, **arrays))


# llama.cpp's, of the tokenizer.json of those models.
CODER = [
    pre_tokenizers.Split(Regex(each), "isolated")
    for each in ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")
]
NAMES = {"deepseek-coder": [*CODER, pre_tokenizers.Digits(True)]}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_expressions(tmp_path, name):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*NAMES[name], pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = list(random_texts(800, 1))
    tokenizer.train_from_iterator(words, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet))
    file = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(file["vocab"], key=file["vocab"].get)
    merges = [" ".join(merge) for merge in file["merges"]]
    path = write(tmp_path / "model.gguf", "llama", "gpt2", tokens, pre=name, merges=merges)
    texts = list(random_texts(4000, 9))
    random.Random(1).shuffle(texts)
    check_texts(path, texts, tokenizer.encode)
