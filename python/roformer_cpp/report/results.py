"""Reads the output directory of `roformer reproduce`: register.json and each <scale>/<experiment>/result.json.

Keys that are missing or of another kind are errors. Keys that are not known here are left alone: results take
hours, and those of a newer program, which may hold more, are to be read as well.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from .json_object import NUMBER, JsonObject, is_number, short

NO_SCALE = "any"  # of experiments that do not depend on the scale
SCALES = ("tiny", "small", "paper", NO_SCALE)  # the largest last
SMOKE_SCALE = "tiny"
NOT_RUN = "not run"
NOT_TESTABLE = "not testable here"
NOT_COUNTED = "not counted"  # Result.why_not_counted
STALE = "stale"
_STALE_MARK = f" ({STALE})"
_ROLES = ("precondition", "part")  # of checks
_MAYBE_NUMBER = (*NUMBER, type(None))


@dataclass(frozen=True)
class Table:
    columns: list
    rows: list  # of numbers, texts, None


@dataclass(frozen=True)
class PaperTable:
    id: str
    title: str
    source: str
    table: Table


@dataclass(frozen=True)
class Claim:
    id: str
    text: str
    source: str
    status: str
    note: str
    experiments: list  # names


@dataclass(frozen=True)
class Series:
    name: str
    x: list
    y: list


@dataclass(frozen=True)
class HeatMap:
    name: str
    x_name: str
    value_name: str
    x: list
    y: list  # names of the rows
    values: list  # a row for each of y, a number for each of x


@dataclass(frozen=True)
class Encoding:
    """A position encoding of the program's table."""

    name: str
    summary: str
    source: str


@dataclass(frozen=True)
class Measure:
    name: str  # with its unit
    arm: str
    seed: int
    value: float


@dataclass(frozen=True)
class TriedRates:
    arm: str
    rates: list
    losses: list  # None: not finite
    training: list = field(default_factory=list)  # the records of the runs with them
    # Those of whole runs, which follow the short ones; empty where whole runs decided nothing.
    whole_rates: list = field(default_factory=list)
    whole_losses: list = field(default_factory=list)

    @property
    def chosen(self):
        """The best of the whole runs, or of the short ones."""
        rates, losses = (self.whole_rates, self.whole_losses) if self.whole_rates else (self.rates, self.losses)
        return rates[min(range(len(rates)), key=lambda i: math.inf if losses[i] is None else losses[i])]

    def edge(self):
        """The chosen rate, where it is the lowest or the highest of those tried; None otherwise."""
        best = self.chosen
        return best if best <= min(self.whole_rates or self.rates) or best >= max(self.rates) else None


@dataclass(frozen=True)
class Result:
    name: str
    spec: str
    title: str
    claims: list
    expected: str
    scale: str
    seeds: list
    table: Table
    series: list
    maps: list
    verdicts: dict  # by claim, or by the experiment's own design, such as X-05
    figures: dict  # by the same keys
    seconds: float
    command: str
    machine: dict
    settings: dict = field(default_factory=dict)
    kind: str = ""  # "mathematics", "measurement" or "training"; "" in files of earlier versions
    revision: int = 1
    checks: dict = field(default_factory=dict)  # by claim: the parts and preconditions of its rule, with their outcomes
    rules: dict = field(default_factory=dict)  # by claim: the rules that it was judged by
    training: list = field(default_factory=list)  # a record of each run, by the process that trained it
    judged_by: str = ""  # the commit of the program that judged it after the one that made it, if one did
    recorded: dict = field(default_factory=dict)  # by claim: what a result said before it was judged by these rules
    measures: list = field(default_factory=list)  # by arm and seed; those that are numbers
    rates: list = field(default_factory=list)  # TriedRates
    arms: list = field(default_factory=list)  # of the settings, as "rerope:window=64"

    @property
    def is_smoke_run(self):
        return self.scale == SMOKE_SCALE

    @property
    def rate_runs(self):
        """The records of the runs that chose the learning rates, and are none of `training`."""
        return [run for tried in self.rates for run in tried.training]

    @property
    def has_unrecorded_rates(self):
        """Several runs chose a learning rate, and have no records: those of earlier versions, and of tasks."""
        return any(len(tried.rates) > 1 and not tried.training for tried in self.rates)

    @property
    def why_not_counted(self):
        """[text]: processes that made it were not built from a commit, or it is not known; empty where all were."""
        reasons, parts = [], [run.get("parts", []) for run in (*self.training, *self.rate_runs)]
        commits = [process.get("commit", "") for process in (self.machine, *chain(*parts))]
        if any(commit.endswith("-dirty") for commit in commits):
            reasons.append("it was run by a program whose files no commit has")
        if self.judged_by.endswith("-dirty"):
            reasons.append("it was judged by a program whose files no commit has")
        if self.judged_by == "unknown":
            reasons.append("the commit of the program that judged it is not known")
        if any(commit in ("", "unknown") for commit in commits):
            reasons.append("the commit of a program that ran it is not known")
        if self.kind == "training" and not (self.training and all(parts)):
            reasons.append("which programs trained its runs was not recorded")
        return reasons


