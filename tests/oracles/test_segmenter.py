"""The segmenter (spec R-TOK-02) against `rjieba` and `jieba`, both without their hidden Markov model, and user
dictionaries against jieba's load_userdict."""

import itertools
import random

import jieba
import pytest
import rjieba
import tokenizer_probe as probe

from tokenizer_texts import code_points

jieba.setLogLevel("ERROR")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def total_and_words(cache, texts, dictionary=probe.DICTIONARY, users=()):
    options = {"segment": str(cache), "dictionary": str(dictionary), "users": [str(user) for user in users]}
    total, *words = probe.ask(options, texts)
    return total, words


def ours(*arguments):
    return total_and_words(*arguments)[1]


def jieba_tokenizer(folder, dictionary=None):
    """One that keeps its cache to itself."""
    tokenizer = jieba.Tokenizer(*([str(dictionary)] if dictionary else []))
    tokenizer.tmp_dir = str(folder)
    return tokenizer


def python_jieba(folder, dictionary=None):
    tokenizer = jieba_tokenizer(folder, dictionary)
    return lambda text: tokenizer.lcut(text, HMM=False)


def check(got, texts, cut):
    for text, words in zip(texts, got, strict=True):
        want = cut(text)
        assert words == want, ascii((text, words, want))


def rjieba_cut(text):
    return rjieba.cut(text, False)


def joined(texts, separator=" "):
    """Fewer and longer texts, which are quicker to compare."""
    return [separator.join(texts[i : i + 256]) for i in range(0, len(texts), 256)]


def test_which_characters_are_in_runs(tmp_path):
    """A word with each character in it is found only when the character does not end the run."""
    theirs = rjieba.Jieba.empty()
    words = [f"+{chr(code)}+" for code in code_points() if not chr(code).isspace()]
    for word in words:
        theirs.add_word(word, 100, "n")
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("".join(f"{word} 100 n\n" for word in words), encoding="utf-8", newline="\n")
    texts = joined(words)
    check(ours("", texts, dictionary), texts, lambda text: theirs.cut(text, False))


def test_every_code_point(cache):
    """Beside letters and digits, which it may part, and twice in a row."""
    texts = joined([f"a{chr(code)}1{chr(code)}{chr(code)}中国b" for code in code_points()])
    check(ours(cache, texts), texts, rjieba_cut)


def test_line_ends_and_spaces(cache):
    odd = "\r\n\t \x0b\x0c\x1c\x85\xa0\u2028\u3000\ufeffa中"
    texts = ["".join(chars) for length in (2, 3) for chars in itertools.product(odd, repeat=length)]
    check(ours(cache, texts), texts, rjieba_cut)


def test_random_strings_against_rjieba(cache):
    texts = list(probe.chinese_strings(10_000, 1))
    check(ours(cache, texts), texts, rjieba_cut)


def test_random_strings_against_jieba(cache):
    texts = list(probe.chinese_strings(10_000, 2, ranges=probe.PLAIN))
    check(ours(cache, texts), texts, python_jieba(cache))


@probe.needs_shared
def test_real_texts(cache):
    texts = probe.shared_texts()
    words = ours(cache, texts)
    check(words, texts, rjieba_cut)
    check(words, texts, python_jieba(cache))


def test_long_runs(cache):
    """Runs of thousands of characters, where the sums round."""
    draw = random.Random(3)
    words = probe.dictionary_words()
    texts = ["".join(draw.choice(words) for _ in range(3000)) for _ in range(20)]
    got = ours(cache, texts)
    check(got, texts, rjieba_cut)
    check(got, texts, python_jieba(cache))


def test_ties(tmp_path):
    """Few frequencies over few characters: many paths are equally probable."""
    draw = random.Random(4)
    for trial in range(20):
        letters = "甲乙丙丁"[: 2 + trial % 3] + "a"
        words = {"".join(draw.choice(letters) for _ in range(draw.randrange(1, 5))) for _ in range(40)}
        dictionary = tmp_path / f"{trial}.txt"
        lines = [f"{word} {draw.choice((1, 1, 2, 4, 16))}\n" for word in sorted(words)]
        dictionary.write_text("".join(lines), encoding="utf-8")
        texts = ["".join(draw.choice(letters) for _ in range(draw.randrange(1, 60))) for _ in range(500)]
        theirs = rjieba.Jieba.empty()
        for line in lines:
            word, frequency = line.split()
            theirs.add_word(word, int(frequency), "n")
        got = ours("", texts, dictionary)
        check(got, texts, python_jieba(tmp_path, dictionary))
        check(got, texts, lambda text, theirs=theirs: theirs.cut(text, False))


def user_lines(draw, words):
    """Every form a line can have: new, old and removed words, with and without frequency and tag, spaces, junk."""
    pieces = [*draw.sample(words, 300), "C++", "a", "1", "b3", "．", "㐀", "\U00020000", "韩玉"]
    for _ in range(300):
        word = "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 4)))
        frequency = draw.choice(["", "", " 0", " 3", " 1000", " 100000", " 007"])
        tag = draw.choice(["", "", " n", " nz", " N", " 中 文", "  5", " n 5", "\t"])
        yield draw.choice(["", "", "", " ", "\ufeff", "\ufeff 5 n\ufeff"]) + word + frequency + tag
    yield from ["", "   ", "\ufeff", "5 n", "n 5", " 5", "\ufeff 5 n"]


def test_user_dictionaries(tmp_path):
    draw = random.Random(5)
    words = probe.dictionary_words()
    small = tmp_path / "dict.txt"
    lines = probe.DICTIONARY.read_text(encoding="utf-8").splitlines(keepends=True)
    small.write_text("".join(draw.sample(lines, 20_000)), encoding="utf-8")
    for trial in range(4):
        user = tmp_path / f"user{trial}.txt"
        chosen = list(user_lines(draw, words))
        user.write_text(draw.choice(["\n", "\r\n"]).join(chosen), encoding="utf-8", newline="")
        plain = [line.strip("\ufeff ").split(" ")[0] for line in chosen]
        texts = ["".join(draw.choice(plain) for _ in range(draw.randrange(1, 9))) for _ in range(1000)]
        texts = [text for text in texts if not any(lo <= ord(c) < hi for c in text for lo, hi in probe.HAN_OF_RJIEBA)]
        theirs = jieba_tokenizer(tmp_path, small)
        theirs.load_userdict(str(user))
        total, words_of_texts = total_and_words("", texts, small, [user])
        assert total == theirs.total
        check(words_of_texts, texts, lambda text, theirs=theirs: theirs.lcut(text, HMM=False))
