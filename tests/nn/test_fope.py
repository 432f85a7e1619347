"""FoPE (Hua et al. 2024; R-ROPE-12) against loops in float64."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import TINY_IDS, TINY_MODEL, Case, parameter
from initial_values import HEADS, normal
from tolerances import T1_ATOL, T1_RTOL

REFUSED = {"fope": [
    ({"head_dim": 5}, "head_dim must be even for fope, got 5"),
    ({"max_position_embeddings": 6}, "fope.num_inv_freq must be given where no frequency turns within"),
    ({"num_inv_freq": 0}, "num_inv_freq"),
    ({"num_inv_freq": 5, "head_dim": 8}, "num_inv_freq"),
    ({"num_inv_freq": 2, "output_dim": 3}, "fope.output_dim must be at most the 2 frequencies, got 3"),
    ({"fope_init_factor": -1}, "fope_init_factor"),
    ({"rope_theta": 0}, "rope_theta"),
]}  # fmt: skip

SWEEP_KEYS = {"fope": {"trainable": True}}


def identity_and_noise(values, name):
    """[H, K, d], as the authors' program: 1 at the pair's own frequency, and 0.3 of Glorot's draw. Two of four
    frequencies turn once in the 64 positions of the sweep."""
    assert values.shape == (HEADS, 2, 2)
    normal(values - np.eye(2), name, deviation=0.3 * math.sqrt(2 / (HEADS * 2 + 2 * 2)))


STARTS = {"fope": {"cos_coef": identity_and_noise, "sin_coef": identity_and_noise}}

LAYER, LENGTH = 1, 100  # of heads of 8, the first two of four frequencies are above 2 pi / 100
POSITIONS = torch.tensor([0, 1, 5, 63, 700, 100000, 3])


def encoding_of(case, **keys):
    return case.encoding("fope", num_hidden_layers=2, max_position_embeddings=LENGTH, **keys)


def turned(x, cos, sin):
    """Pairs (d, d + D/2) of a vector, the first pairs by cos and sin, the rest as they are."""
    half = len(x) // 2
    cos = np.concatenate([cos, np.ones(half - len(cos))])
    sin = np.concatenate([sin, np.zeros(half - len(sin))])
    a, b = x[:half], x[half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos])


def fourier(case, encoding, frequencies, base=10000):
    cos_coef, sin_coef = (parameter(encoding, f"layer.{LAYER}.{name}_coef") for name in ("cos", "sin"))
    theta = base ** (-2 * np.arange(frequencies) / case.head_dim)

    def rotated(x, at, h):
        h %= len(cos_coef)
        angle = int(POSITIONS[at]) * theta
        return turned(x, np.cos(angle) @ cos_coef[h], np.sin(angle) @ sin_coef[h])

    def score(b, h, m, n):
        return rotated(case.q(b, m, h), m, h) @ rotated(case.k(b, n, h), n, h) / math.sqrt(case.head_dim)

    return score


@pytest.mark.parametrize(("keys", "frequencies"), [
    ({}, 2),
    ({"num_inv_freq": 4}, 4),
    ({"num_inv_freq": 3, "output_dim": 2}, 3),
    ({"rope_theta": 100}, 3),
    ({"fope_sep_head": False}, 2),
])  # fmt: skip
def test_scores_are_those_of_the_paper(keys, frequencies):
    case = Case(heads=3, head_dim=8)
    encoding = encoding_of(case, **keys)
    coefficients = encoding.get_parameter(f"layer.{LAYER}.cos_coef")
    heads = 3 if keys.get("fope_sep_head", True) else 1
    assert coefficients.shape == (heads, frequencies, keys.get("output_dim", frequencies))
    case.check(encoding, fourier(case, encoding, frequencies, keys.get("rope_theta", 10000)), POSITIONS, layer=LAYER)


def test_without_draws_it_is_rope_whose_slow_pairs_stand_still():
    """rope_type hope keeps the same frequencies (Chen et al. 2024)."""
    case = Case(heads=2, head_dim=8)
    shape = {"num_attention_heads": 2, "head_dim": 8, "max_position_embeddings": LENGTH}
    fope = roformer_cpp.encoding("fope", fope_init_factor=0, **shape).double()
    hope = {"rope_type": "hope", "original_max_position_embeddings": LENGTH}
    rope = roformer_cpp.encoding("rope", layout="halves", rope_parameters=hope, **shape).double()
    ours, theirs = (case.attention(each, POSITIONS) for each in (fope, rope))
    np.testing.assert_allclose(ours, theirs, atol=T1_ATOL, rtol=T1_RTOL)


def test_starts_as_the_authors_do():
    """At 1 where the frequency is the pair's own; the draw is that of STARTS."""
    torch.manual_seed(0)
    shape = {"num_attention_heads": 300, "head_dim": 32, "num_inv_freq": 12, "max_position_embeddings": LENGTH}
    encoding = roformer_cpp.encoding("fope", output_dim=5, **shape)
    cos, sin = (parameter(encoding, f"layer.0.{name}_coef").astype(float) for name in ("cos", "sin"))
    for drawn in (cos, sin):
        drawn[:, [0, 3, 6, 9], [0, 1, 2, 3]] -= 1
        normal(drawn, "coefficients", deviation=0.3 * math.sqrt(2 / (300 * 5 + 12 * 5)))
    assert not np.array_equal(cos, sin)


@pytest.mark.parametrize("trainable", [False, True])
def test_coefficients_are_trained_where_asked_for(trainable):
    model = roformer_cpp.build_model(TINY_MODEL | {"position_encoding": {"type": "fope", "trainable": trainable}})
    coefficients = [(name, each) for name, each in model.named_parameters() if name.endswith("_coef")]
    assert len(coefficients) == 2 * TINY_MODEL["num_hidden_layers"]
    model.encode(TINY_IDS).square().sum().backward()
    for _, each in coefficients:
        assert each.requires_grad == trainable
        assert (each.grad is not None and each.grad.abs().max() > 0) == trainable