@dataclass(frozen=True)
class Reproduction:
    claims: list
    tables: list  # the papers'
    results: list  # one for each experiment: of the largest scale there is
    experiments: dict = field(default_factory=dict)  # by name: as the program defines them
    rule_changes: list = field(default_factory=list)
    method: str = ""
    encodings: list = field(default_factory=list)  # the program's table; empty in files of earlier versions

    def result_of(self, name):
        return next((result for result in self.results if result.name == name), None)

    def stale(self, result):
        """Why a result is not that of the program as it is: [text]."""
        defined = self.experiments.get(result.name)
        if defined is None:
            return []
        reasons, revision = [], defined.get("revision", 1)
        if revision != result.revision:
            reasons.append(f"the experiment is now at revision {revision}, this is of {result.revision}")
        settings = defined.get("settings", {}).get(result.scale)
        if settings is not None and settings != result.settings:
            reasons.append("the design has changed since")
        if result.rules and defined.get("rules", {}) != result.rules:
            reasons.append("a rule has changed since it was judged")
        return reasons

    def shown_verdicts(self, result):
        """{claim: verdict}, NOT_COUNTED for one that is not, "supported (stale)" for a stale one."""
        if result.why_not_counted:
            return dict.fromkeys(result.verdicts, NOT_COUNTED)
        mark = _STALE_MARK if self.stale(result) and not result.is_smoke_run else ""
        return {claim: verdict + mark for claim, verdict in result.verdicts.items()}

    def verdicts_of(self, claim):
        """[(experiment, verdict)] of the claim's experiments; NOT_RUN where there is no result."""
        by_name = {result.name: self.shown_verdicts(result) for result in self.results}
        return [(name, by_name.get(name, {}).get(claim.id, NOT_RUN)) for name in claim.experiments]

    def verdict_of(self, claim):
        """The verdicts that count, in words; where none does, NOT_COUNTED, STALE or NOT_RUN. Without an experiment:
        whether one could decide it."""
        if not claim.experiments:
            return NOT_TESTABLE if claim.status in ("published only", "no claim") else "no experiment"
        verdicts = {STALE if verdict.endswith(_STALE_MARK) else verdict for _, verdict in self.verdicts_of(claim)}
        counted = verdicts - {NOT_COUNTED, STALE, NOT_RUN}
        *others, last = sorted(counted or verdicts - {NOT_RUN}) or [NOT_RUN]
        return f"{', '.join(others)} and {last}" if others else last


def read(directory):
    """The Reproduction in a directory. Raises OSError, or ValueError that names the file and what is wrong with it."""
    directory = Path(directory)
    register_path = directory / "register.json"
    if not register_path.is_file():
        raise ValueError(
            f"[report] the directory must be the output of `roformer reproduce`, got {directory} without register.json"
        )
    register = JsonObject.of_file(register_path)
    claims = [_claim(entry) for entry in register.objects("claims")]
    tables = [_paper_table(entry) for entry in register.objects("tables")]
    largest = {}
    for scale in SCALES:
        for path in sorted((directory / scale).glob("*/result.json")):
            result = _result(JsonObject.of_file(path))
            if (result.scale, result.name) != (scale, path.parent.name):
                raise ValueError(f"[report] {path} must be of its folders' names, got {result.scale}/{result.name}")
            largest[result.name] = result
    if not largest:
        raise ValueError(
            f"[report] {directory} must hold a result, got none. Hint: roformer reproduce all --output {directory}"
        )
    experiments = {entry.get("name", str): _defined(entry) for entry in register.optional_objects("experiments")}
    for name, result in largest.items():  # results of earlier versions do not say their kind
        largest[name] = replace(result, kind=result.kind or experiments.get(name, {}).get("kind", ""))
    order = [name for claim in claims for name in claim.experiments] + sorted(largest)
    return Reproduction(
        claims,
        tables,
        [largest[name] for name in dict.fromkeys(order) if name in largest],
        experiments,
        [_rule_change(entry) for entry in register.optional_objects("rule_changes")],
        register.optional("method", str),
        [_encoding(entry) for entry in register.optional_objects("encodings")],
    )


