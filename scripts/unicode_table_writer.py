"""Writes the generated Unicode tables as C++: two-stage look-up tables and wrapped array literals."""

LINE_WIDTH = 118
BLOCK_BITS = 7
CODE_POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
HANGUL_SYLLABLES = range(0xAC00, 0xAC00 + 11172)


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


def smallest_type(values):
    """The smallest C++ type that holds all numbers."""
    top = max(values)
    assert top < 65536
    return "uint8_t" if top < 256 else "uint16_t"


def format_array(declaration, items):
    lines, line = [], ""
    for item in items:
        text = f"{item},"
        if len(line) + len(text) > LINE_WIDTH:
            lines.append(line)
            line = ""
        line += text
    return "\n".join([f"constexpr {declaration}[] = {{", *lines, line, "};", ""])


def hangul_parts(code):
    """The jamo of a Hangul syllable, by the arithmetic of the Unicode standard, section 3.12."""
    lead, rest = divmod(code - HANGUL_SYLLABLES[0], 21 * 28)
    vowel, trail = divmod(rest, 28)
    return "".join(map(chr, [0x1100 + lead, 0x1161 + vowel] + ([0x11A7 + trail] if trail else [])))
