"""The encoding `xpos` beside loops written from arXiv 2212.10554 (R-ROPE-01)."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances
from nn.test_rope import SHIFTS, random_THD, scores

HEAD_DIM = 24
LONGEST = 35695  # 0.4/1.4 to this less one over 512 is the last normal float32


def encoding(**keys):
    return roformer_cpp.encoding("xpos", head_dim=HEAD_DIM, **keys)


def loop_scores(q_THD, k_THD, positions, scale_base):
    """q . k pair by pair: a rotation by the distance, times zeta to the distance over scale_base."""
    tokens, heads, head_dim = q_THD.shape
    result = np.zeros((heads, tokens, tokens))
    for h in range(heads):
        for m in range(tokens):
            for n in range(tokens):
                distance = positions[m] - positions[n]
                for i in range(head_dim // 2):
                    zeta = (2 * i / head_dim + 0.4) / 1.4
                    angle = distance * 10000.0 ** (-2 * i / head_dim)
                    (qa, qb), (ka, kb) = q_THD[m, h, 2 * i : 2 * i + 2], k_THD[n, h, 2 * i : 2 * i + 2]
                    turned = (qa * ka + qb * kb) * math.cos(angle) + (qa * kb - qb * ka) * math.sin(angle)
                    result[h, m, n] += zeta ** (distance / scale_base) * turned
    return result


@pytest.mark.parametrize("scale_base", [512, 64])
def test_scores_are_those_of_the_paper(scale_base):
    q, k = random_THD(0), random_THD(1)
    positions = [0, 1, 5, 40, 200]
    terms = encoding(scale_base=scale_base).terms(torch.tensor(positions), dtype=torch.double)
    expected = loop_scores(q, k, positions, scale_base)
    np.testing.assert_allclose(scores(terms, q, k), expected, atol=tolerances.SUM_ATOL, rtol=tolerances.SUM_ATOL)


def test_exponents_count_from_the_start_of_the_sequence():
    q, k = random_THD(0), random_THD(1)
    positions = torch.tensor([0, 1, 5, 40, 200])
    start = encoding().terms(positions, dtype=torch.double)
    for shift in SHIFTS:
        shifted = encoding().terms(positions + shift, dtype=torch.double)
        np.testing.assert_allclose(scores(shifted, q, k), scores(start, q, k), atol=tolerances.SUM_ATOL)
        here, there = (np.hypot(*(rows.numpy() for rows in terms.query)) for terms in (start, shifted))
        np.testing.assert_allclose(there, here, rtol=tolerances.T1_RTOL)
    packed = encoding().terms(torch.tensor([7, 8, 9, 3, 4]), sequences=torch.tensor([[0, 0, 0, 1, 1]]))
    for first, end in ((0, 3), (3, 5)):
        alone = encoding().terms(torch.tensor([7, 8, 9, 3, 4][first:end]))
        assert torch.equal(packed.query.cos[:, first:end], alone.query.cos)
        assert torch.equal(packed.key.sin[:, first:end], alone.key.sin)


def test_a_continuation_counts_from_the_first_key():
    whole = encoding().terms(torch.arange(90))
    last = encoding().terms(torch.tensor([89]), torch.arange(90))
    assert torch.equal(last.query.cos, whole.query.cos[:, -1:])
    assert torch.equal(last.key.cos, whole.key.cos)


def test_float32_rows_are_the_float64_ones_rounded():
    positions = torch.tensor([0, 1, 77, 3000])
    single, double = (encoding().terms(positions, dtype=dtype) for dtype in (torch.float32, torch.float64))
    for ours, exact in ((single.query, double.query), (single.key, double.key)):
        assert torch.equal(ours.cos, exact.cos.float())
        assert torch.equal(ours.sin, exact.sin.float())


def test_magnitudes_beyond_float32_are_refused():
    smallest = np.finfo(np.float32).tiny
    zeta = 0.4 / 1.4
    assert zeta ** ((LONGEST - 1) / 512) >= smallest > zeta ** (LONGEST / 512)
    for start in (0, 10**6):
        encoding().terms(torch.tensor([start, start + LONGEST - 1]))
        with pytest.raises(RuntimeError, match=f"at most {LONGEST} tokens .* got {LONGEST + 1}"):
            encoding().terms(torch.tensor([start, start + LONGEST]))


@pytest.mark.parametrize("dtype, factor", [
    (torch.float32, 1e-6), (torch.float32, 1e6), (torch.float16, None), (torch.float16, 8.0), (torch.float16, 0.125),
    (torch.bfloat16, None), (torch.float64, None),
])  # fmt: skip
def test_the_longest_sequence_is_normal_in_its_dtype(dtype, factor):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": factor}
    xpos = encoding(**({"rope_parameters": yarn} if factor else {}))
    limits = torch.finfo(torch.float16 if dtype == torch.float16 else torch.float32)
    with pytest.raises(RuntimeError, match=f"normal {limits.dtype} numbers, got 1000000001") as refusal:
        xpos.terms(torch.tensor([0, 10**9]), dtype=dtype)
    longest = int(str(refusal.value).split("at most ")[1].split()[0])
    terms = xpos.terms(torch.tensor([0, longest - 1, 0]), dtype=dtype)
    magnitudes = [np.hypot(*(rows.double().numpy() for rows in side)) for side in (terms.query, terms.key)]
    assert magnitudes[0].min() * (1 + tolerances.T2_RTOL) >= limits.tiny
    assert magnitudes[1].max() * (1 - tolerances.T2_RTOL) <= limits.max
    # One more leaves the range at one end.
    zeta = (0.4 / 1.4) ** (1 / 512)
    assert magnitudes[0].min() * zeta < limits.tiny or magnitudes[1].max() / zeta > limits.max


def test_refuses_several_axes():
    with pytest.raises(RuntimeError, match=r"positions must be .* got 3 axes"):
        encoding().terms(torch.zeros(1, 4, 3, dtype=torch.long))


@pytest.mark.parametrize("keys, words", [
    ({"scale_base": 0}, "xpos.scale_base must be a number >= 1, got 0"),
    ({"rotary_value": True}, "rotary_value"),
])  # fmt: skip
def test_refuses(keys, words):
    with pytest.raises(RuntimeError, match=words):
        encoding(**keys)
