"""Sinusoids, strawmen, and attention as a kernel smoother (spec R-ABS-06, R-ABS-07, R-ATT-04)."""

import numpy as np
import torch
from numpy.testing import assert_allclose, assert_array_equal

import roformer_cpp
from roformer_cpp import theory
from tolerances import T1_ATOL, T1_RTOL

T1 = dict(atol=T1_ATOL, rtol=T1_RTOL)
DIM = 16


def test_periods_grow_from_two_pi_and_stay_below_the_limit():  # R-ABS-06 (a)
    periods = [theory.sinusoid_period(j, DIM) for j in range(DIM)]
    assert periods[0] == 2 * np.pi and (np.diff(periods) > 0).all()
    assert periods[-1] < 2 * np.pi * 10000
    for j in (0, 5):  # sin(p w) is periodic in p
        frequency = 10000.0 ** (-j / DIM)
        assert_allclose(np.sin((3 + periods[j]) * frequency), np.sin(3 * frequency), **T1)


def test_rows_do_not_depend_on_the_length_and_are_distinct():  # R-ABS-06 (b, c)
    rows = np.stack([theory.sinusoid(p, DIM) for p in range(10000)])
    assert_array_equal(rows[7], theory.sinusoid(7, DIM))
    assert len(np.unique(rows, axis=0)) == 10000
    assert np.abs(rows).max() <= 1


def test_a_shift_is_linear():  # R-ABS-06 (d)
    for offset in (1, 5, -3):
        shift = theory.sinusoid_shift(offset, DIM)
        for position in (0, 4, 100):
            assert_allclose(shift @ theory.sinusoid(position, DIM), theory.sinusoid(position + offset, DIM), **T1)


def test_sinusoid_columns():  # Eq. 4
    row = theory.sinusoid(3, 4)
    assert_allclose(row, [np.sin(3), np.cos(3), np.sin(0.03), np.cos(0.03)], **T1)


def test_strawmen():  # R-ABS-07
    assert theory.raw_label(10**6, 10**7)[0] == 10**6
    assert theory.normalised_label(2, 5)[0] != theory.normalised_label(2, 100)[0]
    assert [theory.binary_label(p, 4).tolist() for p in range(4)] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    jump = np.abs(theory.binary_label(3, 8) - theory.binary_label(4, 8)).sum()
    assert jump == 3  # neighbours that differ in every digit


def test_general_form_with_an_exponential_similarity_is_softmax_attention():  # R-ATT-04 (Eq. 17)
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 5, 8))
    similarity = np.exp(q @ k.T / np.sqrt(8))
    smoothed = similarity @ v / similarity.sum(axis=1, keepdims=True)
    softmax = roformer_cpp.attention(*(torch.as_tensor(x)[None, :, None] for x in (q, k, v)))[0, :, 0]
    assert_allclose(softmax.numpy(), smoothed, **T1)
