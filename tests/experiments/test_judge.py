"""experiments/judge.py: recorded rows get the effects, intervals and verdicts that the earlier program in C++ found."""

import json
import math

import pytest
from scipy import stats

from experiments import judge, recorded, run

RESULTS = {path.stem: path for path in recorded.RESULTS.glob("[as]*/*.parquet")}
MENDED = ("C-17", "X-03", "C-30")  # rules whose preconditions or bounds that program had otherwise
CHECKED = {name: about["recorded"] for name, path in RESULTS.items() if "recorded" in (about := run.read_about(path))}


@pytest.mark.parametrize("name", CHECKED)
def test_recorded_results_are_judged_as_they_were(name):
    rows, about = run.read(RESULTS[name])
    count = max(check.get("seeds", 0) for each in CHECKED[name].values() for check in each["checks"])
    seeds = about["settings"]["seeds"][:count]  # further ones were added since
    rows = [row for row in rows if row["seed"] in (None, *seeds)]
    judged = run.verdicts(name, rows, about | {"settings": {"seeds": seeds}})
    assert judged.keys() == CHECKED[name].keys()
    for claim, each in CHECKED[name].items():
        assert claim in MENDED or judged[claim]["verdict"] == each["verdict"]
        for role in ("part",) if claim in MENDED else ("part", "precondition"):
            sides = [[c for c in of["checks"] if c["role"] == role] for of in (judged[claim], each)]
            for side in sides:  # texts of values differ
                side.sort(key=lambda check: (check.get("mean", 0), check["text"]))
            ours, theirs = sides
            assert [check["outcome"] for check in ours] == [check["outcome"] for check in theirs]
            for key in ("seeds", "mean", "low", "high", "p", "p_holm"):
                found, expected = ([check.get(key, math.nan) for check in side] for side in sides)
                assert found == pytest.approx(expected, rel=1e-9, nan_ok=True), key


def test_rules_and_claims_are_those_of_the_register():
    assert len(CHECKED) > 3
    register = json.loads((recorded.RESULTS / "register.json").read_text())
    for claim in register["claims"]:
        ours = {key: text.strip() for key, text in judge.claims()[claim["id"]].items()}
        assert ours == {key: claim[key] for key in ("text", "source", "status", "note") if claim[key]}
    theirs = {(each["name"], claim): rule for each in register["experiments"] for claim, rule in each["rules"].items()}
    trained = [rule for rule in judge.rules() if rule.kind == "training" and rule.experiment in RESULTS]
    ours = {(rule.experiment, rule.claim): rule for rule in trained}
    assert set(ours) == set(theirs)
    for key, rule in ours.items():
        assert list(rule.tuned) == theirs[key]["tuned"]
        for role in ("parts",) if key[1] in MENDED else ("parts", "preconditions"):
            expected = [judge.Contrast(**contrast) for contrast in theirs[key][role]]
            assert sorted(getattr(rule, role), key=repr) == sorted(expected, key=repr), key


def test_estimates_without_spread():
    same, one = judge.estimate([0.5, 0.5]), judge.estimate([0.5])
    assert (same.p_above(0.4), same.p_above(0.5), same.p_below(0.6)) == (0, 1, 0)  # without spread: certain
    assert (one.p_above(0.4), one.p_below(0.6)) == (1, 1)


def test_holm():  # the example of Holm's method in Wikipedia, "Holm-Bonferroni method"
    assert judge.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


SHORT = {3e-4: 2.0, 1e-3: 1.0, 3e-3: 1.5}


@pytest.mark.parametrize(
    ("short", "whole", "why"),
    [
        (SHORT, {}, ""),
        (SHORT | {3e-4: 0.5}, {}, "the best rate of rope, 0.0003, is at the edge of those tried"),
        (SHORT, {1e-3: 1.0, 3e-3: 1.1}, "the best rate of rope, 0.001, is at the edge of those tried"),
        (SHORT, {3e-4: 2.0, 1e-3: 1.0}, ""),
        (SHORT, {1e-3: None, 3e-3: 1.1}, "the best rate of rope, 0.003, is at the edge of those tried"),  # diverged
        ({1e-3: 1.0}, {}, "1 learning rates were tried for rope, fewer than 3"),
    ],
)
def test_tuned_rates(short, whole, why):
    tried = [run.row(judge.SHORT_RUN, "rope", loss, learning_rate=rate) for rate, loss in short.items()]
    tried += [run.row(judge.WHOLE_RUN, "rope", loss, learning_rate=rate) for rate, loss in whole.items()]
    assert judge.why_not_tuned(tried, "rope") == why


RULE = judge.Rule("x", "X", (judge.Contrast("loss", "a", "b", below=-0.02, opposite=0),))
EQUAL = judge.Rule("x", "X", (judge.Contrast("loss", "a", "b", above=-0.02, below=0.02),))
PROOF, COUNT = (
    judge.Rule("x", "X", (judge.Contrast("loss", "a", below=0.1),), kind=kind) for kind in ("proof", "count")
)


def above_by(p):
    """Three differences whose mean is above 0.02 by that one-sided p."""
    middle = 0.02 + stats.t.isf(p, 2) / math.sqrt(3)
    return [middle - 1, middle, middle + 1]


@pytest.mark.parametrize(
    ("rule", "values", "verdict"),
    [
        (RULE, [-0.10, -0.11, -0.12], "supported"),
        (RULE, [0.10, 0.11, 0.12], "refuted"),
        (RULE, [-0.010, -0.0101, -0.0102], "inconclusive"),  # smaller than the margin: neither
        (RULE, [-0.10, -0.11], "inconclusive"),  # seed 3 is missing
        (RULE, [], "inconclusive"),
        (EQUAL, above_by(0.02), "inconclusive"),  # either end may fail: shown with 0.04
        (EQUAL, above_by(0.01), "refuted"),
        (COUNT, [0.01, 0.011, 0.012], "supported"),
        (COUNT, [1.0, 1.1, 1.2], "inconclusive"),  # a bound of ours refutes nothing
        (PROOF, 1e-3, "proved"),
        (PROOF, 1.0, "refuted"),
        (PROOF, 0.1, "inconclusive"),
        (COUNT, 1e-3, "supported"),
        (COUNT, 1.0, "inconclusive"),
    ],
)
def test_verdicts(rule, values, verdict):
    """Lists: by seed, the other arm's are 0; a number: an exact value."""
    by_seed = enumerate(values, 1) if isinstance(values, list) else [(None, values)]
    arms = {"a": 1, "b": 0} if isinstance(values, list) else {"a": 1}
    rows = [run.row("loss", arm, of * value, seed=seed) for seed, value in by_seed for arm, of in arms.items()]
    assert judge.judge(rule, rows, [1, 2, 3])["verdict"] == verdict


def test_two_values_of_a_seed_are_an_error():
    with pytest.raises(ValueError, match=r"\[judge\] loss of a must have one value of seed 1, got two"):
        judge.values_of(2 * [run.row("loss", "a", 0.1, seed=1)], "loss", "a")
