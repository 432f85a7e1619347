#!/usr/bin/env python3
"""Writes text/src/unicode/regex_tables.inc: the code points that the regular expressions inside the library
`tokenizers` match as a letter, a number, white space and a part of a word, its digits, and the general category of
each code point. Each class is probed on every code point, because the library's expression engines and its own tables
have different Unicode versions. Needs the package `tokenizers` of requirements-dev.txt.
"""

import re
from importlib import metadata

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from unicode_table_writer import CODE_POINTS, chunks, format_array, format_trie, write

# The bits of a record; RegexClass in text/src/unicode/unicode.h names the same. The category's index is above them.
LETTER, NUMBER, SPACE, WORD, DIGIT = (1 << i for i in range(5))
CATEGORY_SHIFT = 8
CATEGORIES = re.findall("..", "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn")


def matched_by(pattern):
    """The code points that the pre-tokenizers' expressions match."""
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed")
    matched = set()
    for part in chunks(CODE_POINTS):
        kept = {part[i] for _, span in split.pre_tokenize_str("".join(map(chr, part))) for i in range(*span)}
        matched.update(set(part) - kept)
    return matched


def parts_of_words():
    """The code points after which an added token with `single_word` is not found."""
    token = "\ue000"
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken(token, single_word=True, normalized=False)])
    matched = set()
    for part in chunks(CODE_POINTS):
        encoding = tokenizer.encode("".join(f"{chr(code)}{token} " for code in part))
        found = {begin for (begin, _), i in zip(encoding.offsets, encoding.ids, strict=True) if i == 1}
        matched.update(code for i, code in enumerate(part) if 3 * i + 1 not in found)
    return matched - {ord(token)}


def digits():
    """The code points that the pre-tokenizer Digits separates from a letter."""
    split = pre_tokenizers.Digits(individual_digits=True)
    return {code for code in CODE_POINTS if len(split.pre_tokenize_str(f"a{chr(code)}")) == 2}


def main():
    classes = {
        LETTER: matched_by(r"\p{L}"),
        NUMBER: matched_by(r"\p{N}"),
        SPACE: matched_by(r"\s"),
        WORD: parts_of_words(),
        DIGIT: digits(),
    }
    assert not classes[LETTER] & classes[NUMBER] and not classes[SPACE] & (classes[LETTER] | classes[NUMBER])
    records = [0] * 0x110000
    for bit, codes in classes.items():
        for code in codes:
            records[code] |= bit
    categories = [matched_by(rf"\p{{{name}}}") for name in CATEGORIES]
    assert sum(map(len, categories)) == len(set().union(*categories)) == len(CODE_POINTS)
    for index, codes in enumerate(categories):
        for code in codes:
            records[code] |= index << CATEGORY_SHIFT
    spaces = set().union(*(codes for name, codes in zip(CATEGORIES, categories, strict=True) if name[0] == "Z"))
    assert classes[SPACE] == spaces | {*range(9, 14), 0x85}
    kinds = sorted(set(records))
    assert len(kinds) < 256
    write(
        "regex_tables",
        f" by probing `tokenizers` {metadata.version('tokenizers')}",
        format_trie(
            [kinds.index(record) for record in records],
            "// The kinds of code points: flags of RegexClass, and 256 times the category, by\n"
            "// kBlocks[kIndex[code >> kBlockBits] << kBlockBits | low bits].\n",
            format_array("uint16_t kKinds", kinds),
        ),
    )


if __name__ == "__main__":
    main()
