"""The report as one HTML file that loads nothing: style and pictures are in it."""

import re
from html import escape

from . import beside, designs, units, words

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #5a5a5a; --paper: #fff; --line: #d4d4d4; --tint: #f4f5f7;
  --good: #0a6b4b; --bad: #9a4a00; --smoke: #6b6b6b; --link: #0058a3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a8a8a8; --paper: #16181b; --line: #3a3d42;
  --tint: #1f2226; --good: #5fd0a5; --bad: #f0a860; --smoke: #b0b0b0; --link: #7db8f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, "DejaVu Sans", Verdana, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.5rem; } h3 { margin: 0 0 .3rem; font-size: 1.15rem; }
a { color: var(--link); }
section.experiment { margin: 1.5rem 0; padding-top: 1rem; border-top: 1px solid var(--line); }
.wide { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; font-size: .9rem; margin: .6rem 0; }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 600; overflow-wrap: normal; } .number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
table.claims td:first-child { white-space: nowrap; } table.claims { width: 100%; }
.soft, figcaption { color: var(--soft); font-size: .85rem; }
.verdict { font-weight: 600; color: var(--smoke); }
.verdict.good { color: var(--good); } .verdict.bad { color: var(--bad); } .stale { color: var(--bad); }
details { margin: .3rem 0 .8rem; } summary { cursor: pointer; color: var(--soft); font-size: .85rem; }
.smoke { border: 2px dashed var(--smoke); padding: .5rem .8rem; }
.expected { border-left: 3px solid var(--line); padding-left: .8rem; margin: .6rem 0; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { display: block; width: 100%; max-width: 46rem; min-width: 26rem; height: auto; background: #fff; }
code { font-size: .85em; background: var(--tint); padding: .1em .3em; }
@media (max-width: 40rem) { table.claims, .claims tbody, .claims tr, .claims td { display: block; padding-right: 0; }
  .claims thead { display: none; } .claims tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .claims td { border: 0; padding: .1rem 0; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } figure, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; } figure svg { min-width: 0; } .wide { overflow: visible; } }
"""


def render(found, drawn, theory, folder):
    """The page: `drawn` has the pictures of each result, `theory` the theory's, `folder` their files."""
    smoke = words.smoke_note(found)
    parts = [
        f"<h1>{escape(words.TITLE)}</h1>",
        f'<p class="smoke"><strong>{escape(smoke)}</strong></p>' if smoke else "",
        f"<p>{escape(words.HOW)}{_atlas(found)}</p>",
        *_heading(found),
        _counts(found),
        f"<p>{escape(words.RULES)} {escape(words.MADE_BY)} <code>{escape(words.COMMAND)}</code>.</p>",
        "<h2>Claims</h2>",
        _claims(found),
        f"<h2>{escape(words.BESIDE)}</h2>",
        f"<p>{escape(words.BESIDE_NOTE)}</p>",
        *(_comparison(each) for each in beside.comparisons(found)),
        f"<h3>Figure 3</h3>\n<p>{escape(beside.FIGURE_3)}</p>",
        *_figure_3(found, drawn),
        "<h2>How verdicts are reached</h2>" if found.method else "",
        *(f"<p>{escape(text)}</p>" for text in words.method(found)),
        _changes(found),
        "<h2>Experiments</h2>",
        *(_experiment(found, result, drawn[result.name], folder) for result in found.results),
        "<h2>Other tables of publications</h2>",
        *(_paper_table(table) for table in found.tables if table.id not in beside.TABLES),
        "<h2>Pictures of the theory</h2>",
        f"<p>{escape(words.THEORY)} <code>{escape(words.COMMAND)}</code>.</p>",
        *(_figure(picture, folder) for picture in theory),
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(words.TITLE)}</title>\n<style>{STYLE}</style>\n</head>\n"
    )
    return head + "<body>\n" + "\n".join(part for part in parts if part) + "\n</body>\n</html>\n"


def _atlas(found):
    return f' {escape(words.ATLAS)} <a href="atlas.html">{escape(words.ATLAS_TITLE)}</a>.' if found.encodings else ""


