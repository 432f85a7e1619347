"""ReRoPE and Leaky ReRoPE (Su 2023; R-REL-15) against loops in float64."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case
from tolerances import T1_ATOL, T1_RTOL

REFUSED = {"rerope": [
    ({"window": 0}, "window"),
    ({"scaling_factor": 0.5}, "scaling_factor"),
    ({"trainable": True}, "rotary_value, trainable and log_n must be absent for rerope"),
    ({"rotary_value": True}, "must be absent for rerope"),
    ({"log_n": "position"}, "must be absent for rerope"),
    ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "frequencies of rerope must not depend on the len"),
]}  # fmt: skip

SWEEP_KEYS = {"rerope": {"window": 3}}

WINDOW = 4
POSITIONS = torch.tensor([0, 3, 4, 5, 20, 21, 700])


def encoding_of(case, **keys):
    return case.encoding("rerope", window=WINDOW, **keys)


def rectified(distance, factor):
    """The distance that a pair is rotated by; factor None: ReRoPE."""
    if abs(distance) < WINDOW:
        return distance
    beyond = 0 if factor is None else (abs(distance) - WINDOW) / factor
    return math.copysign(WINDOW + beyond, distance)


def score(case, factor=None, base=10000, rotary_dim=None, layout="pairs"):
    pairs = (rotary_dim or case.head_dim) // 2
    theta = base ** (-np.arange(pairs) / pairs)
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    if layout == "halves":
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)

    def of(b, h, m, n):
        q, k = case.q(b, m, h), case.k(b, n, h)
        angle = rectified(int(POSITIONS[m]) - int(POSITIONS[n]), factor) * theta
        product = (q[first] + 1j * q[second]) * np.conj(k[first] + 1j * k[second]) * np.exp(1j * angle)
        return (product.real.sum() + q[2 * pairs :] @ k[2 * pairs :]) / math.sqrt(case.head_dim)

    return of


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("keys", "loops"), [
    ({}, {}),
    ({"scaling_factor": 16}, {"factor": 16}),
    ({"scaling_factor": 1}, {"factor": 1}),
    ({"rope_theta": 100, "layout": "halves", "partial_rotary_factor": 0.5},
     {"base": 100, "layout": "halves", "rotary_dim": 4}),
])  # fmt: skip
def test_scores_are_those_of_the_author(keys, loops, causal):
    case = Case(heads=3, head_dim=8)
    case.check(encoding_of(case, **keys), score(case, **loops), POSITIONS, causal=causal)


def test_nearer_than_the_window_it_is_rope():
    case = Case(head_dim=8)
    rope = case.encoding("rope")
    positions = torch.tensor([7, 8, 9, 10, 10, 7, 8])
    terms = encoding_of(case).terms(positions, queries=case.qkv()[0], keys=case.qkv()[1], dtype=torch.float64)
    assert terms.pair_bias is None
    np.testing.assert_array_equal(case.attention(encoding_of(case), positions), case.attention(rope, positions))


def test_grouped_keys():
    case = Case(heads=4, head_dim=8)
    q, k, v = case.qkv()
    few, all_heads = k[:, :, :2], k[:, :, :2].repeat_interleave(2, 2)
    encoding = encoding_of(case)
    outs = []
    for keys, values in ((few, v[:, :, :2]), (all_heads, v[:, :, :2].repeat_interleave(2, 2))):
        terms = encoding.terms(POSITIONS, queries=q, keys=keys, dtype=torch.float64)
        outs.append(roformer_cpp.attention(q, keys, values, terms, positions=POSITIONS))
    torch.testing.assert_close(*outs, atol=T1_ATOL, rtol=T1_RTOL)


def test_what_it_reads_must_be_given():
    encoding = roformer_cpp.encoding("rerope", head_dim=8)
    q = torch.zeros(1, 3, 1, 8)
    for given, words in (
        ({}, "terms must be given queries, which this encoding reads, got none"),
        ({"queries": q}, "terms must be given keys, which this encoding reads, got none"),
        ({"queries": q, "keys": q[:, :2]}, r"keys must be \[batch, 3 tokens, heads, head_dim\], got \[1, 2, 1, 8\]"),
        ({"queries": q, "keys": q[..., :4]}, r"keys must fit queries \[1, 3, 1, 8\], got \[1, 3, 1, 4\]"),
        ({"queries": q[..., :4], "keys": q[..., :4]}, "queries must have head_dim 8 numbers, got 4"),
        ({"queries": q.long(), "keys": q}, "queries must be floating-point, got Long"),
        ({"queries": q, "keys": q.to("meta")}, "keys must have values, got a tensor of the device meta"),
    ):
        with pytest.raises(ValueError, match=words):
            encoding.terms(torch.arange(3), **given)
    with pytest.raises(TypeError, match="queries must be a tensor, got list"):
        encoding.terms(torch.arange(3), queries=[1], keys=q)
