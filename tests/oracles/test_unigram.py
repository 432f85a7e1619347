"""Unigram (XLM-R, camembert, T5, ALBERT, DeBERTa-v2) against `tokenizers` and transformers."""

import base64
import functools
import json
import struct

import pytest
import transformers
from tokenizer_probe import MARKER, bare, changed, check_saved, check_specials, check_texts, refusal, sentence_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from charsmap import make_charsmap

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
HOSTILE = [MARKER, MARKER * 3, f"a{MARKER}b", " ", "   ", "    \t", "<unk>", "hello hello", "\r\n", "\n\n", "\x00"]
HOSTILE += ["\x1e", "the", "中文", "\U0001f600", "\u0301", "<n>", "<r>", " <n> ", "<l>", "\ufb01\u0301", "\u2122"]
HOSTILE += ["\u200d", "\u3000", "\u00a9\u200d\u00a9", "\x00\u0301"]
HOSTILE += ["e\u05c8"]  # no mark in the library's version
HOSTILE += ["e\u1adf\u0b53", "\u0600a", "\u1100\u1161", "\uac01\u11a8", "\u0915\u094d\u0937", "\u00e9", "e\u0301"]
HOSTILE += ["''", "``"]
# Conjuncts of Indic consonants are one grapheme, with a joiner too, and end at the next consonant.
HOSTILE += ["\u0915\u094d\u0937\u0301", "\u0915\u094d\u200c\u0937\u0301", "\u0915\u094d\u0937\u0937\u0301"]
MAPPED = {"\ufb01": "fi", "\u2122": "TM", "\u3000": " ", "\r": " ", "\n": " ", "\t": " ", "\x1e": "", "\u00a9": "(c)"}
MAPPED |= {"e\u0301": "\u00e9", "\u0600": "", "\u1100": "k", "\u200b": " ", "A\u0300": "\u00c0"}
MAPPED |= {"\u0937": "s"}  # a consonant: mapped with the mark after it only if its grapheme begins there


def texts_of(count, seed):
    return sentence_texts(count, seed, HOSTILE)


def charsmap(mapping=None):
    return make_charsmap(MAPPED if mapping is None else mapping)


SPACES = pre_tokenizers.WhitespaceSplit()
META = pre_tokenizers.Metaspace
MARKS = pre_tokenizers.Punctuation()
REPLACE = normalizers.Replace


def of_albert():
    steps = [REPLACE("``", '"'), REPLACE("''", '"'), normalizers.NFKD(), normalizers.StripAccents()]
    return [*steps, normalizers.Lowercase(), normalizers.Precompiled(charsmap())]


