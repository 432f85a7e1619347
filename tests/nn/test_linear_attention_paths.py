"""The ways to compute linear attention (nn/include/rf/nn/linear_attention.h): the kernels of core and the float64 loops
against products of torch in float64, values and gradients of every map; which way is taken, and what is refused.
"""

import itertools
from dataclasses import replace

import pytest
import torch

import linear_reference as reference
import roformer_cpp
import tolerances as tol
from roformer_cpp import LinearAttention, LinearAttentionState, Rotation, Terms, linear_attention
from rotation_case import normal

B, T, S, H, HK, D, DV, M = 2, 67, 70, 4, 2, 6, 5, 10

CASES = [(name, False) for name in reference.MAPS] + [(name, True) for name in reference.CAUSAL_MAPS]
SITES = ["none", "before_map", "after_map", "both"]


def size_of(name):
    return M if name in ("favor", "relu") else D


def case_of(name, queries=T, keys=S):
    """q, k, v, a gradient, and the projection of maps that have one, float64."""
    tensors = {"q": normal(B, queries, H, D, seed=1), "k": normal(B, keys, HK, D, seed=2)}
    tensors |= {"v": normal(B, keys, HK, DV, seed=3), "y": normal(B, queries, H, DV, seed=4)}
    if name in ("favor", "relu"):
        tensors["projection"] = roformer_cpp.orthogonal_features(M, D, seed=3)
    return tensors


