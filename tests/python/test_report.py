"""The report on made-up results: every number is there as it is in the files, nothing is loaded, errors name files."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from report_support import Elements, result, write_result
from roformer_cpp import report
from roformer_cpp.figures import FIGURES
from roformer_cpp.report import __main__ as command
from roformer_cpp.report import beside, pictures, results, units, words

CLAIMS = [
    # id, status, source, experiments
    ("C-01", "testable", "paper section 1", ["order"]),
    ("C-02", "qualified", "paper Table 4", ["order", "training"]),
    ("C-03", "published only", "paper Table 1", []),
    ("C-04", "experiment", "a page", []),
    ("C-05", "experiment", "a page", ["absent"]),
]
TABLES = [
    ("R-TAB-1", "Translation", "arXiv 2104.09864 Table 1", ["model", "BLEU"], [["Transformer-base", 27.3]]),
    (
        "R-TAB-4",
        "Stages",
        "arXiv 2104.09864 Table 4",
        ["stage", "max length", "batch", "steps", "loss", "accuracy"],
        [[1, 512, 256, 200000, 1.73, 65.0], [2, 1536, 256, 12500, 1.61, 66.8]],
    ),
]


def write_results(reproduced):
    """Two experiments, one of them a smoke run."""
    smoke = {"C-02": "smoke run"}
    write_result(reproduced, result("training", "tiny", claims=["C-02"], verdicts=smoke, figures={"C-02": "0.5"}))
    write_result(reproduced, result("order", "small"))
    register = {
        "claims": [
            {"id": id, "text": f"Claim <{id}>", "source": source, "status": status, "note": "", "experiments": names}
            for id, status, source, names in CLAIMS
        ],
        "tables": [
            {"id": id, "title": title, "source": source, "columns": columns, "rows": rows}
            for id, title, source, columns, rows in TABLES
        ],
    }
    (reproduced / "register.json").write_text(json.dumps(register), encoding="utf-8")
    return reproduced


@pytest.fixture
def directory(tmp_path):
    return write_results(tmp_path / "reproduced")


def make(directory, output):
    assert command.main([str(directory), "--output", str(output)]) == 0
    return (output / "report.html").read_text(encoding="utf-8"), (output / "report.md").read_text(encoding="utf-8")


def without_drawing(directory):
    """(report.html, report.md) without pictures."""
    found = results.read(directory)
    drawn = {result.name: [] for result in found.results}
    return report.page.render(found, drawn, [], directory), report.markdown.render(found, drawn, [])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(report.html, report.md, their folder)"""
    folder = tmp_path_factory.mktemp("report")
    return *make(write_results(folder / "reproduced"), folder), folder


def test_numbers_are_those_of_the_files(made):
    html, markdown, _ = made
    tables = Elements(html).tables
    table = result("order", "small")["table"]
    heading = ["encoding", "loss, nats per token", "lowest", "highest"]
    ours = [heading, *([value if value is not None else "–" for value in row] for row in table["rows"])]
    assert ours in tables
    assert "| rope | 3.012 | 2.9 | 3.1 |" in markdown
    assert r"| a\|b &lt;i&gt; | 1.5e-13 | – | 123,456 |" in markdown


def staged(**changes):
    """A result of staged pretraining: two stages, measured on two lengths."""
    columns = ["stage", "trained on", "batch", "steps", "measured on", "loss", "accuracy", "lowest", "highest"]
    rows = [
        [1, 128, 64, 300, 64, 4.5, 0.24, 0.235, 0.245],
        [1, 128, 64, 300, 128, 4.4, 0.25, 0.24, 0.26],
        [2, 384, 21, 60, 384, 4.2, 0.265, 0.26, 0.27],
    ]
    return result("staged-pretraining", "small", table={"columns": columns, "rows": rows}, **changes)


