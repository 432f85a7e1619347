"""`roformer reproduce --judge`: stored results are judged by the rules; intervals and p are scipy's."""

import json

import numpy as np
import pytest
from scipy import stats

import tolerances as tol
from cli_support import refused, results

LOSS = "held-out loss, nats per token"
STEPS = [f"steps to the loss that both reach, of those of {arm}" for arm in ("learned", "sinusoidal")]
SEEDS = (1, 2, 3)
SINUSOIDS = "sinusoidal:scale_embedding=true"
# Made-up values by seed of the experiment `convergence`.
ARMS = {
    "none": [6.02, 6.01, 5.98],
    "learned": [5.51, 5.49, 5.53],
    SINUSOIDS: [5.60, 5.63, 5.58],
    "rope": [5.02, 4.97, 5.04],
}


def convergence(**changes):
    measures = [
        {"name": LOSS, "arm": arm, "seed": seed, "value": value}
        for arm, values in ARMS.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]
    measures += [
        {"name": name, "arm": "rope", "seed": seed, "value": value}
        for name in STEPS
        for seed, value in zip(SEEDS, (0.41, 0.44, 0.39), strict=True)
    ]
    return {
        "name": "convergence",
        "scale": "small",
        "revision": 4,
        "seeds": list(SEEDS),
        "settings": {},
        "seconds": 1.0,
        "verdicts": {},
        "figures": {},
        "measures": measures,
        "rates": [{"arm": arm, "rates": [3e-4, 1e-3, 3e-3], "losses": [6.0, 5.0, 5.5]} for arm in ARMS],
        "training": [],
        **changes,
    }


def judged(folder, result):
    path = folder / "small" / result["name"] / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    (folder / "register.json").write_text("{}")
    (line,) = results("reproduce", "--judge", "--output", folder)
    found = json.loads(path.read_text())
    assert line["verdicts"] == found["verdicts"] and line["kept"] is True
    return found


def parts(result, claim):
    return [check for check in result["checks"][claim] if check["role"] == "part"]


def test_differences_are_paired_and_intervals_are_scipys(tmp_path):
    result = judged(tmp_path, convergence())
    assert result["verdicts"] == {"C-17": "supported", "X-03": "supported"}
    p = []
    for check, other in zip(parts(result, "X-03"), ("learned", SINUSOIDS), strict=True):
        difference = np.subtract(ARMS["rope"], ARMS[other])
        test = stats.ttest_1samp(difference, -0.02, alternative="less")
        low, high = stats.ttest_rel(ARMS["rope"], ARMS[other]).confidence_interval(0.95)
        assert check["mean"] == pytest.approx(difference.mean(), rel=tol.STATISTICS_RTOL)
        assert (check["low"], check["high"]) == pytest.approx((low, high), rel=tol.STATISTICS_RTOL)
        assert check["p"] == pytest.approx(test.pvalue, rel=tol.STATISTICS_RTOL)
        assert check["seeds"] == 3 and check["outcome"] == "holds"
        p.append(test.pvalue)
    holm = [min(1, 2 * min(p)), max(2 * min(p), max(p))]  # of two
    assert sorted(check["p_holm"] for check in parts(result, "X-03")) == pytest.approx(holm, rel=tol.STATISTICS_RTOL)


def test_without_tuned_rates_it_is_inconclusive(tmp_path):
    edge = [{"arm": arm, "rates": [3e-4, 1e-3, 3e-3], "losses": [6.0, 5.5, 5.0]} for arm in ARMS]
    for rates, words in ([], "the learning rate of none was not tuned"), (edge, "at the edge of those tried"):
        result = judged(tmp_path, convergence(rates=rates))
        assert set(result["verdicts"].values()) == {"inconclusive"} and words in result["figures"]["C-17"]


def test_a_rate_without_a_finite_loss_is_read(tmp_path):
    rates = [{"arm": arm, "rates": [3e-4, 1e-3, 3e-3], "losses": [6.0, 5.5, None]} for arm in ARMS]
    assert judged(tmp_path, convergence(rates=rates))["verdicts"]["X-03"] == "supported"


def test_a_smaller_difference_than_the_margin_is_no_opposite(tmp_path):
    def with_rope(difference):
        values = [value + difference for value in (0.0, 0.001, -0.001)]
        equal = {"none": [6.0] * 3, "learned": [5.5] * 3, SINUSOIDS: [5.5] * 3, "rope": [5.5 + v for v in values]}
        measures = [
            m | {"value": equal[m["arm"]][m["seed"] - 1]} if m["name"] == LOSS else m for m in convergence()["measures"]
        ]
        return judged(tmp_path, convergence(measures=measures))["verdicts"]["X-03"]

    assert [with_rope(difference) for difference in (-0.04, -0.01, 0.01)] == ["supported", "inconclusive", "refuted"]


