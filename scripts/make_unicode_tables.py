#!/usr/bin/env python3
"""Writes text/src/unicode/unicode_tables.inc from Python's own `unicodedata` and `str.lower`.

These are the tables of the BERT tokenizer (spec R-TOK-05, set B): the properties that Python's BasicTokenizer uses.
Run with the Python whose Unicode version the tokenizer follows (CPython 3.11: Unicode 14.0).
"""

import string
import unicodedata

from unicode_table_writer import CODE_POINTS, HANGUL_SYLLABLES, format_array, format_trie, hangul_parts, write

# The bits of a record; text/src/unicode/unicode.h names the same.
DROP, SPACE, PUNCTUATION, MARK, CASED, IGNORABLE, NFC_UNSTABLE, LOWER, DECOMPOSES, CJK = (1 << i for i in range(10))
CLASS_SHIFT = 16  # canonical combining class

CJK_RANGES = [
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
]  # fmt: skip
HANGUL_PARTS = {*range(0x1161, 0x1161 + 21), *range(0x11A8, 0x11A8 + 27)}  # vowels and trails


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
    if char in "\t\n\r":
        return SPACE
    # The result of str.lower for a capital sigma shows the two properties that its rule uses.
    cased = (char + "\u03a3").lower()[-1] == "\u03c2"
    ignorable_or_cased = ("a" + char + "\u03a3").lower()[-1] == "\u03c2"
    combining = unicodedata.combining(char)
    properties = {
        DROP: category.startswith("C") or code == 0xFFFD,
        SPACE: char.isspace(),
        PUNCTUATION: category.startswith("P") or char in string.punctuation,
        MARK: category == "Mn",
        CASED: cased,
        IGNORABLE: ignorable_or_cased and not cased,
        NFC_UNSTABLE: combining or code in composing or unicodedata.normalize("NFC", char) != char,
        LOWER: char.lower() != char,
        DECOMPOSES: unicodedata.normalize("NFD", char) != char,
        CJK: any(first <= code <= last for first, last in CJK_RANGES),
    }
    flags = sum(flag for flag, holds in properties.items() if holds)
    return flags | combining << CLASS_SHIFT


def check_assumptions():
    """Checks what the C++ code computes by rule and not from the table."""
    longer = [code for code in CODE_POINTS if len(chr(code).lower()) != 1]
    assert longer == [0x130], longer
    for code in HANGUL_SYLLABLES:
        assert unicodedata.normalize("NFD", chr(code)) == hangul_parts(code)


def main():
    check_assumptions()
    compositions = find_compositions()
    composing = {second for _, second in compositions} | HANGUL_PARTS
    records = [DROP] * 0x110000
    for code in CODE_POINTS:
        records[code] = make_record(code, composing)
    distinct = sorted(set(records))
    assert len(distinct) <= 256
    number = {record: i for i, record in enumerate(distinct)}

    lower = [(code, ord(chr(code).lower())) for code in CODE_POINTS if code != 0x130 and chr(code).lower() != chr(code)]
    pool, decompositions = [], []
    for code in CODE_POINTS:
        full = unicodedata.normalize("NFD", chr(code))
        if code not in HANGUL_SYLLABLES and full != chr(code):
            decompositions.append((code, len(pool), len(full)))
            pool.extend(map(ord, full))

    write(
        "unicode_tables",
        f" from Python's unicodedata, Unicode {unicodedata.unidata_version}",
        format_trie(
            [number[record] for record in records],
            "// Flags and combining class: kRecords[kBlocks[kIndex[code >> kBlockBits] << kBlockBits | low bits]].\n",
            format_array("uint32_t kRecords", distinct),
        ),
        "// str.lower of one code point, by code point (U+0130 and U+03A3 have rules of their own).\n",
        format_array("Lowering kLower", (f"{{{a},{b}}}" for a, b in lower)),
        "// Full canonical decompositions (NFD) without Hangul: code point, where in the pool, length.\n",
        format_array("Decomposition kDecompositions", (f"{{{a},{b},{c}}}" for a, b, c in decompositions)),
        format_array("char32_t kDecompositionPool", pool),
        "// Canonical compositions (NFC) without Hangul, by first and second code point.\n",
        format_array("Composition kCompositions", (f"{{{a},{b},{c}}}" for (a, b), c in sorted(compositions.items()))),
    )


if __name__ == "__main__":
    main()