def test_the_papers_numbers_are_beside_ours(directory, tmp_path):
    write_result(directory, staged())
    html, markdown = make(directory, tmp_path / "out")
    tables = Elements(html).tables
    heading = ["model", "paper, BLEU", "here, BLEU", "lowest", "highest"]
    assert [heading, ["Transformer-base", 27.3, "–", "–", "–"]] in tables
    (stages,) = [table for table in tables if table[0][:2] == ["stage", "paper, tokens"]]
    # The row of the length that the stage was trained on; accuracy in per cent, as in the paper.
    assert stages[1] == [1, 512, 256, 200000, 1.73, 65.0, 128, 64, 300, 4.4, 25.0]
    assert stages[2] == [2, 1536, 256, 12500, 1.61, 66.8, 384, 21, 60, 4.2, 26.5]
    assert "Figure 3" in markdown and "Figure 3" in html


def test_without_our_number_there_is_a_dash(made):
    _, markdown, _ = made
    assert "| 1 | 512 | 256 | 200,000 | 1.7 | 65.0 | – | – | – | – | – |" in markdown.replace("1.73", "1.7")


def test_a_smoke_run_is_not_put_beside_the_paper(directory, tmp_path):
    assert "staged-pretraining has not been run." in make(directory, tmp_path / "without")[1]
    write_result(directory, staged() | {"scale": "tiny"})
    html, markdown = make(directory, tmp_path / "out")
    assert "| 1 | 512 | 256 | 200,000 | 1.73 | 65.0 | – |" in markdown
    assert all("Of staged-pretraining there is a smoke run alone." in text for text in (html, markdown))


BLEU = {"sinusoidal": [34.0, 36.5, 34.5], "rope": [37.0, 35.0, 36.0]}
DRAWN = "rope less sinusoidal, paired bootstrap over lines: "


def translated(interval=(-0.25, 2.25), **changes):
    """A result of translation: a row for each seed, and the interval over lines."""
    columns = ["encoding", "learning rate", "seed", "held-out loss", "BLEU"]
    rows = [[arm, 0.005, seed, 2.0, bleu] for arm, values in BLEU.items() for seed, bleu in enumerate(values, 1)]
    ends = zip(("low", "high"), interval, strict=False)
    rows += [[DRAWN + end, None, None, None, bleu] for end, bleu in ends]
    measures = [
        {"name": name, "arm": arm, "seed": seed, "value": bleu - less}
        for name, less in (("BLEU above the least of the scale", 33), ("BLEU", 0))
        for arm, values in BLEU.items()
        for seed, bleu in enumerate(values, 1)
    ]
    table = {"columns": columns, "rows": rows}
    return result("translation", "small", **{"table": table, "measures": measures, "seeds": [1, 2, 3]} | changes)


def add_roformer(directory):
    """Table 1 of the register with both of the paper's rows."""
    path = directory / "register.json"
    register = json.loads(path.read_text(encoding="utf-8"))
    register["tables"][0]["rows"].append(["RoFormer", 27.5])
    path.write_text(json.dumps(register), encoding="utf-8")


def test_translation_has_the_mean_of_all_seeds_and_their_range(directory):
    add_roformer(directory)
    write_result(directory, translated())
    html, markdown = without_drawing(directory)
    ours = [["Transformer-base", 27.3, 35.0, 34.0, 36.5], ["RoFormer", 27.5, 36.0, 35.0, 37.0]]
    assert any(table[1:] == ours for table in Elements(html).tables)
    assert "| Transformer-base | 27.3 | 35 | 34 | 36.5 |" in markdown
    said = (
        "RoPE less sinusoids: 1 BLEU. In a paired bootstrap over the lines of the test set, with these trained models, "
        "95 % of the differences are between -0.25 and 2.25."
    )
    assert said in html and said in markdown and "judged over seeds" not in markdown
    part = {"text": "rope", "role": "part", "mean": 1.0, "low": -0.125, "high": 3.5, "outcome": "not shown"}
    judged = {"checks": {"C-19": [part]}, "verdicts": {"C-19": "inconclusive"}, "figures": {"C-19": "1"}}
    write_result(directory, translated(claims=["C-19"], **judged))
    said = "the difference is from -0.125 to 3.5 BLEU, so the claim is inconclusive."
    assert all(said in text for text in without_drawing(directory))


def test_without_the_interval_over_lines_nothing_is_said_of_it(directory):
    write_result(directory, translated(interval=()))
    assert "paired bootstrap" not in "".join(without_drawing(directory))


