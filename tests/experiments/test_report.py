"""The report: docs/report.md is that of the recorded results, and a user gets one of the runs in his own folders."""

import re
import shutil
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from experiments import __main__ as command
from experiments import pages, recorded, report, run

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "report.md"


def lines_of(page, first_cell):
    return [line for line in page.splitlines() if line.startswith(f"| {first_cell} |")]


def cells_of(path):
    """The texts of a CSV file, and its numbers."""
    cells = re.split("[,\n]", path.read_text())
    is_number = re.compile(r"-?\d").match
    return [cell for cell in cells if not is_number(cell)], [float(cell) for cell in cells if is_number(cell)]


def copied(folder, *experiments, scale=None, **changes):
    """A folder with these recorded results, whose metadata are changed."""
    for name in experiments:
        (path,) = recorded.RESULTS.glob(f"[as]*/{name}.parquet")
        rows, about = run.read(path)
        about |= {"scale": scale or about["scale"], **changes}
        target = folder / about["scale"] / path.name
        run._save(target, rows, about)
    return folder


def test_the_committed_report_is_that_of_its_results(tmp_path):
    results = tmp_path / "experiments" / "results"  # as far from the page as in the repository
    shutil.copytree(recorded.RESULTS, results, ignore=shutil.ignore_patterns("runs", "atlas.csv"))
    report.write([results], tmp_path / "docs")
    assert (tmp_path / "docs" / "report.md").read_text() == REPORT.read_text()
    texts, numbers = cells_of(results / "atlas.csv")
    assert (texts, pytest.approx(numbers, rel=1e-9, abs=1e-12)) == cells_of(recorded.RESULTS / "atlas.csv")
    drawn = {path.name for path in (tmp_path / "docs" / "assets" / "report").iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs" / "assets" / "report").iterdir()}


def test_a_run_of_ones_own(tmp_path, monkeypatch):
    """From the command that runs experiments to the page, which says what is missing; later with recorded results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["experiments", "decay", "attention-time", "--scale", "tiny"])
    command.main(["decay", "attention-time", "--scale", "tiny", "--output", "runs"])
    command.main(["report", "--results", "runs"])
    page = Path("runs/report.md").read_text()
    _, about = run.read(Path("runs/any/decay.parquet"))
    (line,) = lines_of(page, r"[decay](any/decay.parquet)" + (" †" if "-dirty" in about["commit"] else ""))
    assert line.split(" | ")[-1].startswith(f"{about['date'][:10]}, {about['commit']}, ")
    assert "**smoke run** †" in lines_of(page, "C-09")[0] and "only shows that the program works" in page
    assert "0.72: head size 64" in lines_of(page, "C-04")[0] and lines_of(page, "C-04")[0].endswith("| – |")
    assert "**not run**" in lines_of(page, "C-16")[0]
    assert lines_of(page, "MRPC") == ["| MRPC | 88.9 | 89.5 | – | – | – |"]
    assert "`python -m experiments fine-tuning --scale small --output runs --data data` adds our numbers" in page
    assert re.search(r"^Not run yet: permutation, .*, translation\.$", page, re.MULTILINE)
    assert [path.name for path in Path("runs/assets/report").iterdir()] == ["figure2.svg"]
    # With the recorded ones: of decay the newer, of attention-time that of the larger scale.
    found = recorded.read(["runs", recorded.RESULTS])
    assert (found.get("decay").path, found.get("attention-time").scale) == (Path("runs/any/decay.parquet"), "small")
    not_run = {"learned-longer", "performer-language-model", "glue-small", "glue-large"}
    assert run.experiments().keys() - found.results.keys() == not_run


@pytest.mark.parametrize(
    ("dates", "scales", "chosen"),
    [
        (("2026-01-01", "2026-01-02"), ("small", "small"), 1),
        (("2026-01-02", "2026-01-01"), ("small", "small"), 0),
        (("2026-01-01", "2026-01-02"), ("small", "tiny"), 0),
        (("2026-01-02", "2026-01-01"), ("small", "paper"), 1),
    ],
)
def test_which_result_decides(tmp_path, dates, scales, chosen):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, date, scale in zip(folders, dates, scales, strict=True):
        copied(folder, "translation", date=date, scale=scale)
    found = recorded.read(folders).results["translation"]
    assert found.path.is_relative_to(folders[chosen]) and found.scale == scales[chosen]


def test_tables_of_results_of_ones_own(tmp_path):
    """Numbers are shown, with the scale; sentences about the recorded results are not."""
    results = copied(tmp_path, "translation", "staged-pretraining", scale="paper", commit="0123-dirty")
    report.write([results])
    page = (tmp_path / "report.md").read_text()
    assert "39.76 (39.05 to 40.29)" in page and page.count("The results here are of scale paper.") == 2
    assert "**supported** †" in lines_of(page, "C-19")[0] and lines_of(page, "C-19")[0].endswith("| – |")
    assert "† marks" in page and "translation: made by a program with uncommitted changes" in page


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b"PAR1"), r"decay.parquet must be a result of python -m experiments"),
        (lambda path: parquet.write_table(pyarrow.table({"arm": ["a"]}), path), r"decay.parquet must be a result"),
        (lambda path: path.unlink(), r"must hold results, got none. Hint: python -m experiments all"),
    ],
)
def test_damaged_results_are_named(tmp_path, spoil, message):
    copied(tmp_path, "decay")
    spoil(tmp_path / "any" / "decay.parquet")
    with pytest.raises(SystemExit, match=message):
        command.main(["report", "--results", str(tmp_path)])


def test_the_page_of_an_experiment():
    """The site has it in place of the rows."""
    result = recorded.read_result(recorded.RESULTS / "small/translation.parquet")
    page = pages.render(result.path)
    assert f"```sh\n{result.about['command']}\n```" in page and f"# {result.question.split('?')[0]}"[:20] in page
    for claim, judged in result.verdicts.items():
        assert f"**{claim}: {judged['verdict']}.**" in page
    assert "| rope | short runs | 0.00125: 2.223, 0.0025: 1.985, 0.005: 1.958, 0.01: 2.164 |" in page
    assert "| part | rope less sinusoidal, BLEU: above 0 | 1.22 [0.52, 1.92] | 0.0042 | holds |" in page
    assert "| BLEU | rope | 39.76 | 39.05 | 40.29 | 5 |" in page and "commit 6d0f3d7c3c22: 57 minutes" in page
