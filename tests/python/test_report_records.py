"""Results that are stale or not counted, and who trained their runs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from report_support import NO_COMMIT, PROCESS, RULE, Elements, define, make, result, without_drawing, write_result


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({}, None),
        ({"revision": 2}, "the experiment is now at revision 2, this is of 1"),
        ({"settings": {"small": {"seeds": [1]}}}, "the design has changed since"),
        ({"settings": {"tiny": {"seeds": [1]}}}, None),
        ({"rules": {"C-02": RULE | {"tuned": ["rope"]}}}, "a rule has changed since it was judged"),
    ],
)
def test_a_result_of_another_design_or_rule_is_stale(directory, tmp_path, changes, reason):
    write_result(directory, result("order", "small", rules={"C-02": RULE}))
    define(directory, **changes)
    html, markdown = make(directory, tmp_path / "out")
    assert ("Stale" in html) == ("**Stale**" in markdown) == (reason is not None)
    assert reason is None or (reason in html and reason in markdown)


def test_a_stale_verdict_is_marked_and_not_counted(directory):
    write_result(directory, result("order", "small", verdicts={"C-01": "supported"}, figures={"C-01": "0.5"}))
    define(directory, settings={"small": {"seeds": [1]}})
    html, markdown = without_drawing(directory)
    counts, claims = (table[1:] for table in Elements(html).tables[:2])
    counted = [row[0] for row in counts]
    assert "stale" in counted and "supported" not in counted
    assert claims[0][2] == "supported (stale) order" and "good" not in html[html.index("<body>") :]
    assert "| stale | 1 | C-01 | run with, or judged by, an earlier design" in markdown
    assert "**supported (stale)** order" in markdown and "C-01 **supported (stale)**: 0.5." in markdown


def test_a_smoke_run_is_not_stale_too(directory):
    (directory / "small" / "order" / "result.json").unlink()
    write_result(directory, result("order", "tiny", verdicts={"C-01": "smoke run"}, figures={"C-01": "0.5"}))
    define(directory, revision=2)
    counts, claims = (table[1:] for table in Elements(without_drawing(directory)[0]).tables[:2])
    assert "smoke run" in [row[0] for row in counts] and claims[0][2] == "smoke run order"


KNOWN = [{"arm": "rope", "seed": 1, "parts": [PROCESS]}]
DIRTY = "it was run by a program whose files no commit has"
JUDGED = "it was judged by a program whose files no commit has"
JUDGED_BY_UNKNOWN = "the commit of the program that judged it is not known"
UNKNOWN = "the commit of a program that ran it is not known"
UNRECORDED = "which programs trained its runs was not recorded"


def rates_tried_by(*processes):
    return [{"arm": "rope", "rates": [1e-3], "losses": [2.0], "training": [KNOWN[0] | {"parts": list(processes)}]}]


@pytest.mark.parametrize(
    "changes, reasons",
    [
        ({}, []),
        ({"kind": "training", "training": KNOWN}, []),
        ({"machine": PROCESS | {"commit": "abc-dirty"}}, [DIRTY]),
        ({"training": [KNOWN[0] | {"parts": [PROCESS, PROCESS | {"commit": "abc-dirty"}]}]}, [DIRTY]),
        ({"judged_by": "abc-dirty"}, [JUDGED]),
        ({"judged_by": "abc"}, []),
        ({"judged_by": "unknown"}, [JUDGED_BY_UNKNOWN]),
        ({"machine": NO_COMMIT}, [UNKNOWN]),
        ({"machine": PROCESS | {"commit": "unknown"}}, [UNKNOWN]),
        ({"training": [KNOWN[0] | {"parts": [NO_COMMIT]}]}, [UNKNOWN]),
        ({"kind": "training"}, [UNRECORDED]),
        ({"kind": "training", "training": [*KNOWN, {"arm": "rope", "seed": 2}]}, [UNRECORDED]),
        ({"kind": "training", "machine": {"commit": "unknown-dirty"}}, [DIRTY, UNRECORDED]),
        ({"kind": "measurement"}, []),
        ({"kind": "training", "training": KNOWN, "rates": rates_tried_by(PROCESS)}, []),
        ({"kind": "training", "training": KNOWN, "rates": rates_tried_by(PROCESS | {"commit": "abc-dirty"})}, [DIRTY]),
        ({"kind": "training", "training": KNOWN, "rates": rates_tried_by()}, [UNRECORDED]),
        ({"kind": "training", "training": [], "rates": rates_tried_by(PROCESS)}, [UNRECORDED]),
    ],
)
def test_a_result_of_no_known_commit_is_not_counted(directory, changes, reasons):
    write_result(directory, result("order", "small", **changes))
    html, markdown = without_drawing(directory)
    for reason in (DIRTY, JUDGED, JUDGED_BY_UNKNOWN, UNKNOWN, UNRECORDED):
        assert (reason in html) == (f"**Not counted**: {reason}." in markdown) == (reason in reasons)
    assert ("C-01 **not counted**" in markdown) == bool(reasons)
    assert ("supported</span>" in html) == (not reasons)


def test_runs_for_rates_without_records_are_said(directory):
    for rates, runs in (([1e-4, 1e-3], []), ([1e-4], []), ([1e-4, 1e-3], KNOWN)):
        tried = {"arm": "rope", "rates": rates, "losses": [2.0] * len(rates), "training": runs}
        write_result(directory, result("order", "small", rates=[tried]))
        html, markdown = without_drawing(directory)
        said = "not every run that chose a learning rate has a record of its own."
        assert (said in html) == (f"**Not recorded**: {said}" in markdown) == (len(rates) > 1 and not runs)


def test_a_stale_verdict_does_not_stand_beside_one_that_counts(directory):
    """Of the claim's two experiments one is proved, the other stale."""
    write_result(directory, result("order", "small", verdicts={"C-02": "proved"}, figures={"C-02": "0"}))
    stale = result("training", "small", claims=["C-02"], verdicts={"C-02": "supported"}, figures={"C-02": "1"})
    (directory / "tiny" / "training" / "result.json").unlink()
    write_result(directory, stale)
    define(directory, name="training", revision=2)
    counts, claims = (table[1:] for table in Elements(without_drawing(directory)[0]).tables[:2])
    counted = [row[0] for row in counts]
    assert "proved" in counted and "stale" not in counted
    assert claims[1][2] == "proved ordersupported (stale) training"


