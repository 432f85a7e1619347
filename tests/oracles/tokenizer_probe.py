"""What the tests of tokenizers share: the probe program, text_probe of the build, and texts that provoke tokenizers."""

import functools
import itertools
import json
import random
import re
import subprocess
from pathlib import Path

import jieba
import pytest

from cli_support import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
DICTIONARY = Path(jieba.__file__).parent / "dict.txt"  # the words of rjieba too
PROBE = PROGRAM.parent / "tests" / "text_probe"
SHARED = ROOT.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"SKIPPED LOUDLY: no test data at {SHARED}")


def answer_lines(options, lines, dictionary=None):
    """The probe's answers as it writes them. Options are those of text_probe, or a model directory; a refused one gives
    one {"error"}."""
    if not isinstance(options, dict):
        options = {"model": str(options)} | ({"dictionary": str(dictionary)} if dictionary else {})
    done = subprocess.run(
        [PROBE, json.dumps(options)],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return [line for line in done.stdout.decode().split("\n") if line]


def ask(options, lines, dictionary=None):
    return [json.loads(line) for line in answer_lines(options, lines, dictionary)]


def ends(options, lines):
    """Where the last token of each text ends. Nothing else of the answers, which may be long, is read."""
    return [int(re.search(r'"end":\[[\d,]*\b(\d+)\]', line)[1]) for line in answer_lines(options, lines)]


def of_texts(texts):
    """The lines that ask about texts, or bytes."""
    return [{"hex": text.hex()} if isinstance(text, bytes) else {"text": text} for text in texts]


def write_vocabulary(path, tokens):
    path.write_text("".join(token + "\n" for token in tokens), encoding="utf-8")
    return path


def offsets(answer):
    return list(zip(answer["begin"], answer["end"], strict=True))


def first_of_words(word_ids):
    """Where a token begins a word, from the word_ids of `tokenizers`."""
    return [int(i == 0 or word is None or word != word_ids[i - 1]) for i, word in enumerate(word_ids)]


def check_byte_offsets(answer, text):
    before = list(itertools.accumulate(map(len, map(str.encode, text)), initial=0))
    for name in ("begin", "end"):
        assert answer["byte_" + name] == [before[at] for at in answer[name]], ascii(text)


def bare(wrapped):
    """encode() of a tokenizer of transformers, without special tokens."""
    return lambda text: wrapped._tokenizer.encode(text, add_special_tokens=False)


def changed(document, changes):
    """A document with other values, by paths whose names "__" parts."""
    for path, value in changes.items():
        *parents, last = path.split("__")
        functools.reduce(dict.__getitem__, parents, document)[last] = value
    return document


def refusal(directory):
    return ask(directory, [{"text": "a"}])[0].get("error", "")


MARKER = "\u2581"
SCRIPTS = [*[(0x20, 0x7F)] * 4, (0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xA00)]
SCRIPTS += [(0xE00, 0xE80), (0x1100, 0x1200), (0x2000, 0x2070), (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4)]
SCRIPTS += [(0xF900, 0xFB00), (0x11900, 0x11940), (0x1F300, 0x1FAFF), (0x2F800, 0x2FA20), (0xE0000, 0xE0200)]
WORDS = ["hello", " world", "Naïve", "don't", "we'll", "'s", " 's", "I'VE", "2024", "½", "中文", "한국어", "ſ"]
WORDS += ["a\u0301", "e\u0301\u0323", "\u1112\u1161\u11ab", "\u0344", "q\u0307\u0323", "👩\u200d👩\u200d👧"]
WORDS += ["...", "(x)", "\x00", "\x7f", "\ufffd"]
GAPS = ["", "", "", " ", " ", "  ", "   ", "\n", " \n ", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\r\n"]


def random_texts(count, seed, tokens=()):
    """Scripts mixed with words, white space of all kinds and special tokens glued to them."""
    draw = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(1, 10)):
            kind = draw.randrange(6)
            if kind < 2:
                low, high = draw.choice(SCRIPTS)
                parts.append("".join(chr(draw.randrange(low, high)) for _ in range(draw.randrange(1, 6))))
            elif kind < 5 or not tokens:
                parts.append(draw.choice(WORDS))
            else:
                parts.append(draw.choice(tokens))
            parts.append(draw.choice(GAPS))
        yield "".join(parts)


def sentence_texts(count, seed, hostile):
    """For tokenizers of SentencePiece: short and long texts, and those of random_texts() and of `hostile` parts."""
    yield from ["", " ", "  ", MARKER, "a", " a", "a ", "\u0301", "中", "x" * 3000, " " * 3000, "ab " * 1000, "é" * 999]
    yield from random_texts(count, seed, tokens=hostile)
    draw = random.Random(seed)
    for _ in range(count):
        yield "".join(draw.choices(hostile, k=draw.randrange(1, 14)))


@functools.cache
def dictionary_words():
    return [line.split(" ")[0] for line in DICTIONARY.read_text(encoding="utf-8").splitlines()]


# Without Han characters that jieba, which ends at U+9FD5, takes for punctuation; and those.
PLAIN = [(0, 0x80), (0x20, 0x7F), (0x80, 0x250), (0x370, 0x530), (0x300, 0x370), (0x900, 0xA00), (0x2000, 0x2070)]
PLAIN += [(0x3000, 0x3100), (0xFE00, 0xFFF0), (0x1F300, 0x1FAFF), (0xAC00, 0xD7A4), (0x4E00, 0x9FD6)]
HAN_OF_RJIEBA = [(0x3400, 0x4DC0), (0x9FD6, 0xA000), (0xF900, 0xFB00), (0x20000, 0x2A6E0), (0x2A700, 0x2EBF0)]
HAN_OF_RJIEBA += [(0x2F800, 0x2FA20)]


def chinese_strings(count, seed, common=("C++",), ranges=(*PLAIN, *HAN_OF_RJIEBA, (0xE0000, 0xE0200))):
    """Words of jieba's, and their beginnings, between things of all kinds; `common`: some that are drawn often."""
    draw = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(1, 14)):
            kind = draw.randrange(10)
            if kind < 4:
                parts.append(draw.choice(dictionary_words()))
            elif kind == 4:  # words that overlap others
                parts.append(draw.choice(dictionary_words())[: draw.randrange(1, 4)])
            elif kind == 5:
                parts += draw.choices("abcdzABqZ01239+#&._%-~!", k=draw.randrange(1, 8))
            elif kind < 8:
                parts.append(draw.choice(common))
            else:
                parts += [chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(1, 4))]
            parts.append(draw.choice(["", "", "", " ", "，", "\u3002", "\r\n", "\t", "\u3000"]))
        yield "".join(parts)


