"""Precompiled character maps of SentencePiece: a double array of keys, and their replacements."""

import struct

BLOCK = 256  # units


def make_charsmap(replacements):
    """The bytes of {key: replacement}. Each inner node of the trie has a block of units to itself."""
    trie, values, places = {}, bytearray(), {}
    for key, value in replacements.items():
        if value not in places:
            places[value] = len(values)
            values += value.encode() + b"\0"
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = places[value]
    units, waiting = [0] * BLOCK, [(0, trie)]
    while waiting:
        position, node = waiting.pop()
        base = len(units)
        units += [0] * BLOCK
        offset = position ^ base
        assert offset < 1 << 21
        units[position] |= offset << 10 | (None in node) << 8
        for byte, child in node.items():
            if byte is None:
                units[base] = child | 1 << 31
            else:
                units[base ^ byte] = byte
                waiting.append((base ^ byte, child))
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + bytes(values)
