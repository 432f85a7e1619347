"""SentencePiece's model files without a tokenizer.json, against transformers and sentencepiece."""

import functools
import io
import json
import random

import pytest
import sentencepiece
import transformers
from test_unigram import HOSTILE
from tokenizer_probe import ask, bare, check_saved, check_specials, check_texts, of_texts, refusal
from tokenizer_probe import sentence_texts as texts_of
from transformers.convert_slow_tokenizer import import_protobuf

FAIRSEQ = "sentencepiece.bpe.model"
IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
SQUARE = {"bos_piece": "[CLS]", "eos_piece": "[SEP]"}
ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "control_symbols": ["[MASK]"]} | SQUARE
DEBERTA = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "unk_piece": "[UNK]"} | SQUARE
GEMMA = {"model_type": "bpe", "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "bos_piece": "<bos>"}
GEMMA |= {"eos_piece": "<eos>", "add_dummy_prefix": False} | IDENTITY
KINDS = {
    "XLMRobertaTokenizer": ("xlm-roberta", FAIRSEQ, {}),
    "CamembertTokenizer": ("camembert", FAIRSEQ, {}),
    "T5Tokenizer": ("t5", "spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    "AlbertTokenizer": ("albert", "spiece.model", ALBERT),
    "DebertaV2Tokenizer": ("deberta-v2", "spm.model", DEBERTA),
    "LlamaTokenizer": ("llama", "tokenizer.model", {"model_type": "bpe", "split_digits": True} | IDENTITY),
    "GemmaTokenizer": ("gemma3_text", "tokenizer.model", GEMMA),
}
SETTINGS = {"none": {}, "other": {"add_prefix_space": False, "additional_special_tokens": ["<new>"], "extra_ids": 7}}
SWITCHES = ("add_bos_token", "add_eos_token", "legacy", "do_lower_case", "keep_accents", "split_by_punct")
SETTINGS["other"] |= dict.fromkeys(SWITCHES, True)


@functools.cache
def trained(name):
    options = {"model_type": "unigram", "user_defined_symbols": ["<n>", "<r>"]} | KINDS[name][2]
    options |= {"vocab_size": 900, "hard_vocab_limit": False, "character_coverage": 0.99, "minloglevel": 2}
    texts, model = texts_of(500, 1, HOSTILE), io.BytesIO()
    words = ["".join(c for c in text if " " <= c < "\u0180" or c in "中文한국어\u0301")[:200] for text in texts]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words * 3), model_writer=model, **options)
    return model.getvalue()


def write(directory, name, settings=None, model=None):
    model_type, file, _ = KINDS[name]
    (directory / file).write_bytes(trained(name) if model is None else model)
    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    if settings is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name} | settings))
    return directory


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", KINDS)
def test_classes_of_transformers(tmp_path, name, settings):
    folder = tmp_path / "theirs"
    folder.mkdir()
    theirs = getattr(transformers, name).from_pretrained(write(folder, name, SETTINGS[settings]))
    texts = list(texts_of(2000, 3, [*HOSTILE, *theirs.all_special_tokens, " <mask>", "[UNK]", "a.b", "!?", "«x»"]))
    assert len(texts) > 4000
    check_saved(tmp_path, theirs, texts)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "LlamaTokenizer"])
def test_class_of_the_model_type(tmp_path, name):
    write(tmp_path, name)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == name
    texts = list(texts_of(100, 4, HOSTILE))
    check_texts(tmp_path, texts, bare(theirs))
    check_specials(tmp_path, texts, theirs)


# White space other than spaces, markers and symbols of users are treated by the classes in their own way.
PLAIN = ["hello", " world", "naïve", "中文", "\ufb01ne", "2024", "don't", " of the", "É", "\U0001f600", " ", ".", "ab"]


