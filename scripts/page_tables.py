"""Tables in pages of docs, each between two lines of its page, which scripts write or compare."""

import argparse
import sys


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page is out of date")
    return parser


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(titles, rows):
    return "\n".join(map(row, (titles, ["---"] * len(titles), *rows)))


def with_body(text, begin, end, body):
    """The page with `body` between the lines `begin` and `end`."""
    return f"{text[: text.index(begin) + len(begin)]}\n{body}\n{text[text.index(end) :]}"


def written(page, text, check):
    """Writes the page, or compares it; the exit code."""
    is_new = not page.is_file() or page.read_text(encoding="utf-8") != text
    if not check:
        page.write_text(text, encoding="utf-8")
    print(f"{page}: {'as it was' if not is_new else 'out of date' if check else 'written'}", file=sys.stderr)
    return int(check and is_new)
