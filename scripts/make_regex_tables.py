#!/usr/bin/env python3
"""Writes text/src/unicode/regex_tables.inc: the code points that the regular expressions inside the library
`tokenizers` match as a letter, a number, white space and a part of a word. Each class is probed on every code point,
because the library's two expression engines have different Unicode versions. Needs the package `tokenizers` of
requirements-dev.txt:

    python scripts/make_regex_tables.py
"""

from importlib import metadata

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from unicode_table_writer import CODE_POINTS, format_trie, write

CHUNK = 4096

# The bits of a record; RegexClass in text/src/unicode/unicode.h names the same.
LETTER, NUMBER, SPACE, WORD = (1 << i for i in range(4))


def chunks():
    return (CODE_POINTS[i : i + CHUNK] for i in range(0, len(CODE_POINTS), CHUNK))


def matched_by(pattern):
    """The code points that the pre-tokenizers' expressions match."""
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed")
    matched = set()
    for part in chunks():
        kept = {part[i] for _, span in split.pre_tokenize_str("".join(map(chr, part))) for i in range(*span)}
        matched.update(set(part) - kept)
    return matched


def parts_of_words():
    """The code points after which an added token with `single_word` is not found."""
    token = "\ue000"
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken(token, single_word=True, normalized=False)])
    matched = set()
    for part in chunks():
        encoding = tokenizer.encode("".join(f"{chr(code)}{token} " for code in part))
        found = {begin for (begin, _), i in zip(encoding.offsets, encoding.ids, strict=True) if i == 1}
        matched.update(code for i, code in enumerate(part) if 3 * i + 1 not in found)
    return matched - {ord(token)}


def main():
    classes = {
        LETTER: matched_by(r"\p{L}"),
        NUMBER: matched_by(r"\p{N}"),
        SPACE: matched_by(r"\s"),
        WORD: parts_of_words(),
    }
    assert not classes[LETTER] & classes[NUMBER] and not classes[SPACE] & (classes[LETTER] | classes[NUMBER])
    records = [0] * 0x110000
    for bit, codes in classes.items():
        for code in codes:
            records[code] |= bit
    write(
        "regex_tables",
        f" by probing `tokenizers` {metadata.version('tokenizers')}",
        format_trie(records, "// Flags of RegexClass: kBlocks[kIndex[code >> kBlockBits] << kBlockBits | low bits].\n"),
    )


if __name__ == "__main__":
    main()
