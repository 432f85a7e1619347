"""The loss curve of a run directory."""

import json

import pytest

from roformer_cpp import plot


def write_metrics(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_draws_a_picture(tmp_path):
    write_metrics(
        tmp_path,
        [
            {"type": "train", "step": 10, "loss": 8.0},
            {"type": "train", "step": 20, "loss": 7.0},
            {"type": "evaluation", "step": 20, "loss": 7.1, "unigram_loss": 6.3},
        ],
    )
    plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"type": "train", "step": 1, "loss": 2}\n{"eve', encoding="utf-8")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2 must be a JSON object, got '\{\"eve'"):
        plot.read_metrics(tmp_path)


def test_nothing_to_draw_is_an_error(tmp_path):
    write_metrics(tmp_path, [])
    with pytest.raises(ValueError, match="at least one"):
        plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")


def test_a_fine_tuning_has_no_unigram_baseline(tmp_path):
    lines = [dict(type="train", step=2, loss=0.7), dict(type="evaluation", step=2, epoch=1, loss=0.6, accuracy=0.5)]
    write_metrics(tmp_path, lines)
    plot.plot_loss(plot.read_metrics(tmp_path), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").exists()