def test_fractions_are_shown_in_per_cent(directory, tmp_path):
    write_result(directory, staged())
    html, markdown = make(directory, tmp_path / "out")
    section = markdown[markdown.index("### About staged-pretraining") :]
    assert "| measured on, tokens | loss, nats per token | accuracy, % | lowest, % | highest, % |" in section
    assert "| 1 | 128 | 64 | 300 | 64 | 4.5 | 24.0 | 23.5 | 24.5 |" in section
    assert '<data value="0.24">24.0</data>' in html  # all digits of the file


def test_parts_of_a_data_set_have_no_unit():
    columns = ["task", "measured on", "mean"]
    assert units.headings("fine-tuning", columns) == ["task", "measured on", "mean, %"]
    assert units.headings("staged-pretraining", columns[:2]) == ["task", "measured on, tokens"]


def test_verdicts(made):
    html, markdown, _ = made
    counts, claims = (table[1:] for table in Elements(html).tables[:2])
    assert [row[:2] for row in counts] == [
        ["supported", "1"],
        ["not testable here", "1"],
        ["not run", "1"],
        ["no experiment", "1"],
        ["inconclusive and smoke run", "1"],
    ]
    assert [row[2] for row in claims] == [
        "supported order",
        "inconclusive ordersmoke run training",  # a line each
        "not testable here",
        "no experiment",
        "not run absent",
    ]
    assert "Of 5 claims:" in markdown and "| supported | 1 | every part of its rule holds" in markdown
    for text in (
        "C-01 **supported**: 1.7e-15 &amp; less.",
        "seeds 1 2, 12 s",
        "roformer reproduce all --output &lt;here",
    ):
        assert text in markdown


def test_smoke_runs_are_marked(made, directory, tmp_path):
    html, markdown, _ = made
    warning = "1 of 2 results are smoke runs (scale tiny)"
    assert warning in html and f"> **{warning}" in markdown
    assert html.count("<strong>smoke run</strong>") == markdown.count("· **smoke run**") == 1
    small = result("training", "small", claims=["C-02"], verdicts={"C-02": "supported"}, figures={"C-02": "0.5"})
    write_result(directory, small)  # takes the place of the smoke run
    html, markdown = make(directory, tmp_path / "out")
    assert "smoke run" not in html + markdown


def test_texts_are_escaped(made):
    html, markdown, _ = made
    page_read = Elements(html)
    assert "f(x) < 1e-12 & <script>alert(1)</script>" in page_read.text
    assert "About order, a < b & c" in page_read.text and "Claim <C-01>" in page_read.text
    assert not {"script", "i", "here"} & {tag for tag, _ in page_read.elements}
    assert "<script" not in markdown and "<i>" not in markdown


def test_the_page_loads_nothing(made):
    html, markdown, folder = made
    read = Elements(html)
    for tag, attributes in read.elements:
        assert tag not in ("link", "script", "img", "iframe", "object", "embed")
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "data", "srcset", "poster"):
                assert value.startswith(("#", "data:")), (tag, name, value)
    assert "@import" not in html and not re.search(r"url\((?!#)", html)
    assert len(set(read.ids)) == len(read.ids)
    used = re.findall(r'(?:href="|url\()#([^")]+)', html)
    assert used and set(used) <= set(read.ids)
    for file in re.findall(r"\]\(([^)]+)\)", markdown):
        assert (folder / file).is_file()
    assert "pictures/order-curves.svg" in markdown and "pictures/order-spread.svg" in markdown


@pytest.mark.parametrize(
    "name", ['x" onload="alert(1)', "a' b><script>alert(1)<", r"back\1slash\g<0>", ") [x](javascript:y"]
)
def test_a_folder_that_is_named_to_do_harm(directory, tmp_path, name):
    name = name.replace("/", "")
    write_result(directory, result(name, "small"))
    plain = Elements(make(directory, tmp_path / "out")[0])
    for tag, attributes in plain.elements:
        assert tag != "script" and not [key for key in attributes if key.startswith("on")], (tag, attributes)
    assert len(set(plain.ids)) == len(plain.ids) and name in plain.ids
    for value in plain.ids:
        assert value == name or re.fullmatch(r"[\w.-]+", value), value
    markdown = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert len(re.findall(r"\]\(pictures/[\w.%-]+\.svg\)", markdown)) == len(re.findall(r"(?<!\\)\]\(", markdown))


