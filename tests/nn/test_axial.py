"""The encoding `axial`: two-dimensional rotary embedding, half of the head by the row and half by the column (spec
R-ROPE-12)."""

import numpy as np
import torch

import roformer_cpp
import rope_reference
import tolerances
from nn.test_rope import random_THD

REFUSED = {"axial": [
    ({}, "axial.grid_width must be given, got none"),
    ({"grid_width": 0}, "axial.grid_width must be an integer from 1 .* got 0"),
    ({"grid_width": 5, "head_dim": 6}, "multiple of 4, as each axis rotates pairs of its half, got 6"),
    ({"grid_width": 5, "rope_parameters": {"rope_type": "dynamic", "factor": 2}}, "rope_type .* got dynamic"),
    ({"grid_width": 5, "rotary_value": True}, "rotary_value"),
]}  # fmt: skip

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


def test_partial_rotation_leaves_the_end_of_the_head():
    terms = encoding(partial_rotary_factor=0.5).terms(POSITIONS, dtype=torch.double)
    expected = rope_reference.rotation((POSITIONS // WIDTH).numpy(), 3)
    assert terms.query.cos.shape == (1, len(POSITIONS), 6)
    np.testing.assert_allclose(terms.query.cos[0, :, :3].numpy(), expected.real, atol=tolerances.T1_ATOL)
