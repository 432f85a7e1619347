"""Tables of docs/benchmarks.md, each written by the script that makes its figures (--update-docs).

A table lies between <!-- <id> --> and <!-- end <id> -->, where the id is the script's name without .py, and a word for
the variant where it has several. What is between the two is replaced: the command, the machine and the commit, then the
table. Everything else on the page is written by hand.
"""

import argparse
import datetime
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--update-docs", action="store_true", help="replace this script's table in docs/benchmarks.md")


def markdown(rows: list[list[str]]) -> str:
    """The first row is the titles."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def command() -> str:
    """How this program was called; of files elsewhere their names alone."""
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    arguments = [Path(a).name if Path(a).is_absolute() else a for a in sys.argv[1:] if a != "--update-docs"]
    return shlex.join([".venv/bin/python", str(script), *arguments, "--update-docs"])


def machine_line(machine: dict) -> str:
    facts = [machine["cpu"], *(f"{machine[key]} {key}" for key in ("cores", "threads")), machine["target"]]
    facts += [f"torch {machine['torch']}"] if "torch" in machine else []
    return ", ".join([*facts, f"commit {machine['commit']}", datetime.date.today().isoformat()])


def replaced(page: str, table_id: str, body: str) -> str:
    """The page with `body` between the markers of `table_id`, which must be there once."""
    begin, end = f"<!-- {table_id} -->\n", f"<!-- end {table_id} -->\n"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(end) < page.index(begin):
        raise ValueError(f"[tables] the page must have {begin.strip()} and after it {end.strip()}, once each")
    before, after = page[: page.index(begin) + len(begin)], page[page.index(end) :]
    trimmed = body.strip("\n")
    return f"{before}\n{trimmed}\n\n{after}"


def table_ids(page: str) -> list[str]:
    return re.findall(r"^<!-- (?!end )(.*) -->$", page, re.MULTILINE)


def update_docs(table_id: str, machine: dict, body: str, page: Path = PAGE) -> None:
    text = page.read_text(encoding="utf-8")
    body = f"    {command()}\n\n{machine_line(machine)}.\n\n{body}"
    page.write_text(replaced(text, table_id, body), encoding="utf-8")