@pytest.mark.parametrize("name", ["XLMRobertaTokenizer", "T5Tokenizer", "LlamaTokenizer", "GemmaTokenizer"])
def test_ids_of_sentencepiece(tmp_path, name):
    write(tmp_path, name, {})
    theirs = sentencepiece.SentencePieceProcessor(model_proto=trained(name))
    draw = random.Random(5)
    texts = ["".join(draw.choices(PLAIN, k=draw.randrange(1, 12))).strip() for _ in range(2000)]
    offset = 1 if name == "XLMRobertaTokenizer" else 0
    for text, got in zip(texts, ask(tmp_path, of_texts(texts)), strict=True):
        assert got["ids"] == [3 if offset and i == 0 else i + offset for i in theirs.encode(text)], ascii(text)


def changed(name, change):
    proto = import_protobuf().ModelProto.FromString(trained(name))
    change(proto)
    return proto.SerializeToString()


def set_field(path, value):
    def change(proto):
        *parents, last = path.split(".")
        for parent in parents:
            proto = proto[int(parent)] if parent.isdigit() else getattr(proto, parent)
        setattr(proto, last, value)

    return change


REFUSED = [
    ("T5Tokenizer", set_field("trainer_spec.model_type", 3), "model_type must be 1 (unigram) or 2 (bpe), got 3"),
    ("T5Tokenizer", set_field("trainer_spec.model_type", 2), "T5Tokenizer must have a model of the type 1"),
    ("GemmaTokenizer", set_field("trainer_spec.model_type", 1), "GemmaTokenizer must have a model of the type 2"),
    ("T5Tokenizer", set_field("trainer_spec.unk_id", 9000), "pieces, got 9000"),
    ("T5Tokenizer", set_field("trainer_spec.unk_id", -1), "pieces, got -1"),
    ("T5Tokenizer", set_field("trainer_spec.treat_whitespace_as_suffix", True), "treat_whitespace_as_suffix"),
    ("T5Tokenizer", set_field("normalizer_spec.escape_whitespaces", False), "escape_whitespaces must be true"),
    ("T5Tokenizer", set_field("normalizer_spec.precompiled_charsmap", b"\x11\0\0\0"), "multiple of 1024"),
    ("T5Tokenizer", set_field("denormalizer_spec.precompiled_charsmap", b"x"), "denormalizer_spec"),
    ("T5Tokenizer", set_field("pieces.5.piece", ""), "piece 5"),
    ("T5Tokenizer", set_field("pieces.5.piece", "</s>"), "</s>"),
    ("T5Tokenizer", set_field("pieces.5.score", float("nan")), "scores must be finite"),
    ("LlamaTokenizer", set_field("pieces.9.piece", "x" * 99), "<0x"),
    ("T5Tokenizer", lambda proto: proto.ClearField("pieces"), "must have pieces, got none"),
]


@pytest.mark.parametrize(("name", "change", "named"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused_by_name(tmp_path, name, change, named):
    assert named in refusal(write(tmp_path, name, {}, changed(name, change)))


WIRE = [
    (b"\x0b", "wire types"),
    (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "whole fields"),
    (b"\x0a" + b"\xff" * 10, "numbers of at most 10 bytes"),
    (b"\x80", "whole fields"),
    (b"\x02\x00", "field numbers"),
    (b"\x08\x01", "wire types of SentencePiece"),
    (b"\x12\x00\x12\x00", "field 2 twice"),
    (b"\x0a\x04\x0a\x00\x0a\x00", "field 1 twice"),
    (b"IQ== 0\nIg== 1\n", "got"),
]


@pytest.mark.parametrize(("data", "named"), WIRE, ids=[str(i) for i in range(len(WIRE))])
def test_other_files_are_refused(tmp_path, data, named):
    assert named in refusal(write(tmp_path, "T5Tokenizer", model=data))


def test_corrupted_files(tmp_path):
    """Each opens or is refused with one sentence."""
    draw = random.Random(6)
    for _ in range(60):
        data = bytearray(trained("AlbertTokenizer"))
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        del data[draw.randrange(len(data)) if draw.random() < 0.3 else len(data) :]
        assert len(ask(write(tmp_path, "AlbertTokenizer", model=bytes(data)), [{"text": "a"}])) == 1


def test_a_class_must_be_known(tmp_path):
    write(tmp_path, "LlamaTokenizer")
    assert "such as LlamaTokenizer" in refusal(tmp_path)
