"""Token shards, read byte by byte as data/include/rf/data/shard.h describes them, and as the program reads them."""

import json
import subprocess

import numpy as np

from cli_support import PROGRAM

HEADER_BYTES = 128
PROBE = PROGRAM.parent / "tests" / "data_probe"


def shard_tokens(path):
    """A header, then the tokens, two bytes each for a vocabulary up to 65,536."""
    content = path.read_bytes()
    width, count = int.from_bytes(content[12:16], "little"), int.from_bytes(content[16:24], "little")
    assert content[:8] == b"RFSHARD1" and width == 2
    return np.frombuffer(content, "<u2", count, HEADER_BYTES)


def probe(what, data, **asked):
    """What the program reads of data: rows or batches."""
    request = json.dumps({what: {"data": str(data)} | asked})
    return json.loads(subprocess.run([PROBE, request], capture_output=True, check=True).stdout)[what]