def test_the_same_files_give_the_same_bytes(made, directory, tmp_path):
    make(directory, tmp_path / "again")
    names = sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*.*"))
    assert len(names) > len(FIGURES)
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (made[2] / name).read_bytes()


def test_every_picture_of_the_theory_has_a_title():
    assert pictures._THEORY.keys() == FIGURES.keys()


def test_unknown_keys_are_left_alone(directory, tmp_path):
    write_result(directory, result("order", "small"))
    without = make(directory, tmp_path / "without")
    write_result(directory, result("order", "small", weather="fine"))
    assert make(directory, tmp_path / "out") == without


def test_curves_of_any_form_are_drawn(directory, tmp_path):
    """Series with other steps for each seed, with one point, with values that are not numbers, long, empty."""
    series = [
        {"name": "a, seed 1", "x": [1, 2], "y": [1.0, 2.0]},
        {"name": "a, seed 2", "x": [1, 3], "y": [1.0, None]},
        {"name": "b", "x": [5], "y": [1.0]},
        {"name": "c", "x": list(range(1000)), "y": [0.5] * 1000},
        {"name": "d", "x": [], "y": []},
        {"name": "e", "x": [-9, -5, -1], "y": [1, 2, 3]},
    ]
    table = {"columns": ["a", "b", "lowest", "highest"], "rows": [["x", "some", "few", "many"]]}
    write_result(directory, result("order", "small", series=series, table=table))
    html, _ = make(directory, tmp_path / "out")
    assert "Points are means of up to 4 neighbours." in html


def test_without_series_and_rows_nothing_is_drawn(directory, tmp_path):
    table = {"columns": ["a", "b", "lowest", "highest"], "rows": []}
    write_result(directory, result("order", "small", series=[], maps=[], table=table))
    make(directory, tmp_path / "out")
    assert not list((tmp_path / "out" / "pictures").glob("order*"))


def test_heat_maps_are_drawn(directory, tmp_path):
    blank = {"name": "empty", "x_name": "", "value_name": "", "x": [0, 1], "y": ["only"], "values": [[0, 0]]}
    write_result(directory, result("order", "small", maps=[*result("order", "small")["maps"], blank]))
    html, markdown = make(directory, tmp_path / "out")
    assert "Where &lt;heads&gt; look" in html and "Where" in markdown and "attention, on a logarithmic scale" in html
    assert len(list((tmp_path / "out" / "pictures").glob("order-map-*.svg"))) == 2


@pytest.mark.parametrize(
    "value, shown",
    [(None, "–"), (True, "yes"), (12345, "12,345"), (0.123456, "0.1235"), (1e-13, "1e-13"), (128000.5, "128,000")],
)
def test_number(value, shown):
    assert words.number(value) == shown


def test_where_a_column_has_fractions_whole_numbers_have_a_zero():
    rows = [["a", 65.0, 10.0, 1], ["b", 66.8, 100000.0, None]]
    table = results.Table(["name", "accuracy", "base", "stage"], rows)
    assert words.texts(table) == [["a", "65.0", "10", "1"], ["b", "66.8", "100,000", "–"]]


def test_rows_are_named_by_what_makes_them_differ():
    table = results.Table(["stage", "batch", "length", "loss"], [[1, 8, 128, 3.0], [1, 8, 256, 2.0], [2, 8, 128, 1.0]])
    assert pictures._row_names(table, 3) == ("stage, length", ["1, 128", "1, 256", "2, 128"])
    assert pictures._row_names(results.Table(["model"], [["rope"]]), 1) == ("model", ["rope"])


def test_means_of_neighbours():
    x, values, neighbours = pictures._thinned(np.arange(601), np.arange(601)[None])
    assert neighbours == 3 and len(x) == 201
    assert x[0] == values[0, 0] == 1 and x[-1] == values[0, -1] == 600


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


