"""The page of an experiment on the documentation site, written from its result when the site is built."""

from . import judge
from .markdown import NOTHING, duration, interval, number, table, text
from .recorded import read_result


def render(path):
    """The page as Markdown. `path`: <scale>/<experiment>.parquet. Raises OSError, or ValueError that names the file."""
    result = read_result(path)
    parts = [
        f"# {text(result.question)}",
        f"Experiment `{result.name}`, scale {result.scale}, claims: {', '.join(result.verdicts) or 'none'}.",
        *(f"† {text(weakness[0].upper() + weakness[1:])}." for weakness in result.weaknesses),
        "## Verdicts" if result.verdicts else "",
        *(part for claim, judged in result.verdicts.items() for part in _verdict(claim, judged)),
        "## Numbers",
        "Means over seeds. The file also has the values by seed, and the curves.",
        table(["measure", "of", "mean", "lowest", "highest", "values"], _numbers(result)),
        "## Repeat it",
        f"```sh\n{result.about['command']}\n```",
        _machines(result),
        _rates(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _verdict(claim, judged):
    reason = f" {text(judged['reason'])}." if judged["reason"] else ""
    yield f"**{claim}: {judged['verdict']}.**{reason}"
    rows = [
        [
            check["role"],
            text(check["text"]),
            interval(check) if "mean" in check else NOTHING,
            number(check.get("p_holm"), 2),
            text(check["outcome"]),
        ]
        for check in judged["checks"]
    ]
    yield table(["", "rule", "mean [95 % interval]", "p, by Holm", "outcome"], rows)


def _numbers(result):
    rows = []
    keys = [(row["measure"], row["arm"]) for row in result.rows if row["step"] is None]
    for measure, arm in dict.fromkeys(keys):
        if measure in (judge.SHORT_RUN, judge.WHOLE_RUN):
            continue
        values = list(result.values(measure, arm).values())
        ends = [number(end(values)) if values else NOTHING for end in (min, max)]
        rows.append([text(measure), text(arm), number(result.mean(measure, arm)), *ends, str(len(values))])
    return rows


def _machines(result):
    """Where the runs were made, and how long they took."""
    about = result.about
    groups = {}
    for row in result.rows:
        groups.setdefault((row["cpu"], row["commit"]), set()).add(row["seconds"] or 0.0)
    lines = [f"- {text(cpu)}, commit {text(commit)}: {duration(sum(of))}" for (cpu, commit), of in groups.items()]
    finished = [f"{name} {number(about[name])}" for name in ("date", "cores", "threads", "torch") if name in about]
    return f"Computed in {duration(result.seconds)} ({text(', '.join(finished))}), on:\n\n" + "\n".join(lines)


def _rates(result):
    rows = []
    for measure, kind in ((judge.SHORT_RUN, "short runs"), (judge.WHOLE_RUN, "whole runs")):
        tried = {}
        for row in result.rows:
            if row["measure"] == measure:
                tried.setdefault(row["arm"], []).append(f"{row['learning_rate']:g}: {number(row['value'])}")
        rows += [[text(arm), kind, ", ".join(losses)] for arm, losses in tried.items()]
    if not rows:
        return ""
    return "## Learning rates\n\n" + table(["arm", "", "rate: loss, or the metric negated"], rows)
