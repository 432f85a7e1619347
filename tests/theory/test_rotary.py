"""What makes RoPE what it is (spec R-ROPE-01..08, R-ABS-08), of the operator and of the equations."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import roformer_cpp
from roformer_cpp import theory
from tolerances import NORM_F32, NORM_F64, T1_ATOL, T1_RTOL, VISIBLE

T1 = dict(atol=T1_ATOL, rtol=T1_RTOL)
POSITIONS = [0, 1, -3, 17, 1535, 10**5]


def vectors(count, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def rotated(x, positions):
    """The operator on one head for each position; float64."""
    heads = torch.as_tensor(x).reshape(len(positions), 1, -1)
    return roformer_cpp.rope(heads, torch.as_tensor(positions), layout="pairs").squeeze(1)


@pytest.mark.parametrize("dim", [2, 4, 64, 128])
def test_operator_is_the_block_matrix(dim):  # R-ROPE-04, R-ROPE-06
    x = vectors(len(POSITIONS), dim)
    dense = np.stack([theory.rotary_matrix(m, dim) @ row for m, row in zip(POSITIONS, x, strict=True)])
    # NumPy's angles m theta are products in float64: off by an ulp of the largest.
    angle_error = max(POSITIONS) * np.finfo(np.float64).eps
    assert_allclose(rotated(x, POSITIONS), dense, rtol=T1_RTOL, atol=T1_ATOL + 4 * angle_error)


@pytest.mark.parametrize("dim", [2, 4, 64, 128])
def test_matrices_form_a_group(dim):  # R-ROPE-04
    for m in (1, -3, 17, 1535):
        matrix = theory.rotary_matrix(m, dim)
        assert_allclose(matrix.T @ matrix, np.eye(dim), **T1)
        assert_allclose(np.linalg.det(matrix), 1, **T1)
        assert_allclose(matrix @ theory.rotary_matrix(2, dim), theory.rotary_matrix(m + 2, dim), **T1)
        assert_allclose(theory.rotary_matrix(-m, dim), matrix.T, **T1)
    assert_allclose(theory.rotary_matrix(0, dim), np.eye(dim), **T1)


def test_three_forms_of_the_score():  # R-ROPE-02, R-ROPE-05, R-CPX-07
    q, k = vectors(2, 16)
    for m, n in [(0, 0), (5, 3), (3, 5), (17, 1)]:
        by_matrix = (theory.rotary_matrix(m, 16) @ q) @ (theory.rotary_matrix(n, 16) @ k)
        by_complex = theory.inner_product(theory.rotate(q, m), theory.rotate(k, n))
        assert_allclose(by_matrix, theory.score(q, k, m - n), **T1)
        assert_allclose(by_complex, theory.score(q, k, m - n), **T1)
        assert_allclose(q @ theory.rotary_matrix(n - m, 16) @ k, by_matrix, **T1)


def angle_between(x, y):
    """How far y is turned from x, both vectors of the plane; within (-pi, pi]."""
    return np.angle(theory.as_complex(y) / theory.as_complex(x)).item()


def test_polar_derivation():  # R-ROPE-03 (Eq. 26-33), of the operator in the plane, where theta is 1
    q, k = vectors(2, 2)

    def g(m, n):  # of which the score is the real part
        return theory.pair_products(rotated(q, [m]).numpy()[0], rotated(k, [n]).numpy()[0]).item()

    for m, n in [(0, 0), (5, 2), (9, 6)]:
        assert_allclose(abs(g(m, n)), np.linalg.norm(q) * np.linalg.norm(k), **T1)  # 26a, 27: lengths know no position
    assert_allclose([g(9, 6), g(105, 102)], [g(5, 2)] * 2, **T1)  # 31: an angle more for all positions cancels
    assert abs(g(6, 2) - g(5, 2)) > VISIBLE

    turns = [[angle_between(x, rotated(x, [m])[0].numpy()) for m in range(4)] for x in (q, k)]
    assert_allclose(turns[0], turns[1], **T1)  # 28: how far a vector is turned does not depend on it
    assert_allclose(turns[0], [0, 1, 2, 3], **T1)  # 29, 30, 33: by theta a step, and not at all at 0
    # phi(m+1) - phi(m) = Theta_g(1) - (Theta_q - Theta_k), with g as a function of m - n.
    assert_allclose(np.angle(g(1, 0)), angle_between(k, q) + 1, **T1)


def test_the_radial_part_is_a_choice_where_queries_and_keys_differ():  # R-ROPE-03: xPos
    positions = torch.tensor([0, 2, 400, 402])
    terms = roformer_cpp.encoding("xpos", head_dim=4).terms(positions, dtype=torch.double)
    q, k = (
        (turn.cos + 1j * turn.sin)[0].numpy() * theory.as_complex(x)
        for turn, x in zip((terms.query, terms.key), vectors(2, 4), strict=True)
    )
    scores = (q @ k.conj().T).real
    assert_allclose(scores[3, 2], scores[1, 0], rtol=T1_RTOL)
    assert_allclose(scores[2, 3], scores[0, 1], rtol=T1_RTOL)
    assert (np.abs(np.abs(q[3]) / np.abs(q[0]) - 1) > VISIBLE).all()  # lengths are not kept


def test_norms_are_kept():  # R-ROPE-08
    positions = [1, 1000, 10**6]
    x = vectors(3, 64)
    norms = np.linalg.norm(x, axis=1)
    assert_allclose(rotated(x, positions).norm(dim=1), norms, rtol=NORM_F64)
    assert_allclose(rotated(x.astype(np.float32), positions).double().norm(dim=1), norms, rtol=NORM_F32)


def test_rotation_depends_on_the_token_and_addition_does_not():  # R-ABS-08
    x = vectors(2, 8)
    increments = np.stack([theory.rotary_matrix(5, 8) @ row - row for row in x])
    assert not np.allclose(increments[0], increments[1])
    added = [(row + theory.sinusoid(5, 8)) - row for row in x]
    assert_allclose(added[0], added[1], **T1)