CHECKS = [{"text": "a", "role": "part", "mean": 0.1, "low": 0.0, "high": 0.2, "outcome": "holds"}]
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
        settings={"design": {"arms": ["rope:base=2"]}},
        table={"columns": READ[name], "rows": [[1, *range(1, len(READ[name]))], ["rope"] * len(READ[name])]},
        series=[{"name": "a, seed 1", "x": [1], "y": [2]}],
        maps=[],
        revision=1,
        kind="training",
        measures=[{"name": names.get(name, "a"), "arm": "rope", "seed": 1, "value": 0.5}],
        rates=[{"arm": "rope", "rates": [1.0, 2.0], "losses": [1.0, None]}],
        checks={"C-01": CHECKS},
        rules={"X-20": {"parts": [{"above": 0.95}] * 2, "preconditions": [{"above": 0.1}]}},
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
        "method": "a",
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


def without_pictures(html):
    return re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)


RULE = {"parts": [], "preconditions": [], "tuned": []}
PROCESS = {"command": "roformer reproduce training", "commit": "abc", "cpu": "A", "cores": 2, "threads": 1}


def define(directory, **changes):
    """Adds the experiment `order` to the register."""
    path = directory / "register.json"
    register = json.loads(path.read_text(encoding="utf-8"))
    entry = {"name": "order", "revision": 1, "settings": {"small": {"seeds": [1, 2]}}, "rules": {"C-02": RULE}}
    register["experiments"] = [entry | changes]
    path.write_text(json.dumps(register), encoding="utf-8")


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
    assert "| stale | 1 | run with, or judged by, an earlier design" in markdown
    assert "**supported (stale)** order" in markdown and "C-01 **supported (stale)**: 0.5." in markdown


def test_a_smoke_run_is_not_stale_too(directory):
    (directory / "small" / "order" / "result.json").unlink()
    write_result(directory, result("order", "tiny", verdicts={"C-01": "smoke run"}, figures={"C-01": "0.5"}))
    define(directory, revision=2)
    counts, claims = (table[1:] for table in Elements(without_drawing(directory)[0]).tables[:2])
    assert "smoke run" in [row[0] for row in counts] and claims[0][2] == "smoke run order"


def test_stale_numbers_beside_the_papers_are_marked(directory):
    write_result(directory, staged())
    write_result(directory, result("convergence", "small"))
    define(directory, name="staged-pretraining", revision=1, settings={}, rules={})
    assert "stale result" not in "".join(without_drawing(directory))
    assert beside.figure_3(results.read(directory)) == [("left", "convergence")]
    define(directory, name="staged-pretraining", revision=2, settings={}, rules={})
    said = "Our numbers are of a stale result of staged-pretraining: the experiment is now at revision 2, this is of 1."
    html, markdown = without_drawing(directory)
    assert html.count(said) == markdown.count(said) == 1
    assert markdown.index("(arXiv 2104.09864 Table 4)") < markdown.index(said) < markdown.index("Figure 3")
    define(directory, name="convergence", revision=2)
    assert beside.figure_3(results.read(directory)) == [("left, of a stale result", "convergence")]


KNOWN = [{"arm": "rope", "seed": 1, "parts": [PROCESS]}]
NO_COMMIT = {key: value for key, value in PROCESS.items() if key != "commit"}
DIRTY = "it was run by a program whose files no commit has"
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
    for reason in (DIRTY, UNKNOWN, UNRECORDED):
        assert (reason in html) == (f"**Not counted**: {reason}." in markdown) == (reason in reasons)
    assert ("C-01 **not counted**" in markdown) == bool(reasons)
    assert ("supported</span>" in html) == (not reasons)


def test_numbers_of_no_known_commit_are_not_beside_the_papers(directory):
    write_result(directory, staged(machine=NO_COMMIT))
    write_result(directory, result("convergence", "small", machine=NO_COMMIT))
    html, markdown = without_drawing(directory)
    assert "| 1 | 512 | 256 | 200,000 | 1.73 | 65.0 | – |" in markdown
    for said in (
        f"Our result of staged-pretraining is not counted: {UNKNOWN}.",
        f"Left: Our result of convergence is not counted: {UNKNOWN}.",
        "Right: linear-language-model has not been run.",
    ):
        assert said in html and said in markdown


