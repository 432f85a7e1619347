"""experiments/judge.py: the recorded results get the verdicts, effects and intervals that they were recorded with."""

import json
import math
import sys
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import judge  # noqa: E402

RESULTS = {
    path.parent.name: json.loads(path.read_text())
    for path in (ROOT / "experiments" / "results").glob("*/*/result.json")
}
RULES = [rule for rule in judge.rules() if rule.kind == "training" and "measures" in RESULTS.get(rule.experiment, {})]


def row(measure, arm, value, seed=None, learning_rate=None):
    return {"measure": measure, "arm": arm, "value": value, "seed": seed, "learning_rate": learning_rate}


def rows_of(result):
    """The rows of a recorded result.json."""
    rows = [row(each["name"], each["arm"], each["value"], each["seed"]) for each in result["measures"]]
    for tried in result["rates"]:
        for measure, of in ((judge.SHORT_RUN, tried), (judge.WHOLE_RUN, tried.get("whole", {}))):
            pairs = zip(of.get("rates", []), of.get("losses", []), strict=True)
            rows += [row(measure, tried["arm"], loss, learning_rate=rate) for rate, loss in pairs]
    return rows


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.experiment}-{rule.claim}")
def test_recorded_results_are_judged_as_they_were(rule):
    result = RESULTS[rule.experiment]
    judged = judge.judge(rule, rows_of(result), result["seeds"])
    assert judged["verdict"] == result["verdicts"][rule.claim]
    recorded = result["checks"][rule.claim]
    for role in ("part", "precondition"):
        order = lambda check: (check.get("mean", 0), check["text"])  # noqa: E731 - texts of values differ
        ours, theirs = (sorted((c for c in of if c["role"] == role), key=order) for of in (judged["checks"], recorded))
        assert [check["outcome"] for check in ours] == [check["outcome"] for check in theirs]
        for key in ("seeds", "mean", "low", "high", "p", "p_holm"):
            expected = [check.get(key, math.nan) for check in theirs]
            found = [check.get(key, math.nan) for check in ours]
            assert found == pytest.approx(expected, rel=1e-9, nan_ok=True), key


def test_there_are_recorded_results_to_judge():
    assert len(RULES) > 15 and {"supported", "refuted", "inconclusive"} <= {
        RESULTS[rule.experiment]["verdicts"][rule.claim] for rule in RULES
    }


def test_rules_and_claims_are_those_of_the_register():
    register = json.loads((ROOT / "experiments" / "results" / "register.json").read_text())
    for claim in register["claims"]:
        ours = {key: text.strip() for key, text in judge.claims()[claim["id"]].items()}
        assert ours == {key: claim[key] for key in ("text", "source", "status", "note") if claim[key]}
    theirs = {(each["name"], claim): rule for each in register["experiments"] for claim, rule in each["rules"].items()}
    ours = {(rule.experiment, rule.claim): rule for rule in judge.rules() if rule.kind == "training"}
    assert set(ours) == set(theirs)
    for key, rule in ours.items():
        assert list(rule.tuned) == theirs[key]["tuned"]
        for role in ("parts", "preconditions"):
            expected = {judge.Contrast(**contrast) for contrast in theirs[key][role]}
            assert set(getattr(rule, role)) == expected and len(getattr(rule, role)) == len(theirs[key][role]), key


def test_the_interval_is_that_of_scipy():
    values = [0.3, -0.1, 0.25, 0.4]
    found = judge.estimate(values)
    test = stats.ttest_1samp(values, 0.05, alternative="greater")
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(interval)
    assert found.p_above(0.05) == pytest.approx(test.pvalue) and found.p_below(0.05) == pytest.approx(1 - test.pvalue)


def test_values_without_spread_are_certain_and_one_alone_says_nothing():
    same, one = judge.estimate([0.5, 0.5]), judge.estimate([0.5])
    assert (same.p_above(0.4), same.p_above(0.5), same.p_below(0.6)) == (0, 1, 0)
    assert (one.p_above(0.4), one.p_below(0.6)) == (1, 1)


def test_holm():  # the example of Holm's method in Wikipedia, "Holm-Bonferroni method"
    assert judge.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def tried(arm, short, whole=None):
    rows = [row(judge.SHORT_RUN, arm, loss, learning_rate=rate) for rate, loss in short.items()]
    return rows + [row(judge.WHOLE_RUN, arm, loss, learning_rate=rate) for rate, loss in (whole or {}).items()]


def test_a_rate_at_the_edge_is_not_tuned():
    short = {3e-4: 2.0, 1e-3: 1.0, 3e-3: 1.5}
    assert judge.why_not_tuned(tried("rope", short), "rope") == ""
    assert "edge" in judge.why_not_tuned(tried("rope", short | {3e-4: 0.5}), "rope")
    assert "edge" in judge.why_not_tuned(tried("rope", short, {1e-3: 1.0, 3e-3: 1.1}), "rope")  # no lower whole run
    assert judge.why_not_tuned(tried("rope", short, {3e-4: 2.0, 1e-3: 1.0}), "rope") == ""
    assert "edge" in judge.why_not_tuned(tried("rope", short, {1e-3: None, 3e-3: 1.1}), "rope")  # 1e-3 diverged
    assert "fewer" in judge.why_not_tuned(tried("rope", {1e-3: 1.0}), "rope")


RULE = judge.Rule("x", "X", (judge.Contrast("loss", "a", "b", below=-0.02, opposite=0),))


def paired(differences):
    return [row("loss", arm, d, seed) for seed, value in differences.items() for arm, d in (("a", value), ("b", 0.0))]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ({1: -0.10, 2: -0.11, 3: -0.12}, "supported"),
        ({1: 0.10, 2: 0.11, 3: 0.12}, "refuted"),
        ({1: -0.010, 2: -0.0101, 3: -0.0102}, "inconclusive"),  # smaller than the margin: neither
        ({1: -0.10, 2: -0.11}, "inconclusive"),  # seed 3 is missing
        ({}, "inconclusive"),
    ],
)
def test_verdicts(differences, verdict):
    assert judge.judge(RULE, paired(differences), [1, 2, 3])["verdict"] == verdict


@pytest.mark.parametrize(
    ("kind", "value", "verdict"),
    [
        ("proof", 1e-12, "proved"),
        ("proof", 1.0, "refuted"),
        ("proof", 1e-9, "inconclusive"),
        ("count", 1e-12, "supported"),
        ("count", 1.0, "inconclusive"),
    ],
)
def test_exact_values(kind, value, verdict):
    rule = judge.Rule("x", "X", (judge.Contrast("error", "rope", below=1e-9),), kind=kind)
    assert judge.judge(rule, [row("error", "rope", value)], [1])["verdict"] == verdict
    assert judge.judge(rule, [])["verdict"] == "inconclusive"


def test_a_bound_of_times_refutes_nothing():
    rule = judge.Rule("x", "X", (judge.Contrast("ratio", "dense", above=10),), kind="count")
    for values, verdict in (([11, 11.5, 12], "supported"), ([7, 7.1, 7.2], "inconclusive")):
        rows = [row("ratio", "dense", value, seed) for seed, value in enumerate(values)]
        assert judge.judge(rule, rows)["verdict"] == verdict


def test_two_values_of_a_seed_are_an_error():
    with pytest.raises(ValueError, match=r"\[judge\] loss of a must have one value of seed 1, got two"):
        judge.judge(RULE, paired({1: 0.1}) + paired({1: 0.2}))
