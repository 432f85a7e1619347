"""Stages of several lengths on one model (R-TRN-08): the common held-out loss at each length, and what is said before
anything is trained. Every encoding changes length in test_compare.py."""

import shutil

import numpy as np
import pytest

import tolerances
from cli_support import MODEL, metrics, refused, results, run, run_file
from training_case import same_model

STAGES = [dict(max_length=length, batch=4, steps=steps) for length, steps in ((12, 3), (24, 2), (8, 2))]


def pretrain(prepared, folder, **keys):
    folder.mkdir(exist_ok=True)
    config = run_file(folder / "run.json", **{"stages": STAGES, **keys})
    return ["pretrain", "--config", config, "--data", prepared / "data", "--output", folder / "run"]


def test_every_length_after_every_stage(prepared, tmp_path):
    results(*pretrain(prepared, tmp_path, evaluate_lengths=[8, 24, 40], precision="float32"))
    measured = metrics(tmp_path / "run", "length")
    expected = [(step, stage, length) for stage, step in enumerate((3, 5, 7)) for length in (8, 24, 40)]
    assert [(m["step"], m["stage"], m["length"]) for m in measured] == expected
    # The masks of a piece are the same however rows are made, so all stages are measured on the same tokens.
    for length in (8, 24, 40):
        assert len({m["predicted_tokens"] for m in measured if m["length"] == length}) == 1
        (again,) = results("evaluate", "--model", tmp_path / "run", "--data", prepared / "data", "--max-length", length)
        last = [m for m in measured if m["length"] == length][-1]
        for key in ("loss", "accuracy", "bits", "unigram_loss"):
            assert last[key] == pytest.approx(again[key], rel=tolerances.T4_MAX), key
    # Each stage ends with the evaluation at its own length too; the last stage's length is among those measured.
    at_8 = [m["loss"] for m in measured if m["length"] == 8][-1]
    assert metrics(tmp_path / "run", "evaluation")[-1]["loss"] == pytest.approx(at_8, rel=tolerances.T4_MAX)


def test_evaluate_takes_the_length_of_the_run(prepared, tmp_path):
    """Of the last stage, or of the stage that a checkpoint is in; 128 for a model that is no run."""
    results(*pretrain(prepared, tmp_path, checkpoint_every_steps=2, keep_checkpoints=9))
    run_dir, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("run.json", "checkpoint-*"))
    lengths = {run_dir: 8, run_dir / "checkpoint-2": 12, run_dir / "checkpoint-4": 24, copy: 128}
    for model, length in lengths.items():
        arguments = ["evaluate", "--model", model, "--data", prepared / "data"]
        (measured,) = results(*arguments)
        assert measured == results(*arguments, "--max-length", length)[0] and measured["max_length"] == length


def test_a_length_that_cannot_be_read_is_null(prepared, tmp_path):
    model = {**MODEL, "position_encoding": "learned", "max_position_embeddings": 24}
    done = run(*pretrain(prepared, tmp_path, model=model, evaluate_lengths=[24, 25]))
    assert done.returncode == 0 and "25 tokens" in done.stderr
    measured = metrics(tmp_path / "run", "length")
    assert [m["length"] for m in measured] == [24, 25] * 3
    for at_24, at_25 in zip(measured[::2], measured[1::2], strict=True):
        assert at_24["loss"] == pytest.approx(np.log(150), rel=tolerances.UNTRAINED_LOSS)
        assert at_25["loss"] is None and at_25["accuracy"] is None
    # Training goes on as if nothing had been measured.
    results(*pretrain(prepared, tmp_path / "plain", model=model))
    assert same_model(tmp_path / "run", tmp_path / "plain" / "run")


@pytest.mark.parametrize("name", ["rope", "learned"])
def test_warm_start_at_another_length(prepared, tmp_path, name):
    """From a model that was trained on short rows, as if the stages had been one run: the first loss is its own."""
    model = {**MODEL, "position_encoding": name, "max_position_embeddings": 24}
    model |= {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    short = dict(stages=[dict(max_length=8, batch=16, steps=40)], precision="float32")
    results(*pretrain(prepared, tmp_path, model=model, **short))
    longer = dict(stages=[dict(max_length=24, batch=8, steps=2)], precision="float32", init_from=str(tmp_path / "run"))
    results(*pretrain(prepared, tmp_path / "long", **longer))
    cold, warm = (metrics(folder / "run", "train")[0]["loss"] for folder in (tmp_path, tmp_path / "long"))
    assert warm < cold


def test_accumulation_changes_no_masks(prepared, tmp_path):
    """Rows are so short that most have no mask."""
    tokens = {}
    for accumulate in (1, 8):
        stages = [dict(max_length=6, batch=8, steps=12, accumulate=accumulate)]
        results(*pretrain(prepared, folder := tmp_path / str(accumulate), stages=stages, log_every_steps=1))
        tokens[accumulate] = [line["predicted_tokens"] for line in metrics(folder / "run", "train")]
    assert tokens[1] == tokens[8] and min(tokens[1]) < 8


def test_a_stage_beyond_a_table_is_named_at_the_start(prepared, tmp_path):
    model = {**MODEL, "position_encoding": "learned", "max_position_embeddings": 23}
    message = refused(*pretrain(prepared, tmp_path, model=model))
    assert "[run file] every stage must be as long as the model can read, got max_length 24" in message
    assert "23" in message
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
