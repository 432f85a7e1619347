"""What the tests of tokenizer files share: the probe program, texts that provoke tokenizers, small trained models."""

import itertools
import json
import os
import random
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release"))
PROBE = BUILD / "tests" / "model_probe"


def ask(directory, requests, *arguments):
    """The probe's answers; a refused directory gives one {"error"}."""
    done = subprocess.run(
        [PROBE, directory, *map(str, arguments)],
        input="".join(json.dumps(request) + "\n" for request in requests).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def refusal(directory, *arguments):
    answers = ask(directory, [{"text": "a"}], *arguments)
    return answers[0].get("error", "")


def code_points():
    return (code for code in range(0x110000) if not 0xD800 <= code < 0xE000)


SCRIPTS = [
    *[(0x20, 0x7F)] * 4,
    (0, 0x250),
    (0x300, 0x370),
    (0x370, 0x530),
    (0x590, 0x700),
    (0x900, 0xA00),
    (0xE00, 0xE80),
    (0x1100, 0x1200),
    (0x2000, 0x2070),
    (0x3000, 0x3100),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A4),
    (0xF900, 0xFB00),
    (0x11900, 0x11940),
    (0x1F300, 0x1FAFF),
    (0x2F800, 0x2FA20),
    (0xE0000, 0xE0200),
]
WORDS = [
    "hello",
    " world",
    "Naïve",
    "don't",
    "we'll",
    "'s",
    " 's",
    "I'VE",
    "2024",
    "½",
    "中文",
    "한국어",
    "👩\u200d👩\u200d👧",
]
WORDS += [
    "a\u0301",
    "e\u0301\u0323",
    "\u1112\u1161\u11ab",
    "\u0344",
    "q\u0307\u0323",
    "...",
    "(x)",
    "\x00",
    "\x7f",
    "\ufffd",
    "ſ",
]
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


def check_texts(directory, texts, encode, *arguments):
    """`encode(text)` gives a `tokenizers` Encoding; ids and offsets are compared."""
    texts = list(texts)
    answers = ask(directory, [{"text": text} for text in texts], *arguments)
    assert len(answers) == len(texts), answers[-1:]
    for text, got in zip(texts, answers, strict=True):
        want = encode(text)
        assert got["ids"] == want.ids, ascii(text)
        assert list(zip(got["begin"], got["end"], strict=True)) == want.offsets, ascii(text)
        bytes_before = list(itertools.accumulate((len(char.encode()) for char in text), initial=0))
        assert got["byte_begin"] == [bytes_before[i] for i in got["begin"]], ascii(text)
        assert got["byte_end"] == [bytes_before[i] for i in got["end"]], ascii(text)


def check_decoding(directory, tokenizer, lists, *arguments):
    """Against `transformers`' decode()."""
    requests = [{"ids": ids, "skip": skip} for ids in lists for skip in (False, True)]
    answers = ask(directory, requests, *arguments)
    for request, got in zip(requests, answers, strict=True):
        want = tokenizer.decode(request["ids"], skip_special_tokens=request["skip"])
        assert got["text"] == want, request