def _table(entry):
    columns, rows = entry.texts("columns", list), entry.get("rows", list)
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns):
            raise ValueError(f"[report] a row of {entry.where} must have {len(columns)} cells, got {short(row)}")
        if not all(cell is None or isinstance(cell, str) or is_number(cell) for cell in row):
            raise ValueError(f"[report] cells of {entry.where} must be numbers, texts or null, got {short(row)}")
    return Table(columns, rows)


def _claim(entry):
    texts = (entry.get(key, str) for key in ("id", "text", "source", "status", "note"))
    return Claim(*texts, entry.texts("experiments", list))


def _paper_table(entry):
    return PaperTable(*(entry.get(key, str) for key in ("id", "title", "source")), _table(entry))


def _rule_change(entry):
    entry.texts("claims", list), entry.get("change", str), entry.get("reason", str)
    return entry.value


def _defined(entry):
    """An experiment as the program defines it."""
    entry.optional("kind", str), entry.optional("revision", int), entry.optional("note", str)
    entry.optional("settings", dict), entry.optional("rules", dict)
    return entry.value


def _encoding(entry):
    return Encoding(*(entry.get(key, str) for key in ("name", "summary", "source")))


def _measures(entries):
    found = []
    for entry in entries:
        value = entry.value.get("value")
        if value is None:  # not a number
            continue
        if not is_number(value):
            raise ValueError(f"[report] value of {entry.where} must be a number or null, got {short(value)}")
        found.append(Measure(entry.get("name", str), entry.get("arm", str), entry.get("seed", int), value))
    return found


def _rules(entry):
    for claim in entry.value:
        rule = entry.object(claim)
        rule.optional_objects("parts"), rule.optional_objects("preconditions")
    return entry.value


def _checks(entry):
    for claim in entry.value:
        for check in entry.objects(claim):
            check.get("text", str), check.get("role", str), check.get("outcome", str)
            check.optional("tuned", str)
            if check.optional("unit", str) not in ("", "%", "points"):
                raise ValueError(f"[report] unit of {check.where} must be % or points, got {check.value['unit']}")
            if "mean" in check.value:
                check.get("mean", _MAYBE_NUMBER)
            if "p_holm" in check.value:
                check.get("p_holm", _MAYBE_NUMBER)
            if "low" in check.value:
                check.get("low", _MAYBE_NUMBER), check.get("high", _MAYBE_NUMBER)
    return entry.value


def _verdict_of(checks, scale):
    """The verdict that checks allow, as reproduce/src/verdict.cpp has it."""
    if scale == SMOKE_SCALE:
        return "smoke run"
    outcomes = {role: [check["outcome"] for check in checks if check["role"] == role] for role in _ROLES}
    parts, is_judged = outcomes["part"], all(outcome == "holds" for outcome in outcomes["precondition"])
    if not parts or not is_judged or not set(parts) <= {"holds", "fails", "not shown"}:
        return "inconclusive"
    return "supported" if set(parts) == {"holds"} else "refuted" if "fails" in parts else "inconclusive"


def _require_that_verdicts_follow(entry, verdicts, checks, rules, scale):
    for claim, of_claim in checks.items():
        for check in of_claim:
            if check["role"] not in _ROLES:
                must = "must have checks with the role precondition or part"
                raise ValueError(f"[report] {claim} of {entry.where} {must}, got {check['role']}")
        allowed, got = _verdict_of(of_claim, scale), verdicts[claim]
        if got != allowed:
            raise ValueError(f"[report] {claim} of {entry.where} must be {allowed} by its checks, got {got}")
    unchecked = [claim for claim in rules if claim not in checks and verdicts.get(claim) in ("supported", "refuted")]
    if unchecked:
        raise ValueError(f"[report] {entry.where} must have checks of {', '.join(unchecked)}, got none")


def _machine(entry):
    entry.optional("commit", str)
    return entry.value


def _trained_run(entry):
    entry.get("arm", str), entry.get("seed", int)
    for part in entry.optional_objects("parts"):
        part.optional("command", str), part.optional("commit", str), part.optional("threads", int)
        if "seconds" in part.value:
            part.number("seconds")
    return entry.value