def _heading(found):
    for verdict, claims in words.heading(found):
        notes = {claim.id: f'. <span class="soft">{escape(claim.note)}</span>' for claim in claims if claim.note}
        items = "\n".join(
            f"<li>{escape(claim.text)} ({_link(claim.id)}){notes.get(claim.id, '')}</li>" for claim in claims
        )
        yield f"<p>{escape(words.HEADING)} {_verdict(verdict)}:</p>\n<ul>\n{items}\n</ul>"


def _counts(found):
    rows = "\n".join(
        f'<tr><td>{_verdict(verdict)}</td><td class="number">{count}</td><td>{", ".join(map(_link, which))}</td>'
        f"<td>{escape(meaning)}</td></tr>"
        for verdict, count, which, meaning in words.counts(found)
    )
    head = '<tr><th>verdict</th><th class="number">claims</th><th>which</th><th>what it means</th></tr>'
    caption = f"<p>Of {len(found.claims)} claims:</p>"
    return f'{caption}\n<table class="counts">\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody></table>'


def _values(result):
    values = designs.rule_values(result)
    return [f"<details><summary>{escape(words.VALUES)}</summary>\n{_table(values, '')}</details>"] if values else []


def _comparison(comparison):
    note = f'<p class="soft">{escape(comparison.note)}</p>'
    remarks = "".join(f"\n<p>{escape(remark)}</p>" for remark in comparison.remarks)
    return f"<h3>{escape(comparison.title)}</h3>\n{note}\n{_table(comparison.table, '')}{remarks}"


def _figure_3(found, drawn):
    for side, name in beside.figure_3(found):
        if drawn.get(name):
            yield f"<p>Ours, {side}, with its command: {_link(name)}</p>"
    yield from (f"<p>{escape(why)}</p>" for why in beside.not_in_figure_3(found))


def _changes(found):
    if not found.rule_changes:
        return ""
    rows = "\n".join(
        f"<tr><td>{escape(', '.join(change['claims']))}</td><td>{escape(change['change'])}</td>"
        f"<td>{escape(change['reason'])}</td></tr>"
        for change in found.rule_changes
    )
    head = "<thead><tr><th>claims</th><th>change</th><th>reason</th></tr></thead>"
    return (
        "<p>Rules that were changed after there were results:</p>\n"
        f'<div class="wide"><table>\n{head}\n<tbody>\n{rows}\n</tbody></table></div>'
    )


def _checks(result, claim):
    lines = designs.rule_lines(result, claim)
    if not lines:
        return ""
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell or '–')}</td>" for cell in (role, text, interval, p, outcome)) + "</tr>"
        for text, role, interval, p, outcome in lines
    )
    head = "<thead><tr>" + "".join(f"<th>{name}</th>" for name in words.CHECKS) + "</tr></thead>"
    return (
        f"<details><summary>{len(lines)} checks of {escape(claim)}</summary>\n"
        f'<div class="wide"><table>\n{head}\n<tbody>\n{rows}\n</tbody></table></div></details>\n'
    )


