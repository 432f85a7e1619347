"""Judges rows of results by the rules of claims.yaml, which are fixed before a run.

Arms share data order, masks and initial weights except for the compared part, so values are paired by seed. A part of a
rule says that the mean of the differences (or of the values of one arm) lies in an open region: it holds if the
interval of Student's t lies inside, which is a one-sided test at SIGNIFICANCE for each end (TOST for two ends), and
fails if the other side is shown. Several parts are corrected by Holm's method. Preconditions come first, without
correction: values that must be shown, and arms whose learning rate must be the best of at least three and not the
lowest or highest.

A value without a seed is exact: nothing was drawn, or it is the worst of all draws. The kind of a rule names its
verdict: `proof` proves or refutes; `count` counts or times against our own bound, so missing the bound refutes
nothing.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import yaml
from scipy import stats

CLAIMS = Path(__file__).resolve().parent / "claims.yaml"
SIGNIFICANCE = 0.025  # of each one-sided test: a region that holds contains the whole 95 % interval
FEWEST_RATES = 3
# The losses that choose a learning rate, as measures of rows that have that rate; null: the run has diverged.
SHORT_RUN, WHOLE_RUN = "loss of a short run, to choose a rate", "loss of a whole run, to choose a rate"


@dataclass(frozen=True)
class Estimate:
    """The mean of values with its 95 % interval; without an interval if there is one value."""

    mean: float
    error: float  # the standard error of the mean
    count: int
    low: float
    high: float

    def p_above(self, bound):
        """The p-value of the test that shows a mean above the bound."""
        if self.count < 2:
            return 1.0
        if self.error == 0:
            return 0.0 if self.mean > bound else 1.0
        return float(stats.t.sf((self.mean - bound) / self.error, self.count - 1))

    def p_below(self, bound):
        return Estimate(-self.mean, self.error, self.count, -self.high, -self.low).p_above(-bound)

    def __str__(self):
        if self.count < 2:
            return f"{self.mean:.4g}, without an interval"
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def estimate(values):
    """The Estimate of at least one value."""
    values = np.asarray(values, dtype=float)
    count, mean = len(values), float(values.mean())
    if count < 2:
        return Estimate(mean, math.inf, count, -math.inf, math.inf)
    error = float(values.std(ddof=1) / math.sqrt(count))
    reach = float(stats.t.ppf(1 - SIGNIFICANCE, count - 1)) * error
    return Estimate(mean, error, count, mean - reach, mean + reach)


def exact(value):
    """The Estimate of a value that was not drawn."""
    return Estimate(value, 0.0, 2, value, value)


def holm(p):
    """p-values adjusted for their number by Holm's method, in the order given."""
    adjusted, highest = [0.0] * len(p), 0.0
    for i, k in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - i) * p[k]))
        adjusted[k] = highest
    return adjusted


@dataclass(frozen=True)
class Contrast:
    """The mean of an arm, minus the mean of the arm `against` if given, is within bounds. It fails if the mean is shown
    to be on the other side of `opposite`, by default outside of the region."""

    measure: str
    arm: str
    against: str = ""
    above: float | None = None
    below: float | None = None
    opposite: float | None = None

    def __str__(self):
        less = f" less {self.against}" if self.against else ""
        bounds = [f"{name} {bound:g}" for name in ("above", "below") if (bound := getattr(self, name)) is not None]
        return f"{self.arm}{less}, {self.measure}: {' and '.join(bounds)}"

    def p_values(self, found):
        """(p of holding, p of failing) of an Estimate."""
        ends = [(found.p_above, found.p_below, self.above), (found.p_below, found.p_above, self.below)]
        ends = [end for end in ends if end[2] is not None]
        holds = max(shows(bound) for shows, _, bound in ends)
        fails = min(denies(bound if self.opposite is None else self.opposite) for _, denies, bound in ends)
        return holds, min(1.0, len(ends) * fails)  # both ends must be shown; either may fail


@dataclass(frozen=True)
class Rule:
    """The verdict of one experiment on one claim."""

    experiment: str
    claim: str
    parts: tuple
    preconditions: tuple = ()
    tuned: tuple = ()
    kind: str = "training"  # or proof, count


@cache
def claims():
    """The claims of claims.yaml, dicts by id: text, source, status, note."""
    return _file()["claims"]


@cache
def rules():
    """The rules of claims.yaml."""
    return [_rule(given) for given in _file()["rules"]]


def rules_of(experiment):
    return [rule for rule in rules() if rule.experiment == experiment]


@cache
def _file():
    return yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))


def _rule(given):
    parts = {key: tuple(itertools.chain(*map(_contrasts, given.get(key, [])))) for key in ("parts", "preconditions")}
    tuned = tuple(given.get("tuned", []))
    return Rule(given["experiment"], given["claim"], **parts, tuned=tuned, kind=given.get("kind", "training"))


