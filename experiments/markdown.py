"""Numbers, texts and tables as Markdown."""

import re
from html import escape

NOTHING = "–"


def text(value):
    """Text in which no character means anything to Markdown or HTML, on one line."""
    return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", escape(" ".join(str(value).split()), quote=False))


def number(value, digits=4):
    """A number with that many significant digits; other values as text."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e15):
        return f"{value:,.0f}"
    if not isinstance(value, float):
        return text(value)
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.{digits}g}"


def fixed(value, decimals):
    """A number with that many decimals, with a true minus sign."""
    return NOTHING if value is None else f"{value:.{decimals}f}".replace("-", "\u2212")


def interval(check):
    """A check's mean and 95 % interval: "1.45 [−0.14, 3.04]", fractions in per cent."""
    factor = 100 if check.get("unit") else 1
    values = [check[key] * factor for key in ("mean", "low", "high") if check.get(key) is not None]
    decimals = 3 if max(map(abs, values)) < 1 else 2
    mean, *ends = (fixed(value, decimals) for value in values)
    unit = f" {check['unit']}" if check.get("unit") else ""
    return (f"{mean} [{ends[0]}, {ends[1]}]" if ends else mean) + unit


def table(columns, rows):
    """`rows`: Markdown, cell by cell."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def duration(seconds):
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"
