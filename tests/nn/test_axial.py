"""The encoding `axial`: two-dimensional rotary embedding, half of the head by the row and half by the column (spec
R-ROPE-12)."""

import numpy as np
import pytest
import torch

import roformer_cpp
import rope_reference
import tolerances
from nn.test_rope import random_THD, scores

SWEEP_KEYS = {"axial": {"grid_width": 3}}

HEAD_DIM, WIDTH = 24, 5
POSITIONS = torch.tensor([0, 4, 5, 13, 63])


def encoding(**keys):
    return roformer_cpp.encoding("axial", head_dim=HEAD_DIM, grid_width=WIDTH, **keys)


def test_each_half_of_the_head_is_a_rotary_embedding():
    terms = encoding(rope_theta=100.0).terms(POSITIONS, dtype=torch.double)
    x = random_THD(0)
    ours = rope_reference.turned(x, [rows[0] for rows in terms.query], "pairs")
    for half, coordinate in ((slice(0, 12), POSITIONS // WIDTH), (slice(12, 24), POSITIONS % WIDTH)):
        expected = rope_reference.rope(x[..., half], coordinate.numpy(), layout="pairs", base=100.0)
        np.testing.assert_allclose(ours[..., half], expected, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)


def test_halves_pair_across_the_head():
    terms = encoding(layout="halves").terms(POSITIONS, dtype=torch.double)
    pairs = encoding().terms(POSITIONS, dtype=torch.double)
    x = random_THD(0)
    order = np.concatenate([np.arange(0, HEAD_DIM, 2), np.arange(1, HEAD_DIM, 2)])
    ours = rope_reference.turned(x[..., order], [rows[0] for rows in terms.query], "halves")
    expected = rope_reference.turned(x, [rows[0] for rows in pairs.query], "pairs")[..., order]
    np.testing.assert_allclose(ours, expected, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)


def test_partial_rotation_leaves_the_end_of_the_head():
    terms = encoding(partial_rotary_factor=0.5).terms(POSITIONS, dtype=torch.double)
    expected = rope_reference.rotation((POSITIONS // WIDTH).numpy(), 3)
    assert terms.query.cos.shape == (1, len(POSITIONS), 6)
    np.testing.assert_allclose(terms.query.cos[0, :, :3].numpy(), expected.real, atol=tolerances.T1_ATOL)


def test_scores_depend_on_the_distance_on_each_axis():
    q, k = random_THD(0), random_THD(1)
    rows, columns = torch.tensor([0, 1, 2, 7, 63]), torch.tensor([2, 0, 1, 2, 1])
    at = lambda row, column: encoding().terms((rows + row) * WIDTH + columns + column, dtype=torch.double)  # noqa: E731
    expected = scores(at(0, 0), q, k)
    for row, column in ((1, 0), (0, 2), (4096, 1), (100000, 2)):
        np.testing.assert_allclose(scores(at(row, column), q, k), expected, atol=tolerances.SUM_ATOL)


def test_refuses_rows_and_columns_as_axes():
    with pytest.raises(ValueError, match=r"\[axial\] positions must be \[tokens\] or \[batch, tokens\], got 2 axes"):
        encoding().terms(torch.zeros(1, 4, 2, dtype=torch.long))


@pytest.mark.parametrize("keys, words", [
    ({}, "axial.grid_width must be given, got none"),
    ({"grid_width": 0}, "axial.grid_width must be an integer from 1 .* got 0"),
    ({"grid_width": 5, "head_dim": 6}, "multiple of 4, as each axis rotates pairs of its half, got 6"),
    ({"grid_width": 5, "rope_parameters": {"rope_type": "dynamic", "factor": 2}}, "rope_type .* got dynamic"),
    ({"grid_width": 5, "rotary_value": True}, "rotary_value"),
])  # fmt: skip
def test_refuses(keys, words):
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding("axial", **keys)
