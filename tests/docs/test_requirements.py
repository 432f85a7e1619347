"""docs/requirements.md: every code that the tree cites has one line, every line is cited, and its tests exist."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "requirements.md"
CODE = r"(R-[A-Z]+-|INC-|[CX]-)(\d+)"
ALONE = re.compile(rf"(?<![\w-]){CODE}(?![\w-])")
RANGE = re.compile(rf"(?<![\w-]){CODE}(?:\.\.| to )(?:\1)?(\d+)(?![\w-])")


def codes(text):
    """All codes of a text; R-ROPE-04..07 and R-ROPE-04 to R-ROPE-07 are four."""
    found = [letters + number for letters, number in ALONE.findall(text)]
    for letters, first, last in RANGE.findall(text):
        found += [f"{letters}{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
    return set(found)


def lines():
    """[code, statement, source, tests] of each code; a line for a range counts for each of its codes."""
    rows = re.findall(r"^\| ([RCX]-.*?) \| (.*) \| (.*?) \| (.*?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(code, *rest) for head, *rest in rows for code in sorted(codes(head))]


def tree():
    """Path and text of every tracked file but the page, and the reports and pictures that programs write."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        generated = name.startswith("experiments/results/") or path.suffix in (".svg", ".inc")
        if path.is_file() and not generated and path not in (PAGE, Path(__file__)):
            yield name, path.read_text(encoding="utf-8", errors="replace")


def names_of(test):
    pattern = r"^def (test_\w+)" if test.suffix == ".py" else r"^TEST(?:_F|_P)?\(\w+, (\w+)\)"
    return re.findall(pattern, test.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_line_is_whole():
    heads = re.findall(r"^\| ([A-Z]+-[^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set().union(*map(codes, heads)) == {code for code, *_ in lines()}
    assert [code for code, count in Counter(code for code, *_ in lines()).items() if count > 1] == []
    assert all(cell.strip() for line in lines() for cell in line)


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_every_cited_code_has_a_line_and_every_line_is_cited():
    known, cited = {code for code, *_ in lines()}, {}
    for name, text in tree():
        for code in codes(text):
            cited.setdefault(code, []).append(name)
    assert {code: names for code, names in cited.items() if code not in known} == {}
    assert known - cited.keys() == set()


def test_tests_that_are_named_exist():
    for code, _, _, cell in lines():
        tests = re.findall(r"`([\w/]+\.(?:py|cpp))(?:::(\w+))?`", cell)
        tests = [(file, name) for file, name in tests if "/" in file]
        assert tests or "not tested: " in cell, f"{code} names neither a test nor a reason"
        for file, name in tests:
            path = ROOT / "tests" / file
            assert path.is_file(), f"{code}: {file}"
            assert name in ("", *names_of(path)) and names_of(path), f"{code}: {file}::{name}"
