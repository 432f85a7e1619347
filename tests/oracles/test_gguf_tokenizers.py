"""Vocabularies of SentencePiece in GGUF files, against transformers."""

import gguf
import pytest
from test_sentencepiece import trained
from test_unigram import HOSTILE, charsmap
from tokenizer_probe import check_texts, refusal, sentence_texts
from tokenizers import normalizers
from transformers.convert_slow_tokenizer import import_protobuf
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

KINDS = {
    "llama": ("llama", "LlamaTokenizer"),
    "phi3": ("llama", "LlamaTokenizer"),
    "gemma3": ("llama", "GemmaTokenizer"),
    "t5": ("t5", "T5Tokenizer"),
    "bert": ("t5", "XLMRobertaTokenizer"),
}


def write(path, family, model, tokens, **arrays):
    writer = gguf.GGUFWriter(str(path), family)
    writer.add_string("tokenizer.ggml.model", model)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    for key, value in arrays.items():
        writer.add_array(f"tokenizer.ggml.{key}", value)
    for key, names in (("bos", ("<s>", "<bos>")), ("eos", ("</s>", "<eos>"))):
        if found := [tokens.index(name) for name in names if name in tokens]:
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
    return model, tokens, {"scores": scores, "token_type": types}


def converted(family):
    """What transformers makes of the same keys, and its encode() without special tokens."""
    model, tokens, arrays = contents(family)
    tokenizer, _ = convert_gguf_tokenizer(family, {"tokenizer_type": model, "tokens": tokens} | arrays)
    return tokenizer, lambda text: tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("family", KINDS)
def test_vocabularies_of_sentencepiece(tmp_path, family):
    model, tokens, arrays = contents(family)
    path = write(tmp_path / "model.gguf", family, model, tokens, **arrays)
    texts = list(sentence_texts(2000, 7, [*HOSTILE, "<s>", "</s>", "<extra_id_3>", "<eos>"]))
    if family == "t5":  # whose tokens of the second kind llama.cpp's files lack
        texts = [text for text in texts if "<extra_id" not in text and "<s>" not in text and "<pad>" not in text]
    check_texts(path, texts, converted(family)[1])


def test_a_map_of_characters(tmp_path):
    """Which transformers leaves out, as the tokenizer.json of the same vocabulary has it."""
    model, tokens, arrays = contents("t5")
    path = write(tmp_path / "m.gguf", "t5", model, tokens, precompiled_charsmap=charsmap(), **arrays)
    plain = write(tmp_path / "p.gguf", "t5", model, tokens, **arrays)
    theirs, encode = converted("t5")
    check_texts(plain, ["\ufb01ne"], encode)
    check_texts(path, ["fine"], encode)
    theirs.normalizer = normalizers.Precompiled(charsmap())
    check_texts(path, [text for text in sentence_texts(500, 8, HOSTILE) if "<" not in text], encode)


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
    model, tokens, arrays = contents("t5")
    assert named in refusal(write(tmp_path / "model.gguf", "t5", model, tokens, **(arrays | change)))
