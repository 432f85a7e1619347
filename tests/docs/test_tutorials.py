"""The code of the tutorials and recipes runs: Python in one session for each page, `sh` by bash in an empty folder.
Before a block may stand `<!-- not run -->`, or `<!-- needs PACKAGE -->`, which leaves it out where Python lacks it.
Commands in indented blocks are not run."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

import roformer_cpp  # noqa: F401 - before torch, as the pages say
from cli_support import PROGRAM
from docs_pages import DOCS, FENCE, ROOT
from experiments import atlas_table, recorded
from roformer_cpp._patched import attend

BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?" + FENCE.pattern, re.MULTILINE | re.DOTALL)
PAGES = [str(path.relative_to(DOCS)) for path in sorted((DOCS / "tutorials").glob("*.md"))]
PAGES += ["how-to.md", "../README.md", "index.md", "start/library-authors.md", "start/researchers.md", "graft.md"]
PAGES += ["encodings.md", "convert.md"]
pytestmark = pytest.mark.usefixtures("unregistered")


def is_left_out(mark):
    if package := re.fullmatch(r"needs (\w+)", mark):
        return importlib.util.find_spec(package[1]) is None
    assert mark in ("", "not run"), f"a mark must be `not run` or `needs PACKAGE`, got {mark}"
    return mark == "not run"


def run(page, name, folder):
    """Runs the blocks of a page; what fails names the line."""
    scope = {"__name__": name}
    places = os.pathsep.join([str(PROGRAM.parent), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = dict(os.environ, ROFORMER=str(ROOT), OMP_NUM_THREADS="1", PATH=places)
    for block in BLOCK.finditer(page):
        language, code, lines_before = block["language"], block["code"], page.count("\n", 0, block.start("code"))
        if is_left_out(block["mark"] or ""):
            continue
        if language == "python":
            exec(compile("\n" * lines_before + code, name, "exec"), scope)
        elif language == "sh":
            script = "set -euo pipefail\n" + code
            options = dict(cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
            done = subprocess.run(["bash", "-c", script], **options)
            assert done.returncode == 0, f"{name}:{lines_before + 1}: {done.stderr[-2000:]}"


@pytest.mark.parametrize("name", PAGES)
def test_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attend._say.cache_clear()  # a page shows a warning that is given once per process
    path = DOCS / name
    run(path.read_text(encoding="utf-8"), str(path), tmp_path)


def table_of(page, head):
    """{first cell: the other cells} of the table that begins so."""
    lines = page[page.index(head) :].split("\n\n")[0].splitlines()[2:]
    return {cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in lines)}


def result_of(experiment):
    return recorded.read_result(recorded.RESULTS / "small" / f"{experiment}.parquet")


def test_the_tables_of_which_encoding_are_those_of_the_atlas():
    page = (DOCS / "tutorials" / "which-encoding.md").read_text(encoding="utf-8")
    atlas = {entry.name: entry for entry in atlas_table.entries(recorded.read([recorded.RESULTS]))}
    losses = table_of(page, "| encoding | 128 bytes |")
    assert len(losses) == 18
    for name, (loss, less_rope, *longer, time) in losses.items():
        entry = atlas[name]
        found = [entry.losses[length] for length in (128, 256, 512, 1024)]
        assert [loss, *longer] == ["–" if value is None else f"{value:.3f}" for value in found], name
        assert time == f"{entry.time:.1f}", name
        if name != "rope":
            assert less_rope == "{:+.3f} [{:+.3f}, {:+.3f}]".format(*entry.less_rope), name
    battery = result_of("synthetic")
    wanted = [("copy back", 64), ("copy back", 128), ("copy back", 256), ("first occurrence", 64)]
    wanted += [("first occurrence", 256), ("count", 64), ("count", 128)]
    accuracies = table_of(page, "| encoding | copy back, 64 |")
    accuracies.pop("majority-class baseline")
    assert len(accuracies) == 17
    for name, cells in accuracies.items():
        found = [battery.mean(f"{task}, accuracy at {tokens} tokens", name) for task, tokens in wanted]
        assert cells == ["–" if x is None else f"{100 * x:.1f}" for x in found], name


LOSSES = ["atlas", "encodings", "extrapolation", "linear-language-model", "trained-frequencies", "convergence"]


def test_figures_about_encodings_are_those_of_the_experiments():
    """Losses are means over seeds, their ends, or ends of intervals; percents are accuracies of the synthetic tasks."""
    losses = {"0.004", "0.007"}  # differences
    for result in map(result_of, LOSSES):
        keys = {(row["measure"], row["arm"]) for row in result.rows if row["step"] is None}
        seeds = [result.values(*key).values() for key in keys if "loss" in key[0] and "to choose a rate" not in key[0]]
        checks = [check for verdict in result.verdicts.values() for check in verdict["checks"] if "mean" in check]
        numbers = [end(values) for values in seeds if values for end in (fmean, min, max)]
        numbers += [check[end] for check in checks for end in ("mean", "low", "high")]
        losses |= {f"{abs(number):.3f}" for number in numbers if number is not None}
    which = (DOCS / "tutorials" / "which-encoding.md").read_text(encoding="utf-8")
    which = re.sub(r"^\| [\w-]+ \| \d\.\d{3} \| [+ ].*$", "", which, flags=re.MULTILINE)  # the table of the atlas
    page = (DOCS / "encodings.md").read_text(encoding="utf-8")
    points = page[page.index("- *Held-out loss at the training length*") :].split("\n\n")[0]
    for text, least in ((which, 80), (points, 15)):
        figures = re.findall(r"(?<![\d.])\d\.\d{3}(?!\d)", text)
        assert len(figures) >= least and set(figures) <= losses
    battery = result_of("synthetic")
    keys = {(row["measure"], row["arm"]) for row in battery.rows if "accuracy at" in row["measure"]}
    accuracies = {f"{100 * mean:.1f}" for key in keys if (mean := battery.mean(*key)) is not None}
    percents = re.findall(r"(?<![\d.])\d+\.\d(?!\d)", points)
    assert len(percents) > 10 and set(percents) - {"1.2"} <= accuracies  # 1.2 times the time of RoPE