def test_the_process_that_trained_is_shown(directory, tmp_path):
    parts = [[PROCESS | {"seconds": 60.0}], [PROCESS | {"seconds": 6.0}, PROCESS | {"commit": "def", "seconds": 30.0}]]
    training = [{"arm": "rope", "seed": i, "seconds": 1.0, "parts": part} for i, part in enumerate(parts)]
    short = [{"arm": "rope", "seed": 9, "learning_rate": rate, "parts": [parts[0][0]]} for rate in (1e-4, 1e-3)]
    rates = [{"arm": "rope", "rates": [1e-4, 1e-3], "losses": [2.0, None], "training": short}]
    write_result(directory, result("order", "small", kind="training", training=training, rates=rates))
    html, markdown = make(directory, tmp_path / "out")
    for text in (markdown, html):
        assert (
            "1 run and 2 runs for learning rates and 1 part of runs that others ended trained in 3 minutes by" in text
        )
        assert "commit abc, cpu A, cores 2, threads 1" in text and "1 run trained in 30 s by" in text
        assert "4 minutes" in text  # 3 × 60 s, 6 s and 30 s
        assert "commit def" in text


def test_checks_and_what_was_recorded_before_are_shown(directory, tmp_path):
    check = {"text": "rope < none", "role": "part", "mean": -0.5, "low": -0.61, "high": -0.39}
    check |= {"p": 0.006173, "p_holm": 0.012346, "outcome": "holds"}
    missing = {"text": "rates", "role": "precondition", "outcome": "no values"}
    fraction = {"text": "rope, accuracy: above 50 %", "role": "part", "mean": 0.5625, "low": 0.5, "high": 0.625}
    fraction |= {"unit": "%", "outcome": "not shown"}
    tuned = {"text": "the rate of rope", "role": "precondition", "tuned": "rope", "outcome": "holds"}
    rates = {"arm": "rope", "rates": [1e-4, 1e-3, 1e-2], "losses": [6.5, 6.25, None]}
    rates |= {"whole": {"rates": [1e-4, 1e-3], "losses": [5.5, 5.75]}, "training": KNOWN}
    change = {"checks": {"C-01": [check, missing, fraction, tuned]}, "recorded": {"C-01": "by 0.5 & more"}}
    change |= {"verdicts": {"C-01": "inconclusive"}, "figures": {"C-01": "0"}, "rates": [rates]}
    write_result(directory, result("order", "small", **change))
    html, markdown = make(directory, tmp_path / "out")
    assert "| part | rope &lt; none | -0.5 \\[-0.61, -0.39\\] | 0.012 | holds |" in markdown
    assert "| precondition | rates | – | – | no values |" in markdown
    assert "| part | rope, accuracy: above 50 % | 56.25 \\[50, 62.5\\] % | – | not shown |" in markdown
    found = "0.0001; short runs: 0.0001 6.5, 0.001 6.25, 0.01 diverged; whole runs: 0.0001 5.5, 0.001 5.75"
    assert f"| precondition | the rate of rope | {found} | – | holds |" in markdown and found in html
    assert "Recorded before these rules, C-01: by 0.5 &amp; more." in markdown and "by 0.5 &amp; more" in html
    cells = ["part", "rope < none", "-0.5 [-0.61, -0.39]", "0.012", "holds"]
    assert any(cells in table for table in Elements(html).tables)


def test_the_time_of_a_killed_process_is_not_made_up(directory):
    """A process that was killed before it had logged anything has no seconds."""
    parts = [PROCESS | {"seconds": 0}, PROCESS | {"seconds": 60.0}]
    write_result(directory, result("order", "small", kind="training", training=[KNOWN[0] | {"parts": parts}]))
    html, markdown = without_drawing(directory)
    assert all("1 run trained in at least 60 s by" in text and ", at least 60 s" in text for text in (html, markdown))


def test_the_committed_results_are_of_commits_of_this_history():
    """A commit that was changed afterwards is one that nobody has: its results cannot be made again."""
    root = Path(__file__).resolve().parents[2]
    git = ["git", "-c", "safe.directory=*", "-C", str(root)]

    def output(*words):
        return subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout

    if not shutil.which("git") or not (root / ".git").exists():
        pytest.skip("not a checkout with git: commits of results are not looked for")
    if output("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone: it lacks commits of results")
    history = {commit[:12] for commit in output("rev-list", "HEAD").split()}
    named = {}
    for path in sorted((root / "experiments" / "results").rglob("*.json")):
        for commit in re.findall(r'"(?:commit|judged_by)": *"([^"]*)"', path.read_text(encoding="utf-8")):
            named.setdefault(commit, path)
    assert len(named) > 5
    assert {commit: str(path) for commit, path in named.items() if commit not in history} == {}
