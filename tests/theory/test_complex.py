"""Complex numbers as matrices and rotations (spec R-CPX-01..09), against Python's complex arithmetic and mpmath."""

import math

import mpmath
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from roformer_cpp import theory
from tolerances import T1_ATOL, T1_RTOL

T1 = dict(atol=T1_ATOL, rtol=T1_RTOL)


def random_complex(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(count) + 1j * rng.standard_normal(count)


def test_vectors_and_complex_numbers_are_the_same_thing():  # R-CPX-01, R-CPX-09
    assert_array_equal(theory.as_complex([1.0, 2.0, 3.0, 4.0]), [1 + 2j, 3 + 4j])
    x = np.random.default_rng(0).standard_normal((3, 8))
    assert_array_equal(theory.as_real(theory.as_complex(x)), x)


def test_matrix_multiplies_as_the_number_does():  # R-CPX-02
    for z, w in zip(random_complex(1000), random_complex(1000, 1), strict=True):
        assert_allclose(theory.complex_matrix(z) @ [w.real, w.imag], [(z * w).real, (z * w).imag], **T1)


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
        assert_allclose(theory.complex_matrix(z).T, theory.complex_matrix(z.conjugate()), **T1)
        assert_allclose(np.linalg.det(theory.complex_matrix(z)), abs(z) ** 2, **T1)


def test_polar_form():  # R-CPX-05
    for z in random_complex(20):
        r, phi = math.hypot(z.real, z.imag), math.atan2(z.imag, z.real)
        exact = r * mpmath.expj(phi)
        assert_allclose([z.real, z.imag], [float(exact.real), float(exact.imag)], **T1)


def test_rotation_is_multiplication_by_a_unit():  # R-CPX-06
    rotation = theory.rotation_matrix
    for z, (a, b) in zip(random_complex(50), np.random.default_rng(2).uniform(-7, 7, (50, 2)), strict=True):
        assert_allclose(theory.complex_matrix(z), abs(z) * rotation(np.angle(z)), **T1)
        assert_allclose(rotation(a) @ rotation(b), rotation(a + b), **T1)
        assert_allclose(rotation(a) @ rotation(a).T, np.eye(2), **T1)


def test_inner_product_is_the_real_part():  # R-CPX-07
    product = (3 + 5j) * (1 - 6j)
    assert product == 33 - 13j
    q, k = theory.as_complex([3.0, 5.0]), theory.as_complex([1.0, 6.0])
    assert (q * k.conj()).real[0] == np.dot([3, 5], [1, 6]) == 33


def test_inner_product_by_angles():  # R-CPX-08
    for z, w in zip(random_complex(50), random_complex(50, 1), strict=True):
        dot = z.real * w.real + z.imag * w.imag
        assert_allclose(dot, abs(z) * abs(w) * np.cos(np.angle(z) - np.angle(w)), **T1)
        turn = np.exp(0.7j)
        assert_allclose(((z * turn) * (w * turn).conjugate()).real, dot, **T1)
