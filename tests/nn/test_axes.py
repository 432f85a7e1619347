"""Rotary embedding on several axes (R-ROPE-12): `axial` and `axial-nd`, whose axes each rotate a part of the head,
`mrope` (arXiv 2409.12191), whose axes rotate sections of the pairs, beside transformers in tests/oracles/test_mrope.py,
and `rope-mixed` (Heo et al. 2024, section 3.2), whose pairs turn by both axes."""

import numpy as np
import pytest
import torch

import roformer_cpp
import rope_reference
import tolerances
from encoding_case import Case, parameter
from initial_values import check_uniform
from nn.test_rope import random_THD

HEAD_DIM, GRID = 24, [4, 3, 5]
POSITIONS = torch.tensor([0, 4, 5, 13, 59])
OF_24 = {"head_dim": HEAD_DIM, "grid_shape": GRID}

REFUSED = {
    "axial": [
        ({}, "axial.grid_width must be given, got none"),
        ({"grid_width": 0}, "axial.grid_width must be an integer from 1 .* got 0"),
        ({"grid_width": 5, "head_dim": 6}, "multiple of 4, as each axis rotates pairs of its half, got 6"),
        ({"grid_width": 5, "rope_parameters": {"rope_type": "dynamic", "factor": 2}}, "rope_type .* got dynamic"),
        ({"grid_width": 5, "rotary_value": True}, "rotary_value"),
    ],
    "axial-nd": [
        ({}, "axial-nd.grid_shape or axial-nd.axes_dims_rope must be given, got none"),
        ({"grid_shape": [3, 0, 5]}, r"grid_shape must be a list of 1 to 8 integers .* got \[3,0,5\]"),
        ({"grid_shape": [3, -1, 5]}, r"the first of which may be -1, got \[3,-1,5\]"),
        ({"grid_shape": 3}, "grid_shape must be a list of 1 to 8 integers .* got 3"),
        (OF_24 | {"grid_shape": [2**31] * 3}, r"grid_shape must have at most 2\^53 places, got"),
        (OF_24 | {"axes_dims_rope": [8, 8]}, "must have as many axes, got 3 and 2"),
        (OF_24 | {"axes_dims_rope": [8, 7, 9]}, r"even numbers that sum to at most the 24 .*, got \[8, 7, 9\]"),
        (OF_24 | {"axes_dims_rope": [8, 8, 10]}, r"sum to at most the 24 elements of a head, got \[8, 8, 10\]"),
        (OF_24 | {"head_dim": 22}, "a multiple of 6, a pair for each axis, or axes_dims_rope given, got 22"),
        (OF_24 | {"rope_theta": 0}, r"rope_theta must be a number > 0 and <= 1e\+100, got 0"),
        (OF_24 | {"precision": "float32"}, "precision"),
    ],
    "mrope": [
        ({}, r"mrope_section must be 3 counts of pairs .* got none"),
        ({"head_dim": 24, "rope_parameters": {"mrope_section": [4, 4, 5]}}, r"that sum to 12 .* got \[4,4,5\]"),
    ],
    "rope-mixed": [
        ({}, "rope-mixed.grid_width must be given, got none"),
        ({"grid_width": 0}, "grid_width"),
        ({"grid_width": 3, "head_dim": 6}, "head_dim must be a multiple of 4 for rope-mixed, got 6"),
        ({"grid_width": 3, "rope_theta": 0}, "rope_theta"),
    ],
}


def thirds(head_dim):
    pairs = head_dim // 2
    return {"rope_parameters": {"mrope_section": [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]}}


SWEEP_KEYS = {
    "axial": {"grid_width": 3},
    "axial-nd": lambda head_dim: {"grid_shape": [-1, 2, 2], "axes_dims_rope": [head_dim - 4, 2, 2]},
    "mrope": thirds,
    "rope-mixed": {"grid_width": 3},
}


