"""docs/theory.md: every Python block runs, in the order of the page, that of Eq. 6 (R-REL-02) too, and every erratum
that says so has its check."""

import re
from pathlib import Path

from page_blocks import BLOCK, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "theory.md"


def test_every_block_runs():
    run(PAGE.read_text(encoding="utf-8"), str(PAGE))


def test_errata_marked_as_checked_have_a_check():
    page = PAGE.read_text(encoding="utf-8")
    code = "".join(block.group(1) for block in BLOCK.finditer(page))
    rows = re.findall(r"^\| (E\d+)( ✓)? \|", page, re.MULTILINE)
    assert [name for name, _ in rows] == [f"E{i + 1}" for i in range(len(rows))]
    assert {name for name, checked in rows if checked} == set(re.findall(r"#.*\b(E\d+)\b", code))
