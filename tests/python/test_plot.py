"""The loss curve of a run directory."""

import csv
import json
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from roformer_cpp import plot
from roformer_cpp._program import main as program


def write_metrics(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def curves(monkeypatch):
    """{label: its points} of the picture that was saved last."""
    drawn = {}
    save = Figure.savefig

    def keep(figure, *arguments, **options):
        (axes,) = figure.axes
        drawn.update({line.get_label(): line.get_xydata().tolist() for line in axes.lines})
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return drawn


def test_draws_a_picture(tmp_path, curves):
    lines = [dict(type="train", step=10, loss=8.0), dict(type="train", step=20, loss=7.0)]
    lines += [dict(type="evaluation", step=20, loss=7.1, unigram_loss=6.3)]
    write_metrics(tmp_path, [*lines, dict(type="length", length=64), dict(note="a")])
    plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert curves["training"] == [[10, 8], [20, 7]] and curves["held out"] == [[20, 7.1]]
    assert {y for _, y in curves["unigram, held out"]} == {6.3} and len(curves) == 3


NO_OBJECT, NO_STEP, NO_LOSS = "must be a JSON object", 'a number as "step"', 'a number as "loss"'


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"7", NO_OBJECT),
        (b"", NO_OBJECT),
        (b'{"type": "tr\xff', NO_OBJECT),
        (b"[" * 100_000, NO_OBJECT),
        (b'{"type": "train", "loss": 2}', NO_STEP),
        (b'{"type": "train", "step": true, "loss": 2}', NO_STEP),
        (b'{"type": "train", "step": 4, "loss": null}', NO_LOSS),
        (b'{"type": "train", "step": 4, "loss": NaN}', NO_LOSS),
        (b'{"type": "train", "step": 4, "loss": 1' + b"0" * 400 + b"}", NO_LOSS),
        (b'{"type": "evaluation", "step": 4, "loss": 2, "unigram_loss": []}', 'a number as "unigram_loss"'),
    ],
)
def test_a_line_that_cannot_be_drawn_is_bad_input(tmp_path, monkeypatch, capsys, line, rule):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"type": "train", "step": 1, "loss": 2}\n' + line + b"\n")
    monkeypatch.setattr(sys, "argv", ["plot", str(tmp_path)])
    assert plot.main() == 1
    assert f"[plot] {tmp_path / 'metrics.jsonl'}:2 must " in (message := capsys.readouterr().err) and rule in message
    assert not (tmp_path / "loss.png").exists()


def test_a_fine_tuning_has_no_unigram_baseline_and_nothing_is_an_error(tmp_path, curves):
    lines = [dict(type="train", step=2, loss=0.7), dict(type="evaluation", step=2, epoch=1, loss=0.6, accuracy=0.5)]
    write_metrics(tmp_path, lines)
    plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")
    assert curves == {"training": [[2, 0.7]], "held out": [[2, 0.6]]}
    write_metrics(tmp_path, [])
    with pytest.raises(ValueError, match="at least one"):
        plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")


def test_many_runs_in_one_picture_and_in_one_table(tmp_path, curves, monkeypatch):
    """Of a directory of several runs all of them."""
    for name, loss in (("a", 8.0), ("b/rope/seed-1", 7.0), ("b/none/seed-1", 6.0)):
        (tmp_path / name).mkdir(parents=True)
        held_out = dict(type="evaluation", step=2, loss=loss + 1, unigram_loss=6.3)
        write_metrics(tmp_path / name, [dict(type="train", step=2, loss=loss), held_out])
    monkeypatch.setattr("sys.argv", ["roformer", "plot", "a", "b", "--output", "all.svg", "--csv", "all.csv"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        program()
    assert (tmp_path / "all.svg").exists()
    assert curves == {
        f"{name}{kind}": [[2, loss]]
        for name, loss_ in (("a", 8), ("b/rope/seed-1", 7), ("b/none/seed-1", 6))
        for kind, loss in (("", loss_), (", held out", loss_ + 1))
    }
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    found = [(row["run"], row["type"], row["loss"], row["unigram_loss"]) for row in rows]
    assert found[:2] == [("a", "train", "8.0", ""), ("a", "evaluation", "9.0", "6.3")] and len(found) == 6
    (tmp_path / "empty").mkdir()
    for other in ("empty", "absent"):
        for folders in ([tmp_path / "a", Path(other)], [Path(other)]):
            with pytest.raises(FileNotFoundError, match=rf"must have metrics\.jsonl in it, got none in {other}"):
                plot._draw(folders, None, None)
    assert not (tmp_path / "loss.png").exists()
    drawn = len(curves)
    plot._draw([tmp_path], "all.svg", None)  # of one directory that is no run itself
    assert len(curves) == drawn + 6


TABLE = """encoding,seed,step_ms,loss_8,loss_16,loss_64
rope,1,3,1.5,2,4
rope,2,5,1.25,nan,nan
"a:b=1,2",1,7,2,,
"""


def test_the_scatter_of_loss_against_cost(tmp_path, monkeypatch):
    """At the shortest and the longest length, the means over the seeds that have a loss."""
    drawn = {}
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.update(axes=figure.axes[1]))
    (tmp_path / "table.csv").write_text(TABLE)
    plot.plot_comparison(tmp_path / "table.csv", tmp_path / "x.svg")
    points = {line.get_label(): line.get_xydata().tolist() for line in drawn["axes"].lines}
    assert points == {"8 tokens": [[4, 1.375], [7, 2]], "64 tokens": [[3, 4]]}
    (tmp_path / "empty.csv").write_text(TABLE.splitlines(keepends=True)[0])
    with pytest.raises(ValueError, match="must hold runs, got none"):
        plot.plot_comparison(tmp_path / "empty.csv", tmp_path / "x.svg")
    assert [text.get_text() for text in drawn["axes"].texts] == ["rope", "a:b=1,2", "rope"]


def test_pictures_of_comparisons_and_confusions(tmp_path, monkeypatch):
    """Of each the command draws the file that the directory has."""
    (tmp_path / "compare").mkdir()
    (tmp_path / "compare" / "table.csv").write_text(TABLE)
    (tmp_path / "finetune").mkdir()
    confusion = {"split": "test", "labels": ["no", "yes"], "counts": [[3, 1], [0, 0]]}
    (tmp_path / "finetune" / "report.json").write_text(json.dumps({"confusion": confusion}))
    compared = ["rope", "a:b=1,2", "8 tokens", "16 tokens", "milliseconds per step"]
    for name, words in (("compare", compared), ("finetune", ["gold", "predicted", "yes", ">3<"])):
        monkeypatch.setattr("sys.argv", ["plot", str(tmp_path / name), "--output", str(tmp_path / f"{name}.svg")])
        assert plot.main() == 0
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert all(word in drawn for word in words), name
    (tmp_path / "finetune" / "report.json").write_text("{}")
    assert plot.main() == 1
