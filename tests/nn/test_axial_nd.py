"""The encoding `axial-nd`: each axis rotates its own part of the head (R-ROPE-12), beside NumPy."""

import numpy as np
import pytest
import torch

import roformer_cpp
import rope_reference
import tolerances
from nn.test_rope import random_THD

SWEEP_KEYS = {"axial-nd": lambda head_dim: {"grid_shape": [-1, 2, 2], "axes_dims_rope": [head_dim - 4, 2, 2]}}

HEAD_DIM, GRID = 24, [4, 3, 5]
POSITIONS = torch.tensor([0, 4, 5, 13, 59])


def encoding(**keys):
    given = {"head_dim": HEAD_DIM, "grid_shape": GRID} | keys
    return roformer_cpp.encoding("axial-nd", **{key: value for key, value in given.items() if value is not None})


def coordinates(positions, shape):
    return np.stack(np.unravel_index(np.asarray(positions), shape), -1)


def turned_by_axes(x, axes, dims, base=10000.0):
    """Each part of the head by a rotary embedding of its own size."""
    y, first = x.copy(), 0
    for axis, dim in enumerate(dims):
        part = slice(first, first + dim)
        y[..., part] = rope_reference.rope(x[..., part], axes[:, axis], layout="pairs", base=base)
        first += dim
    return y


@pytest.mark.parametrize("dims, base", [([8, 8, 8], 10000.0), ([4, 8, 12], 256.0), ([2, 6, 8], 100.0)])
def test_each_part_of_the_head_is_a_rotary_embedding(dims, base):
    keys = {"axes_dims_rope": dims, "rope_theta": base} if dims != [8, 8, 8] else {}
    terms = encoding(**keys).terms(POSITIONS, dtype=torch.double)
    x = random_THD(0)
    ours = rope_reference.turned(x, [rows[0] for rows in terms.query], "pairs")
    expected = turned_by_axes(x, coordinates(POSITIONS, GRID), dims, base)
    np.testing.assert_allclose(ours, expected, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)
    np.testing.assert_array_equal(ours[..., sum(dims) :], x[..., sum(dims) :])


def test_flat_indices_are_those_of_numpy():
    """The last axis fastest, as with positions that come on axes; a first axis of -1 has no end."""
    axes = torch.from_numpy(coordinates(POSITIONS, GRID))[None]
    expected = encoding(grid_shape=None, axes_dims_rope=[8, 8, 8]).terms(axes)
    for shape in (GRID, [-1, 3, 5]):
        terms = encoding(grid_shape=shape).terms(POSITIONS)
        assert torch.equal(terms.query.cos, expected.query.cos)
        assert torch.equal(terms.key.sin, expected.key.sin)
    far = encoding(grid_shape=[-1, 3, 5]).terms(torch.tensor([15 * 1000 + 7]), dtype=torch.double).query
    theta = 10000.0 ** (-np.arange(4) / 4)
    angle = np.concatenate([1000 * theta, 1 * theta, 2 * theta])
    np.testing.assert_allclose(far.cos[0, 0].numpy(), np.cos(angle), atol=tolerances.T1_ATOL)


def test_two_equal_axes_are_axial():
    ours = roformer_cpp.encoding("axial-nd", head_dim=HEAD_DIM, grid_shape=[-1, 5]).terms(POSITIONS)
    theirs = roformer_cpp.encoding("axial", head_dim=HEAD_DIM, grid_width=5).terms(POSITIONS)
    assert torch.equal(ours.query.cos, theirs.query.cos) and torch.equal(ours.key.sin, theirs.key.sin)


@pytest.mark.parametrize("position", [60, -1])
def test_refuses_positions_outside_the_grid(position):
    message = rf"\[axial-nd\] positions must be in 0..59, those of the grid_shape \[4, 3, 5\], got {position}"
    with pytest.raises(ValueError, match=message):
        encoding().terms(torch.tensor([0, position]))


def test_refuses_other_positions():
    with pytest.raises(ValueError, match=r"\[axial-nd\] positions must have 3 axes, got 2"):
        encoding().terms(torch.zeros(1, 4, 2, dtype=torch.long))
    with pytest.raises(
        ValueError, match=r"\[axial-nd\] grid_shape must be given where positions have no axes, got none"
    ):
        encoding(grid_shape=None, axes_dims_rope=[8, 8, 8]).terms(POSITIONS)


@pytest.mark.parametrize("keys, words", [
    ({"grid_shape": None}, "axial-nd.grid_shape or axial-nd.axes_dims_rope must be given, got none"),
    ({"grid_shape": [3, 0, 5]}, r"grid_shape must be a list of 1 to 8 integers .* got \[3,0,5\]"),
    ({"grid_shape": [3, -1, 5]}, r"the first of which may be -1, got \[3,-1,5\]"),
    ({"grid_shape": 3}, "grid_shape must be a list of 1 to 8 integers .* got 3"),
    ({"grid_shape": [2**31] * 3}, r"grid_shape must have at most 2\^53 places, got"),
    ({"axes_dims_rope": [8, 8]}, "must have as many axes, got 3 and 2"),
    ({"axes_dims_rope": [8, 7, 9]}, r"even numbers that sum to at most the 24 elements of a head, got \[8, 7, 9\]"),
    ({"axes_dims_rope": [8, 8, 10]}, r"sum to at most the 24 elements of a head, got \[8, 8, 10\]"),
    ({"head_dim": 22}, "head_dim must be a multiple of 6, a pair for each axis, or axes_dims_rope given, got 22"),
    ({"rope_theta": 0}, r"rope_theta must be a number > 0 and <= 1e\+100, got 0"),
    ({"precision": "float32"}, "precision"),
])  # fmt: skip
def test_refuses(keys, words):
    with pytest.raises(ValueError, match=words):
        encoding(**keys)
