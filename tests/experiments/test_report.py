"""docs/report.md is written from experiments/results, and says what they say."""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "experiments" / "results"
REPORT = ROOT / "docs" / "report.md"


def write_report(results, output):
    command = [sys.executable, "-m", "experiments", "report", "--results", results, "--output", output]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def result_of(experiment, root=RECORDED):
    (path,) = root.glob(f"*/{experiment}/result.json")
    return path, json.loads(path.read_text(encoding="utf-8"))


def some_results(folder, *experiments):
    """A copy of the register and of these results."""
    folder.mkdir()
    shutil.copy(RECORDED / "register.json", folder)
    for name in experiments:
        path, _ = result_of(name)
        target = folder / path.relative_to(RECORDED)
        target.parent.mkdir(parents=True)
        shutil.copy(path, target)
    return folder


def rows_of(page, first_cell):
    return [line for line in page.splitlines() if line.startswith(f"| {first_cell} |")]


def test_the_committed_report_is_that_of_its_results(tmp_path):
    results = tmp_path / "experiments" / "results"  # as far from the page as in the repository
    shutil.copytree(RECORDED, results, ignore=shutil.ignore_patterns("runs", "atlas.csv"))
    done = write_report(results, tmp_path / "docs")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "docs" / "report.md").read_text() == REPORT.read_text()
    assert (results / "atlas.csv").read_text() == (RECORDED / "atlas.csv").read_text()
    drawn = {path.name for path in (tmp_path / "docs" / "assets" / "report").iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs" / "assets" / "report").iterdir()}


def test_the_report_is_for_three_minutes():
    page = REPORT.read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 400 and len(page.split()) <= 8000
    for table in range(1, 6):
        assert f"### Table {table}:" in page


def test_cells_are_those_of_the_results():
    page = REPORT.read_text(encoding="utf-8")
    _, translation = result_of("translation")
    bleu = [m["value"] for m in translation["measures"] if (m["name"], m["arm"]) == ("BLEU", "rope")]
    assert f"| RoFormer | 27.5 | {fmean(bleu):.2f} ({min(bleu):.2f} to {max(bleu):.2f}) |" in page
    _, glue = result_of("fine-tuning")  # an early run: shown, with a mark
    (sts,) = [row for row in glue["table"]["rows"] if row[0] == "STS-B" and row[3] == "rope"]
    assert rows_of(page, "STS-B") == [f"| STS-B | 85.8 | 87 | 25.8 | {100 * sts[4]:.1f} | {100 * sts[8]:.1f} |"]
    assert "[fine-tuning](../experiments/results/small/fine-tuning/result.json) †" in page
    (claim,) = rows_of(page, "C-19")
    _, *_, check = translation["checks"]["C-19"]
    interval = "[{low:.2f}, {high:.2f}]".format(**check).replace("-", "\u2212")
    assert "**inconclusive**" in claim and f"{check['mean']:.2f} {interval}" in claim
    ids = {claim["id"] for claim in json.loads((RECORDED / "register.json").read_text())["claims"]}
    assert ids <= set(re.findall(r"^\| (C-\d+) \|", page, re.MULTILINE))
    assert not re.findall(r"^\| [CX]-\d+ \|.*\| – \|$", page, re.MULTILINE)  # each has its sentence


def test_the_atlas_has_every_encoding():
    register = json.loads((RECORDED / "register.json").read_text())
    with (RECORDED / "atlas.csv").open(newline="") as file:
        rows = {row["encoding"]: row for row in csv.DictReader(file)}
    assert list(rows) == [encoding["name"] for encoding in register["encodings"]]
    _, atlas = result_of("atlas")
    for name, row in rows.items():
        losses = [m["value"] for m in atlas["measures"] if (m["arm"], m["name"][:12]) == (name, "loss at 1024")]
        assert (float(row["loss_1024"]) if row["loss_1024"] else None) == (fmean(losses) if losses else None)
    assert sum(bool(row["loss_1024"]) for row in rows.values()) > 30


def test_some_results_give_a_report_of_them(tmp_path):
    done = write_report(some_results(tmp_path / "results", "decay", "translation"), tmp_path / "docs")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "docs" / "report.md").read_text()
    assert "fine-tuning (not run)" in page and rows_of(page, "MRPC") == ["| MRPC | 88.9 | 89.5 | – | – | – |"]
    assert "**not run**" in rows_of(page, "C-16")[0] and "**inconclusive**" in rows_of(page, "C-19")[0]
    assert {path.stem for path in (tmp_path / "docs" / "assets" / "report").iterdir()} == {"figure2"}


def test_a_smoke_run_is_marked(tmp_path):
    results = some_results(tmp_path / "results", "decay")
    _, tiny = result_of("translation")
    (results / "tiny" / "translation").mkdir(parents=True)
    tiny = tiny | {"scale": "tiny", "verdicts": dict.fromkeys(tiny["verdicts"], "smoke run")}
    (results / "tiny" / "translation" / "result.json").write_text(json.dumps(tiny))
    done = write_report(results, tmp_path / "docs")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "docs" / "report.md").read_text()
    assert "**smoke run** †" in rows_of(page, "C-19")[0] and "only shows that the program works" in page


def test_a_sentence_on_another_verdict_is_left_out(tmp_path):
    results = some_results(tmp_path / "results", "translation")
    path, value = result_of("translation", results)
    value["verdicts"]["C-19"] = "supported"
    path.write_text(json.dumps(value))
    assert write_report(results, tmp_path / "docs").returncode == 0
    (row,) = rows_of((tmp_path / "docs" / "report.md").read_text(), "C-19")
    assert "**supported**" in row and row.endswith("| – |")


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda folder, _: (folder / "register.json").unlink(), "register.json"),
        (lambda _, path: path.write_text("{"), "must be JSON"),
        (lambda _, path: path.write_text('{"name": "decay"}'), "must have the key title"),
        (lambda _, path: path.unlink(), "must hold results, got none"),
    ],
)
def test_damaged_results_are_named(tmp_path, spoil, message):
    results = some_results(tmp_path / "results", "decay")
    spoil(results, result_of("decay", results)[0])
    done = write_report(results, tmp_path / "docs")
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


def test_the_page_of_an_experiment():
    """The site has it in place of the JSON."""
    code = "import sys; from pathlib import Path; from experiments import pages; print(pages.render(Path(sys.argv[1])))"
    for path in RECORDED.glob("*/*/result.json"):
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["name"] not in ("translation", "decay", "fine-tuning"):
            continue
        done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=True)
        assert f"```sh\n{value['command']}\n```" in done.stdout
        for claim, verdict in value["verdicts"].items():
            assert f"**{claim}: {verdict}.**" in done.stdout