@functools.cache
def shared_texts(size=4_000):
    """The lines with which each file begins of the texts that are beside the repository."""
    texts = []
    for path in filter(Path.is_file, sorted(SHARED.rglob("*"))):
        with path.open("rb") as file:
            texts += file.read(size).decode("utf-8", errors="ignore").splitlines()
    assert len(texts) > 500
    return texts


def check_texts(directory, texts, encode, dictionary=None):
    """`encode(text)` gives a `tokenizers` Encoding; ids and offsets are compared. Our answers."""
    texts = list(texts)
    answers = ask(directory, of_texts(texts), dictionary)
    assert len(answers) == len(texts), answers[-1:]
    for text, got in zip(texts, answers, strict=True):
        want = encode(text)
        assert (got["ids"], offsets(got)) == (want.ids, want.offsets), ascii(text)
        check_byte_offsets(got, text)
    return answers


def check_decoding(directory, tokenizer, lists):
    """Against `transformers`' decode()."""
    requests = [{"ids": ids, "skip": skip} for ids in lists for skip in (False, True)]
    for request, got in zip(requests, ask(directory, requests), strict=True):
        want = tokenizer.decode(request["ids"], skip_special_tokens=request["skip"])
        assert got["text"] == want, request


def check_specials(directory, texts, tokenizer):
    """Texts within their special tokens."""
    lines = [{"text": text, "specials": True} for text in texts]
    for line, got in zip(lines, ask(directory, lines), strict=True):
        assert got["ids"] == tokenizer(line["text"])["input_ids"], ascii(line["text"])


def check_saved(directory, tokenizer, texts, lists=()):
    """The files of transformers in directory / "theirs", and the program's own of the same tokenizer."""
    ours, theirs = directory / "ours", directory / "theirs"
    ours.mkdir()
    ask(theirs, [{"save": str(ours)}])
    answers = check_texts(theirs, texts, bare(tokenizer))
    assert ask(ours, of_texts(texts[:500])) == answers[:500]
    draw = random.Random(2)
    lists = [*lists, *(tokenizer(text)["input_ids"] for text in texts[:200])]
    lists += [[draw.randrange(len(tokenizer)) for _ in range(20)] for _ in range(200)]
    for saved in (theirs, ours):
        check_decoding(saved, tokenizer, lists)
    check_specials(theirs, texts[:300], tokenizer)
