"""Vocabularies of SentencePiece in GGUF files, against transformers."""

import gguf
import pytest
import transformers
from test_sentencepiece import trained
from test_unigram import HOSTILE, charsmap
from tokenizer_probe import ask, check_texts, refusal, sentence_texts
from tokenizers import normalizers
from transformers.convert_slow_tokenizer import import_protobuf
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from rotary_decoders import close_gguf

KINDS = {"llama": ("llama", "LlamaTokenizer"), "phi3": ("llama", "LlamaTokenizer")}
KINDS |= {"gemma3": ("llama", "GemmaTokenizer"), "t5": ("t5", "T5Tokenizer")}


def write(path, family, model, tokens, keys=None, **arrays):
    writer = gguf.GGUFWriter(str(path), family)
    writer.add_string("tokenizer.ggml.model", model)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    for key, value in arrays.items():
        writer.add_array(f"tokenizer.ggml.{key}", value)
    for key, names in (("bos", ("<s>", "<bos>")), ("eos", ("</s>", "<eos>"))):
        if found := [tokens.index(name) for name in names if name in tokens]:
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", found[0])
    for key, value in (keys or {}).items():
        if value is not None:
            writer.add_key_value(f"tokenizer.ggml.{key}", value, gguf.GGUFValueType.get_type(value))
    close_gguf(writer)
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


def test_xlm_roberta(tmp_path):
    """Whose architecture in GGUF files is bert, and whose tokens are in the order of fairseq."""
    proto = import_protobuf().ModelProto.FromString(trained("XLMRobertaTokenizer"))
    (tmp_path / "sentencepiece.bpe.model").write_bytes(proto.SerializeToString())
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    theirs = transformers.XLMRobertaTokenizer.from_pretrained(tmp_path)
    tokens = theirs.convert_ids_to_tokens(range(len(theirs)))
    scores = [0.0] * 4 + [piece.score for piece in proto.pieces[3:]] + [0.0]
    types = [3, 3, 3, 2, *[1] * (len(tokens) - 5), 3]
    charsmap = {"precompiled_charsmap": proto.normalizer_spec.precompiled_charsmap}
    path = write(tmp_path / "m.gguf", "bert", "t5", tokens, scores=scores, token_type=types, **charsmap)
    texts = [text for text in sentence_texts(2000, 9, HOSTILE) if "<" not in text]
    check_texts(path, texts, lambda text: theirs._tokenizer.encode(text, add_special_tokens=False))


def test_word_pieces(tmp_path):
    """The tokenizer of BERT, whose tokens begin words with a marker in GGUF files."""
    words = [*"abcdeé中0123!?-", *("##" + letter for letter in "abcdexyz0é"), "the", "##ing", "[x", "x]", "[x]"]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*specials, *(word[2:] if word.startswith("##") else "\u2581" + word for word in words)]
    (tmp_path / "vocab.txt").write_text("\n".join([*specials, *words]) + "\n")
    keys = {"bos_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1, "mask_token_id": 4}
    texts = ["THE Éabc", "The thing", "a[MASK]b [CLS] [x]", "abc中中d", "é1 e\u0301!", "\u2581a", "a##b", "x" * 200]
    texts += HOSTILE
    for lowercase, accents in ((None, None), (False, None), (True, False), (False, True)):
        given = {"normalizer.lowercase": lowercase, "normalizer.strip_accents": accents}
        path = tmp_path / f"{lowercase}{accents}.gguf"
        write(path, "bert", "bert", tokens, token_type=[3] * 5 + [1] * len(words), keys=keys | given)
        own = {"do_lower_case": lowercase is not False, "strip_accents": accents}
        theirs = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), **own)
        check_texts(path, texts, lambda text, own=theirs: own._tokenizer.encode(text, add_special_tokens=False))
        (answer,) = ask(path, [{"text": "the a", "specials": True}])
        assert answer["ids"] == theirs("the a")["input_ids"]


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


def test_refused_by_name(tmp_path):
    model, tokens, arrays = contents("t5")
    for change, named in (
        ({"scores": [0.5]}, "tokenizer.ggml.scores must be one for each"),
        ({"scores": ["a"]}, "must be an array of 32-bit reals"),
        ({"precompiled_charsmap": [1, 2]}, "must be an array of bytes"),
    ):
        assert named in refusal(write(tmp_path / "model.gguf", "t5", model, tokens, **(arrays | change)))