def of_deberta():
    return [REPLACE(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(), normalizers.Strip(False, True)]


# Steps of the normalizer, and of the splitter.
WAYS = {
    "xlmr": (lambda: [normalizers.Precompiled(charsmap())], [SPACES, META(MARKER, "always")]),
    "bge": (lambda: [normalizers.Precompiled(charsmap()), REPLACE(Regex(" {2,}"), " ")], [META(MARKER, "always")]),
    "albert": (of_albert, [SPACES, META(MARKER, "always")]),
    "deberta": (of_deberta, [META(MARKER, "first")]),
    "nmt": (lambda: [normalizers.Nmt(), normalizers.NFKC()], [MARKS, META(MARKER, "always")]),
    "nfd": (lambda: [normalizers.NFD()], [SPACES, MARKS, META(MARKER, "first")]),
    "strip": (lambda: [normalizers.Strip(), normalizers.Prepend("x")], [META(MARKER, "never", False)]),
    "plain": (list, [META(MARKER, "first", False)]),
}


def joined(steps, sequence):
    return sequence(steps) if len(steps) > 1 else steps[0]


@functools.cache
def trained():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = META(MARKER, "always")
    trainer = trainers.UnigramTrainer(vocab_size=700, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False)
    kept = {*map(chr, range(1, 0x180)), *"中文\u0301"} - {*"<>"}
    words = ["".join(c for c in text if c in kept)[:200] for text in texts_of(500, seed=1)]
    tokenizer.train_from_iterator(words, trainer)
    return tokenizer.to_str()


def train(way, byte_fallback=False, added=True):
    file = json.loads(trained())
    file["model"]["byte_fallback"] = byte_fallback
    if byte_fallback:
        file["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.5] for byte in range(256)]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    steps, splitters = WAYS[way]
    if steps():
        tokenizer.normalizer = joined(steps(), normalizers.Sequence)
    tokenizer.pre_tokenizer = joined(splitters, pre_tokenizers.Sequence)
    tokenizer.decoder = decoders.Metaspace(MARKER, "never" if way == "strip" else "always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    if added:
        tokenizer.add_tokens([AddedToken("<n>", normalized=True), AddedToken("<r>", normalized=False, rstrip=True)])
        tokenizer.add_tokens([AddedToken("<l>", normalized=True, lstrip=True), AddedToken("w", single_word=True)])
    return tokenizer


def wrap(tokenizer, directory):
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **NAMES)
    wrapped.save_pretrained(directory)
    return wrapped


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_hostile_strings(tmp_path, way, byte_fallback):
    wrapped = wrap(train(way, byte_fallback), tmp_path / "theirs")
    texts = list(texts_of(2000, seed=len(way)))
    assert len(texts) > 4000
    check_saved(tmp_path, wrapped, texts)


@pytest.mark.parametrize("step", [normalizers.NFKC, normalizers.NFD, normalizers.Nmt], ids=lambda step: step.__name__)
def test_code_points(tmp_path, step):
    """Among characters that normalizers compose and order, so that the bytes of all are seen."""
    tokenizer = train("plain", byte_fallback=True, added=False)
    tokenizer.normalizer = step()
    wrapped = wrap(tokenizer, tmp_path)
    codes = [code for code in (*range(0x30000), *range(0xE0000, 0xE0200)) if not 0xD800 <= code < 0xE000]
    texts = ["x".join(map(chr, codes[at : at + 64])) for at in range(0, len(codes), 64)]
    texts += ["\u0301\u0323".join(map(chr, codes[at : at + 64])) for at in range(0, 0x3000, 64)]
    check_texts(tmp_path, texts, bare(wrapped))


CLASSES = {
    "XLMRobertaTokenizer": {},
    "CamembertTokenizer": {"additional_special_tokens": []},
    "T5Tokenizer": {"extra_ids": 0},
    "AlbertTokenizer": {"cls_token": "<s>", "sep_token": "</s>"},
    "DebertaV2Tokenizer": {"cls_token": "<s>", "sep_token": "</s>", "unk_id": 3},
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_transformers(tmp_path, name):
    """A class builds its own steps, whatever the file says."""
    place = {"T5Tokenizer": 2, "AlbertTokenizer": 1}.get(name, 3)  # of <unk>, fixed by the class
    order = [token for token in SPECIALS if token != "<unk>"]
    order.insert(place, "<unk>")
    file = json.loads(train("bge", added=False).to_str())
    file["model"]["vocab"][: len(order)] = [[token, 0.0] for token in order]
    file["model"]["unk_id"] = place
    for token in file["added_tokens"]:
        token["id"] = order.index(token["content"])
    for token in file["post_processor"]["special_tokens"].values():
        token["ids"] = [order.index(token["id"])]
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    settings = {"tokenizer_class": name} | NAMES | CLASSES[name]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    texts = list(texts_of(500, seed=5))
    check_texts(tmp_path, texts, bare(theirs))
    check_specials(tmp_path, texts[:200], theirs)
    theirs.save_pretrained(tmp_path / "saved")
    check_texts(tmp_path / "saved", texts, bare(theirs))


def wild(place, value):
    data = bytearray(charsmap())
    struct.pack_into("<I", data, place, value)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(data)).decode()}


GROWS = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 9}
GROWS = {"type": "Sequence", "normalizers": 6 * [GROWS]}
TWICE = [["<s>", 0], ["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["<mask>", 0], ["a", -1], ["a", -2]]
REFUSED = [
    ({"normalizer": wild(0, 17)}, "multiple of 1024"),
    ({"normalizer": wild(0, 1 << 30)}, "multiple of 1024"),
    ({"normalizer": wild(4, (1 << 20) << 10)}, "refer to one of its"),
    ({"normalizer": wild(4, 1 << 31 | 1 << 30)}, "refer to one of its"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "*"}}, "base64"),
    ({"normalizer": {"type": "ByteLevel"}}, "NFKC"),
    ({"pre_tokenizer": {"type": "Punctuation", "behavior": "Removed"}}, "Isolated"),
    ({"normalizer": GROWS}, "the steps of a normalizer must make at most 65536 bytes of one, got more"),
    ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer"),
    ({"pre_tokenizer": None}, "pre_tokenizer"),
    ({"decoder": {"type": "WordPiece"}}, "decoder"),
    ({"model__unk_id": None}, "unk_id"),
    ({"model__unk_id": 99999}, "unk_id"),
    ({"model__vocab": TWICE}, '"a"'),
    ({"model__vocab": [["<s>", 0], ["<pad>", None]]}, "<pad>"),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused_by_name(tmp_path, changes, named):
    file = changed(json.loads(train("xlmr", added=False).to_str()), changes)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    assert named in refusal(tmp_path)
