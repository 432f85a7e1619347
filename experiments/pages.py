"""The page of an experiment on the documentation site, written from its result when the site is built."""

from itertools import chain

from .markdown import NOTHING, duration, interval, number, table, text
from .recorded import read_result


def render(path):
    """The page as Markdown. `path`: <scale>/<experiment>/result.json. Raises OSError, or ValueError naming the file."""
    result = read_result(path)
    parts = [
        f"# {text(result['title'])}",
        f"Experiment `{result['name']}`, scale {result['scale']}, claims: {', '.join(result['claims']) or 'none'}.",
        *(f"† {text(weakness[0].upper() + weakness[1:])}." for weakness in result.weaknesses),
        "## Verdicts",
        f"Expected before the run: {text(result['expected'])}",
        *chain(*(_verdict(result, claim) for claim in result["verdicts"])),
        "## Numbers",
        table([text(name) for name in result["table"]["columns"]], [_row(row) for row in result["table"]["rows"]]),
        "## Repeat it",
        f"```sh\n{result['command']}\n```",
        _machines(result),
        _rates(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(cells):
    return [number(cell) for cell in cells]


def _verdict(result, claim):
    yield f"**{claim}: {result['verdicts'][claim]}.** {text(result['figures'][claim])}."
    checks = [*result.checks(claim, "precondition"), *result.checks(claim)]
    rows = [
        [
            check["role"],
            text(check["text"]),
            interval(check) if check.get("mean") is not None else NOTHING,
            number(check.get("p_holm"), 2),
            text(check["outcome"]),
        ]
        for check in checks
    ]
    if rows:
        yield table(["", "rule", "mean [95 % interval]", "p, by Holm", "outcome"], rows)


def _machines(result):
    parts = list(chain(*(run.get("parts", []) for run in result.runs))) or [result["machine"]]
    groups = {}
    for part in parts:
        key = ", ".join(
            f"{name} {number(part[name])}" for name in ("cpu", "threads", "torch", "commit") if name in part
        )
        groups[key] = groups.get(key, 0.0) + part.get("seconds", 0.0)
    lines = [f"- {text(key)}: {duration(seconds or result['seconds'])}" for key, seconds in groups.items()]
    return "Computed on:\n\n" + "\n".join(lines)


def _rates(result):
    rows = []
    for tried in result.get("rates", []):
        for kind, rates in (("short runs", tried), ("whole runs", tried.get("whole", {"rates": [], "losses": []}))):
            found = (
                f"{number(rate)}: {number(loss)}" for rate, loss in zip(rates["rates"], rates["losses"], strict=True)
            )
            if line := ", ".join(found):
                rows.append([text(tried["arm"]), kind, line])
    if not rows:
        return ""
    return "## Learning rates\n\n" + table(["arm", "", "rate: loss, or the metric negated"], rows)
