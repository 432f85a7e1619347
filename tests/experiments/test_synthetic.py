"""Rows and training of experiments/synthetic.py."""

import numpy as np
import pytest
import torch
import transformers

from experiments import synthetic


@pytest.mark.parametrize("tokens", [64, 128])
def test_copied_symbols(tokens):
    ids, labels = synthetic.make_rows("copy back", 3, 5, 40, tokens)
    offsets = {33 + i: offset for i, offset in enumerate([1, 2, 4, 8, 16])}
    assert set(ids[:, 0]) == set(offsets) and set(ids[:, 1:].flatten()) == set(range(1, 33))
    for row, answers in zip(ids.tolist(), labels.tolist(), strict=True):
        offset = offsets[row[0]]
        assert answers == [-1] * (offset + 1) + row[1:-offset]  # the first symbol is at 1


@pytest.mark.parametrize("task, letters", [("first occurrence", 16), ("count", 8)])
@pytest.mark.parametrize("tokens", [64, 128])
def test_answers_at_letters(task, letters, tokens):
    ids, labels = synthetic.make_rows(task, 3, 5, 40, tokens)
    assert set(ids[:, 0]) == {33} and ids[:, 1:].min() == 1 and ids.max() == 33
    for row, answers in zip(ids.tolist(), labels.tolist(), strict=True):
        before = {}
        for place, (symbol, answer) in enumerate(zip(row, answers, strict=True)):
            if place == 0 or symbol > letters:
                assert answer == -1
                continue
            seen = before.get(symbol, 0)
            assert answer == 1 + (int(seen == 0) if task == "first occurrence" else min(seen, 15))
            before[symbol] = seen + 1
        assert sum(before.values()) == 32


def test_rows_are_functions_of_seed_and_step():
    first = synthetic.make_rows("count", 1, 2, 4, 64)
    for seed, step in ((1, 2), (2, 2), (1, 3)):
        same = np.array_equal(first, synthetic.make_rows("count", seed, step, 4, 64))
        assert same == ((seed, step) == (1, 2))
    _, labels = synthetic.held_out_rows("copy back", 4, 64)
    assert (labels[:, :32] == -1).all() and (labels[:, 32:] >= 1).all()  # the first half is not asked


def test_the_rate_is_that_of_a_linear_schedule():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 5, 20)
    for step in range(21):
        assert synthetic._part_of_rate(step, 20, 5) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_a_model_learns_what_it_is_asked():
    """Counts better than their frequencies tell, and not beyond the table."""
    run = synthetic.settings("tiny")["run"] | {"steps": 40, "batch": 16}
    scores = synthetic.train("learned", "count", 1, 3e-3, run, [64, 128], 16)
    labels = synthetic.held_out_rows("count", 16, 64)[1]
    counts = np.bincount(labels[labels >= 0])
    frequencies = counts[counts > 0] / counts.sum()
    assert scores[0]["loss"] < -(frequencies * np.log(frequencies)).sum()
    assert scores[1] is None  # beyond the learned table
