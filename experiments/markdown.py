"""Numbers, texts and tables as Markdown."""

import math
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
    """The mean and 95 % interval of judge.judge's check: "1.45 [−0.14, 3.04]"; accuracies in points."""
    is_share = re.search(r"\baccuracy\b|, F1\b", check["text"])
    mean, low, high = (check[key] * (100 if is_share else 1) for key in ("mean", "low", "high"))
    unit = " points" if is_share else ""
    if low == high:
        return f"{mean:.2g}".replace("-", "\u2212") + unit
    ends = [mean, low, high] if math.isfinite(low) else [mean]  # no interval for one value
    largest = max(map(abs, ends))
    mean, *ends = (fixed(value, 2 if largest >= 1 else 3 if largest >= 0.01 else 4) for value in ends)
    return (f"{mean} [{', '.join(ends)}]" if ends else mean) + unit


def table(columns, rows):
    """`rows`: Markdown, cell by cell."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def duration(seconds):
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"
