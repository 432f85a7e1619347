"""Rotary embedding whose slow pairs stay still: p-RoPE (Barbero et al. 2024, section 6) by a share, HoPE (Chen et al.
2024) by the training length, clipped RoPE (Li et al. 2026) gradually. Scores in NumPy, pair by pair, as products of
complex numbers (R-ROPE-02)."""

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances
from nn.test_rope import random_THD, scores

D = 24
POSITIONS = np.array([0, 1, 2, 511, 4095])


def expected_scores(q_THD, k_THD, turns, base):
    """Sum over the pairs (2i, 2i + 1) of Re(q k* e^(i (m - n) theta)), theta 0 where a pair does not turn."""
    theta = base ** (-2 * np.arange(D // 2) / D) * turns
    q, k = ((x[..., 0::2] + 1j * x[..., 1::2]).transpose(1, 0, 2) for x in (q_THD, k_THD))
    angle = (POSITIONS[:, None, None] - POSITIONS[None, :, None]) * theta
    return np.einsum("hti,hsi,tsi->hts", q, k.conj(), np.exp(1j * angle)).real


@pytest.mark.parametrize("parameters, turning", [
    ({"rope_type": "proportional", "partial_rotary_factor": 0.75}, 9),
    ({"rope_type": "proportional", "partial_rotary_factor": 0.25}, 3),
    ({"rope_type": "proportional"}, 12),
    # Periods of the pairs: 2 pi 10000^(i / 12) = 6.3, 13.5, 29.2, 62.8, 135, 292, 628, ..
    ({"rope_type": "hope", "original_max_position_embeddings": 512}, 6),
    ({"rope_type": "hope", "original_max_position_embeddings": 63}, 4),
    ({"rope_type": "hope", "original_max_position_embeddings": 62}, 3),
    ({"rope_type": "hope", "original_max_position_embeddings": 7}, 1),
    ({"rope_type": "hope", "original_max_position_embeddings": 1000000}, 12),
])  # fmt: skip
def test_scores_are_those_of_the_papers(parameters, turning):
    q, k = random_THD(0), random_THD(1)
    encoding = roformer_cpp.encoding("rope", head_dim=D, rope_parameters=parameters)
    ours = scores(encoding.terms(torch.from_numpy(POSITIONS), dtype=torch.double), q, k)
    expected = expected_scores(q, k, np.arange(D // 2) < turning, 10000.0)
    np.testing.assert_allclose(ours, expected, atol=tolerances.SUM_ATOL)


def test_clipped_pairs_slow_down():
    """The slowest pairs, numbered j of n, turn (1 + cos(pi j / (n - 1))) / 2 times as fast."""
    q, k = random_THD(0), random_THD(1)
    encoding = roformer_cpp.encoding("rope", head_dim=D, rope_parameters={"rope_type": "clipped", "clip_low_n": 5})
    ours = scores(encoding.terms(torch.from_numpy(POSITIONS), dtype=torch.double), q, k)
    share = np.array([1] * 7 + [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0])  # cosines of 0, 45, .. 180 degrees
    np.testing.assert_allclose(ours, expected_scores(q, k, share, 10000.0), atol=tolerances.SUM_ATOL)


def test_clipped_in_float32_is_the_authors_arithmetic():
    """Their program multiplies torch's float32 frequencies by a float32 mask."""
    inv_freq = 1.0 / (10000.0 ** (torch.arange(0, D, 2, dtype=torch.int64).float() / D))
    mask = 0.5 * (1.0 + torch.cos(torch.linspace(0.0, torch.pi, steps=5)))
    inv_freq[-5:] *= mask
    positions = torch.tensor([0, 1, 77, 4095])
    parameters = {"rope_type": "clipped", "clip_low_n": 5}
    encoding = roformer_cpp.encoding("rope", head_dim=D, rope_parameters=parameters, precision="float32")
    rotation = encoding.terms(positions).query
    angle = positions[:, None].float() * inv_freq
    assert torch.equal(rotation.cos[0], angle.cos()) and torch.equal(rotation.sin[0], angle.sin())


@pytest.mark.parametrize("count", [1, 13])
def test_refuses_other_numbers_of_slow_pairs(count):
    with pytest.raises(ValueError, match=rf"clip_low_n must be an integer from 2 to 12, got {count}"):
        roformer_cpp.encoding("rope", head_dim=D, rope_parameters={"rope_type": "clipped", "clip_low_n": count})
