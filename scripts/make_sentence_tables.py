#!/usr/bin/env python3
"""Writes text/src/unicode/sentence_tables.inc for the normalizers of SentencePiece models. Grapheme classes,
compatibility decompositions and combining marks are probed on every code point of the library `tokenizers`; classes by
how its Precompiled joins characters. Needs the packages of requirements-dev.txt.
"""

import sys
from importlib import metadata
from pathlib import Path

from tokenizers import normalizers
from unicode_table_writer import CODE_POINTS, HANGUL_SYLLABLES, chunks, format_array, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from charsmap import make_charsmap

# GraphemeClass of text/src/unicode/graphemes.h; Hangul syllables are classified by arithmetic.
CONTROL, EXTEND, LINKER, JOINER, MARK, PREPEND, LEAD, VOWEL, TRAIL, LEAD_VOWEL, LEAD_VOWEL_TRAIL, CONSONANT, PICTURE = (
    range(1, 14)
)
ACUTE, ZWJ, KA, VIRAMA, COPYRIGHT = "\u0301", "\u200d", "\u0915", "\u094d", "\u00a9"
LEAD_CHAR, VOWEL_CHAR, TRAIL_CHAR = "\u1100", "\u1161", "\u11a8"
NO_CODE = -(1 << 24)


def replacing(*keys):
    return normalizers.Precompiled(make_charsmap(dict.fromkeys(keys, "\x02"))).normalize_str


def joins(before, chars, after, last=None):
    """The characters c for which the last character of before + c + after, `last` or else c, joins the cluster before
    it. Otherwise an accent behind it would be replaced together with it; clusters of 6 bytes are looked up by
    characters."""
    found = set()
    for chunk in chunks(chars):
        replace = replacing(last) if last else replacing(*map(chr, chunk))
        found.update(c for c in chunk if replace(before + chr(c) + after + ACUTE).endswith(ACUTE))
    return found


def grapheme_classes():
    everything = set(CODE_POINTS)
    a, accent, copyright_sign = replacing("a"), replacing(ACUTE), replacing(COPYRIGHT)
    attached = {c for c in everything if a("a" + chr(c)) == "\x02"}
    controls = {c for c in everything if accent(chr(c) + ACUTE + "\u0302").endswith("\x02")}
    rest = everything - attached - controls
    prepends = set()
    for chunk in chunks(rest):
        replace = replacing(*map(chr, chunk))
        prepends.update(c for c in chunk if replace(chr(c) + "a") == "\x02")
    of_pictures = joins(COPYRIGHT, attached, ZWJ + COPYRIGHT, COPYRIGHT)
    linkers = joins(KA, attached, KA, KA)
    of_consonants = joins(KA + VIRAMA, attached, KA, KA)
    assert of_pictures ^ of_consonants == {0x200C, ord(ZWJ)} and linkers < of_pictures
    pictures = {ord(COPYRIGHT)} | {c for c in rest if copyright_sign(COPYRIGHT + ZWJ + chr(c)) == "\x02" + ZWJ + chr(c)}
    low = sorted(c for c in rest if 0x80 <= c < 0x10000)  # longer clusters than 5 bytes begin with the others
    consonants = joins(KA + VIRAMA, low, "")
    after_lead, after_vowel, after_trail = (joins(char, low, "") for char in (LEAD_CHAR, VOWEL_CHAR, TRAIL_CHAR))
    before_vowel, before_trail = (joins("", low, char, char) for char in (VOWEL_CHAR, TRAIL_CHAR))
    before_trail -= prepends
    before_vowel -= prepends
    classes = {
        CONTROL: controls,
        EXTEND: of_pictures - linkers,
        LINKER: linkers,
        JOINER: {ord(ZWJ)},
        MARK: attached - of_pictures - {ord(ZWJ)},
        PREPEND: prepends,
        LEAD: before_vowel - before_trail,
        VOWEL: after_lead & after_vowel,
        TRAIL: after_trail,
        LEAD_VOWEL: before_vowel & before_trail & after_lead - after_vowel,
        LEAD_VOWEL_TRAIL: before_trail - before_vowel - after_trail,
        CONSONANT: consonants,
        PICTURE: pictures,
    }
    assert sum(map(len, classes.values())) == len(set().union(*classes.values()))
    assert classes.pop(LEAD_VOWEL) == set(HANGUL_SYLLABLES[::28])
    assert classes.pop(LEAD_VOWEL_TRAIL) == set(HANGUL_SYLLABLES) - set(HANGUL_SYLLABLES[::28])
    return {code: number for number, codes in classes.items() for code in codes}


def ranges(values):
    """The ranges [first, last, value] of {code: value}."""
    found = []
    for code in sorted(values):
        if found and found[-1][1] == code - 1 and found[-1][2] == values[code]:
            found[-1][1] = code
        else:
            found.append([code, code, values[code]])
    return found


def compatible_runs():
    """Runs of characters with equally many parts: first, count, parts, and the parts of all. In a run with 0 parts,
    each character is the one after the parts of the one before it."""
    decompose, canonical = normalizers.NFKD().normalize_str, normalizers.NFD().normalize_str
    runs, pool = [], []
    for code in sorted(set(CODE_POINTS) - set(HANGUL_SYLLABLES)):
        parts = [*map(ord, decompose(chr(code)))]
        if parts == [code] or decompose(chr(code)) == canonical(chr(code)):
            continue
        follows = bool(runs) and code == sum(runs[-1][:2])
        if follows and len(parts) == 1 and runs[-1][2] < 2 and parts[0] == runs[-1][3] + runs[-1][1]:
            runs[-1][1:3] = runs[-1][1] + 1, 0
        elif follows and len(parts) == runs[-1][2]:
            runs[-1][1] += 1
            runs[-1][3] = NO_CODE
            pool.extend(parts)
        else:
            runs.append([code, 1, len(parts), parts[0]])
            pool.extend(parts)
    return runs, pool


def main():
    runs, pool = compatible_runs()
    strip = normalizers.StripAccents().normalize_str
    marks = ranges(dict.fromkeys((code for code in CODE_POINTS if strip(chr(code)) == ""), 0))
    classes = ranges(grapheme_classes())
    write(
        "sentence_tables",
        f" with tokenizers {metadata.version('tokenizers')}",
        "// Grapheme classes without Hangul syllables: first, last, class.\n",
        format_array("ClassRange kGraphemeClasses", (f"{{{a},{b},{c}}}" for a, b, c in classes)),
        "// Combining marks: first, last.\n",
        format_array("CodeRange kCombiningMarks", (f"{{{a},{b}}}" for a, b, _ in marks)),
        "// Compatibility decompositions (NFKD) that differ from the canonical ones: first code point, code points,\n"
        "// parts of each in the pool; 0 parts: the first has one, and the others those after it.\n",
        format_array("CompatibleRun kCompatible", (f"{{{a},{b},{c}}}" for a, b, c, _ in runs)),
        format_array("char16_t kCompatiblePool", pool),
    )


if __name__ == "__main__":
    main()
