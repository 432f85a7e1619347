"""Damaged files, and what cannot be made: errors name the file."""

import json
import re
import sys

import pytest

from report_support import (
    result,
    without_drawing,
    write_result,
)
from roformer_cpp import report
from roformer_cpp.report import __main__ as command
from roformer_cpp.report import results

CHECKS = [{"text": "a", "role": "part", "mean": 0.1, "low": 0.0, "high": 0.2, "outcome": "holds"}]
FAILS = {"text": "b", "role": "precondition", "outcome": "fails"}


def fails(directory, tmp_path, capsys):
    assert command.main([str(directory), "--output", str(tmp_path / "out")]) == 1
    return capsys.readouterr().err


def test_a_directory_without_register_is_named(tmp_path, capsys):
    error = fails(tmp_path / "nowhere", tmp_path, capsys)
    assert "the output of `roformer reproduce`, got" in error and "nowhere without register.json" in error


def test_a_directory_without_results_is_named(directory, tmp_path, capsys):
    for path in directory.glob("*/*/result.json"):
        path.unlink()
    assert "must hold a result, got none. Hint: roformer reproduce all" in fails(directory, tmp_path, capsys)


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"name": ', "must be JSON, got Expecting value"),
        ("[1]", "must be a JSON object, got [1]"),
        ("{}", "must have the key verdicts"),
        (b"\xff\xfe", "must be UTF-8"),
    ],
)
def test_a_broken_file_is_named(directory, tmp_path, capsys, content, message):
    path = directory / "small" / "order" / "result.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = fails(directory, tmp_path, capsys)
    assert str(path) in error and message in error


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seconds": "long"}, 'seconds of {path} must be int or float, got "long"'),
        ({"name": "other"}, "{path} must be of its folders' names, got small/other"),
        ({"table": {"columns": ["a", "b"], "rows": [[1]]}}, "a row of table of {path} must have 2 cells, got [1]"),
        ({"series": [{"name": "a", "x": [1], "y": []}]}, "series[0] of {path} must have as many y as x, got 0 and 1"),
        ({"series": [{"name": "a", "x": ["1"], "y": [1]}]}, 'x of series[0] of {path} must be numbers, got ["1"]'),
        (
            {"series": [{"name": "a", "x": [1], "y": ["1"]}]},
            'y of series[0] of {path} must be numbers or null, got ["1"]',
        ),
        (
            {"maps": [dict(result("order", "small")["maps"][0], values=[[1, 2, 3]])]},
            "values of maps[0] of {path} must be 2 rows of 3",
        ),
        (
            {"maps": [dict(result("order", "small")["maps"][0], values=[[1, 2, -3]] * 2)]},
            "values of maps[0] of {path} must be at least 0, got -3",
        ),
        (
            {"maps": [dict(result("order", "small")["maps"][0], x=[], values=[[]] * 2)]},
            "x of maps[0] of {path} must hold numbers, got none",
        ),
        (
            {"series": [{"name": "a", "x": [1], "y": [1e308]}]},
            "y of series[0] of {path} must be numbers or null, got [1e+308]",
        ),
        ({"series": [{"name": "a", "x": [10**400], "y": [1]}]}, "x of series[0] of {path} must be numbers"),
        (
            {"table": {"columns": ["a"], "rows": [[[1]]]}},
            "cells of table of {path} must be numbers, texts or null, got [[1]]",
        ),
        ({"verdicts": {"C-01": None}}, 'verdicts of {path} must hold texts, got {{"C-01": null}}'),
        ({"claims": ["C-01", 2]}, 'claims of {path} must hold texts, got ["C-01", 2]'),
        ({"checks": {"C-01": [*CHECKS, FAILS]}}, "C-01 of {path} must be inconclusive by its checks, got supported"),
        ({"checks": {"C-02": CHECKS}}, "C-02 of {path} must be supported by its checks, got inconclusive"),
        (
            {"checks": {"C-01": [FAILS | {"role": "first"}]}},
            "C-01 of {path} must have checks with the role precondition or part, got first",
        ),
        ({"checks": {"C-01": [CHECKS[0] | {"unit": "nats"}]}}, "unit of C-01[0] of "),
        ({"rules": {"C-01": {}}}, "{path} must have checks of C-01, got none"),
        ({"training": [{"arm": "a", "seed": 1, "parts": [{"threads": [1]}]}]}, "threads of parts[0] of "),
        ({"checks": {"C-09": []}}, "{path} must have a verdict where it has checks, got none of C-09"),
        ({"figures": {}}, "{path} must have figures for each verdict, got verdicts of C-01, C-02 and figures of none"),
    ],
)
def test_what_is_wrong_in_a_result_is_named(directory, tmp_path, capsys, change, message):
    path = directory / "small" / "order" / "result.json"
    path.write_text(json.dumps(result("order", "small") | change), encoding="utf-8")
    assert "[report] " + message.format(path=path) in fails(directory, tmp_path, capsys)


