"""The report as Markdown, with its pictures as files in pictures/."""

import re
from html import escape
from urllib.parse import quote

from . import beside, designs, units, words


def render(found, drawn, theory):
    smoke = words.smoke_note(found)
    parts = [
        f"# {words.TITLE}",
        f"> **{smoke}**" if smoke else "",
        words.HOW + (f" {words.ATLAS} [{words.ATLAS_TITLE}](atlas.html)." if found.encodings else ""),
        *_heading(found),
        f"Of {len(found.claims)} claims:",
        _counts(found),
        f"{words.RULES} {words.MADE_BY} `{words.COMMAND}`.",
        "## Claims",
        _claims(found),
        f"## {words.BESIDE}",
        words.BESIDE_NOTE,
        *(_comparison(each) for each in beside.comparisons(found)),
        f"Figure 3: {beside.FIGURE_3}",
        *_figure_3(found, drawn),
        "## How verdicts are reached" if found.method else "",
        *map(_text, words.method(found)),
        _changes(found),
        "## Experiments",
        *(_experiment(found, result, drawn[result.name]) for result in found.results),
        "## Other tables of publications",
        *(_paper_table(table) for table in found.tables if table.id not in beside.TABLES),
        "## Pictures of the theory",
        f"{words.THEORY} `{words.COMMAND}`.",
        *(_picture(picture) for picture in theory),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _text(text):
    """Text in which no character means anything to Markdown or HTML, on one line."""
    return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", escape(" ".join(str(text).split()), quote=False))


def _heading(found):
    for verdict, claims in words.heading(found):
        notes = {claim.id: f". {_text(claim.note)}" for claim in claims if claim.note}
        items = "\n".join(f"- {_text(claim.text)} ({_text(claim.id)}){notes.get(claim.id, '')}" for claim in claims)
        yield f"{words.HEADING} **{_text(verdict)}**:\n\n{items}"


def _counts(found):
    lines = [(verdict, count, ", ".join(which), meaning) for verdict, count, which, meaning in words.counts(found)]
    return _rows(["verdict", "claims", "which", "what it means"], [map(_text, line) for line in lines])


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
        f"{_text(claim)} **{_text(verdict)}**: {_text(result.figures[claim])}.\n\n{_checks(result, claim)}".strip()
        for claim, verdict in found.shown_verdicts(result).items()
    ]
    judged += [
        f"Recorded before these rules, {_text(claim)}: {_text(text)}." for claim, text in result.recorded.items()
    ]
    judged += [f"**{mark}**: {_text(reason)}." for mark, reason in words.marks(found, result)]
    run_by = [
        f"{_text(what)} {_text(command)}; on {_text(facts)}." for what, command, facts in words.provenance(result)
    ]
    return "\n\n".join(
        [
            f"### {_text(result.title)}",
            f"{_text(result.name)} ({_text(result.spec)}) · {claims} · {_text(words.run_line(result))}{smoke}",
            *map(_text, designs.about(found, result)),
            f"Expected: {_text(result.expected)}",
            *judged,
            *_values(result),
            _table(result.table, result.name),
            *(_picture(picture) for picture in pictures),
            f"To make it again: {_text(designs.command(result))}. " + " ".join(run_by),
        ]
    )


def _checks(result, claim):
    lines = [
        list(map(_text, (role, text, interval or "–", p or "–", outcome)))
        for text, role, interval, p, outcome in designs.rule_lines(result, claim)
    ]
    return _rows(list(words.CHECKS), lines) if lines else ""


def _values(result):
    values = designs.rule_values(result)
    return [words.VALUES, _table(values)] if values else []


def _comparison(comparison):
    remarks = map(_text, comparison.remarks)
    return "\n\n".join([f"### {_text(comparison.title)}", _text(comparison.note), _table(comparison.table), *remarks])


def _figure_3(found, drawn):
    for side, name in beside.figure_3(found):
        for picture in drawn.get(name, [])[:1]:
            yield f"Ours, {side}, by {_text(name)}, whose command is in its section below:\n\n{_picture(picture)}"
    yield from map(_text, beside.not_in_figure_3(found))


def _changes(found):
    if not found.rule_changes:
        return ""
    lines = [
        [_text(", ".join(change["claims"])), _text(change["change"]), _text(change["reason"])]
        for change in found.rule_changes
    ]
    return "Rules that were changed after there were results:\n\n" + _rows(["claims", "change", "reason"], lines)


def _paper_table(paper):
    return f"{_text(paper.title)} ({_text(paper.source)}):\n\n{_table(paper.table)}"


def _table(table, experiment=""):
    factors = units.factors(experiment, table.columns)
    rows = [[_text(text) for text in row] for row in words.texts(table, factors)]
    return _rows([_text(name) for name in units.headings(experiment, table.columns)], rows)


def _rows(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _picture(picture):
    return f"![{_text(picture.title)}](pictures/{quote(picture.file)})" + (
        f"\n\n{_text(picture.note)}" if picture.note else ""
    )
