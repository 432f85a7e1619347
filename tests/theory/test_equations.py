"""Functions of theory.py, and the operator that rotates, against Python's complex arithmetic and mpmath. The page
docs/theory.md, whose blocks test_page.py runs, holds the rest of the mathematics to the same functions."""

import cmath
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import roformer_cpp
from roformer_cpp import theory
from tolerances import T1_ATOL, T1_RTOL

T1 = dict(atol=T1_ATOL, rtol=T1_RTOL)
DIM = 16


def vectors(count, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def vector(z):
    return np.array([z.real, z.imag])


def turned(z, angle):
    """The vector of z, turned by the operator: the frequency of a single pair is 1, so a position is an angle."""
    x = torch.as_tensor(vector(z)).reshape(1, 1, 2)
    return roformer_cpp.rope(x, torch.tensor([angle], dtype=torch.float64), layout="pairs").numpy().reshape(2)


# ---- complex numbers ----


def test_vectors_and_complex_numbers_are_the_same_thing():  # R-CPX-01, R-CPX-09
    assert_array_equal(theory.as_complex([1.0, 2.0, 3.0, 4.0]), [1 + 2j, 3 + 4j])
    x = vectors(3, 8)
    assert_array_equal(theory.as_real(theory.as_complex(x)), x)


def test_numbers_as_matrices_and_angles():  # R-CPX-02..08
    pairs = theory.as_complex(vectors(50, 4)).tolist()
    for z, w in [*pairs, (1j, -1 + 0j), (-1 + 0j, 3 + 0j)]:
        length, angle = theory.polar(z)
        assert_allclose([length, angle], cmath.polar(z), **T1)
        assert_allclose(theory.from_polar(length, angle), complex(length * mpmath.expj(angle)), **T1)
        assert_allclose(theory.complex_matrix(z) @ vector(w), vector(z * w), **T1)
        assert_allclose(theory.inner_product(vector(z), vector(w)), (z * w.conjugate()).real, **T1)
        for turn in (lambda x, a: theory.rotation_matrix(a) @ vector(x), turned):
            assert_allclose(turn(z, w.real), vector(z * cmath.exp(1j * w.real)), **T1)


# ---- sinusoids and strawmen ----


def test_periods_grow_from_two_pi_and_stay_below_the_limit():  # R-ABS-06 (a)
    periods = [theory.sinusoid_period(j, DIM) for j in range(DIM)]
    assert periods[0] == 2 * np.pi and (np.diff(periods) > 0).all()
    assert periods[-1] < 2 * np.pi * 10000
    frequency = 10000.0 ** (-5 / DIM)  # sin(p w) is periodic in p
    assert_allclose(np.sin((3 + periods[5]) * frequency), np.sin(3 * frequency), **T1)


def test_strawmen():  # R-ABS-07
    assert theory.raw_label(10**6, 10**7)[0] == 10**6
    assert [theory.binary_label(p, 4).tolist() for p in range(4)] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    jump = np.abs(theory.binary_label(3, 8) - theory.binary_label(4, 8)).sum()
    assert jump == 3  # neighbours that differ in every digit


# ---- rotation and decay ----


@pytest.mark.parametrize(("distance", "base"), [(0, 10**4), (1, 10), (33, 10**4), (-7, 100), (1000, 10**6)])
def test_scores_and_sums(distance, base):  # R-DEC-01..05, R-FIG-2: Eq. 35-37 in mpmath and in loops
    q, k = vectors(2, 64, seed=1)
    with mpmath.workdps(40):
        h = [mpmath.mpc(*q[2 * i : 2 * i + 2]) * mpmath.mpc(*k[2 * i : 2 * i + 2]).conjugate() for i in range(32)]
        turns = [mpmath.expj(distance * mpmath.mpf(base) ** (-mpmath.mpf(2 * i) / 64)) for i in range(32)]
        score = mpmath.fsum(each * turn for each, turn in zip(h, turns, strict=True)).real
        sums = [mpmath.fsum(turns[:j]) for j in range(33)]
        steps = [after - before for before, after in pairwise([*h, mpmath.mpc(0)])]
        terms = [complex(total * step) for total, step in zip(sums[1:], steps, strict=True)]
        bound = max(map(abs, steps)) * mpmath.fsum(map(abs, sums))
    assert_allclose(theory.pair_products(q, k), [complex(each) for each in h], **T1)
    assert_allclose(theory.score(q, k, distance, base), float(score), **T1)
    assert_allclose(theory.inner_product(theory.rotate(q, distance, base), k), float(score), **T1)
    assert_allclose(theory.partial_sums(distance, 64, base), [complex(s) for s in sums], **T1)
    assert_allclose(theory.abel_terms(q, k, distance, base), terms, **T1)
    assert_allclose(theory.abel_bound(q, k, distance, base), float(bound), **T1)
    mean = mpmath.fsum(map(abs, sums)) / 32
    assert_allclose(theory.decay_curve(distance, 64, base), float(mean), **T1)


def test_bound_is_never_violated():  # R-DEC-03
    last = np.array([1.0, 0.0, 1.0, 0.0])  # h = (1, 1): only the last step, to h_{d/2} = 0, is not 0
    assert theory.abel_bound(last, last, 0) == 3
    rng = np.random.default_rng(2)
    for _ in range(1000):
        q, k = rng.standard_normal((2, 8))
        r = int(rng.integers(-5000, 5000))
        terms = theory.abel_terms(q, k, r)
        chain = [abs(theory.score(q, k, r)), abs(terms.sum()), np.abs(terms).sum(), theory.abel_bound(q, k, r)]
        assert all(a <= b * (1 + T1_RTOL) for a, b in pairwise(chain)), chain