def _claims(found):
    rows = []
    run = {result.name for result in found.results}
    for claim in found.claims:
        note = f'<br><span class="soft">{escape(claim.note)}</span>' if claim.note else ""
        verdicts = [
            f"{_verdict(verdict)} {_link(name) if name in run else escape(name)}"
            for name, verdict in found.verdicts_of(claim)
        ] or [_verdict(found.verdict_of(claim))]
        rows.append(
            f'<tr id="{escape(claim.id)}"><td>{escape(claim.id)}</td><td>{escape(claim.text)}<br>'
            f'<span class="soft">{escape(claim.source)}; {escape(claim.status)}</span>{note}</td>'
            f"<td>{'<br>'.join(verdicts)}</td></tr>"
        )
    head = "<tr><th>claim</th><th>what is claimed, where</th><th>verdict, by experiment</th></tr>"
    body = "\n".join(rows)
    return f'<div class="wide"><table class="claims">\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _experiment(found, result, pictures, folder):
    known = {claim.id: claim for claim in found.claims}
    claims = ", ".join(_link(claim) if claim in known else escape(claim) for claim in result.claims) or "no claim"
    smoke = " · <strong>smoke run</strong>" if result.is_smoke_run else ""
    judged = "".join(
        f"<p>{escape(claim)} {_verdict(verdict)}: {escape(result.figures[claim])}.</p>\n{_checks(result, claim)}"
        for claim, verdict in found.shown_verdicts(result).items()
    )
    judged += "".join(
        f'<p class="soft">Recorded before these rules, {escape(claim)}: {escape(text)}.</p>\n'
        for claim, text in result.recorded.items()
    )
    judged += "".join(
        f'<p class="stale"><strong>{mark}</strong>: {escape(reason)}.</p>\n'
        for mark, reason in words.marks(found, result)
    )
    run_by = "<br>".join(
        f"{escape(what)} <code>{escape(command)}</code><br>{escape(facts)}"
        for what, command, facts in words.provenance(result)
    )
    return "\n".join(
        [
            f'<section class="experiment" id="{escape(result.name)}">',
            f"<h3>{escape(result.title)}</h3>",
            f'<p class="soft">{escape(result.name)} ({escape(result.spec)}) · {claims} · '
            f"{escape(words.run_line(result))}{smoke}</p>",
            *(f"<p>{escape(text)}</p>" for text in designs.about(found, result)),
            f'<p class="expected"><strong>Expected:</strong> {escape(result.expected)}</p>',
            judged,
            *_values(result),
            _table(result.table, "", result.name),
            *(_figure(picture, folder) for picture in pictures),
            f'<p class="soft">To make it again: <code>{escape(designs.command(result))}</code><br>{run_by}</p>',
            "</section>",
        ]
    )


def _link(name):
    return f'<a href="#{escape(name)}">{escape(name)}</a>'


def _verdict(verdict):
    kind = {"proved": " good", "supported": " good", "refuted": " bad"}.get(verdict, "")
    return f'<span class="verdict{kind}">{escape(verdict)}</span>'


def _paper_table(paper):
    return _table(paper.table, f"{paper.title} ({paper.source})")


def _table(table, caption, experiment=""):
    factors = units.factors(experiment, table.columns)
    columns = units.headings(experiment, table.columns)
    kinds = [' class="number"' if _has_numbers(table, i) else "" for i in range(len(table.columns))]
    head = "".join(f"<th{kind}>{escape(str(name))}</th>" for kind, name in zip(kinds, columns, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(map(_cell, kinds, row, texts))}</tr>"
        for row, texts in zip(table.rows, words.texts(table, factors), strict=True)
    )
    caption = f'<p class="soft">{escape(caption)}</p>\n' if caption else ""
    head = f"<thead><tr>{head}</tr></thead>"
    return f'{caption}<div class="wide"><table>\n{head}\n<tbody>\n{rows}\n</tbody></table></div>'


def _has_numbers(table, column):
    return any(words.is_number(row[column]) for row in table.rows)


def _cell(kind, value, text):
    text = escape(text)
    if words.is_number(value):
        text = f'<data value="{value!r}">{text}</data>'  # all digits, for programs
    return f"<td{kind}>{text}</td>"


def _figure(picture, folder):
    svg = (folder / picture.file).read_text(encoding="utf-8")
    note = f"\n<figcaption>{escape(picture.note)}</figcaption>" if picture.note else ""
    return f"<figure>\n{_inline(svg, picture)}{note}\n</figure>"


def _inline(svg, picture):
    """An SVG file as an element: no prologue, no metadata, names (ids) of its own among the page's pictures."""
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[svg.index("<svg") :].strip(), flags=re.DOTALL)
    # A folder gave the file its name, in which a quotation mark would end the attribute.
    prefix = re.sub(r"[^A-Za-z0-9-]", lambda match: f"_{ord(match[0]):x}_", picture.file.removesuffix(".svg"))
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.title)}"', 1)
