"""The paper's tables and Figure 3 beside made-up numbers."""

import json

from report_support import (
    NO_COMMIT,
    Elements,
    define,
    make,
    result,
    staged,
    without_drawing,
    write_result,
)
from roformer_cpp.report import beside, results


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


UNKNOWN = "the commit of a program that ran it is not known"


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
