"""Long-term decay: what decays and what does not (R-DEC-01..05, R-FIG-2)."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import roformer_cpp
from roformer_cpp import theory
from tolerances import DECAY_GOLDEN, DECAY_PRINTED, SCORE_VARIANCE, T1_ATOL, T1_RTOL

T1 = dict(atol=T1_ATOL, rtol=T1_RTOL)


def random_pair(rng, dim):
    return rng.standard_normal(dim), rng.standard_normal(dim)


def rotated(x, position):
    """Vectors [N, d] by the operator, all at one position."""
    return roformer_cpp.rope(torch.as_tensor(x)[None], torch.tensor([position]), layout="pairs")[0].numpy()


class Exact:
    """The quantities of Eq. 35-37 for one q, k and distance, in mpmath and in loops."""

    def __init__(self, q, k, distance):
        with mpmath.workdps(40):
            pairs = range(len(q) // 2)
            self.h = [mpmath.mpc(*q[2 * i : 2 * i + 2]) * mpmath.mpc(*k[2 * i : 2 * i + 2]).conjugate() for i in pairs]
            turns = [mpmath.expj(distance * mpmath.mpf(10000) ** (-mpmath.mpf(2 * i) / len(q))) for i in pairs]
            self.score = mpmath.fsum(h * turn for h, turn in zip(self.h, turns, strict=True)).real
            self.sums = [mpmath.fsum(turns[:j]) for j in range(len(q) // 2 + 1)]
            self.steps = [after - before for before, after in zip(self.h, [*self.h[1:], mpmath.mpc(0)], strict=True)]
            self.terms = [total * step for total, step in zip(self.sums[1:], self.steps, strict=True)]
            self.bound = max(map(abs, self.steps)) * mpmath.fsum(map(abs, self.sums))


DISTANCES = (0, 1, 33, -7, 1000)


def test_score_is_a_sum_of_turned_products():  # R-DEC-01
    rng = np.random.default_rng(0)
    for r in DISTANCES:
        q, k = random_pair(rng, 64)
        exact = Exact(q, k, r)
        assert_allclose(theory.pair_products(q, k), [complex(h) for h in exact.h], **T1)
        assert_allclose(theory.score(q, k, r), float(exact.score), **T1)
        assert_allclose(rotated(q[None], r)[0] @ k, float(exact.score), **T1)


def test_abel_transformation():  # R-DEC-02
    rng = np.random.default_rng(1)
    for r in DISTANCES:
        q, k = random_pair(rng, 64)
        exact = Exact(q, k, r)
        assert_allclose(theory.partial_sums(r, 64), [complex(s) for s in exact.sums], **T1)
        assert_allclose(theory.abel_terms(q, k, r), [complex(term) for term in exact.terms], **T1)
        assert_allclose(-theory.abel_terms(q, k, r).sum().real, theory.score(q, k, r), **T1)


def test_bound_is_that_of_the_paper():  # R-DEC-03: with the last step, to h_{d/2} = 0, and no larger than said
    rng = np.random.default_rng(2)
    for r in DISTANCES:
        q, k = random_pair(rng, 8)
        assert_allclose(theory.abel_bound(q, k, r), float(Exact(q, k, r).bound), **T1)
    last = np.array([1.0, 0.0, 1.0, 0.0])  # h = (1, 1): only the last step is not 0
    assert theory.abel_bound(last, last, 0) == 3


def test_bound_is_never_violated():  # R-DEC-03
    rng = np.random.default_rng(2)
    for _ in range(1000):
        q, k = random_pair(rng, 8)
        r = int(rng.integers(-5000, 5000))
        terms = theory.abel_terms(q, k, r)
        chain = [abs(theory.score(q, k, r)), abs(terms.sum()), np.abs(terms).sum(), theory.abel_bound(q, k, r)]
        assert all(a <= b * (1 + T1_RTOL) for a, b in pairwise(chain)), chain


# A.4
CURVE_128 = {
    0: 32.5,
    1: 31.5381661426581,
    2: 28.9559884735645,
    3: 25.5989974920569,
    5: 20.8453577783568,
    10: 17.9541371370848,
    20: 15.2424301087219,
    50: 12.6294524883192,
    100: 10.2273299485051,
    150: 7.58847730723215,
    200: 7.24477074851051,
    250: 6.5481790319416,
    256: 6.54309732297894,
    275: 7.01776084361397,
}
CURVE_64 = {0: 16.5, 1: 15.9477637976489, 10: 8.81433442343953, 100: 7.46527659994245, 256: 3.84356383909008}


@pytest.mark.parametrize("dim, curve", [(128, CURVE_128), (64, CURVE_64)])
def test_figure_2(dim, curve):
    for r, value in curve.items():
        assert_allclose(theory.decay_curve(r, dim), value, atol=DECAY_GOLDEN)


def test_figure_2_falls_on_average_but_not_at_every_step():
    curve = np.array([theory.decay_curve(r) for r in range(257)])
    blocks = curve[:256].reshape(8, 32).mean(axis=1)
    assert (np.diff(blocks) < 0).all()
    assert_allclose(blocks, [17.938, 12.020, 10.454, 9.586, 8.913, 8.389, 7.972, 7.797], atol=DECAY_PRINTED * 10)
    assert int((np.diff(curve) > 0).sum()) == 115
    ranks = np.argsort(np.argsort(curve))
    assert_allclose(np.corrcoef(np.arange(257), ranks)[0, 1], -0.8708, atol=DECAY_PRINTED)
    assert curve.argmin() == 236
    assert_allclose(curve.min(), 6.414997029110422, atol=DECAY_GOLDEN)


# base: values at distances 1, 10, 50, 100, 200
SWEEP = {
    10: [31.724, 9.866, 2.198, 1.251, 5.931],
    100: [31.469, 12.636, 4.387, 4.491, 6.009],
    1000: [31.476, 15.54, 8.404, 6.878, 5.891],
    10**4: [31.538, 17.954, 12.629, 10.227, 7.245],
    10**6: [31.664, 21.289, 17.502, 13.533, 11.861],
}


def test_other_bases_decay_too():  # R-DEC-05
    found = [[theory.decay_curve(r, 128, base) for r in (1, 10, 50, 100, 200)] for base in SWEEP]
    assert_allclose(found, list(SWEEP.values()), atol=DECAY_PRINTED * 10)


def test_score_of_ones():  # R-DEC-04 (a)
    golden = {
        0: 64,
        1: 61.83366332,
        4: 47.86872312,
        16: 38.74564052,
        64: 27.81217852,
        256: 22.6357363,
        1024: 16.82719942,
    }
    for r, value in golden.items():
        assert_allclose(theory.score(np.ones(64), np.ones(64), r), value, atol=DECAY_GOLDEN * 10)


@pytest.mark.parametrize("r", [0, 1, 10, 100, 1000])
def test_random_scores_do_not_decay(r):  # R-DEC-04 (b): E = 0 and Var = d at every distance
    rng = np.random.default_rng(3)
    dim, samples = 16, 200_000
    q, k = rng.standard_normal((2, samples, dim))
    scores = theory.score(q, k, r)
    assert_allclose((rotated(q, r) * k).sum(axis=1), scores, **T1)
    assert abs(scores.var() / dim - 1) < SCORE_VARIANCE
    assert abs(scores.mean()) < SCORE_VARIANCE * np.sqrt(dim)
