"""The original WoBERT and RoFormer tokenizer (spec R-TOK-03) against wobert_reference.py."""

import random
import unicodedata
from pathlib import Path

import pytest
from tokenizer_probe import DATA, ask, check_byte_offsets, of_texts, offsets, write_vocabulary

pytest.importorskip("transformers")
jieba = pytest.importorskip("jieba")
pytest.importorskip("rjieba")

from wobert_reference import SPECIALS, WobertReference  # noqa: E402  (needs what may be missing)

DICTIONARY = Path(jieba.__file__).parent / "dict.txt"
TABLE_VERSION = "14.0.0"  # of Unicode, in text/src/unicode/unicode_tables.inc

pytestmark = pytest.mark.skipif(
    unicodedata.unidata_version != TABLE_VERSION,
    reason=f"SKIPPED LOUDLY: the tables follow Unicode {TABLE_VERSION}, this Python has {unicodedata.unidata_version}",
)
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"SKIPPED LOUDLY: no test data at {DATA}")


def check(vocab_path, tokens, texts, case):
    options = {"pipeline": "wobert", "lower": case == "lower", "dictionary": str(DICTIONARY), "vocab": str(vocab_path)}
    reference = WobertReference(tokens, case)
    for text, got in zip(texts, ask(options, of_texts(texts)), strict=True):
        ours = [(id, *place) for id, place in zip(got["ids"], offsets(got), strict=True)]
        assert ours == list(reference.encode(text)), ascii(text)
        check_byte_offsets(got, text)


def dictionary_words():
    return [line.split(" ")[0] for line in DICTIONARY.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Special tokens, words of jieba's, characters, pieces; some words only in forms that a step would change."""
    draw = random.Random(1)
    words = draw.sample([word.lower() for word in dictionary_words()], 3000)
    chars = list({char for word in words for char in word})
    plain = [chr(code) for code in (*range(0x21, 0x7F), *range(0xC0, 0x180), *range(0x3B1, 0x3CA))]
    odd = ["c++", "é", "\u0307", "ς", "naive", "ab", "##c", "##d1", "T恤", "t恤", "。", "\U0001f600", "가", "ᄀ", "か"]
    tokens = list(dict.fromkeys(SPECIALS + words + draw.sample(chars, 1500) + plain + odd))
    tokens = [token for token in tokens if token not in ("%", "~", "q", "ê")]
    tokens += [f"##{char}" for char in (*"abcdefgh0123", "恤", "é") if f"##{char}" not in tokens]
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary") / "vocab.txt", tokens), tokens


def random_strings(count, seed):
    draw = random.Random(seed)
    words = dictionary_words()
    ranges = [(0, 0x80), (0x20, 0x7F), (0x80, 0x250), (0x370, 0x530), (0x300, 0x370), (0x900, 0xA00), (0x2000, 0x2070)]
    ranges += [(0x3000, 0x3100), (0xF900, 0xFFFF), (0x1F300, 0x1FAFF), (0xAC00, 0xD7A4), (0x3400, 0x9FFF)]
    ranges += [(0x20000, 0x2FA20), (0xE0000, 0xE0200)]
    common = ["C++", "T恤", "ΟΔΟΣ", "İstanbul", "naïve", "e\u0301\u0323", "\u212bK\u212a", "ǅ", "ﬁ", "abcd1", "x" * 101]
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(1, 14)):
            kind = draw.randrange(10)
            if kind < 5:
                parts.append(draw.choice(words))
            elif kind == 5:
                parts.append("".join(draw.choice("abcdABq0123+#&._%-~!") for _ in range(draw.randrange(1, 8))))
            elif kind == 6:
                parts.append(draw.choice(common))
            elif kind == 7:
                parts.append(draw.choice([*SPECIALS, "[mask]"]))
            else:
                parts += [chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(1, 4))]
            parts.append(draw.choice(["", "", "", " ", "，", "\r\n", "\t", "\u3000"]))
        yield "".join(parts)


@pytest.mark.parametrize("case", ["lower", "keep"])
def test_random_strings(vocabulary, case):
    check(*vocabulary, list(random_strings(5_000, 2 if case == "lower" else 3)), case)


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
    texts = ["".join(random_strings(600, 4)), "甲" * 9000 + "。" + "a1" * 9000, "\r\n\r" * 5000]
    check(*vocabulary, texts, "lower")


@needs_data
def test_real_text():
    vocab_path = DATA / "vocabs" / "roformer_chinese_base_vocab.txt"
    tokens = vocab_path.read_text(encoding="utf-8").split("\n")[:-1]
    texts = []
    for name in ("zh_classics/hongloumeng.txt", "zh_laws/laws_valid.jsonl", "en_wikitext2/wiki.valid.raw"):
        with (DATA / name).open("rb") as file:
            texts += file.read(150_000).decode("utf-8", errors="ignore").splitlines()
    check(vocab_path, tokens, texts, "lower")