def mixed_start(values, name):
    """[2, H, D/2], as the authors' program with base 10: each head has a direction of uniform angle, and the second
    half of its pairs is at a right angle."""
    x, y = values
    pairs = x + 1j * y
    magnitudes = np.tile([1, 10.0**-0.5], (len(x), 2))
    np.testing.assert_allclose(np.abs(pairs), magnitudes, rtol=tolerances.T2_RTOL, err_msg=name)
    np.testing.assert_allclose(pairs[:, 2:], 1j * pairs[:, :2], atol=tolerances.T2_RTOL, err_msg=name)
    check_uniform(np.angle(pairs[:, 0]) % (2 * np.pi), name, 0, 2 * np.pi)


STARTS = {"rope-mixed": {"freqs": mixed_start}}


def made(name, **keys):
    return roformer_cpp.encoding(name, head_dim=HEAD_DIM, **keys)


def assert_same_rows(ours, theirs):
    assert torch.equal(ours.query.cos, theirs.query.cos) and torch.equal(ours.key.sin, theirs.key.sin)


# ---- parts of the head ----


@pytest.mark.parametrize("dims, base", [([8, 8, 8], 10000.0), ([4, 8, 12], 256.0), ([2, 6, 8], 100.0)])
def test_each_part_of_the_head_is_a_rotary_embedding(dims, base):
    keys = {"axes_dims_rope": dims, "rope_theta": base} if dims != [8, 8, 8] else {}
    terms = made("axial-nd", grid_shape=GRID, **keys).terms(POSITIONS, dtype=torch.double)
    x, axes = random_THD(0), np.stack(np.unravel_index(POSITIONS.numpy(), GRID), -1)
    expected, first = x.copy(), 0
    for axis, dim in enumerate(dims):
        part = slice(first, first + dim)
        expected[..., part] = rope_reference.rope(x[..., part], axes[:, axis], layout="pairs", base=base)
        first += dim
    ours = rope_reference.turned(x, [rows[0] for rows in terms.query], "pairs")
    np.testing.assert_allclose(ours, expected, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)


def test_flat_indices_are_those_of_numpy():
    """The last axis fastest, as with positions that come on axes; a first axis of -1 has no end."""
    axes = torch.from_numpy(np.stack(np.unravel_index(POSITIONS.numpy(), GRID), -1))[None]
    without_grid = made("axial-nd", axes_dims_rope=[8, 8, 8])
    expected = without_grid.terms(axes)
    for shape in (GRID, [-1, 3, 5]):
        assert_same_rows(made("axial-nd", grid_shape=shape).terms(POSITIONS), expected)
    far = made("axial-nd", grid_shape=[-1, 3, 5]).terms(torch.tensor([15 * 1000 + 7])).query
    assert torch.equal(far.cos, without_grid.terms(torch.tensor([[[1000, 1, 2]]])).query.cos)
    message = r"\[axial-nd\] grid_shape must be given where positions have no axes, got none"
    with pytest.raises(ValueError, match=message):
        without_grid.terms(POSITIONS)


@pytest.mark.parametrize("keys", [{}, {"rope_theta": 100.0}])
def test_two_equal_axes_are_axial(keys):
    ours, theirs = made("axial-nd", grid_shape=[-1, 5], **keys), made("axial", grid_width=5, **keys)
    assert_same_rows(ours.terms(POSITIONS), theirs.terms(POSITIONS))


