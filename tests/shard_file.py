"""Token shards, read byte by byte as data/include/rf/data/shard.h describes them."""

import numpy as np

HEADER_BYTES = 128


def shard_tokens(path):
    """A header, then the tokens, two bytes each for a vocabulary up to 65,536."""
    content = path.read_bytes()
    width, count = int.from_bytes(content[12:16], "little"), int.from_bytes(content[16:24], "little")
    assert content[:8] == b"RFSHARD1" and width == 2
    return np.frombuffer(content, "<u2", count, HEADER_BYTES)
