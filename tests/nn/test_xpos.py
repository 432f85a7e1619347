"""The encoding `xpos` beside loops written from arXiv 2212.10554 (R-ROPE-01)."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances
from nn.test_rope import SHIFTS, random_THD, scores

REFUSED = {"xpos": [
    ({"scale_base": 0}, "xpos.scale_base must be a number >= 1, got 0"),
    ({"rotary_value": True}, "rotary_value"),
]}  # fmt: skip

HEAD_DIM = 24
ZETA = 0.4 / 1.4  # of pair 0
# What a product q . k may come to without xPos, for the longest sequence; 2^8 in float16.
ROOM = 2.0**20


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


def test_exponents_count_from_the_middle_of_the_sequence():
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


def test_a_continuation_counts_from_the_middle_of_all_keys():
    whole = encoding().terms(torch.arange(90))
    last = encoding().terms(torch.tensor([89]), torch.arange(90))
    assert torch.equal(last.query.cos, whole.query.cos[:, -1:])
    assert torch.equal(last.key.cos, whole.key.cos)


def longest_of(xpos, dtype):
    """From the error about too long a sequence."""
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=f"products of {name} to stay in range, got 1000000001") as refusal:
        xpos.terms(torch.tensor([0, 10**9]), dtype=dtype)
    return int(str(refusal.value).split("at most ")[1].split()[0])


@pytest.mark.parametrize("dtype, factor", [
    (torch.float32, 1e-6), (torch.float32, 1e6), (torch.float16, None), (torch.float16, 8.0), (torch.float16, 0.125),
    (torch.bfloat16, None), (torch.float64, None),
])  # fmt: skip
def test_the_longest_sequence_has_room_for_products(dtype, factor):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": factor}
    xpos = encoding(**({"rope_parameters": yarn} if factor else {}))
    limits, room, factor = torch.finfo(dtype), 2.0**8 if dtype == torch.float16 else ROOM, factor or 1.0
    longest = longest_of(xpos, dtype)
    for start in (0, 10**6):
        terms = xpos.terms(torch.tensor([start, start + longest - 1, start]), dtype=dtype)
        with pytest.raises(ValueError, match=f"at most {longest} positions .* got {longest + 1}"):
            xpos.terms(torch.tensor([start, start + longest]), dtype=dtype)
    q, k = (np.hypot(*(rows.double().numpy() for rows in side)) for side in (terms.query, terms.key))
    assert (q.max() * room * (1 - tolerances.T2_RTOL)) <= limits.max / k.max()
    assert min(q.min(), k.min()) * (1 + tolerances.T2_RTOL) >= limits.tiny
    np.testing.assert_allclose(q.max() / k.max(), 1, rtol=tolerances.T2_RTOL)
    # One more leaves the range at one end.
    decay = math.log(1 / ZETA) * longest / 512
    largest, smallest = 2 * math.log(factor) + decay, math.log(factor) - decay / 2
    assert largest > math.log(limits.max / room) or smallest < math.log(limits.tiny)


def loops_of(q_THD, k_SHD, v_SHD, query_positions, key_positions, open_TS):
    """Attention in float64 by distances: where scores are large, they are sums of what no vector holds."""
    pairs = np.arange(0, HEAD_DIM, 2) / HEAD_DIM
    distance_TS1 = (query_positions[:, None] - key_positions)[..., None].astype(float)
    angle = distance_TS1 * 10000.0**-pairs
    (qa, qb), (ka, kb) = ((x[..., 0::2], x[..., 1::2]) for x in (q_THD[:, None], k_SHD[None]))
    real, imaginary = qa * ka + qb * kb, qa * kb - qb * ka  # [T, S, H, R/2]
    turned = real * np.cos(angle)[:, :, None] + imaginary * np.sin(angle)[:, :, None]
    scores = (turned * ((pairs + 0.4) / 1.4) ** (distance_TS1 / 512)[:, :, None]).sum(-1) / math.sqrt(HEAD_DIM)
    scores = np.where(open_TS[..., None], scores, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return np.einsum("tsh,shd->thd", weights / weights.sum(1, keepdims=True), v_SHD)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("dtype, kernel", [
    (torch.float64, "explicit"), (torch.float32, "explicit"), (torch.float32, "fused"), (torch.bfloat16, "explicit"),
    (torch.bfloat16, "fused"), (torch.float16, "explicit"), (torch.float16, "fused"),
])  # fmt: skip
def test_attention_over_the_longest_sequence(dtype, kernel, is_causal):
    longest = longest_of(encoding(), dtype)
    keys = np.concatenate([np.arange(40), np.arange(longest // 2, longest // 2 + 30), np.arange(longest - 40, longest)])
    queries = keys[-3:] if is_causal else keys[[0, 55, -1]]
    q, k, v = (
        torch.from_numpy(random_THD(seed, tokens))[None].to(dtype)
        for seed, tokens in enumerate((3, len(keys), len(keys)))
    )
    k = 8 * k  # rotated, they were no longer numbers where only rows were held to the range
    open_TS = np.tri(3, len(keys), len(keys) - 3, dtype=bool) | (not is_causal)
    positions = torch.from_numpy(queries), torch.from_numpy(keys)
    terms = encoding().terms(*positions, dtype=dtype)
    ours = roformer_cpp.attention(
        q, k, v, terms, positions=positions[0], key_positions=positions[1], is_causal=is_causal, kernel=kernel
    )
    truth = loops_of(*(x[0].double().numpy() for x in (q, k, v)), queries, keys, open_TS)
    error = np.abs(ours[0].double().numpy() - truth).max()
    if dtype == torch.float64:
        assert error <= tolerances.LINEAR_LONG_F64
    elif dtype == torch.float32:
        assert error <= tolerances.FUSED_F32
    elif is_causal:
        assert error <= tolerances.XPOS_EPS * torch.finfo(dtype).eps
    else:  # the largest scores are beyond what 16 bits can tell from the next
        assert np.isfinite(error)
