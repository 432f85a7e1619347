"""Puts the package and the tests' own modules on the path."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent / "python"), str(TESTS)]