def test_a_broken_register_is_named(directory, tmp_path, capsys):
    (directory / "register.json").write_text('{"claims": [{"id": "C-01"}], "tables": []}', encoding="utf-8")
    assert "claims[0] of " in fails(directory, tmp_path, capsys)


@pytest.mark.parametrize("content", ["[" * 100000, "1" * 5000])
def test_json_without_end_is_named(directory, content):
    (directory / "register.json").write_text(content)
    with pytest.raises(ValueError, match=r"register\.json must be JSON"):
        results.read(directory)


PARTS = [{"command": "roformer", "commit": "abc", "seconds": 1.5}]
# By experiment: the names of the columns that the pages read.
READ = {
    "staged-pretraining": ["stage", "trained on", "measured on", "loss", "accuracy"],
    "long-texts": ["model", "tokens", "accuracy", "bag of words"],
    "fine-tuning": ["task", "encoding", "mean", "bag of words"],
    "atlas": ["encoding", "parameters", "loss at 128 tokens, nats per token"],
    "synthetic": ["encoding", "task", "accuracy at 64 tokens", "can do it"],
}


def whole(name):
    """A result with all that the pages read, and as little of each as there can be."""
    names = {"atlas": "loss at 128 tokens, nats per token", "synthetic": "count, accuracy at 64 tokens"}
    return result(
        name,
        "small",
        settings={"design": {"arms": ["rope:base=2"], "search": {}}},
        table={"columns": READ[name], "rows": [[1, *range(1, len(READ[name]))], ["rope"] * len(READ[name])]},
        series=[{"name": "a, seed 1", "x": [1], "y": [2]}],
        maps=[],
        revision=1,
        kind="training",
        measures=[{"name": names.get(name, "a"), "arm": "rope", "seed": 1, "value": 0.5}],
        rates=[
            {"arm": "rope", "rates": [1.0, 2.0], "losses": [1.0, None], "whole": {"rates": [1.0], "losses": [None]}}
        ],
        checks={"C-01": CHECKS},
        rules={"X-20": {"parts": [{"above": 0.95}], "preconditions": [{"above": 0.1}] * 2}},
        recorded={"C-01": "0.5"},
        training=[{"arm": "rope", "seed": 1, "parts": PARTS}],
    )


def whole_register():
    sizes = {"R-TAB-1": 2, "R-TAB-2": 2, "R-TAB-3": 2, "R-TAB-4": 6, "R-TAB-5": 3}
    claim = {"id": "C-01", "text": "a", "source": "b", "status": "testable", "note": "", "experiments": ["atlas"]}
    return {
        "claims": [claim],
        "tables": [
            {"id": id, "title": "a", "source": "b", "columns": ["c"] * size, "rows": [list(range(size))]}
            for id, size in sizes.items()
        ],
        "experiments": [{"name": "atlas", "kind": "training", "revision": 1, "settings": {"small": {}}, "rules": {}}],
        "rule_changes": [{"claims": ["C-01"], "change": "a", "reason": "b"}],
        "method": "a\n\nb <c>",
        "encodings": [{"name": "rope", "summary": "a", "source": "b"}],
    }


def damaged(value):
    """The value with one of its parts, or itself, lost or of another type; each in turn."""
    yield from (other for other in (None, True, "x", -1, 10**400, [], {}, [None]) if type(other) is not type(value))
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        less = value.copy()
        part = less.pop(key)
        yield less
        for other in damaged(part):
            changed = value.copy()
            changed[key] = other
            yield changed


def is_named(work, path):
    """Whether a ValueError of one line, if there is any, names the file."""
    try:
        work()
    except ValueError as error:
        return path.name in str(error) and len(str(error).splitlines()) == 1
    return True


def render_all(directory):
    without_drawing(directory)
    report.atlas.render(results.read(directory))


@pytest.mark.parametrize("name", [*READ, "register"])
def test_any_damage_of_a_file_is_named_or_does_no_harm(tmp_path, name):
    (tmp_path / "register.json").write_text(json.dumps(whole_register()))
    path = write_result(tmp_path, whole("atlas" if name == "register" else name))
    if name == "register":
        path = tmp_path / "register.json"
    render_all(tmp_path)
    content = json.loads(path.read_text())
    for changed in damaged(content):
        path.write_text(json.dumps(changed))
        assert is_named(lambda: render_all(tmp_path), path), changed
    text = json.dumps(content)
    for end in range(0, len(text), 7):
        path.write_text(text[:end])
        with pytest.raises(ValueError, match=f"{re.escape(str(path))} must be"):
            results.read(tmp_path)


def test_an_output_that_cannot_be_made_is_named(directory, tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert "out" in fails(directory, tmp_path, capsys)


def test_without_matplotlib_it_says_what_to_install(directory, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "matplotlib must be installed" in fails(directory, tmp_path, capsys)
