"""The `bert` pipeline against the library `tokenizers` (spec R-TOK-04, R-TOK-05 table set A).

Words, ids and offsets are those of BertNormalizer, BertPreTokenizer and WordPiece as `transformers`' BertTokenizer puts
them together. The C++ side is the tokenizer_probe program of the build in ROFORMER_BUILD_DIR (build/release unless
set).
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "tests" / "tokenizer_probe"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CODE_POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]

# (do_lower_case, strip_accents, tokenize_chinese_chars)
OPTIONS = [(lower, strip, cjk) for lower in (True, False) for strip in (None, True, False) for cjk in (True, False)]
DEFAULTS = [(True, None, True), (False, None, True)]


def probe(lines, mode, options, *arguments):
    """Runs tokenizer_probe on JSON objects (or texts) and returns its JSON answers."""
    items = [line if isinstance(line, dict) else {"text": line} for line in lines]
    lower, strip, cjk = options
    given = {"pipeline": "bert", "lower": lower, "strip_accents": strip, "tokenize_chinese_chars": cjk}
    done = subprocess.run(
        [PROBE, mode, json.dumps(given), *map(str, arguments)],
        input="".join(json.dumps(item) + "\n" for item in items).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def library_words(options):
    """A function from text to words and their character offsets."""
    lower, strip, cjk = options
    normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=cjk, strip_accents=strip, lowercase=lower
    )
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()

    def words(text):
        pre = tokenizers.PreTokenizedString(text)
        pre.normalize(normalizer.normalize)
        splitter.pre_tokenize(pre)
        return [(word, *offsets) for word, offsets, _ in pre.get_splits("original", "char")]

    return words


def check_words(texts, options):
    theirs = library_words(options)
    for text, got in zip(texts, probe(texts, "words", options), strict=True):
        assert list(zip(got["words"], got["begin"], got["end"], strict=True)) == theirs(text), ascii(text)


@pytest.mark.parametrize("options", OPTIONS)
def test_every_code_point(options):
    """Alone, and inside a word that has letters of both cases around it."""
    pieces = [f"{chr(code)} X{chr(code)}y" for code in CODE_POINTS]
    if options not in DEFAULTS:
        pieces = [piece for piece in pieces if ord(piece[0]) < 0x3400 or ord(piece[0]) % 7 == 0]
    check_words([" ".join(pieces[i : i + 64]) for i in range(0, len(pieces), 64)], options)
