"""The report on made-up results: every number is there as it is in the files, nothing is loaded, errors name files."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from roformer_cpp.figures import FIGURES
from roformer_cpp.report import __main__ as command
from roformer_cpp.report import pictures, results, words

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
    ("R-TAB-4", "Stages", "arXiv 2104.09864 Table 4", ["stage", "loss"], [[1, 1.73]]),
]


def result(name, scale, **changes):
    return {
        "name": name,
        "spec": "X-01",
        "title": f"About {name}, a < b & c",
        "claims": ["C-01", "C-02"],
        "expected": "f(x) < 1e-12 & <script>alert(1)</script>",
        "scale": scale,
        "seeds": [1, 2],
        "settings": {"seeds": [1, 2]},
        "table": {
            "columns": ["encoding", "loss", "lowest", "highest"],
            "rows": [["rope", 3.0123456789, 2.9, 3.1], ["a|b <i>", 1.5e-13, None, 123456]],
        },
        "series": [
            {"name": f"{arm}, seed {seed}", "x": [10.0, 20.0, 30.0], "y": [3.0 * seed, 2.0, 1.0]}
            for arm in ("rope", "learned")
            for seed in (1, 2)
        ],
        "maps": [
            {
                "name": "Where <heads> look",
                "x_name": "offset",
                "value_name": "attention",
                "x": [-1, 0, 1],
                "y": ["head 1", "head 2"],
                "values": [[0.1, 0.5, 0.0], [0.2, 0.3, 1e-9]],
            }
        ],
        "verdicts": {"C-01": "confirmed", "C-02": "not confirmed at this size"},
        "figures": {"C-01": "1.7e-15 & less", "C-02": "0.25"},
        "seconds": 12.5,
        "command": "roformer reproduce all --output <here>",
        "machine": {"cpu": "A & B", "cores": 2},
        **changes,
    }


def write_result(directory, content):
    folder = directory / content["scale"] / content["name"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "result.json"


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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(report.html, report.md, their folder)"""
    folder = tmp_path_factory.mktemp("report")
    return *make(write_results(folder / "reproduced"), folder), folder


class Elements(HTMLParser):
    """Elements in order, the text of each table's cells, and the text of all."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.ids, self.tables, self.text, self.open = [], [], [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "data":
            self.tables[-1][-1][-1] = json.loads(dict(attributes)["value"])
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.text += data
        in_cell = ("td" in self.open or "th" in self.open) and "data" not in self.open
        if in_cell:
            self.tables[-1][-1][-1] += data


def test_numbers_are_those_of_the_files(made):
    html, markdown, _ = made
    tables = Elements(html).tables
    table = result("order", "small")["table"]
    ours = [table["columns"], *([value if value is not None else "–" for value in row] for row in table["rows"])]
    assert tables[1] == ours  # after that of the claims
    for _, _, _, columns, rows in TABLES:
        assert [columns, *rows] in tables
    assert "| rope | 3.012 | 2.9 | 3.1 |" in markdown
    assert r"| a\|b &lt;i&gt; | 1.5e-13 | – | 123,456 |" in markdown


def test_the_paper_table_that_a_claim_names_is_beside_the_experiment(made):
    html, markdown, _ = made
    stages = [["stage", "loss"], [1, 1.73]]
    assert Elements(html).tables.count(stages) == 3  # with both experiments of C-02, and with the papers' tables
    section = markdown[markdown.index("### About order") : markdown.index("### About training")]
    assert "In the paper: Stages" in section and "Translation" not in section


def test_verdicts(made):
    html, markdown, _ = made
    claims = Elements(html).tables[0][1:]
    assert [row[2] for row in claims] == [
        "confirmed order",
        "not confirmed at this size ordersmoke run training",  # a line each
        "only stated",
        "no experiment",
        "not run absent",
    ]
    counts = "confirmed 1; not confirmed at this size and smoke run 1; only stated 1; no experiment 1; not run 1"
    assert f"Of 5 claims: {counts}." in markdown and f"Of 5 claims: {counts}." in html
    for text in (
        "C-01 **confirmed**: 1.7e-15 &amp; less.",
        "seeds 1 2, 12 s",
        "roformer reproduce all --output &lt;here",
    ):
        assert text in markdown


def test_smoke_runs_are_marked(made, directory, tmp_path):
    html, markdown, _ = made
    warning = "1 of 2 results are smoke runs (scale tiny)"
    assert warning in html and f"> **{warning}" in markdown
    assert html.count("<strong>smoke run</strong>") == markdown.count("· **smoke run**") == 1
    small = result("training", "small", claims=["C-02"], verdicts={"C-02": "confirmed"}, figures={"C-02": "0.5"})
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


def test_an_output_that_cannot_be_made_is_named(directory, tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert "out" in fails(directory, tmp_path, capsys)


def test_without_matplotlib_it_says_what_to_install(directory, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "matplotlib must be installed" in fails(directory, tmp_path, capsys)


def test_the_committed_report_is_that_of_its_results(tmp_path):
    """docs/report/report.md has the numbers of docs/report/results; at least 20 claims were judged."""
    committed = Path(__file__).resolve().parents[2] / "docs" / "report"
    _, markdown = make(committed / "results", tmp_path)
    assert markdown == (committed / "report.md").read_text(encoding="utf-8")
    reproduction = results.read(committed / "results")
    assert {result.scale for result in reproduction.results} == {"any", "small"}
    judged = {claim for result in reproduction.results for claim in result.verdicts if claim.startswith("C-")}
    assert len(judged) >= 20
