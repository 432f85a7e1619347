#!/usr/bin/env python3
"""Writes text/src/unicode_tables.inc from Python's own `unicodedata` and `str.lower`.

These are the tables of the BERT tokenizer (spec R-TOK-05, set B): what Python's BasicTokenizer sees of a code point.
Run with the Python whose Unicode version the tokenizer shall follow (CPython 3.11: Unicode 14.0):

    python scripts/make_unicode_tables.py
"""

import sys
import unicodedata
from pathlib import Path

OUTPUT = Path(__file__).resolve().parent.parent / "text" / "src" / "unicode_tables.inc"
LINE_WIDTH = 118
BLOCK_BITS = 7

# The bits of a record; text/src/unicode.h names the same.
DROP, SPACE, PUNCTUATION, MARK, CASED, IGNORABLE, NFC_UNSTABLE, LOWER, DECOMPOSES, CJK = (1 << i for i in range(10))
CLASS_SHIFT = 16  # canonical combining class

CJK_RANGES = [
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
]
HANGUL_SYLLABLES = range(0xAC00, 0xAC00 + 11172)
HANGUL_VOWELS = range(0x1161, 0x1161 + 21)
HANGUL_TRAILS = range(0x11A8, 0x11A8 + 27)
CODE_POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def is_ascii_punctuation(code):
    return 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126


def find_compositions():
    """(first, second) -> composite for every primary composite except Hangul syllables."""
    compositions = {}
    for code in CODE_POINTS:
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (int(part, 16) for part in parts)
            if unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(code):
                compositions[first, second] = code
    return compositions


def make_record(code, composing):
    """The flags and the combining class of one code point."""
    char = chr(code)
    category = unicodedata.category(char)
    flags = 0
    if char in "\t\n\r":
        return SPACE
    if category.startswith("C") or code == 0xFFFD:
        flags |= DROP
    if char.isspace():
        flags |= SPACE
    if category.startswith("P") or is_ascii_punctuation(code):
        flags |= PUNCTUATION
    if category == "Mn":
        flags |= MARK
    # What str.lower does with a capital sigma tells the two properties that its rule looks at.
    cased = (char + "\u03a3").lower()[-1] == "\u03c2"
    ignorable_or_cased = ("a" + char + "\u03a3").lower()[-1] == "\u03c2"
    if cased:
        flags |= CASED
    elif ignorable_or_cased:
        flags |= IGNORABLE
    combining = unicodedata.combining(char)
    if combining or code in composing or unicodedata.normalize("NFC", char) != char:
        flags |= NFC_UNSTABLE
    if char.lower() != char:
        flags |= LOWER
    if unicodedata.normalize("NFD", char) != char:
        flags |= DECOMPOSES
    if any(first <= code <= last for first, last in CJK_RANGES):
        flags |= CJK
    return flags | combining << CLASS_SHIFT


def make_trie(values):
    """Two stages: index[code >> BLOCK_BITS] is a block, blocks[block << BLOCK_BITS | low bits] the value."""
    size = 1 << BLOCK_BITS
    seen, index, blocks = {}, [], []
    for start in range(0, len(values), size):
        block = tuple(values[start : start + size])
        if block not in seen:
            seen[block] = len(seen)
            blocks.extend(block)
        index.append(seen[block])
    return index, blocks


def format_array(declaration, items):
    lines, line = [], ""
    for item in items:
        text = f"{item},"
        if len(line) + len(text) > LINE_WIDTH:
            lines.append(line)
            line = ""
        line += text
    return "\n".join([f"constexpr {declaration}[] = {{", *lines, line, "};", ""])


def check_assumptions():
    """What the C++ code does by rule and not by table."""
    longer = [code for code in CODE_POINTS if len(chr(code).lower()) != 1]
    assert longer == [0x130], longer
    for code in HANGUL_SYLLABLES:
        lead, rest = divmod(code - 0xAC00, 21 * 28)
        vowel, trail = divmod(rest, 28)
        parts = [0x1100 + lead, 0x1161 + vowel] + ([0x11A7 + trail] if trail else [])
        assert unicodedata.normalize("NFD", chr(code)) == "".join(map(chr, parts))


def main():
    check_assumptions()
    compositions = find_compositions()
    composing = {second for _, second in compositions} | set(HANGUL_VOWELS) | set(HANGUL_TRAILS)
    records = [DROP] * 0x110000
    for code in CODE_POINTS:
        records[code] = make_record(code, composing)
    distinct = sorted(set(records))
    assert len(distinct) <= 256
    number = {record: i for i, record in enumerate(distinct)}
    index, blocks = make_trie([number[record] for record in records])
    assert max(index) < 65536

    lower = [(code, ord(chr(code).lower())) for code in CODE_POINTS if code != 0x130 and chr(code).lower() != chr(code)]
    pool, decompositions = [], []
    for code in CODE_POINTS:
        full = unicodedata.normalize("NFD", chr(code))
        if code not in HANGUL_SYLLABLES and full != chr(code):
            decompositions.append((code, len(pool), len(full)))
            pool.extend(map(ord, full))

    OUTPUT.write_text(
        "// Generated by scripts/make_unicode_tables.py from Python's unicodedata, "
        f"Unicode {unicodedata.unidata_version}. Do not edit.\n"
        "// clang-format off\n"
        f'constexpr char kUnicodeVersion[] = "{unicodedata.unidata_version}";\n'
        f"constexpr int kBlockBits = {BLOCK_BITS};\n"
        "// Flags and combining class: kRecords[kBlocks[kIndex[code >> kBlockBits] << kBlockBits | low bits]].\n"
        + format_array("uint32_t kRecords", distinct)
        + format_array("uint8_t kIndex" if max(index) < 256 else "uint16_t kIndex", index)
        + format_array("uint8_t kBlocks", blocks)
        + "// str.lower of one code point, by code point (U+0130 and U+03A3 have rules of their own).\n"
        + format_array("Lowering kLower", (f"{{{a},{b}}}" for a, b in lower))
        + "// Full canonical decompositions (NFD) without Hangul: code point, where in the pool, length.\n"
        + format_array("Decomposition kDecompositions", (f"{{{a},{b},{c}}}" for a, b, c in decompositions))
        + format_array("char32_t kDecompositionPool", pool)
        + "// Canonical compositions (NFC) without Hangul, by first and second code point.\n"
        + format_array("Composition kCompositions", (f"{{{a},{b},{c}}}" for (a, b), c in sorted(compositions.items()))),
        encoding="ascii",
    )
    print(f"{OUTPUT}: {OUTPUT.stat().st_size} bytes, {len(distinct)} records", file=sys.stderr)


if __name__ == "__main__":
    main()
