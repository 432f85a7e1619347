"""The code of the tutorials and recipes runs: Python in one session for each page, `sh` by bash in an empty folder.

Before a block may stand `<!-- not run -->`, or `<!-- needs PACKAGE -->`, which leaves it out where Python lacks it.
Commands in indented blocks are not run.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import roformer_cpp  # noqa: F401 - before torch, as the pages say
from cli_support import PROGRAM
from docs_pages import DOCS, FENCE, ROOT
from experiments import atlas_table, pairwise, recorded
from roformer_cpp._patched import attend

BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?" + FENCE.pattern, re.MULTILINE | re.DOTALL)
TUTORIALS = ["rope", "train-and-embed", "train-from-python", "patch-transformers", "add-an-encoding"]
PAGES = [*(f"tutorials/{name}.md" for name in TUTORIALS), "how-to.md"]
OTHERS = ["../README.md", "index.md", "start/library-authors.md", "start/researchers.md", "graft.md", "encodings.md"]
OTHERS += ["convert.md"]
pytestmark = pytest.mark.usefixtures("unregistered")


def blocks(page):
    """[(language, code, mark, line)] of a page, in order."""
    return [
        (match["language"], match["code"], match["mark"] or "", page.count("\n", 0, match.start("code")) + 1)
        for match in BLOCK.finditer(page)
    ]


def is_left_out(mark):
    if package := re.fullmatch(r"needs (\w+)", mark):
        return importlib.util.find_spec(package[1]) is None
    assert mark in ("", "not run"), f"a mark must be `not run` or `needs PACKAGE`, got {mark}"
    return mark == "not run"


def run(page, name, folder):
    """Runs the blocks of a page; what fails names the line."""
    scope = {"__name__": name}
    environment = dict(os.environ, ROFORMER=str(ROOT), OMP_NUM_THREADS="1")
    environment["PATH"] = os.pathsep.join(
        [str(PROGRAM.parent), str(Path(sys.executable).parent), environment.get("PATH", "")]
    )
    for language, code, mark, line in blocks(page):
        if is_left_out(mark):
            continue
        if language == "python":
            exec(compile("\n" * (line - 1) + code, name, "exec"), scope)
        elif language == "sh":
            script = "set -euo pipefail\n" + code
            options = dict(cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
            done = subprocess.run(["bash", "-c", script], **options)
            assert done.returncode == 0, f"{name}:{line}: {done.stderr[-2000:]}"


@pytest.mark.parametrize("name", [*PAGES, *OTHERS])
def test_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attend._say.cache_clear()  # a page shows a warning that is given once per process
    path = DOCS / name
    run(path.read_text(encoding="utf-8"), str(path), tmp_path)


def test_every_tutorial_with_code_is_run():
    with_code = {
        str(path.relative_to(DOCS))
        for path in [*(DOCS / "tutorials").glob("*.md"), DOCS / "how-to.md"]
        if any(language in ("python", "sh") for language, *_ in blocks(path.read_text(encoding="utf-8")))
    }
    assert with_code == set(PAGES)


def test_a_block_that_fails_is_named(tmp_path):
    with pytest.raises(AssertionError, match=r"made_up:6: .*nothing_of_this_name"):
        run("```sh\ntrue\n```\n\n```sh\nnothing_of_this_name\n```\n", "made_up", tmp_path)
    with pytest.raises(AssertionError, match="a mark must be"):
        run("<!-- skipped -->\n```sh\nfalse\n```\n", "made_up", tmp_path)


def result_of(experiment, scale="small"):
    """Its committed result."""
    return recorded.read_result(recorded.RESULTS / scale / f"{experiment}.parquet")


def means_of(experiment, scale="small"):
    """{(measure, arm): mean over seeds}"""
    result = result_of(experiment, scale)
    keys = {(row["measure"], row["arm"]) for row in result.rows if row["step"] is None}
    return {key: result.mean(*key) for key in keys if "to choose a rate" not in key[0]}


def table_of(page, head):
    """{first cell: the other cells} of the table that begins so."""
    lines = page[page.index(head) :].split("\n\n")[0].splitlines()[2:]
    return {cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in lines)}


def test_the_tables_of_which_encoding_are_those_of_the_atlas():
    page = (DOCS / "tutorials" / "which-encoding.md").read_text(encoding="utf-8")
    atlas = {entry.name: entry for entry in atlas_table.entries(recorded.read([recorded.RESULTS]))}
    losses = table_of(page, "| encoding | 128 bytes |")
    assert len(losses) == 18
    for name, (loss, less_rope, *longer, time) in losses.items():
        entry = atlas[name]
        found = [entry.losses[length] for length in (128, 256, 512, 1024)]
        assert [loss, *longer] == ["cannot read" if value is None else f"{value:.3f}" for value in found], name
        assert time == f"{entry.time:.1f}", name
        if name != "rope":
            assert less_rope == "{:+.3f} [{:+.3f}, {:+.3f}]".format(*entry.less_rope), name
    battery = result_of("synthetic")
    wanted = [("copy back", 64), ("copy back", 128), ("copy back", 256), ("first occurrence", 64)]
    wanted += [("first occurrence", 256), ("count", 64), ("count", 128)]
    accuracies = table_of(page, "| encoding | copy back, 64 |")
    accuracies.pop("always the commonest answer")
    assert len(accuracies) == 17
    for name, cells in accuracies.items():
        found = [battery.mean(f"{task}, accuracy at {tokens} tokens", name) for task, tokens in wanted]
        assert cells == ["cannot read" if x is None else f"{100 * x:.1f}" for x in found], name


def test_which_one_of_the_encodings_quotes_the_atlas():
    page = (DOCS / "encodings.md").read_text(encoding="utf-8")
    start = page.index("- *Held-out loss at the training length*")
    points = page[start : page.index("\n\n", start)].split("\n- ")
    at_length, longer, time, copying, others = (" ".join(point.split()) for point in points)
    losses = means_of("atlas")
    for text, length, count in ((at_length, 128, 5), (longer, 1024, 5)):
        quoted = re.findall(r"(\d\.\d{3}) with (?:\w+ )?`([\w-]+)`", text)
        quoted += [(loss, name) for name, loss in re.findall(r"`([\w-]+)` \((\d\.\d{3})\)", text)]
        assert len(quoted) >= count, quoted
        for loss, name in quoted:
            assert loss == f"{losses[f'loss at {length} tokens, nats per token', name]:.3f}", name
    short = [mean for (name, _), mean in losses.items() if name.startswith("loss at 128 tokens")]
    near, best = sum(round(mean, 3) <= 1.528 for mean in short), min(short)
    difference = losses["loss at 128 tokens, nats per token", "rope"] - best
    assert f"{best:.3f} to 1.528 with {near} of the {len(short)}" in at_length
    assert f"`mrope` has the {best:.3f}" in at_length and f"differences of {difference:.3f} are chance" in at_length
    accuracies = means_of("synthetic")

    def percent(task, tokens, name):
        return f"{100 * accuracies[f'{task}, accuracy at {tokens} tokens', name]:.1f}"

    at_64, at_256 = copying.split("at 256 tokens")
    figures = [percent("copy back", *each) for each in ((64, "rope"), (128, "rope"), (64, "none"))]
    assert "`rope` in {} % ({} % at 128 tokens), `none` in {} %".format(*figures) in at_64
    quoted = re.findall(r"`([\w-]+)` (?:has )?(\d+\.\d)", at_256)
    assert len(quoted) == 6
    for name, accuracy in quoted:
        assert accuracy == percent("copy back", 256, name), name
    none = " and ".join(percent(task, 64, "none") for task in ("first occurrence", "count"))
    assert f"`none` has {none} %" in others
    times = {arm: mean for (name, arm), mean in losses.items() if name.startswith("time of attention at 1024")}
    slow = {name: each for name, each in times.items() if each > 4}
    fastest, slowest = min(slow.values()), max(slow.values())
    (listed,) = re.findall(rf"{fastest:.0f} to {slowest:.0f} times with ((?:`\w+`(?:, | and )?)+)", time)
    assert set(re.findall(r"`(\w+)`", listed)) == slow.keys()


def test_figures_of_which_encoding_are_those_of_the_experiments():
    page = (DOCS / "tutorials" / "which-encoding.md").read_text(encoding="utf-8")
    words = " ".join(page.split())
    result, held_out = result_of("encodings"), "held-out loss, nats per token"
    masked = {
        re.sub(r":.*=(\d+)$", r", clip \1", re.sub(r':.*\["(\w+)"\]$', r", \1 alone", arm)): [
            result.mean(held_out, arm),
            *(end(result.values(held_out, arm).values()) for end in (min, max)),
        ]
        for arm in {row["arm"] for row in result.rows}
    }
    shown = table_of(page, "| encoding | held-out loss | lowest |")
    assert shown == {name: [f"{value:.3f}" for value in values] for name, values in masked.items()}
    assert list(shown) == sorted(masked, key=masked.get)
    assert all(result.verdicts[claim]["verdict"] == "inconclusive" for claim in ("C-10", "C-12", "C-13"))
    highest = [masked[name][-1] for name in ("rope", "huang-m4")]
    assert "and ends far above the best, at {:.3f} and {:.3f}.".format(*highest) in words
    means = means_of("extrapolation").items()
    longer = {f"{mean:.3f}" for (measure, _), mean in means if re.match("loss of the last tokens after", measure)}
    sentences = re.findall(r"^\| (RoPE is defined.*|A scaling helps.*|xPos rises.*) \|.*$", page, re.MULTILINE)
    figures = re.findall(r"(?<![\d.])\d\.\d{3}(?!\d)", " ".join(sentences))
    assert len(figures) == 17 and set(figures) <= longer
    verdicts = result_of("trained-frequencies").verdicts
    checks = (check for claim in ("C-29", "X-16") for check in verdicts[claim]["checks"])
    moved, alike = (check for check in checks if check["role"] == "part")
    frequencies = words[words.index("- Frequencies of RoPE that may be trained") :]
    assert f"the median of them changes by {moved['mean']:.2f} in 10,000 steps" in frequencies
    difference = f"{alike['mean']:.3f} [{alike['low']:.3f}, {alike['high']:.3f}] nats"
    assert moved["outcome"] == "fails" and alike["outcome"] == "not shown" and difference in frequencies
    result = result_of("linear-language-model")
    learned, linear, softmax = (f"{result.mean(held_out, arm):.3f}" for arm in ("learned", "rope", "rope, softmax"))
    assert f"in nats per byte: learned table {learned}, linear RoPE {linear}, softmax RoPE {softmax})" in words
    assert "better than a learned table on 2 of 5 tasks" in words
    tuned = means_of("fine-tuning")
    gains = [
        mean > tuned[measure, "learned"]
        for (measure, arm), mean in tuned.items()
        if arm == "rope" and not measure.endswith(("lowest", "highest"))
    ]
    assert (len(gains), sum(gains)) == (5, 2)
    result = result_of("pairwise", "any")
    states = [row for row in result.rows if row["step"] == 512]
    with_state = [row for row in states if row["task"] == pairwise.WITH]
    paired = [(row["value"], result.mean(pairwise.GROWTH, row["arm"])) for row in with_state]
    fixed = [count for count, growth in paired if growth == 1]
    slow = [growth for _, growth in paired if 1 < growth < 1.5]
    counts = [len(states) - len(paired), sum(growth >= 1.5 for _, growth in paired), len(fixed), len(slow)]
    sizes = table_of(page, "| encodings | size of the state |")
    assert f"for {len(states)} encodings." in words
    assert [int(name.split()[0]) for name in sizes] == counts
    assert [cells[-1] for cells in sizes.values()] == ["yes, except `log-n`", "no", "no", "no"]
    assert f"at most {max(slow):.2f} times" in list(sizes.values())[3][0]
    assert fixed.count(16) == 3 and 7 * 16 < max(fixed) < 8 * 16
