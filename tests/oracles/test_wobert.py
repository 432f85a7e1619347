"""The original WoBERT and RoFormer tokenizer (spec R-TOK-03) against wobert_reference.py."""

import random
import unicodedata

import pytest
import tokenizer_probe as probe
from wobert_reference import SPECIALS, WobertReference

TABLE_VERSION = "14.0.0"  # of Unicode, in text/src/unicode/unicode_tables.inc

pytestmark = pytest.mark.skipif(
    unicodedata.unidata_version != TABLE_VERSION,
    reason=f"SKIPPED LOUDLY: the tables follow Unicode {TABLE_VERSION}, this Python has {unicodedata.unidata_version}",
)
COMMON = ["C++", "T恤", "ΟΔΟΣ", "İstanbul", "naïve", "e\u0301\u0323", "\u212bK\u212a", "ǅ", "ﬁ", "abcd1", "x" * 101]
COMMON += [*SPECIALS, "[mask]"]


def check(vocab_path, tokens, texts, case):
    options = {"pipeline": "wobert", "lower": case == "lower", "dictionary": str(probe.DICTIONARY)}
    options |= {"vocab": str(vocab_path)}
    reference = WobertReference(tokens, case)
    for text, got in zip(texts, probe.ask(options, probe.of_texts(texts)), strict=True):
        ours = [(id, *place) for id, place in zip(got["ids"], probe.offsets(got), strict=True)]
        assert ours == list(reference.encode(text)), ascii(text)
        probe.check_byte_offsets(got, text)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Special tokens, words of jieba's, characters, pieces; some words only in forms that a step would change."""
    draw = random.Random(1)
    words = draw.sample([word.lower() for word in probe.dictionary_words()], 3000)
    chars = list({char for word in words for char in word})
    plain = [chr(code) for code in (*range(0x21, 0x7F), *range(0xC0, 0x180), *range(0x3B1, 0x3CA))]
    odd = ["c++", "é", "\u0307", "ς", "naive", "ab", "##c", "##d1", "T恤", "t恤", "。", "\U0001f600", "가", "ᄀ", "か"]
    tokens = list(dict.fromkeys(SPECIALS + words + draw.sample(chars, 1500) + plain + odd))
    tokens = [token for token in tokens if token not in ("%", "~", "q", "ê")]
    tokens += [f"##{char}" for char in (*"abcdefgh0123", "恤", "é") if f"##{char}" not in tokens]
    return probe.write_vocabulary(tmp_path_factory.mktemp("vocabulary") / "vocab.txt", tokens), tokens


@pytest.mark.parametrize("case", ["lower", "keep"])
def test_random_strings(vocabulary, case):
    check(*vocabulary, list(probe.chinese_strings(5_000, 2 if case == "lower" else 3, COMMON)), case)


def test_every_code_point(vocabulary):
    """A part of the code points that are all treated alike (unassigned, private, Hangul syllables, ideographs)."""
    texts = []
    for code in range(0x110000):
        char = chr(code)
        alike = unicodedata.category(char) in ("Cn", "Co") or 0xAC00 <= code < 0xD7A4 or 0x20000 <= code < 0x30000
        if not 0xD800 <= code < 0xE000 and (not alike or code % 31 == 0):
            texts.append(f"国{char}a{char}{char}B1 ")
    check(*vocabulary, ["".join(texts[i : i + 256]) for i in range(0, len(texts), 256)], "lower")


def test_long_text(vocabulary):
    """Longer than what is held at once, with runs of every length across the borders."""
    texts = ["".join(probe.chinese_strings(600, 4, COMMON)), "甲" * 9000 + "。" + "a1" * 9000, "\r\n\r" * 5000]
    check(*vocabulary, texts, "lower")


@probe.needs_shared
def test_real_texts():
    path = probe.SHARED / "vocabs" / "roformer_chinese_base_vocab.txt"
    check(path, path.read_text(encoding="utf-8").split("\n")[:-1], probe.shared_texts(), "lower")
