#!/usr/bin/env python3
"""Writes text/src/unicode/nfc_tables.inc: the differences of the NFC of the library `tokenizers`, which has an older
Unicode version, from unicode_tables.inc in the same folder. It is compared with Python's on every code point, next to
marks of low and high classes, and on every canonical composition. Run with the same Python as make_unicode_tables.py.
"""

import unicodedata
from importlib import metadata

from make_unicode_tables import find_compositions
from tokenizers import normalizers
from unicode_table_writer import CODE_POINTS, format_array, write

LOWEST, HIGHEST = "\u0334", "\u0345"  # marks of classes 1 and 240

theirs = normalizers.NFC().normalize_str


def moves(char, normalize):
    """Whether canonical ordering moves the character, which it does when its combining class is not 0."""
    return normalize(f"x{HIGHEST}{char}") != f"x{HIGHEST}{char}" or normalize(f"x{char}{LOWEST}") != f"x{char}{LOWEST}"


def ours(text):
    return unicodedata.normalize("NFC", text)


def main():
    marks = [code for code in CODE_POINTS if unicodedata.combining(chr(code)) and not moves(chr(code), theirs)]
    for code in CODE_POINTS:
        assert code in marks or moves(chr(code), theirs) == moves(chr(code), ours), hex(code)
    pairs = find_compositions().items()
    composites = [composite for pair, composite in pairs if theirs("".join(map(chr, pair))) != chr(composite)]
    write(
        "nfc_tables",
        f" by comparing `tokenizers` {metadata.version('tokenizers')} with Unicode {unicodedata.unidata_version}",
        "// Marks that have no combining class there.\n",
        format_array("char32_t kLaterMarks", marks),
        "// Characters that are neither composed nor taken apart there.\n",
        format_array("char32_t kLaterComposites", composites),
    )


if __name__ == "__main__":
    main()
