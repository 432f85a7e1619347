"""Texts of both forms of the report, and how they write numbers."""

from .results import NO_SCALE

TITLE = "The papers' claims about rotary position embedding, tried"
HOW = (
    "Rotary position embedding (RoPE) tells a language model where a token stands by rotating queries and keys by an "
    "angle that grows with the position. This page lists what the RoFormer paper, and publications about it, claim "
    "of RoPE, and what our experiments say of each claim. Models are small, and trained on two processor cores, so a "
    "verdict says nothing about larger models, more data or longer training. Supported and refuted are claims that "
    "experiments decided, proved are statements of mathematics; what an experiment left open is inconclusive."
)
RULES = (
    "C-01 and so on are the claims; X-01 and so on are questions that experiments ask beside them. An experiment's "
    "design, and the rule that turns its numbers into a verdict, are fixed in the program before it is run. A rule "
    "that was changed later is listed with the reason. A result whose design is no longer the program's is marked as "
    "stale."
)
MADE_BY = "This page is made from files of results by"
COMMAND = "python -m roformer_cpp.report reproduced --output report"
ATLAS_TITLE = "Atlas of position encodings"
ATLAS = "Every position encoding in the same small models:"
# Verdicts whose claims head the page, before those of several experiments.
_HEADING = ("supported", "refuted", "proved", "inconclusive")
HEADING = "Claims that are"
# What verdicts mean, in the order in which they are counted.
VERDICTS = {
    "proved": "a statement of mathematics, checked in numbers for examples",
    "supported": "every part of its rule holds beyond its margin, with an interval of 95 %; of what is counted, "
    "the outcome is as expected, and of what is timed so is the whole interval",
    "refuted": "the opposite of a part is shown, or mathematics says otherwise",
    "inconclusive": "not decided: a precondition is not shown, an interval is too wide, or what is counted or timed "
    "misses our own bound",
    "not testable here": "it needs data or machines that are not available, or claims nothing",
    "stale": "run with, or judged by, an earlier design or rule; what it said is marked, and counts for nothing",
    "not counted": "no record says which programs trained its models, or no commit has the files of one of them",
    "not run": "its experiment has no result",
    "no experiment": "a test of the program covers it",
    "smoke run": "a run of minutes, which shows that the programs work",
}
# Heads of the table of designs.rule_lines.
CHECKS = (
    "",
    "rule",
    "mean [95 % interval]; of a learning rate, the one chosen, and each that was tried with its loss or metric",
    "one-sided p, by Holm where there are several parts; below 0.025 it holds",
    "outcome",
)
VALUES = "What the rules compare, by seed:"
THEORY = "They show equations, not results, and are drawn with this page by"
BESIDE = "The paper's tables beside ours"
BESIDE_NOTE = (
    "“–” is a number that is not there. Models here are tens to hundreds of times smaller, and trained on other data "
    "for minutes, at most an hour: compare differences between rows, not values."
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


def percent(fraction):
    return f"{100 * fraction:.1f}"


def texts(table, factors=None):
    """The cells of a table as texts, row by row; numbers of a column times its factor, by index.

    Where a column has fractions, 65.0 keeps its 0.
    """
    factors = factors or {}
    rows = [[scaled(value, factors.get(i)) for i, value in enumerate(row)] for row in table.rows]
    has_fraction = [
        any(isinstance(value, float) and not value.is_integer() for value in column)
        for column in zip(*rows, strict=True)
    ]
    return [[_text(value, fraction) for value, fraction in zip(row, has_fraction, strict=True)] for row in rows]


def scaled(value, factor):
    """A number times a factor, if there is one; anything else unchanged."""
    return factor * value if factor and is_number(value) else value


def _text(value, has_fraction):
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e4
    return f"{value:.1f}" if whole and has_fraction else number(value)


def duration(seconds):
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def _machine(facts):
    return ", ".join(f"{key} {number(value)}" for key, value in facts.items() if key not in ("command", "seconds"))


def provenance(result):
    """[(what, command, machine)]: of the training, in parts of one machine each, or of the process that measured."""
    if not result.training:
        what = "Measured" if result.kind in ("mathematics", "measurement") else "Evaluated"
        return [(f"{what} in {duration(result.seconds)} by", result.command, _machine(result.machine))]
    groups = {}
    for of_group, runs in enumerate((result.training, result.rate_runs)):
        for run in runs:
            keys = [(part.get("command", ""), _machine(part)) for part in run.get("parts", [])]
            for key, part in zip(keys, run.get("parts", []), strict=True):
                group = groups.setdefault(key, [0, 0, 0, 0, 0.0])
                group[-1] += part.get("seconds", 0.0)
                group[-2] += part.get("seconds", 0.0) == 0
            for key in set(keys):  # a run is that of the process which ended it
                groups[key][of_group if key == keys[-1] else 2] += 1
    return [
        (f"{_how_many(*counted)} trained in {_at_least(unknown)}{duration(seconds)} by", command, facts)
        for (command, facts), (*counted, unknown, seconds) in groups.items()
    ]


def _at_least(unknown):
    """unknown: how many parts of runs have no seconds: their processes were killed before they logged any."""
    return "at least " if unknown else ""


def _how_many(runs, for_rates, begun):
    counted = [
        (runs, "run", ""),
        (for_rates, "run", " for learning rates"),
        (begun, "part", " of runs that others ended"),
    ]
    return " and ".join(f"{n} {noun}{'s' * (n != 1)}{which}" for n, noun, which in counted if n)


def marks(found, result):
    """[(mark, reason)] of a result that is not counted, or is stale, or whose records have a gap."""
    gaps = ["not every run that chose a learning rate has a record of its own"] if result.has_unrecorded_rates else []
    return [
        *(("Not counted", reason) for reason in result.why_not_counted),
        *(("Stale", reason) for reason in found.stale(result)),
        *(("Not recorded", gap) for gap in gaps),
    ]


def counts(found):
    """[(verdict, how many claims, their ids, what it means)], in the order of VERDICTS; verdicts of several experiments
    after them."""
    claims = {}
    for claim in found.claims:
        claims.setdefault(found.verdict_of(claim), []).append(claim.id)
    order = [verdict for verdict in VERDICTS if verdict in claims] + sorted(claims.keys() - VERDICTS.keys())
    several = "its experiments judge different parts of the claim"
    return [(each, len(claims[each]), claims[each], VERDICTS.get(each, several)) for each in order]


def heading(found):
    """[(verdict, [claim])] of the claims that head the page: those that experiments or mathematics say something of."""
    by_verdict = {verdict: [] for verdict in _HEADING}
    for claim in found.claims:
        verdict = found.verdict_of(claim)
        if verdict in _HEADING or verdict not in VERDICTS:
            by_verdict.setdefault(verdict, []).append(claim)
    return [(verdict, claims) for verdict, claims in by_verdict.items() if claims]


def method(found):
    """How verdicts are reached: paragraphs."""
    return found.method.split("\n\n") if found.method else []


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
    """Scale, seeds and time, in words: the time of all training, or of the process that measured."""
    scale = "" if result.scale == NO_SCALE else f"scale {result.scale}, "
    seeds = f"seeds {' '.join(map(str, result.seeds))}, " if result.seeds else ""
    parts = [part for run in (*result.training, *result.rate_runs) for part in run.get("parts", [])]
    seconds = [part.get("seconds", 0.0) for part in parts] or [result.seconds]
    return f"{scale}{seeds}{_at_least(0 in seconds)}{duration(sum(seconds))}"