def test_a_missing_seed_decides_nothing(tmp_path):
    measures = [m | {"value": None} if (m["arm"], m["seed"]) == ("rope", 3) else m for m in convergence()["measures"]]
    result = judged(tmp_path, convergence(measures=measures))
    assert set(result["verdicts"].values()) == {"inconclusive"}
    assert "rope has no held-out loss, nats per token with seed 3" in result["figures"]["X-03"]


def test_the_rules_of_the_run_stay(tmp_path):
    rules = {"C-17": {"parts": []}}
    result = judged(tmp_path, convergence(rules=rules))
    assert result["rules_when_run"] == rules != result["rules"]
    assert judged(tmp_path, result)["rules_when_run"] == rules


def test_who_judged_is_kept(tmp_path, numeric):
    """The commit of the program that changed the verdicts; one with changed files is replaced by the next without."""
    commit = numeric["norm"]["machine"]["commit"]  # of this program; unknown where it was built without git
    is_clean = commit != "unknown" and not commit.endswith("-dirty")
    first = judged(tmp_path, convergence())
    assert first["judged_by"] == commit
    assert judged(tmp_path, first) == first
    own = judged(tmp_path, first | {"judged_by": "abc"})  # it changes nothing, so the one before has judged
    assert own["judged_by"] == "abc"
    changed = judged(tmp_path, first | {"judged_by": "abc-dirty"})
    assert changed["judged_by"] == (commit if is_clean else "abc-dirty")
    unknown = judged(tmp_path, first | {"judged_by": "unknown"})
    assert unknown["judged_by"] == (commit if is_clean else "unknown")
    again = judged(tmp_path, first | {"judged_by": "abc", "verdicts": {}})
    assert again == first
    # One that was judged by later rules before programs said who judged.
    unsigned = {key: value for key, value in first.items() if key != "judged_by"} | {"rules_when_run": {}}
    assert judged(tmp_path, unsigned).get("judged_by") == (None if commit.endswith("-dirty") else commit)


@pytest.mark.parametrize(
    "damage",
    [
        {"measures": "x"},
        {"measures": [{"name": LOSS, "arm": "rope", "seed": 1}]},
        {"rates": [{"arm": "rope", "rates": [1]}]},
        {"revision": "2"},
        {"seeds": "1"},
        [],
    ],
)
def test_a_damaged_result_is_named(tmp_path, damage):
    path = tmp_path / "small" / "convergence" / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(convergence(**damage) if damage else damage))
    (tmp_path / "register.json").write_text("{}")
    message = refused("reproduce", "--judge", "--output", tmp_path)
    assert f"{path} must be a result of this program" in message


def test_models_no_better_than_without_an_encoding_decide_nothing(tmp_path):
    measures = [m | {"value": m["value"] + 0.5 * (m["arm"] == "learned")} for m in convergence()["measures"]]
    result = judged(tmp_path, convergence(measures=measures))
    assert result["verdicts"]["X-03"] == "inconclusive"
    assert "a precondition is not shown: learned less none" in result["figures"]["X-03"]


def test_a_result_without_values_by_seed_keeps_what_it_said(tmp_path):
    old = convergence(verdicts={"C-17": "confirmed"}, figures={"C-17": "lower by 0.7 with 3 of 3 seeds"})
    for key in ("measures", "rates", "training", "revision"):
        del old[key]
    result = judged(tmp_path, old)
    assert result["verdicts"]["C-17"] == "inconclusive"
    assert result["recorded"] == {"C-17": "lower by 0.7 with 3 of 3 seeds"}
    assert judged(tmp_path, result)["recorded"] == result["recorded"]


def test_the_register_has_designs_and_rules(tmp_path):
    judged(tmp_path, convergence())
    register = json.loads((tmp_path / "register.json").read_text())
    by_name = {experiment["name"]: experiment for experiment in register["experiments"]}
    rules = by_name["convergence"]["rules"]
    assert rules["X-03"]["texts"]["parts"][0] == f"rope less learned, {LOSS}: below -0.02 (the opposite: above 0)"
    assert set(by_name["convergence"]["settings"]) == {"small", "paper"}
    design = by_name["convergence"]["settings"]["small"]["design"]
    assert design["search"]["rates"] == [3e-4, 1e-3, 3e-3] and design["run"]["stages"][0]["steps"] == 10000
    assert register["rule_changes"] and "Student's t" in register["method"]


def test_names_are_refused(tmp_path):
    judged(tmp_path, convergence())
    message = refused("reproduce", "convergence", "--judge", "--output", tmp_path, code=2)
    assert '--judge takes no names, got "convergence"' in message


def test_a_directory_without_results_is_refused(tmp_path):
    assert "without register.json" in refused("reproduce", "--judge", "--output", tmp_path)
