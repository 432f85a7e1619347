#!/usr/bin/env python3
"""Writes text/src/unicode/sentence_tables.inc: what the normalizers of SentencePiece models need. Grapheme classes come
from the package `regex`; compatibility decompositions and combining marks are probed on every code point of the library
`tokenizers`. Needs the packages of requirements-dev.txt:

    python scripts/make_sentence_tables.py
"""

from importlib import metadata

import regex
from tokenizers import normalizers
from unicode_table_writer import CODE_POINTS, HANGUL_SYLLABLES, format_array, format_trie, write

# GraphemeClass of text/src/unicode/graphemes.h, and the bit of a combining mark.
PATTERNS = [
    r"[\p{GCB=CR}\p{GCB=LF}\p{GCB=Control}]",
    r"[\p{GCB=Extend}--\p{InCB=Linker}]",
    r"\p{InCB=Linker}",
    r"\p{GCB=ZWJ}",
    r"\p{GCB=SpacingMark}",
    r"\p{GCB=Prepend}",
    r"\p{GCB=L}",
    r"\p{GCB=V}",
    r"\p{GCB=T}",
    r"\p{GCB=LV}",
    r"\p{GCB=LVT}",
    r"\p{InCB=Consonant}",
    r"\p{Extended_Pictographic}",
]
MARK = 16


def main():
    text = "".join(map(chr, CODE_POINTS))
    values = [0] * 0x110000
    for number, pattern in enumerate(PATTERNS, 1):
        for char in regex.findall(pattern, text, regex.VERSION1):
            values[ord(char)] = number
    strip, compatible = normalizers.StripAccents(), normalizers.NFKD()
    pool, decompositions = [], []
    for code in CODE_POINTS:
        if strip.normalize_str(chr(code)) == "":
            values[code] |= MARK
        parts = compatible.normalize_str(chr(code))
        if code not in HANGUL_SYLLABLES and parts != chr(code):
            decompositions.append((code, len(pool), len(parts)))
            pool.extend(map(ord, parts))
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("regex", "tokenizers"))
    write(
        "sentence_tables",
        f" with {versions}",
        format_trie(values, "// Grapheme class, and 16 for a combining mark.\n"),
        "// Full compatibility decompositions (NFKD) without Hangul: code point, where in the pool, length.\n",
        format_array("Compatible kCompatible", (f"{{{a},{b},{c}}}" for a, b, c in decompositions)),
        format_array("char32_t kCompatiblePool", pool),
    )


if __name__ == "__main__":
    main()
