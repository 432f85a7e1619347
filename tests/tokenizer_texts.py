"""Texts and a vocabulary for tests that compare tokenizers: what normalisation, letter case and splitting act on."""

import random
import unicodedata

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def code_points():
    return (code for code in range(0x110000) if not 0xD800 <= code < 0xE000)


def interesting_characters():
    """What canonical normalisation, letter case and punctuation act on, and neighbours."""
    picked = []
    for code in code_points():
        char = chr(code)
        if 0xAC00 <= code < 0xD7A4:
            if code % 997 == 0:
                picked.append(char)
        elif (
            unicodedata.combining(char) or unicodedata.decomposition(char)[:1] not in ("", "<") or char.lower() != char
        ):
            picked.append(char)
    jamo = [chr(code) for code in (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3))]
    return picked, jamo + list("aeiouAEIOUyN<>=\u03a3\u03c3\u0130.':\u00ad\u200d\u09c7\u09be\u0dd9\u1025\u102e")


def random_strings(count, seed):
    draw = random.Random(seed)
    picked, common = interesting_characters()
    ranges = [(0x20, 0x7F), (0x20, 0x7F), (0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xA00), (0xE00, 0xE80)]
    ranges += [(0x2000, 0x2070), (0x3000, 0x3100)]
    ranges += [(0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xF900, 0xFB00), (0xFE00, 0xFFFF)]
    ranges += [(0x1F300, 0x1FAFF), (0x20000, 0x2CEB0), (0x2F800, 0x2FA20), (0xE0000, 0xE0200)]
    words = ["hello", "World", "naïve", "Ünïcödé", "ΟΔΟΣ", "ΑΣ.Β", "İstanbul", "中文", "東京タワー", "한국어", "don't"]
    words += ["U.S.A.", "x" * 100, "x" * 101, "é" * 101, "👩‍👩‍👧", "\u200bzero", "a\u0301\u0323", "\u212bngström"]
    words += ["[mask]", "[CL\u0000S]", "##ing", "\r\n"]
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(1, 12)):
            kind = draw.randrange(8)
            if kind < 3:
                parts.append("".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(1, 6))))
            elif kind < 5:
                parts.append(draw.choice(words))
            elif kind == 5:
                parts.append(draw.choice(picked) + draw.choice(common) + draw.choice(picked))
            elif kind == 6:
                parts.append(draw.choice(SPECIALS))
            parts.append(draw.choice(["", " ", " ", "\t", "\u2028", "\u00a0", "\u3000", "-"]))
        yield "".join(parts)


def small_vocabulary():
    """Specials, a few hundred characters in both forms, and pieces that overlap."""
    chars = [
        chr(code) for code in (*range(0x21, 0x7F), *range(0xC0, 0x180), *range(0x3B1, 0x3CA), *range(0x430, 0x450))
    ]
    chars += list("中文東京한국어한タワー。、！？") + [chr(code) for code in range(0x1100, 0x1200)]
    pieces = ["hell", "hello", "##lo", "##ell", "wor", "##ld", "world", "na", "naive", "unicode", "##code"]
    pieces += ["istan", "##bul"]
    tokens = SPECIALS + chars + ["##" + char for char in chars] + pieces
    return list(dict.fromkeys(tokens))
