"""The pipelines `bert` and `roformer` on real texts that come with the tests (tests/samples), and `roformer` on rare
planes of Unicode, against `transformers` 5 on the library `tokenizers` and rjieba (R-TOK-01 to R-TOK-04)."""

import random

import pytest
from test_fast_tokenizers import DEFAULTS, DICTIONARY, check_encodings, chinese_vocabulary, probe

from cli_support import ROOT
from tokenizer_texts import SPECIALS

tokenizers = pytest.importorskip("tokenizers")
rjieba = pytest.importorskip("rjieba")

SAMPLES = ROOT / "tests" / "samples"


def lines(name):
    return (SAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def word_pieces(texts, size):
    """A vocabulary that the library learns from the texts."""
    learned = tokenizers.BertWordPieceTokenizer(lowercase=True)
    learned.train_from_iterator(texts, vocab_size=size, min_frequency=1, special_tokens=SPECIALS, show_progress=False)
    vocab = learned.get_vocab()
    return sorted(vocab, key=vocab.get)


def words_of_jieba(texts):
    """The words that rjieba finds, every other one, and the characters, so that words are cut in each way."""
    words = sorted({word for text in texts for word in rjieba.cut(text.lower(), False) if word.strip()})
    characters = sorted({char for text in texts for char in text.lower() if char.strip()})
    return list(dict.fromkeys([*SPECIALS, *words[::2], *characters, *("##" + char for char in characters[::2])]))


@pytest.mark.parametrize("options", DEFAULTS)
@pytest.mark.parametrize("name", ["english", "chinese"])
def test_bert(tmp_path, name, options):
    texts = lines(name)
    check_encodings("bert", [*texts, " ".join(texts)], word_pieces(texts, 400), options, tmp_path)


@pytest.mark.parametrize("options", DEFAULTS)
@pytest.mark.parametrize("name", ["english", "chinese"])
def test_roformer(tmp_path, name, options):
    texts = lines(name)
    both = [a + b for a, b in zip(lines("english"), lines("chinese"), strict=False)]
    check_encodings("roformer", [*texts, *both, "".join(texts)], words_of_jieba(texts), options, tmp_path)


def test_the_samples_have_words_of_each_kind():
    """There are words of one character and of several, in the vocabulary and not; else the test above shows little."""
    texts = lines("chinese")
    known = set(words_of_jieba(texts))
    words = {word for text in texts for word in rjieba.cut(text, False)}
    assert sum(len(word) > 1 and word in known for word in words) > 10
    assert sum(len(word) > 1 and word not in known for word in words) > 10
    assert len(words) > 150 and DICTIONARY.is_file()


# What no everyday text has; first and last code points of blocks are all taken.
RARE = {
    "supplementary ideographs": (0x20000, 0x30000, 61),
    "tertiary ideographs": (0x30000, 0x40000, 97),
    "unassigned planes": (0x40000, 0xE0000, 4001),
    "tags and variation selectors": (0xE0000, 0xE0200, 1),
    "rest of plane 14": (0xE0200, 0xF0000, 509),
    "private use": (0xE000, 0xF900, 41),
    "supplementary private use": (0xF0000, 0x110000, 1021),
    "unassigned in the basic plane": (0x0378, 0x0600, 1),
    "specials": (0xFFF0, 0x10000, 1),
}
EDGES = [0x2A6DF, 0x2A6E0, 0x2A700, 0x2B739, 0x2B73F, 0x2B740, 0x2B81D, 0x2B81F, 0x2B820, 0x2B91F, 0x2B920, 0x2CEA1]
EDGES += [0x2CEAF, 0x2CEB0, 0x2EBE0, 0x2EBEF, 0x2EBF0, 0x2F800, 0x2FA1D, 0x2FA1F, 0x2FA20, 0x2FFFE, 0x2FFFF, 0x30000]
EDGES += [0x3134A, 0x3134B, 0x31350, 0x323AF, 0x3FFFF]


@pytest.mark.parametrize("block", RARE)
@pytest.mark.parametrize("options", DEFAULTS)
def test_roformer_on_rare_planes(tmp_path, block, options):
    """Alone, in Chinese, in a word of letters, and in rows; some are in the vocabulary, or in words of it."""
    low, high, step = RARE[block]
    codes = sorted({*range(low, high, step), high - 1, *(edge for edge in EDGES if low <= edge < high)})
    draw = random.Random(low)
    chars = [chr(code) for code in codes]
    texts = [
        f"{char} \u4e2d{char}\u56fdX{char}y {draw.choice(chars)}{char}{draw.choice(chars)}中国{char}" for char in chars
    ]
    vocabulary = [
        *chinese_vocabulary(),
        *chars[::3],
        *("\u4e2d" + char for char in chars[1::3]),
        *("##" + c for c in chars[::5]),
    ]
    check_encodings("roformer", texts, list(dict.fromkeys(vocabulary)), options, tmp_path)


def test_rare_characters_are_words_or_dropped(tmp_path):
    """By the rules themselves: format and private-use ones are dropped, ideographs stand alone, unassigned stay."""
    path = tmp_path / "vocab.txt"
    path.write_text(
        "\n".join([*SPECIALS, "a", "b", "ab", "\U00020000", "\U000e0080", "a\U000e0080b"]) + "\n", encoding="utf-8"
    )
    texts = ["a\U000e0041b", "a\ue000b", "a\U000f0000b", "a\U00020000b", "\U000e0080"]
    got = [answer["ids"] for answer in probe(texts, "roformer", DEFAULTS[0], vocab=str(path))]
    assert got == [[7], [7], [7], [5, 8, 6], [9]]
