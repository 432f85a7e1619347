"""Linear attention against loops over queries and keys (R-LIN-01 to R-LIN-08)."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import linear_reference as reference
import roformer_cpp
import tolerances
from roformer_cpp import Rotation, Terms, linear_attention
from rotation_case import normal

B, T, S, H, D, DV, M = 2, 5, 7, 2, 6, 3, 10


def qkv(queries=T, keys=S, dtype=torch.float64, seed=0):
    sizes = enumerate(((queries, D), (keys, D), (keys, DV)), seed + 1)
    return [normal(B, tokens, H, size, seed=each, dtype=dtype) for each, (tokens, size) in sizes]


def projection_of(name):
    return roformer_cpp.orthogonal_features(M, D, seed=3) if name in ("favor", "relu") else None


def angles_of(positions, size, base=100.0):
    return np.outer(np.asarray(positions, np.float64), base ** (-2 * np.arange(size // 2) / size))


def rotation(angles):
    turned = torch.from_numpy(angles)[None]
    return Rotation(turned.cos(), turned.sin())


def terms_of(angles):
    return Terms(query=rotation(angles[0]), key=rotation(angles[1]))


def by_loops(name, *tensors, **options):
    """Of q, k, v and the projection of maps that have one."""
    q, k, v, *projection = (x.numpy() for x in tensors if x is not None)
    return reference.attention(q, k, v, name, *projection, **options)


def close(actual, expected, rtol=tolerances.LINEAR_F64):
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=rtol, atol=rtol)


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
    options = {"site": options["rope_site"], "rotate_denominator": options["rotate_denominator"]}
    expected = by_loops(name, q, k, v, projection, causal=causal, mask=mask.numpy(), angles=angles, **options)
    assert (expected[1] == 0).all() and (out[1] == 0).all()
    close(out, expected, tolerances.LINEAR_ROTATED_DENOMINATOR if site == "both" else tolerances.LINEAR_F64)


@pytest.mark.parametrize("causal", [False, True])
def test_packed_rows_of_a_model(causal):
    """Several rows, each with its own sequences, padding (-1) between them, a mask besides, fewer queries than keys and
    rotations that differ from row to row; only `LinearAttention` of C++ takes them, so its operator is called."""
    q, k, v = qkv()
    sequences = torch.tensor([[1, 1, 0, 0, 0, -1, 0], [-1, 2, 2, 5, 5, 5, 5]])
    mask = torch.ones(B, S, dtype=torch.bool)
    mask[1, 4] = False
    angles = [angles_of(np.arange(S) * (row + 1), D) for row in range(B)]
    keys = Rotation(*(torch.cat([rotation(a)[part] for a in angles]) for part in (0, 1)))
    terms = Terms(query=Rotation(keys.cos[:, S - T :], keys.sin[:, S - T :]), key=keys)
    operator = torch.ops.roformer.linear_attention
    out, _ = operator(q, k, v, *terms.arguments(), "{}", None, causal, mask, sequences, None)
    for row in range(B):
        one, own = slice(row, row + 1), {"angles": (angles[row][S - T :], angles[row]), "causal": causal}
        own |= {"mask": mask[row : row + 1].numpy(), "sequences": sequences[row].numpy()}
        close(out[one], by_loops("elu", q[one], k[one], v[one], **own))
    assert (out[0, 3] == 0).all()


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
    rules = {"causal": causal, "sequences": np.array([0, 0, 0, 1, 2, 2, 2]), "angles": (angles, angles)}
    close(out, by_loops(name, q, k, v, projection, **rules))


# ---- claims ----


def weights_of(q, k, name="elu", **options):
    """The weights [T, S] of one head: what values that are unit vectors return."""
    one_hot = torch.eye(k.shape[1], dtype=torch.float64)[None, :, None]
    return linear_attention(q, k, one_hot, name, **options)[0, :, 0]


def test_cosine_with_rotation_stays_a_mean():
    """R-LIN-07: 1 + cos is never negative and both sums turn, so the weights are probabilities."""
    q, k = 3 * normal(1, 9, 1, D, seed=1), normal(1, 9, 1, D, seed=2)
    angles = angles_of(range(9), D)
    weights = weights_of(q, k, "cosine", terms=terms_of((angles, angles)))
    assert (weights >= 0).all()
    close(weights.sum(-1), np.ones(9))
    options = {"terms": terms_of((angles, angles)), "rope_site": "after_map", "rotate_denominator": True}
    close(weights_of(q, k, "cosine", **options), weights.numpy())
    axis = torch.eye(D, dtype=torch.float64)[None, :1, None]
    close(linear_attention(axis, -axis, axis, "cosine"), np.zeros((1, 1, 1, D)))  # the only similarity is 0


def test_shen_equals_its_equation_18_only_for_equal_sums():
    """R-LIN-03: softmax_feature(q) (softmax_sequence(k)^T v) is Eq. 18 with exp(k) iff sum_n exp(k_nf) does not
    depend on f."""
    q, k, v = qkv()
    different = linear_attention(q, k, v, "shen_original") - linear_attention(q, k, v, "shen")
    assert different.abs().max() > tolerances.SHEN_GAP
    equal_sums = k - torch.logsumexp(k, 1, keepdim=True)
    close(linear_attention(q, equal_sums, v, "shen_original"), linear_attention(q, equal_sums, v, "shen").numpy())


@pytest.mark.parametrize("name", ["shen", "favor"])
@pytest.mark.parametrize("causal", [False, True])
def test_exponentials_do_not_overflow(name, causal):
    """R-LIN-04: exp(1000) is no float32."""
    q, k, v = qkv(dtype=torch.float32)
    far = k + 1000 if name == "shen" else 200 * k
    projection = None if name == "shen" else projection_of(name).float()
    out = linear_attention(q, far, v, name, is_causal=causal, projection=projection)
    shift = 1000 if name == "shen" else 0  # which cancels
    exact = q.double(), far.double() - shift, v.double(), None if projection is None else projection.double()
    expected, atol = by_loops(name, *exact, causal=causal), tolerances.LINEAR_F32 * v.abs().max().item()
    np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=atol)


# ---- gradients ----


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_gradcheck(name, causal):
    q, k, v = (x[:, :4, :1].clone().requires_grad_() for x in qkv())
    mask = torch.tensor([[False, True, False, True], [False] * 4])  # queries without keys
    projection = projection_of(name)
    angles = angles_of(range(4), M if projection is not None else D)
    cos, sin = (x.clone().requires_grad_() for x in rotation(angles))

    def attend(q, k, v, cos, sin):
        terms = Terms(query=Rotation(cos, sin), key=Rotation(cos, sin))
        options = {"is_causal": causal, "key_mask": mask, "projection": projection, "rope_site": "after_map"}
        return linear_attention(q, k, v, name, terms, **options)

    assert torch.autograd.gradcheck(attend, (q, k, v, cos, sin), fast_mode=True)


# ---- shapes, dtypes, options ----


@pytest.mark.parametrize(("name", "causal"), [("shen_original", False), ("elu", True), ("favor", True)])
def test_autocast_changes_nothing(name, causal):
    """Sums of 16 bits would stop growing after a few hundred keys."""
    q, k, v = qkv(dtype=torch.float32)
    options = {"is_causal": causal, "projection": projection_of(name)}
    expected = linear_attention(q, k, v, name, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(linear_attention(q, k, v, name, **options), expected)


def test_rotations_of_another_dtype():
    q, k, v = qkv(queries=S)
    angles = angles_of(range(S), D)
    terms = terms_of((angles, angles))
    low = Terms(query=Rotation(*(x.float() for x in terms.query)), key=Rotation(*(x.float() for x in terms.key)))
    close(linear_attention(q, k, v, terms=low), linear_attention(q, k, v, terms=terms), tolerances.LINEAR_F32)


@pytest.mark.parametrize("sizes", [(0, 3, 3), (1, 0, 0), (1, 0, 4), (1, 3, 0), (1, 5, 2), (1, 1, 1)])
@pytest.mark.parametrize("name", reference.CAUSAL_MAPS)
def test_empty_and_short(sizes, name):
    """No tokens at all; more queries than keys, of which the first have none."""
    batch, queries, keys = sizes
    q, k, v = normal(batch, queries, H, D), normal(batch, keys, H, D, seed=1), normal(batch, keys, H, DV, seed=2)
    for causal in (False, True):
        projection = projection_of(name)
        expected = by_loops(name, q, k, v, projection, causal=causal)
        for kernel in ("explicit", "ref"):
            close(linear_attention(q, k, v, name, is_causal=causal, projection=projection, kernel=kernel), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_denominator_eps(causal):
    """R-LIN-02: it is added to the sum divided by the exponential of the largest element of the keys a query sees."""
    q, k, v = (x[:1, :, :1] for x in qkv(queries=S))
    seen = np.tri(S) if causal else np.ones((S, S))
    rows, keys, values = (x[0, :, 0].numpy() for x in (q, k, v))
    largest = np.array([keys[seen[m] > 0].max() for m in range(S)])
    features = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    weights = features @ np.exp(keys).T * seen * np.exp(-largest)[:, None]
    expected = weights @ values / (weights.sum(1, keepdims=True) + 0.5)
    close(linear_attention(q, k, v, "shen", is_causal=causal, eps=0.5)[0, :, 0], expected)


class Sizes(TorchDispatchMode):
    """The elements of every tensor that an operation returns, in the forward and the backward pass."""

    def __init__(self):
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for size in (x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor)):
            self.largest, self.total = max(self.largest, size), self.total + size
        return result


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_no_tensor_of_all_pairs(name, causal):
    """R-LIN-09: the largest tensor has T times the features or values, and all of them together grow with T alone."""
    seen = []
    for tokens in (1280, 2560):
        q, k, v = (normal(1, tokens, 1, D, seed=seed, dtype=torch.float32).requires_grad_() for seed in (1, 2, 3))
        with Sizes() as sizes:
            linear_attention(q, k, v, name, is_causal=causal, projection=projection_of(name)).sum().backward()
        assert sizes.largest <= tokens * max(D + 1, M)
        seen.append(sizes.total)
    assert seen[1] <= tolerances.LINEAR_GROWTH * seen[0]