def terms_of(queries, keys, size, dtype=torch.float64):
    """Rotations at small angles, which keep rotated denominators away from 0."""
    speeds = tol.LINEAR_KERNEL_ANGLE * torch.arange(1, size // 2 + 1, dtype=torch.float64) / (size // 2)
    angles = torch.arange(max(queries, keys), dtype=torch.float64)[:, None] * speeds
    of = (angles[-queries:][None], angles[-keys:][None])
    return Terms(*(Rotation(x.cos().to(dtype), x.sin().to(dtype)) for x in of))


def options_of(name, causal, site, queries=T, keys=S):
    options = {"feature_map": name, "is_causal": causal, "rope_site": "after_map" if site == "both" else site}
    options["rotate_denominator"] = site == "both"
    if site != "none":
        options["terms"] = terms_of(queries, keys, D if site == "before_map" else size_of(name))
        options["terms"].layout = "halves" if site == "both" else "pairs"
    options["key_mask"] = normal(B, keys, seed=9) > -1
    options["eps"] = 1e-3
    return options


def values_and_gradients(tensors, dtype, kernel, **options):
    leaves = {name: x.to(dtype, copy=True).requires_grad_() for name, x in tensors.items() if name != "y"}
    out = linear_attention(**leaves, kernel=kernel, **options)
    grads = torch.autograd.grad(out, list(leaves.values()), tensors["y"].to(dtype))
    return {"out": out.detach()} | dict(zip(leaves, grads, strict=True))


def assert_close(ours, truth, bound):
    for name, want in truth.items():
        largest = want.abs().max().clamp_min(1.0)
        assert ((ours[name].double() - want).abs() <= bound * largest).all(), name


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(("name", "causal"), CASES)
def test_kernels_equal_explicit(name, causal, site):
    """With fewer queries than keys or, without a rotation, with more."""
    sizes = (S, T - 20) if site == "none" else (T, S)
    tensors, options = case_of(name, *sizes), options_of(name, causal, site, *sizes)
    truth = values_and_gradients(tensors, torch.float64, "explicit", **options)
    fused = values_and_gradients(tensors, torch.float32, "fused", **options)
    assert_close(fused, truth, tol.LINEAR_FUSED_F32)
    assert_close(values_and_gradients(tensors, torch.float64, "ref", **options), truth, tol.LINEAR_F64)
    auto = values_and_gradients(tensors, torch.float32, "auto", **options)
    assert all(torch.equal(auto[key], fused[key]) for key in fused)


@pytest.mark.parametrize(("dtype", "site"), [(torch.bfloat16, "before_map"), (torch.float16, "after_map")])
@pytest.mark.parametrize(("name", "causal"), CASES)
def test_error_beside_explicit(name, causal, site, dtype):
    """The explicit way computes in float32 and rounds once. So does fused, but that outputs enter its backward rounded:
    half an eps of outputs of order 1 in products of order 1."""
    tensors, options = {key: x.to(dtype).double() for key, x in case_of(name).items()}, options_of(name, causal, site)
    truth = values_and_gradients(tensors, torch.float64, "explicit", **options)
    bound = tol.LINEAR_FUSED_EPS * torch.finfo(dtype).eps
    assert_close(values_and_gradients(tensors, dtype, "fused", **options), truth, bound)


@pytest.mark.parametrize(("name", "causal"), [("elu", False), ("favor", True)])
def test_auto_is_explicit_where_the_kernels_cannot(name, causal):
    given = case_of(name), torch.float64
    options = options_of(name, causal, "after_map")
    auto, explicit = (values_and_gradients(*given, kernel, **options) for kernel in ("auto", "explicit"))
    assert all(torch.equal(auto[key], explicit[key]) for key in auto)


@pytest.mark.parametrize(("name", "causal"), CASES)
def test_packed_sequences(name, causal):
    tensors = {key: x if key == "projection" else x[:1] for key, x in case_of(name, S, S).items()}
    options = options_of(name, causal, "after_map", S, S)
    options["key_mask"] = options["key_mask"][:1]
    options["cu_seqlens"] = torch.tensor([0, 3, 3, 4, 69, 70], dtype=torch.int32 if causal else torch.int64)
    truth = values_and_gradients(tensors, torch.float64, "explicit", **options)
    assert_close(values_and_gradients(tensors, torch.float32, "fused", **options), truth, tol.LINEAR_FUSED_F32)
    assert_close(values_and_gradients(tensors, torch.float64, "ref", **options), truth, tol.LINEAR_F64)


def test_rotations_that_are_trained():
    """Before the map they are as for softmax attention; after it, the kernels have no gradients for them."""
    q, k, v = (x.float() for x in list(case_of("elu", S, S).values())[:3])
    rows = terms_of(S, S, D, torch.float32)
    cos = rows.query.cos.clone().requires_grad_()
    terms = Terms(Rotation(cos, rows.query.sin), rows.key)
    grads = [
        torch.autograd.grad(linear_attention(q, k, v, terms=terms, rope_site="before_map", kernel=way).sum(), cos)[0]
        for way in ("fused", "explicit")
    ]
    largest = grads[1].abs().max()
    assert largest > 0 and ((grads[0] - grads[1]).abs() <= tol.LINEAR_F32 * largest).all()
    auto, explicit = (linear_attention(q, k, v, terms=terms, kernel=kernel) for kernel in ("auto", "explicit"))
    assert torch.equal(auto, explicit) and auto.requires_grad


# ---- streaming ----


def streamed(tensors, dtype, options, pieces, kernels):
    """The output in pieces, of which the first and the last have no tokens, each by the next of the kernels, and the
    state."""
    state, outputs, terms, tokens = LinearAttentionState(), [], options["terms"], tensors["q"].shape[1]
    ends = itertools.pairwise((0, *range(0, tokens, pieces), tokens, tokens))
    for (first, last), kernel in zip(ends, itertools.cycle(kernels)):
        now = slice(first, last)
        query, key = (Rotation(*(x[:, now] for x in side)) for side in (terms.query, terms.key))
        own = options | {"terms": replace(terms, query=query, key=key), "key_mask": options["key_mask"][:, now]}
        q, k, v = (tensors[key][:, now].to(dtype) for key in ("q", "k", "v"))
        projection = {"projection": tensors["projection"]} if "projection" in tensors else {}
        outputs.append(linear_attention(q, k, v, **own, **projection, state=state, kernel=kernel))
    return torch.cat(outputs, 1), state


@pytest.mark.parametrize("kernels", [
    ("fused",), ("explicit",), ("explicit", "fused"), ("fused", "explicit"), ("ref", "fused")])  # fmt: skip
@pytest.mark.parametrize("site", ["after_map", "both"])
@pytest.mark.parametrize("name", [name for name, causal in CASES if causal])
def test_state_equals_the_whole(name, site, kernels):
    """Grouped keys that raise the running maximum late, the first one masked; a state may go from one way to the
    other."""
    tokens = 140
    tensors, options = case_of(name, tokens, tokens), options_of(name, True, site, tokens, tokens)
    tensors["k"] *= torch.linspace(0.1, 2, tokens, dtype=torch.float64)[:, None, None]
    options["key_mask"][:, 0] = False
    whole = linear_attention(**{key: x for key, x in tensors.items() if key != "y"}, **options, kernel="explicit")
    alone = kernels == ("explicit",)
    dtype, bound = (torch.float64, tol.LINEAR_F64) if alone else (torch.float32, tol.LINEAR_FUSED_F32)
    for pieces in (1, 50):
        out, state = streamed(tensors, dtype, options, pieces, kernels)
        assert_close({"out": out}, {"out": whole}, bound)
        features = size_of(name) + (name == "cosine")
        assert state.tensors["sum"].shape == (B, H, features, DV)
        assert state.tensors["norm"].shape == (B, H, features, 1)


def test_streamed_sums_lose_nothing():
    """One key of weight 2 after a sum of 2^25, where float32 counts by 4."""
    one = torch.ones(1, 1, 1, 1)
    state = LinearAttentionState({"sum": torch.full((1, 1, 1, 1), 2.0**25), "norm": torch.full((1, 1, 1, 1), 2.0**25)})
    for _ in range(3):
        linear_attention(one, one, one, is_causal=True, state=state)
    assert state.tensors["sum"].item() == state.tensors["norm"].item() == 2**25 + 6


def test_a_state_beside_gradients_is_explicit():
    q, k, v = (x.float().requires_grad_() for x in list(case_of("elu", S, S).values())[:3])
    grads = []
    for kernel in ("auto", "explicit"):
        rules, parts = {"is_causal": True, "state": LinearAttentionState(), "kernel": kernel}, (slice(40), slice(40, S))
        first, second = (linear_attention(*(x[:, now] for x in (q, k, v)), **rules) for now in parts)
        grads.append(torch.autograd.grad(first.sum() + second.square().sum(), (q, k, v)))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True)) and grads[0][1][:, :40].any()
    with torch.no_grad():
        linear_attention(q, k, v, is_causal=True, state=LinearAttentionState(), kernel="fused")


