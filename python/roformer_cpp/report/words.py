"""Texts of both forms of the report, and how they write numbers."""

from .results import NO_SCALE

TITLE = "The papers' claims about rotary position embedding, tried"
HOW = (
    "Each experiment's design and the outcome that confirms were fixed in the program before it was run. "
    "“Not confirmed at this size” says nothing about larger models, more data or longer training."
)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(value):
    """A value in four digits; texts unchanged."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def texts(table):
    """The cells of a table as texts, row by row. Where a column has fractions, 65.0 keeps its 0."""
    has_fraction = [
        any(isinstance(value, float) and not value.is_integer() for value in column)
        for column in zip(*table.rows, strict=True)
    ]
    return [[_text(value, fraction) for value, fraction in zip(row, has_fraction, strict=True)] for row in table.rows]


def _text(value, has_fraction):
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e4
    return f"{value:.1f}" if whole and has_fraction else number(value)


def duration(seconds):
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def machine(result):
    """[(key, value)], in the order of the file."""
    return [(key, number(value)) for key, value in result.machine.items()]


def counts(found):
    """["confirmed 12", ..]"""
    return [f"{verdict} {count}" for verdict, count in found.verdict_counts().items()]


def smoke_note(found):
    """The warning that heads a report with smoke runs; "" without any."""
    smoke = sum(result.is_smoke_run for result in found.results)
    if smoke == 0:
        return ""
    which = "All results" if smoke == len(found.results) else f"{smoke} of {len(found.results)} results"
    return (
        f"{which} are smoke runs (scale tiny): they show that the programs run from end to end, and decide nothing "
        "about any claim."
    )


def run_line(result):
    """Scale, seeds and time, in words."""
    scale = "" if result.scale == NO_SCALE else f"scale {result.scale}, "
    seeds = f"seeds {' '.join(map(str, result.seeds))}, " if result.seeds else ""
    return f"{scale}{seeds}{duration(result.seconds)}"