def test_partial_rotation_leaves_the_end_of_the_head():
    terms = made("axial", grid_width=5, partial_rotary_factor=0.5).terms(POSITIONS, dtype=torch.double)
    expected = rope_reference.rotation((POSITIONS // 5).numpy(), 3)
    assert terms.query.cos.shape == (1, len(POSITIONS), 6)
    np.testing.assert_allclose(terms.query.cos[0, :, :3].numpy(), expected.real, atol=tolerances.T1_ATOL)


# ---- sections of the pairs ----

AXES_BTA = torch.tensor([[[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 3, 2], [9, 9, 9]],
                         [[5, 5, 5], [7, 1, 2], [7, 9, 4], [511, 0, 17], [0, 0, 1], [3, 3, 3]]])  # fmt: skip


def mrope(sections=(4, 5, 3), rope_parameters=None, **keys):
    return made("mrope", rope_parameters={"mrope_section": list(sections)} | (rope_parameters or {}), **keys)


@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_text_is_ordinary_rotary_embedding(layout):
    positions = torch.arange(7)
    rope = made("rope", layout=layout).terms(positions)
    for text in (positions, positions[None, :, None].expand(1, 7, 3)):
        terms = mrope(layout=layout).terms(text)
        assert terms.layout == layout
        assert_same_rows(terms, rope)


def test_the_length_is_that_of_the_longest_axis():
    dynamic = mrope(rope_parameters={"rope_type": "dynamic", "factor": 2.0}, max_position_embeddings=16)
    batch = dynamic.terms(AXES_BTA)
    for row in range(2):
        alone = dynamic.terms(AXES_BTA[row : row + 1])
        assert torch.equal(batch.query.cos[row], alone.query.cos[0])
        is_short = torch.equal(batch.query.cos[row], mrope().terms(AXES_BTA[row : row + 1]).query.cos[0])
        assert is_short == (row == 0)


# ---- both axes ----


@pytest.mark.parametrize("flat", [False, True])
def test_scores_of_mixed_axes(flat):
    case, layer, width = Case(heads=3, head_dim=8), 1, 5
    axes = torch.tensor([[[0, 0], [0, 1], [3, 2], [7, 0], [2, 4], [6, 3], [1, 1]]])  # row and column
    encoding = case.encoding("rope-mixed", num_hidden_layers=2, grid_width=width)
    freqs_x, freqs_y = parameter(encoding, f"layer.{layer}.freqs")

    def turned(x, at, h):
        row, column = axes[0, at].tolist()
        return (x[0::2] + 1j * x[1::2]) * np.exp(1j * (column * freqs_x[h] + row * freqs_y[h]))

    def score(b, h, m, n):
        return (turned(case.q(b, m, h), m, h) @ turned(case.k(b, n, h), n, h).conj()).real / np.sqrt(case.head_dim)

    case.check(encoding, score, axes[..., 0] * width + axes[..., 1] if flat else axes, layer=layer)


def test_linear_attention_takes_rows_for_each_head():
    case = Case()
    encoding = case.encoding("rope-mixed", grid_width=5)
    q, k, v = case.qkv()
    terms = encoding.terms(torch.arange(7), dtype=torch.float64)
    ours = roformer_cpp.linear_attention(q, k, v, terms=terms)
    for h in range(case.heads):
        rows = roformer_cpp.Rotation(terms.query.cos[:, :, h], terms.query.sin[:, :, h])
        own = (x[:, :, h : h + 1] for x in (q, k, v))
        alone = roformer_cpp.linear_attention(*own, terms=roformer_cpp.Terms(query=rows, key=rows))
        torch.testing.assert_close(ours[:, :, h : h + 1], alone, atol=tolerances.T1_ATOL, rtol=tolerances.T1_RTOL)
    with pytest.raises(ValueError, match="kernel fused needs rotations after the map that all heads share, got rows"):
        data = (x.float() for x in (q, k, v))
        roformer_cpp.linear_attention(*data, terms=encoding.float().terms(torch.arange(7)), kernel="fused")


@pytest.mark.parametrize("encoding, positions, words", [
    (made("axial-nd", grid_shape=GRID), torch.tensor([0, 60]), r"positions must be in 0..59, .* \[4, 3, 5\], got 60"),
    (made("axial-nd", grid_shape=GRID), torch.tensor([0, -1]), r"positions must be in 0..59, .* got -1"),
    (made("axial-nd", grid_shape=GRID), AXES_BTA[..., :2], r"\[axial-nd\] positions must have 3 axes, got 2"),
    (mrope(), AXES_BTA[..., :2], r"\[mrope\] positions must have 3 axes, got 2"),
    (mrope(), AXES_BTA[None], r"integers \[tokens\], .* got Long of 4 dimensions"),
    (made("rope-mixed", grid_width=3), AXES_BTA, r"\[rope-mixed\] positions must be flat or have 2 axes, got 3"),
])  # fmt: skip
def test_refuses_positions(encoding, positions, words):
    with pytest.raises(ValueError, match=words):
        encoding.terms(positions)
