"""scripts/include_depth.py: chains of headers are found as the compiler finds them, and those of core stay short."""

import sys

from cli_support import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import include_depth

MAX_CORE_DEPTH = 8


def test_longest_chain_of_core():
    chain = include_depth.chain_of_module("core")
    assert chain[-1] == ROOT / "core/include/rf/status.h"
    assert len(chain) - 1 <= MAX_CORE_DEPTH, " > ".join(path.name for path in chain)
