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


def test_pictures_of_comparisons_and_confusions(tmp_path, monkeypatch):
    """Of each the command draws the file that the directory has."""
    (tmp_path / "compare").mkdir()
    rows = ["encoding,seed,loss_8,loss_16", "rope,1,1.5,2", "rope,2,1.25,nan", '"a:b=1,2",1,2,']
    (tmp_path / "compare" / "table.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "finetune").mkdir()
    confusion = {"split": "test", "labels": ["no", "yes"], "counts": [[3, 1], [0, 0]]}
    (tmp_path / "finetune" / "report.json").write_text(json.dumps({"confusion": confusion}))
    for name, words in (
        ("compare", ["rope", "a:b=1,2", "8 tokens", "16 tokens"]),
        ("finetune", ["gold", "predicted", "yes", ">3<"]),
    ):
        monkeypatch.setattr("sys.argv", ["plot", str(tmp_path / name), "--output", str(tmp_path / f"{name}.svg")])
        assert plot.main() == 0
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert all(word in drawn for word in words), name
    (tmp_path / "finetune" / "report.json").write_text("{}")
    assert plot.main() == 1