# ---- what is refused ----

Q = torch.ones(1, 3, 2, 4)
TRAINED = Terms(query=Rotation(torch.ones(1, 3, 2, requires_grad=True), torch.ones(1, 3, 2)))
REFUSED = [
    ({"q": Q.double(), "k": Q.double(), "v": Q.double()}, "fused needs float32, bfloat16 or float16, got Double"),
    ({"terms": TRAINED}, "{} needs rotations after the map that are not trained, got trained ones"),
    ({"q": Q.clone().requires_grad_(), "is_causal": True, "state": LinearAttentionState()},
     "{} needs tensors that do not require grad with a state, got tensors that do"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_a_forced_kernel_needs(arguments, message):
    for kernel in ("fused", "ref") if "{}" in message else ("fused",):
        with pytest.raises(ValueError, match=rf"\[linear_attention\] kernel {message.format(kernel)}"):
            linear_attention(**{"q": Q, "k": Q, "v": Q, **arguments}, kernel=kernel)


def test_unknown_kernels():
    for call in (linear_attention, LinearAttention(4)):
        with pytest.raises(ValueError, match='kernel must be auto, fused, explicit or ref, got "fast"'):
            call(Q, Q, Q, kernel="fast")


def test_second_derivatives():
    """The explicit path has them; the error of fused names it."""
    leaf = Q.clone().requires_grad_()
    out = linear_attention(leaf, leaf, leaf, kernel="fused")
    with pytest.raises(NotImplementedError, match=r"\[linear_attention\] create_graph must be .* kernel explicit"):
        torch.autograd.grad(out.sum(), leaf, create_graph=True)
    exact = Q[:1, :2].double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: linear_attention(x, x, x, kernel="explicit"), exact)


def test_the_layer_passes_its_kernel_on():
    layer = LinearAttention(4, feature_map="favor", num_features=6).eval()
    with pytest.raises(ValueError, match="kernel fused needs float32, bfloat16 or float16, got Double"):
        layer(Q.double(), Q.double(), Q.double(), kernel="fused")
    assert torch.equal(layer(Q, Q, Q, kernel="fused"), layer(Q, Q, Q))
