"""The report on made-up results: every number is there as it is in the files, and nothing is loaded."""

import re
from pathlib import Path

import numpy as np
import pytest

from report_support import Elements, make, result, staged, write_result
from roformer_cpp.figures import FIGURES
from roformer_cpp.report import pictures, results, units, words


def test_numbers_are_those_of_the_files(made):
    html, markdown, _ = made
    tables = Elements(html).tables
    table = result("order", "small")["table"]
    heading = ["encoding", "loss, nats per token", "lowest", "highest"]
    ours = [heading, *([value if value is not None else "–" for value in row] for row in table["rows"])]
    assert ours in tables
    assert "| rope | 3.012 | 2.9 | 3.1 |" in markdown
    assert r"| a\|b &lt;i&gt; | 1.5e-13 | – | 123,456 |" in markdown


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
    assert "Of 5 claims:" in markdown and "| supported | 1 | C-01 | every part of its rule holds" in markdown
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


def without_pictures(html):
    return re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)


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
    """docs/report has the numbers of experiments/results; at least 20 claims were judged."""
    root = Path(__file__).resolve().parents[2]
    committed, recorded = root / "docs" / "report", root / "experiments" / "results"
    html, markdown = make(recorded, tmp_path)
    assert markdown == (committed / "report.md").read_text(encoding="utf-8")
    # The pictures' paths depend on the version of matplotlib; all else is compared.
    assert without_pictures(html) == without_pictures((committed / "report.html").read_text(encoding="utf-8"))
    reproduction = results.read(recorded)
    assert {result.scale for result in reproduction.results} == {"any", "small"}
    judged = {claim for result in reproduction.results for claim in result.verdicts if claim.startswith("C-")}
    assert len(judged) >= 20
