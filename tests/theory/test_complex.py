"""Complex numbers as matrices and rotations (spec R-CPX-01..09): the functions of theory.py, and the operator that
rotates, against Python's complex arithmetic and mpmath."""

import cmath
import math

import mpmath
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import roformer_cpp
from roformer_cpp import theory
from tolerances import T1_ATOL, T1_RTOL

T1 = dict(atol=T1_ATOL, rtol=T1_RTOL)


def random_complex(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(count) + 1j * rng.standard_normal(count)


def vector(z):
    return np.array([z.real, z.imag])


def turned(z, angle):
    """The vector of z, turned by the operator: the frequency of a single pair is 1, so a position is an angle."""
    x = torch.as_tensor(vector(z)).reshape(1, 1, 2)
    return roformer_cpp.rope(x, torch.tensor([angle], dtype=torch.float64), layout="pairs").numpy().reshape(2)


def test_vectors_and_complex_numbers_are_the_same_thing():  # R-CPX-01, R-CPX-09
    assert_array_equal(theory.as_complex([1.0, 2.0, 3.0, 4.0]), [1 + 2j, 3 + 4j])
    assert_array_equal(theory.as_real(np.array([1 + 2j, 3 + 4j])), [1.0, 2.0, 3.0, 4.0])
    x = np.random.default_rng(0).standard_normal((3, 8))
    assert_array_equal(theory.as_real(theory.as_complex(x)), x)


def test_matrix_multiplies_as_the_number_does():  # R-CPX-02
    for z, w in zip(random_complex(50), random_complex(50, 1), strict=True):
        a, b, c, d = z.real, z.imag, w.real, w.imag
        assert_allclose(theory.complex_matrix(z) @ [c, d], [a * c - b * d, b * c + a * d], **T1)


def test_matrices_commute_and_represent():  # R-CPX-03
    matrix = theory.complex_matrix
    for z, w in zip(random_complex(50), random_complex(50, 1), strict=True):
        assert_allclose(matrix(z) @ matrix(w), matrix(z * w), **T1)
        assert_allclose(matrix(z) @ matrix(w), matrix(w) @ matrix(z), **T1)
    assert_array_equal(matrix(1 + 0j), np.eye(2))
    assert_array_equal(matrix(1j), [[0, -1], [1, 0]])
    assert_array_equal(matrix(1j) @ matrix(1j), -np.eye(2))


def test_conjugate_and_magnitude():  # R-CPX-04
    for z in random_complex(50):
        length, angle = theory.polar(z)
        assert_allclose(length, float(mpmath.hypot(z.real, z.imag)), **T1)
        assert_allclose(theory.polar(z.conjugate()), [length, -angle], **T1)
        assert_allclose(theory.complex_matrix(z).T, theory.complex_matrix(z.conjugate()), **T1)
        assert_allclose(theory.inner_product(vector(z), vector(z)), length**2, **T1)  # z z* = |z|^2
        assert_allclose(np.linalg.det(theory.complex_matrix(z)), length**2, **T1)


def test_polar_form():  # R-CPX-05, Euler
    for z in [*random_complex(20), 1j, -1 + 0j, 3 + 0j]:
        length, angle = theory.polar(z)
        assert_allclose([length, angle], cmath.polar(z), **T1)
        assert_allclose(theory.from_polar(length, angle), z, **T1)
        assert_allclose(theory.from_polar(length, angle), complex(length * mpmath.expj(angle)), **T1)
        assert_allclose(theory.from_polar(length, -angle), z.conjugate(), **T1)


@pytest.mark.parametrize("turn", [lambda z, a: theory.rotation_matrix(a) @ vector(z), turned], ids=["matrix", "rope"])
def test_rotation_is_multiplication_by_a_unit(turn):  # R-CPX-06
    for z, (a, b) in zip(random_complex(50), np.random.default_rng(2).uniform(-7, 7, (50, 2)), strict=True):
        assert_allclose(turn(z, a), vector(z * cmath.exp(1j * a)), **T1)
        assert_allclose(turn(complex(*turn(z, a)), b), turn(z, a + b), **T1)
        # From (1, 0): the formulas for sums of angles.
        (cos_a, sin_a), (cos_b, sin_b) = turn(1 + 0j, a), turn(1 + 0j, b)
        sums = [cos_a * cos_b - sin_a * sin_b, sin_a * cos_b + cos_a * sin_b]
        assert_allclose(sums, [math.cos(a + b), math.sin(a + b)], **T1)


def test_inner_product_is_the_real_part():  # R-CPX-07
    assert_array_equal(theory.complex_matrix(3 + 5j) @ [1, -6], [33, -13])
    assert theory.inner_product([3.0, 5.0], [1.0, 6.0]) == 33
    q, k = np.random.default_rng(0).standard_normal((2, 7, 16))
    assert_allclose(theory.inner_product(q, k), [math.fsum(a * b) for a, b in zip(q, k, strict=True)], **T1)


def test_inner_product_by_angles():  # R-CPX-08
    for z, w in zip(random_complex(50), random_complex(50, 1), strict=True):
        (r, alpha), (s, beta) = theory.polar(z), theory.polar(w)
        dot = z.real * w.real + z.imag * w.imag
        assert_allclose(r * s * math.cos(alpha - beta), dot, **T1)
        assert_allclose(theory.inner_product(turned(z, 0.7), turned(w, 0.7)), dot, **T1)
        seen = r * s * math.cos(alpha - beta + 0.3)  # unequal turns: their difference is seen
        assert_allclose(theory.inner_product(turned(z, 1.0), turned(w, 0.7)), seen, **T1)