def _arms(entry):
    settings = entry.optional_object("settings")
    design = settings.object("design") if "design" in settings.value else settings
    return design.texts("arms", list) if "arms" in design.value else []


def _tried_rates(entry):
    training = [_trained_run(each) for each in entry.optional_objects("training")]
    whole = _rates_and_losses(entry.object("whole")) if "whole" in entry.value else ()
    return TriedRates(entry.get("arm", str), *_rates_and_losses(entry), training, *whole)


def _rates_and_losses(entry):
    rates, losses = entry.get("rates", list), entry.get("losses", list)
    if not rates or len(rates) != len(losses):
        raise ValueError(f"[report] {entry.where} must have a loss for each rate, got {short(entry.value)}")
    if not all(map(is_number, rates)) or not all(loss is None or is_number(loss) for loss in losses):
        raise ValueError(f"[report] {entry.where} must have numbers, got {short(entry.value)}")
    return rates, losses


def _series(entry):
    series = Series(entry.get("name", str), entry.get("x", list), entry.get("y", list))
    if len(series.x) != len(series.y):
        raise ValueError(f"[report] {entry.where} must have as many y as x, got {len(series.y)} and {len(series.x)}")
    if not all(is_number(value) for value in series.x):
        raise ValueError(f"[report] x of {entry.where} must be numbers, got {short(series.x)}")
    if not all(value is None or is_number(value) for value in series.y):  # null: not a number
        raise ValueError(f"[report] y of {entry.where} must be numbers or null, got {short(series.y)}")
    return series


def _map(entry):
    heat = HeatMap(
        *(entry.get(key, str) for key in ("name", "x_name", "value_name")),
        entry.get("x", list),
        entry.texts("y", list),
        entry.get("values", list),
    )
    sizes = {len(row) if isinstance(row, list) else -1 for row in heat.values}
    if len(heat.values) != len(heat.y) or sizes != {len(heat.x)}:
        raise ValueError(f"[report] values of {entry.where} must be {len(heat.y)} rows of {len(heat.x)}")
    if not heat.x:
        raise ValueError(f"[report] x of {entry.where} must hold numbers, got none")
    if not all(is_number(value) for row in [heat.x, *heat.values] for value in row):
        raise ValueError(f"[report] x and values of {entry.where} must be numbers, got another value")
    if any(value < 0 for row in heat.values for value in row):
        raise ValueError(f"[report] values of {entry.where} must be at least 0, got {min(map(min, heat.values))}")
    return heat


def _result(entry):
    verdicts, figures = entry.texts("verdicts", dict), entry.texts("figures", dict)
    if verdicts.keys() != figures.keys():
        got = f"verdicts of {', '.join(verdicts) or 'none'} and figures of {', '.join(figures) or 'none'}"
        raise ValueError(f"[report] {entry.where} must have figures for each verdict, got {got}")
    checks = _checks(entry.optional_object("checks"))
    if not checks.keys() <= verdicts.keys():
        got = ", ".join(sorted(checks.keys() - verdicts.keys()))
        raise ValueError(f"[report] {entry.where} must have a verdict where it has checks, got none of {got}")
    rules = _rules(entry.optional_object("rules"))
    _require_that_verdicts_follow(entry, verdicts, checks, rules, entry.get("scale", str))
    return Result(
        name=entry.get("name", str),
        spec=entry.get("spec", str),
        title=entry.get("title", str),
        claims=entry.texts("claims", list),
        expected=entry.get("expected", str),
        scale=entry.get("scale", str),
        seeds=entry.get("seeds", list),
        table=_table(entry.object("table")),
        series=[_series(each) for each in entry.objects("series")],
        maps=[_map(each) for each in entry.objects("maps")] if "maps" in entry.value else [],
        verdicts=verdicts,
        figures=figures,
        seconds=entry.number("seconds"),
        command=entry.get("command", str),
        machine=_machine(entry.object("machine")),
        settings=entry.optional("settings", dict),
        kind=entry.optional("kind", str),
        revision=entry.get("revision", int) if "revision" in entry.value else 1,
        checks=checks,
        rules=rules,
        training=[_trained_run(each) for each in entry.optional_objects("training")],
        judged_by=entry.optional("judged_by", str),
        recorded=entry.texts("recorded", dict) if "recorded" in entry.value else {},
        measures=_measures(entry.optional_objects("measures")),
        arms=_arms(entry),
        rates=[_tried_rates(each) for each in entry.optional_objects("rates")],
    )
