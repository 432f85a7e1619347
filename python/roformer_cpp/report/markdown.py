"""The report as Markdown, with its pictures as files in pictures/."""

import re
from html import escape
from urllib.parse import quote

from . import words


def render(found, drawn, theory):
    smoke = words.smoke_note(found)
    parts = [
        f"# {words.TITLE}",
        f"> **{smoke}**" if smoke else "",
        words.HOW,
        f"Of {len(found.claims)} claims: {_text('; '.join(words.counts(found)))}.",
        "## Claims",
        _claims(found),
        "## Experiments",
        *(_experiment(found, result, drawn[result.name]) for result in found.results),
        "## The papers' tables",
        *(_paper_table(table) for table in found.tables),
        "## Pictures of the theory",
        *(_picture(picture) for picture in theory),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _text(text):
    """Text in which no character means anything to Markdown or HTML, on one line."""
    return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", escape(" ".join(str(text).split()), quote=False))


def _claims(found):
    rows = []
    for claim in found.claims:
        verdicts = [f"**{_text(verdict)}** {_text(name)}" for name, verdict in found.verdicts_of(claim)]
        verdicts = verdicts or [f"**{_text(found.verdict_of(claim))}**"]
        note = f" {_text(claim.note)}" if claim.note else ""
        what = f"{_text(claim.text)} ({_text(claim.source)}; {_text(claim.status)}).{note}"
        rows.append([_text(claim.id), what, "; ".join(verdicts)])
    return _rows(["claim", "what is claimed, where", "verdict, by experiment"], rows)


def _experiment(found, result, pictures):
    smoke = " · **smoke run**" if result.is_smoke_run else ""
    claims = ", ".join(map(_text, result.claims)) or "no claim"
    judged = [
        f"{_text(claim)} **{_text(verdict)}**: {_text(result.figures[claim])}."
        for claim, verdict in result.verdicts.items()
    ]
    machine = ", ".join(f"{key} {value}" for key, value in words.machine(result))
    return "\n\n".join(
        [
            f"### {_text(result.title)}",
            f"{_text(result.name)} ({_text(result.spec)}) · {claims} · {_text(words.run_line(result))}{smoke}",
            f"Expected: {_text(result.expected)}",
            *judged,
            _table(result.table),
            *(_paper_table(table, "In the paper: ") for table in found.paper_tables_of(result)),
            *(_picture(picture) for picture in pictures),
            f"Run by: {_text(result.command)}; on {_text(machine)}",
        ]
    )


def _paper_table(paper, before=""):
    return f"{before}{_text(paper.title)} ({_text(paper.source)}):\n\n{_table(paper.table)}"


def _table(table):
    rows = [[_text(text) for text in row] for row in words.texts(table)]
    return _rows([_text(name) for name in table.columns], rows)


def _rows(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _picture(picture):
    return f"![{_text(picture.title)}](pictures/{quote(picture.file)})" + (
        f"\n\n{_text(picture.note)}" if picture.note else ""
    )
