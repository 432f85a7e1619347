#!/usr/bin/env python3
"""Writes text/src/unicode/normalizer_tables.inc: how the library `tokenizers` treats every code point.

These are the tables of the `bert` and `roformer` pipelines (spec R-TOK-05, set A). Each step of its BertNormalizer and
of its BertPreTokenizer is run on every code point separately; `unicodedata` provides only one sample character of each
combining class, by which the classes of all other characters are determined. Needs `pip install tokenizers`.
"""

import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers
from unicode_table_writer import CODE_POINTS, HANGUL_SYLLABLES, format_array, format_trie, hangul_parts, write

# The bits of a record; BertCharacter in text/src/unicode/unicode.h names the same.
DROP, SPACE, PUNCTUATION, MARK, CJK, LOWERS, DECOMPOSES, COMBINES = (1 << i for i in range(8))
LOWEST_CLASS, HIGHEST_CLASS = 1, 240  # of the canonical combining classes that characters have


def bert_step(**step):
    """One step of BertNormalizer alone, as a function from text to text."""
    flags = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**(flags | step)).normalize_str


CLEAN = bert_step(clean_text=True)
SPACE_CJK = bert_step(handle_chinese_chars=True)
STRIP = bert_step(strip_accents=True)
LOWER = bert_step(lowercase=True)
NFD = normalizers.NFD().normalize_str
PRE_TOKENIZER = pre_tokenizers.BertPreTokenizer()


def split_words(text):
    return [word for word, _ in PRE_TOKENIZER.pre_tokenize_str(text)]


def class_samples():
    """(class, character) for every canonical combining class but 0, of the characters that this NFD moves."""
    samples = {LOWEST_CLASS: "\u0334", HIGHEST_CLASS: "\u0345"}
    for code in CODE_POINTS:
        char = chr(code)
        rank = unicodedata.combining(char)
        if rank and rank not in samples and is_moved(char, samples):
            samples[rank] = char
    return dict(sorted(samples.items()))


def is_moved(char, samples):
    return swaps(samples[HIGHEST_CLASS], char) or swaps(char, samples[LOWEST_CLASS])


def swaps(first, second):
    return first != second and NFD(first + second) == second + first


def combining_class(char, samples):
    """The class of the samples that the character keeps its order with; 0 when it never moves."""
    if not is_moved(char, samples):
        return 0
    after = {rank for rank, sample in samples.items() if swaps(sample, char)}  # the classes that it moves in front of
    before = {rank for rank, sample in samples.items() if swaps(char, sample)}
    (level,) = samples.keys() - after - before
    assert all(rank < level for rank in before) and all(rank > level for rank in after)
    return level


def make_record(code, samples):
    """(flags, combining class of its first part, canonical decomposition or "", lower case or "") of one code point."""
    char = chr(code)
    flags = 0
    if (cleaned := CLEAN(char)) != char:  # no other step sees it
        return {"": DROP, " ": SPACE}[cleaned], 0, "", ""
    if SPACE_CJK(char) == f" {char} ":
        flags |= CJK
    words = split_words(f"a{char}b")
    if words == ["a", char, "b"]:
        flags |= PUNCTUATION
    elif char == " ":
        flags |= SPACE
    else:
        assert words == [f"a{char}b"]
    parts = NFD(char)
    if parts == char:
        parts = ""
        if STRIP(char) == "":
            flags |= MARK
    elif code in HANGUL_SYLLABLES:
        assert parts == hangul_parts(code)
        parts = ""  # the C++ code does the arithmetic
        flags |= DECOMPOSES
    else:
        flags |= DECOMPOSES
    lower = LOWER(char)
    if lower == char:
        lower = ""
    else:
        flags |= LOWERS
    rank = combining_class(NFD(char)[0], samples)
    if rank:
        flags |= COMBINES
    return flags, rank, parts, lower


def check_assumptions(records):
    """Checks the properties that the C++ code relies on."""
    for code in CODE_POINTS:
        _, _, parts, _ = records[code]
        if not parts:
            continue
        assert STRIP(chr(code)) == "".join(part for part in parts if not records[ord(part)][0] & MARK)
        ranks = [records[ord(part)][1] for part in parts]
        # A part never moves in front of the first part of its character, so it always has a predecessor.
        assert all(rank == 0 or rank >= ranks[0] for rank in ranks[1:])
        assert not any(records[ord(part)][0] & (DECOMPOSES | DROP | SPACE) for part in parts)
    for code in (*range(0x4E00, 0xA000), 0x3001, 0x3002, 0xFF0C):
        assert records[code][0] & ~(CJK | PUNCTUATION) == 0  # unchanged by any option


def main():
    samples = class_samples()
    records = [(DROP, 0, "", "")] * 0x110000
    for code in CODE_POINTS:
        records[code] = make_record(code, samples)
    check_assumptions(records)

    pool, rows = [], {}
    for record in sorted(set(records)):
        flags, rank, parts, lower = record
        rows[record] = (len(rows), f"{{{flags},{rank},{len(parts)},{len(lower)},{len(pool) if parts or lower else 0}}}")
        pool += [ord(char) for char in parts + lower]
    assert len(pool) < 65536

    write(
        "normalizer_tables",
        f", which asks the library `tokenizers` {tokenizers.__version__}",
        format_trie(
            [rows[record][0] for record in records],
            "// Flags, combining class, length of the decomposition and of the lower case, where both lie in the pool:"
            "\n// kRecords[kBlocks[kIndex[code >> kBlockBits] << kBlockBits | low bits]].\n",
            format_array("BertCharacter kRecords", (text for _, text in rows.values())),
        ),
        "// Decomposition (NFD) and then lower case of each record that has them.\n",
        format_array("char32_t kPool", pool),
    )


if __name__ == "__main__":
    main()