def _contrasts(given):
    """The contrasts of an entry whose measure, arm and against may be lists: each with each. `{arm}` in against stands
    for the arm."""
    lists = [each if isinstance(each := given.get(k, ""), list) else [each] for k in ("measure", "arm", "against")]
    bounds = {key: given[key] for key in ("above", "below", "opposite") if key in given}
    for measure, arm, against in itertools.product(*lists):
        yield Contrast(measure, arm, against.format(arm=arm), **bounds)


def values_of(rows, measure, arm):
    """{seed: value} of the finite values of a measure. Raises ValueError if a seed has two."""
    found = {}
    for row in rows:
        if (row["measure"], row["arm"]) != (measure, arm) or row["value"] is None or not math.isfinite(row["value"]):
            continue
        if row["seed"] in found:
            raise ValueError(f"[judge] {measure} of {arm} must have one value of seed {row['seed']}, got two")
        found[row["seed"]] = row["value"]
    return found


def differences(rows, measure, arm, against=""):
    """The values of an arm less the other's with the same seed; without another arm, the values themselves."""
    own, others = values_of(rows, measure, arm), values_of(rows, measure, against)
    return [value - others.get(seed, 0) for seed, value in own.items() if not against or seed in others]


def why_not_tuned(rows, arm):
    """Why the learning rate of an arm is not the best one, with worse rates on both sides; "" if it is."""
    tried = {
        measure: {
            row["learning_rate"]: math.inf if row["value"] is None else row["value"]
            for row in sorted(rows, key=lambda row: row["learning_rate"] or 0)
            if (row["measure"], row["arm"]) == (measure, arm)
        }
        for measure in (SHORT_RUN, WHOLE_RUN)
    }
    short, decides = tried[SHORT_RUN], tried[WHOLE_RUN] or tried[SHORT_RUN]
    if len(short) < FEWEST_RATES:
        return f"{len(short)} learning rates were tried for {arm}, fewer than {FEWEST_RATES}"
    chosen = min(decides, key=decides.get)
    if min(decides) < chosen < max(short):
        return ""
    return f"the best rate of {arm}, {chosen:g}, is at the edge of those tried"


def judge(rule, rows, seeds=()):
    """{"verdict": .., "reason": why not all preconditions hold or "", "checks": [..]}.

    Checks have `text`, `role` (part or precondition), `outcome`, and of values `mean`, `low`, `high`, `seeds`, `p` and
    `p_holm`. `seeds`: each arm must have a value of each.
    """
    reasons, checks = [], []
    for arm in rule.tuned:
        reasons.append(why_not_tuned(rows, arm))
        text = f"the learning rate of {arm} is tuned"
        checks.append({"text": text, "role": "precondition", "outcome": "fails" if reasons[-1] else "holds"})
    for contrast in rule.preconditions:
        check = _checked(contrast, rows, seeds)
        _conclude(check, check["p"], check.pop("p_fails"))
        checks.append(check | {"role": "precondition"})
        reasons.append("" if check["outcome"] == "holds" else f"a precondition is not shown: {check['text']}")
    parts = [_checked(contrast, rows, seeds) for contrast in rule.parts]
    corrected = zip(holm([part["p"] for part in parts]), holm([part.pop("p_fails") for part in parts]), strict=True)
    for part, p_values in zip(parts, corrected, strict=True):
        _conclude(part, *p_values)
        checks.append(part | {"role": "part"})
    outcomes = {part["outcome"] for part in parts}
    reasons += [f"{part['text']}: {part['outcome']}" for part in parts if part["outcome"] in (_NONE, _MISSING)]
    reason = next(filter(None, reasons), "")
    verdict = "inconclusive"
    if not reason and outcomes == {"holds"}:
        verdict = "proved" if rule.kind == "proof" else "supported"
    elif not reason and "fails" in outcomes and rule.kind != "count":
        verdict = "refuted"
    return {"verdict": verdict, "reason": reason, "checks": checks}


_NONE, _MISSING = "no values", "a value is missing"


def _checked(contrast, rows, seeds):
    of_arms = [values_of(rows, contrast.measure, arm) for arm in (contrast.arm, contrast.against) if arm]
    values = differences(rows, contrast.measure, contrast.arm, contrast.against)
    check = {"text": str(contrast), "seeds": len(values), "p": 1.0, "p_fails": 1.0}
    if not values:
        return check | {"outcome": _NONE}
    found = exact(values[0]) if of_arms[0].keys() == {None} else estimate(values)
    holds, fails = contrast.p_values(found)
    check |= {"mean": found.mean, "low": found.low, "high": found.high, "p": holds, "p_fails": fails}
    if any(None not in of_arm and set(seeds) - of_arm.keys() for of_arm in of_arms):
        check["outcome"] = _MISSING
    return check


def _conclude(check, p_holds, p_fails):
    check["p_holm"] = p_holds
    shown = "holds" if p_holds < SIGNIFICANCE else "fails" if p_fails < SIGNIFICANCE else "not shown"
    check.setdefault("outcome", shown)
