"""The loss curve of a run directory."""

import json
import sys

import pytest
from matplotlib.figure import Figure

from roformer_cpp import plot


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


def test_nothing_to_draw_is_an_error(tmp_path):
    write_metrics(tmp_path, [])
    with pytest.raises(ValueError, match="at least one"):
        plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")


def test_a_fine_tuning_has_no_unigram_baseline(tmp_path, curves):
    lines = [dict(type="train", step=2, loss=0.7), dict(type="evaluation", step=2, epoch=1, loss=0.6, accuracy=0.5)]
    write_metrics(tmp_path, lines)
    plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")
    assert curves == {"training": [[2, 0.7]], "held out": [[2, 0.6]]}