def test_runs_for_rates_without_records_are_said(directory):
    tried = {"arm": "rope", "rates": [1e-4], "losses": [2.0]}
    for settings in ({"search": {}}, {"design": {"search": {}}}, {}):
        write_result(directory, result("order", "small", settings=settings, rates=[tried]))
        html, markdown = without_drawing(directory)
        said = "the runs that chose its learning rates have no records."
        assert (said in html) == (f"**Not recorded**: {said}" in markdown) == bool(settings)


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
    parts = [[PROCESS | {"seconds": 60.0}], [PROCESS | {"commit": "def", "seconds": 30.0}]]
    training = [{"arm": "rope", "seed": i, "seconds": 1.0, "parts": part} for i, part in enumerate(parts)]
    short = [{"arm": "rope", "seed": 9, "learning_rate": rate, "parts": [parts[0][0]]} for rate in (1e-4, 1e-3)]
    rates = [{"arm": "rope", "rates": [1e-4, 1e-3], "losses": [2.0, None], "training": short}]
    write_result(directory, result("order", "small", kind="training", training=training, rates=rates))
    html, markdown = make(directory, tmp_path / "out")
    for text in (markdown, html):
        assert "1 run and 2 runs for learning rates trained in 3 minutes by" in text
        assert "commit abc, cpu A, cores 2, threads 1" in text and "1 run trained in 30 s by" in text
        assert "4 minutes" in text  # 3 × 60 s and 30 s
        assert "commit def" in text


def test_checks_and_what_was_recorded_before_are_shown(directory, tmp_path):
    check = {"text": "rope < none", "role": "part", "mean": -0.5, "low": -0.61, "high": -0.39, "outcome": "holds"}
    missing = {"text": "rates", "role": "precondition", "outcome": "no values"}
    change = {"checks": {"C-01": [check, missing]}, "recorded": {"C-01": "by 0.5 & more"}}
    write_result(directory, result("order", "small", **change))
    html, markdown = make(directory, tmp_path / "out")
    assert "| part | rope &lt; none | -0.5 \\[-0.61, -0.39\\] | holds |" in markdown
    assert "| precondition | rates | – | no values |" in markdown
    assert "Recorded before these rules, C-01: by 0.5 &amp; more." in markdown and "by 0.5 &amp; more" in html
    cells = ["part", "rope < none", "-0.5 [-0.61, -0.39]", "holds"]
    assert any(cells in table for table in Elements(html).tables)


def test_an_axis_shows_negative_values_too(directory, tmp_path):
    """Frequencies are drawn on a logarithmic axis; trained ones may be negative."""
    series = [{"name": "frequencies", "x": [0, 1, 2], "y": [1.0, 0.01, -0.5]}]
    write_result(directory, result("trained-frequencies", "small", series=series))
    make(directory, tmp_path / "out")
    svg = (tmp_path / "out" / "pictures" / "trained-frequencies-curves.svg").read_text(encoding="utf-8")
    texts = " ".join(re.findall(r">([^<]+)<", svg))
    assert "\u2212" in texts  # a tick below 0


def test_tasks_have_axes_of_their_own(tmp_path):
    columns = ["task", "metric", "measured on", "encoding", "mean", "lowest", "highest"]
    rows = [["A", "f1", "test", "rope", 0.8, 0.7, 0.9], ["B", "spearman", "test", "rope", -0.2, -0.3, -0.1]]
    pictures._draw_spreads("fine-tuning", results.Table(columns, rows), [4], tmp_path / "spread.svg")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "spread.svg").read_text(encoding="utf-8"))
    assert "A, f1, mean, %" in texts and "B, spearman, mean, %" in texts
    assert "90" in texts or "90.0" in texts  # A's axis; B's has numbers below 0
    assert any(text.startswith("\u2212") for text in texts)


def test_the_committed_report_is_that_of_its_results(tmp_path):
    """docs/report has the numbers of docs/report/results; at least 20 claims were judged."""
    committed = Path(__file__).resolve().parents[2] / "docs" / "report"
    html, markdown = make(committed / "results", tmp_path)
    assert markdown == (committed / "report.md").read_text(encoding="utf-8")
    # The pictures' paths depend on the version of matplotlib; all else is compared.
    assert without_pictures(html) == without_pictures((committed / "report.html").read_text(encoding="utf-8"))
    reproduction = results.read(committed / "results")
    assert {result.scale for result in reproduction.results} == {"any", "small"}
    judged = {claim for result in reproduction.results for claim in result.verdicts if claim.startswith("C-")}
    assert len(judged) >= 20
