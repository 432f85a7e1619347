"""docs/benchmarks: scripts replace their own tables and nothing else."""

import re
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import tables  # noqa: E402

PAGE = "before\n<!-- one -->\nold\n<!-- end one -->\nbetween\n<!-- one more -->\nkept\n<!-- end one more -->\nafter\n"
MACHINE = {"cpu": "A CPU", "cores": 2, "threads": 2, "target": "AVX2", "torch": "2.13.0", "commit": "abc"}


def test_a_table_is_replaced_and_nothing_else():
    page = tables.replaced(PAGE, "one", "| new |\n")
    assert page == PAGE.replace("old\n", "\n| new |\n\n")
    assert tables.replaced(page, "one", "| new |") == page


@pytest.mark.parametrize(
    "page",
    [
        PAGE.replace("<!-- one -->\n", ""),
        PAGE.replace("<!-- end one -->\n", ""),
        PAGE + "<!-- one -->\n",
        PAGE.replace("<!-- end one -->\n", "").replace("before\n", "<!-- end one -->\n"),
    ],
)
def test_markers_must_be_there_once_and_in_order(page):
    with pytest.raises(ValueError, match=r"\[tables\] the page must have <!-- one -->"):
        tables.replaced(page, "one", "new")


def test_what_is_written_says_how_where_and_of_what(tmp_path, monkeypatch):
    """The first table of a CPU makes its page, with a note in place of the others."""
    monkeypatch.setattr(tables, "PAGES", tmp_path / "benchmarks")
    script = BENCH / "rope_peers.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--update-docs", "--rounds", "7", "/some/where/english.txt"])
    entries = [(("x",), "a", "1"), (("y",), "a", "2"), (("x",), "b", "3")]
    tables.update_docs("rope_peers", MACHINE, tables.pivot(["of"], entries))
    (path,) = (tmp_path / "benchmarks").iterdir()
    page = path.read_text(encoding="utf-8")
    assert "    .venv/bin/python bench/rope_peers.py --rounds 7 english.txt --update-docs\n" in page
    assert re.search(r"^A CPU, 2 cores, 2 threads, AVX2, torch 2\.13\.0, commit abc, \d{4}-\d\d-\d\d\.$", page, re.M)
    assert "| of | a | b |\n| --- | --- | --- |\n| x | 1 | 3 |\n| y | 2 |  |\n\n<!-- end rope_peers -->" in page
    assert page.count(tables.NOT_MEASURED) == sum(map(len, tables.SECTIONS.values())) - 1


def test_every_page_has_the_tables_of_the_scripts():
    pages = [path.read_text(encoding="utf-8") for path in tables.PAGES.glob("*.md")]
    assert pages
    for page in (page for page in pages if "bench/gpu_check.py" not in page):  # which writes whole pages, of GPUs
        for table_id in (table_id for section in tables.SECTIONS.values() for table_id in section):
            tables.replaced(page, table_id, "")  # refused unless its markers are there once


@pytest.mark.parametrize(
    ("cpuinfo", "kind", "name"),
    [
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t: avx2 avx512f\n", "AMD Zen 5", "amd-zen-5.md"),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t: avx2 avx512f\n", "AMD Zen 4", "amd-zen-4.md"),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t: avx2\n", "AMD Zen 3", "amd-zen-3.md"),
        ("vendor_id\t: GenuineIntel\nflags\t: avx512f amx_tile\n", "Intel with AMX", "intel-with-amx.md"),
        ("vendor_id\t: GenuineIntel\nmodel name\t: A (TM) CPU\nflags\t: avx2\n", "A (TM) CPU", "a-tm-cpu.md"),
        ("processor\t: 0\n", "unknown CPU", "unknown-cpu.md"),
    ],
)
def test_a_cpu_has_a_page_of_its_own(cpuinfo, kind, name):
    assert tables.cpu_kind(cpuinfo) == kind
    assert tables.page_of(kind).name == name
