"""Linear attention against loops over queries and keys (spec R-LIN-01..07, INC-14, INC-15, golden A.3)."""

import numpy as np
import pytest
import torch

import linear_reference as reference
import roformer_cpp
import tolerances
from roformer_cpp import LinearAttentionState, Rotation, Terms, linear_attention

B, T, S, H, D, DV, M = 2, 5, 7, 2, 6, 3, 10


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def qkv(queries=T, keys=S, dtype=torch.float64, seed=0):
    return (
        normal(B, queries, H, D, seed=seed + 1, dtype=dtype),
        normal(B, keys, H, D, seed=seed + 2, dtype=dtype),
        normal(B, keys, H, DV, seed=seed + 3, dtype=dtype),
    )


def projection_of(name):
    return roformer_cpp.orthogonal_features(M, D, seed=3) if name in ("favor", "relu") else None


def angles_of(positions, size, base=100.0):
    return np.outer(np.asarray(positions, np.float64), base ** (-2 * np.arange(size // 2) / size))


def rotation(angles):
    turned = torch.from_numpy(angles)[None]
    return Rotation(turned.cos(), turned.sin())


def terms_of(angles):
    return Terms(query=rotation(angles[0]), key=rotation(angles[1]))


def as_numpy(*tensors):
    return [None if t is None else t.detach().numpy() for t in tensors]


def close(actual, expected, rtol=tolerances.LINEAR_F64):
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=rtol, atol=rtol)


# ---- golden numbers ----

GOLDEN_Q = [(0.5, -1), (2, 0.25), (-2, 1)]
GOLDEN_K = [(1, -2), (-0.5, 0.5), (0, 3)]
GOLDEN_V = [(1, 0), (0, 1), (2, -1)]
GOLDEN = {
    "plain": [(1.20177986889, -0.20177986889), (1.24101352458, -0.241013524577), (1.42974341483, -0.429743414834)],
    "rotated": [(-1.2917328864, 0.727259189852), (-0.44087066942, 0.47123260212), (1.05664681714, -0.622515605629)],
    "both": [(2.28838455061, -1.28838455061), (-14.520507432, 15.520507432), (2.4339342326, -1.4339342326)],
}
GOLDEN_WEIGHTS = {
    "plain": [
        (0.40756644, 0.19532684, 0.39710671),
        (0.34534548, 0.2068205, 0.44783402),
        (0.046037258, 0.26210966, 0.69185308),
    ],
    "rotated": [
        (0.40756644, -0.12239047, -0.84964966),
        (0.087953537, 0.2068205, -0.2644121),
        (-0.32705934, 0.069337473, 0.69185308),
    ],
}


def golden_case(row):
    def one_head(rows):
        return torch.tensor(rows, dtype=torch.float64)[None, :, None]

    angles = angles_of([0, 1, 2], 2)
    options = {} if row == "plain" else {"terms": terms_of((angles, angles)), "rotate_denominator": row == "both"}
    return one_head(GOLDEN_Q), one_head(GOLDEN_K), one_head(GOLDEN_V), options


@pytest.mark.parametrize("row", GOLDEN)
def test_golden_numbers(row):
    """Spec A.3: Eq. 18, Eq. 19, and both sums rotated."""
    q, k, v, options = golden_case(row)
    out = linear_attention(q, k, v, **options)
    np.testing.assert_allclose(out[0, :, 0].numpy(), GOLDEN[row], rtol=tolerances.GOLDEN_RTOL)


@pytest.mark.parametrize("row", GOLDEN_WEIGHTS)
def test_golden_weights(row):
    """Values that are unit vectors return the weights."""
    q, k, _, options = golden_case(row)
    out = linear_attention(q, k, torch.eye(3, dtype=torch.float64)[None, :, None], **options)
    np.testing.assert_allclose(out[0, :, 0].numpy(), GOLDEN_WEIGHTS[row], rtol=tolerances.GOLDEN_WEIGHTS_RTOL)


# ---- every map against the double loop ----

CASES = [(name, False) for name in reference.MAPS] + [(name, True) for name in reference.CAUSAL_MAPS]


@pytest.mark.parametrize(("name", "causal"), CASES)
@pytest.mark.parametrize("site", ["none", "before_map", "after_map", "both"])
def test_equals_the_double_loop(name, causal, site):
    """R-LIN-01..08: T < S, a mask with a row that has no key at all, every placement of the rotation."""
    q, k, v = qkv()
    mask = torch.ones(B, S, dtype=torch.bool)
    mask[0, [0, 4]] = False
    mask[1] = False
    projection = projection_of(name)
    features = M if projection is not None else D
    size = D if site == "before_map" else features
    angles = None if site == "none" else (angles_of(range(2, 2 + T), size), angles_of(range(S), size))
    options = {"rope_site": "after_map" if site == "both" else site, "rotate_denominator": site == "both"}
    terms = None if angles is None else terms_of(angles)
    out = linear_attention(q, k, v, name, terms, is_causal=causal, key_mask=mask, projection=projection, **options)
    expected = reference.attention(
        *as_numpy(q, k, v, torch.zeros(0))[:3],
        name,
        *as_numpy(projection),
        causal=causal,
        mask=mask.numpy(),
        angles=angles,
        site=options["rope_site"],
        rotate_denominator=options["rotate_denominator"],
    )
    assert (expected[1] == 0).all() and (out[1] == 0).all()
    close(out, expected, tolerances.LINEAR_ROTATED_DENOMINATOR if site == "both" else tolerances.LINEAR_F64)


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_packed_sequences_are_separate(name, causal):
    """R-LIN-01: rows hold sequences of 3, 0, 1 and 3 keys; none sees another, not even their maxima."""
    q, k, v = (x[:1] for x in qkv(queries=S))
    k[:, 3] += 40  # the sequence of one key has by far the largest features
    projection = projection_of(name)
    size = M if projection is not None else D
    angles = angles_of([0, 1, 2, 0, 0, 1, 2], size)
    options = {"projection": projection, "is_causal": causal, "rope_site": "after_map"}
    terms = terms_of((angles, angles))
    out = linear_attention(q, k, v, name, terms, cu_seqlens=torch.tensor([0, 3, 3, 4, 7]), **options)
    sequences = np.array([0, 0, 0, 1, 2, 2, 2])
    expected = reference.attention(
        *as_numpy(q, k, v, projection)[:3],
        name,
        *as_numpy(projection),
        causal=causal,
        sequences=sequences,
        angles=(angles, angles),
    )
    close(out, expected)
    first = linear_attention(q[:, :3], k[:, :3], v[:, :3], name, terms_of((angles[:3], angles[:3])), **options)
    close(out[:, :3], first.numpy())


@pytest.mark.parametrize("name", reference.CAUSAL_MAPS)
@pytest.mark.parametrize("tokens", [1, 127, 128, 129, 300])
def test_state_equals_the_whole(name, tokens):
    """R-LIN-01, R-LIN-04: token by token, in uneven pieces, and at once; keys that raise the running maximum late."""
    q, k, v = (normal(1, tokens, 1, 4, seed=seed) for seed in (1, 2, 3))
    k = k * torch.linspace(0.1, 6, tokens, dtype=torch.float64)[None, :, None, None]
    mask = normal(1, tokens, seed=9) > -1
    mask[:, :1] = False
    projection = normal(6, 4, seed=4) if name in ("favor", "relu") else None
    size = 6 if projection is not None else 4
    angles = angles_of(range(tokens), size)
    options = {"projection": projection, "is_causal": True, "rope_site": "after_map"}
    whole = linear_attention(q, k, v, name, terms_of((angles, angles)), key_mask=mask, **options)
    for piece in (1, 50) if tokens == 129 else (50,):
        state, pieces = LinearAttentionState(), []
        for first in range(0, tokens, piece):
            now = slice(first, first + piece)
            terms = terms_of((angles[now], angles[now]))
            arguments = (q[:, now], k[:, now], v[:, now], name, terms)
            pieces.append(linear_attention(*arguments, key_mask=mask[:, now], state=state, **options))
        close(torch.cat(pieces, 1), whole.numpy())
        assert state.tensors["sum"].shape == (1, 1, size + (name == "cosine"), 4)
    sample = sorted({0, 1 % tokens, tokens // 2, tokens - 1})
    arrays = as_numpy(q, k, v)
    for m in sample:
        seen = mask[0].numpy() & (np.arange(tokens) <= m)
        if not seen.any():
            assert (whole[0, m] == 0).all()
            continue
        turn = (angles[m], angles[seen])
        query, keys = arrays[0][0, m, 0], arrays[1][0, seen, 0]
        w, _ = reference.weights(query, keys, name, *as_numpy(projection), causal=True, turn=turn)
        close(whole[0, m, 0], w @ arrays[2][0, seen, 0], tolerances.LINEAR_LONG_F64)
