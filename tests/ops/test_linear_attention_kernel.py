"""The kernel of linear attention as a PyTorch operator (ops/src/linear_attention*.cpp): exponents and states of packed
sequences, strides, masked keys, and what is refused. Values and gradients of other calls are compared in
tests/core/linear_attention_test.cpp and tests/nn/test_linear_attention_paths.py.
"""

import itertools

import pytest
import torch
from torch.library import opcheck

import tolerances as tol
from roformer_cpp import attention  # noqa: F401 - registers the operators

kernel = torch.ops.roformer.linear_attention_kernel.default
backward = torch.ops.roformer.linear_attention_kernel_backward.default

DIRECTIONS = ["bidirectional", "causal"]
BOUND = {torch.float32: tol.LINEAR_KERNEL_F32, torch.float64: tol.LINEAR_F64}


def rotations(queries, keys, pairs, batch=1, dtype=torch.float64):
    """At small angles, which keep denominators of rotated features away from 0."""
    speeds = tol.LINEAR_KERNEL_ANGLE * torch.arange(1, pairs + 1, dtype=torch.float64) / pairs
    angles = torch.arange(max(queries, keys), dtype=torch.float64)[:, None] * speeds
    rows = {}
    for name, tokens in (("query", queries), ("key", keys)):
        own = angles[len(angles) - tokens :].expand(batch, tokens, pairs)
        rows |= {f"{name}_cos": own.cos().to(dtype), f"{name}_sin": own.sin().to(dtype)}
    return rows


def make_case(queries=70, keys=70, feature_map="elu", seed=0, heads=4, key_heads=2, features=6, value_dim=5, batch=2):
    """q, k, v and a gradient, float64. Features that are given are positive, as those of a map."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(queries, heads, features), (keys, key_heads, features), (keys, key_heads, value_dim)]
    q, k, v, y = (
        torch.randn(batch, *size, generator=generator, dtype=torch.float64)
        for size in (*sizes, (queries, heads, value_dim))
    )
    if feature_map == "given":
        q, k = q.abs() + 0.1, k.abs() + 0.1
    return q, k, v, y


def with_gradients(function, q, k, v, y, dtype, *exponents, **options):
    """The output, and gradients of q, k, v and, where they are given, of the exponents of keys."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v, *exponents)]
    row = torch.float64 if dtype == torch.float64 else torch.float32
    options = {name: x.to(row) if name.endswith(("cos", "sin")) and x is not None else x for name, x in options.items()}
    if exponents:
        options["key_exponents"] = leaves[3]
    out = function(*leaves[:3], **options)
    out = out[0] if isinstance(out, tuple) else out
    return [out.detach(), *torch.autograd.grad(out, leaves, y.to(dtype), materialize_grads=True)]


def assert_close(ours, truth, bound):
    for i, (got, want) in enumerate(zip(ours, truth, strict=True)):
        assert got.shape == want.shape
        largest = max([1.0, *want.abs().flatten().tolist()])
        assert ((got.double() - want).abs() <= bound * largest).all(), ("out", "q", "k", "v", "exponents")[i]


# ---- exponents of keys, packed sequences ----

GIVEN = {"feature_map": "given", "eps": 0.01}


def rising(keys, batch=1, rise=2.0, seed=0):
    """Exponents that rise now and then, as float32 holds them."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(batch, keys, 2, generator=generator, dtype=torch.float64).abs()
    steps *= torch.rand(batch, keys, 2, generator=generator) < 0.1
    return (rise * steps.cumsum(1) - 3).float().double()


def formula(q, k, v, exponents, eps):
    """The causal equation of core/include/rf/linear_attention.h with all weights [B, H, T, S]."""
    queries, keys, group = q.size(1), k.size(1), q.size(2) // k.size(2)
    k, v, exponents = (x.repeat_interleave(group, 2) for x in (k, v, exponents))
    if keys == 0:
        return q.new_zeros(*q.shape[:3], v.size(-1))
    last = (torch.arange(queries) + keys - queries).clamp(min=0)
    factor = exponents.mT[:, :, None] - exponents.mT[:, :, last, None]
    hidden = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
    weights = torch.einsum("bthf,bshf->bhts", q, k) * factor.masked_fill(hidden, -torch.inf).exp()
    return torch.einsum("bhts,bshd->bthd", weights / (weights.sum(-1, keepdim=True) + eps), v)


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("ends_type", [torch.int32, torch.int64])
def test_exponents_of_packed_sequences(ends_type, dtype):
    """Of other lengths for keys than for queries, one without queries, one without keys, one with neither; gradients of
    exponents, which the operator forms itself, too."""
    ends_q, ends_k = [0, 70, 70, 75, 75, 150], [0, 90, 95, 95, 95, 160]
    case = make_case(150, 160, "given", batch=1)
    exponents = torch.cat([rising(b - a, seed=b) for a, b in itertools.pairwise(ends_k)], 1)

    def apart(q, k, v, key_exponents):
        pairs = zip(itertools.pairwise(ends_q), itertools.pairwise(ends_k), strict=True)
        parts = [formula(q[:, a:b], *(x[:, c:d] for x in (k, v, key_exponents)), 0.01) for (a, b), (c, d) in pairs]
        return torch.cat(parts, 1)

    truth = with_gradients(apart, *case, torch.float64, exponents)
    ends = {f"cu_seqlens_{side}": torch.tensor(x, dtype=ends_type) for side, x in (("q", ends_q), ("k", ends_k))}
    ours = with_gradients(kernel, *case, dtype, exponents, direction="causal", **GIVEN, **ends)
    assert_close(ours, truth, BOUND[dtype])


# ---- strides, masks, threads ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_strides(dtype):
    """Slices of a fused qkv, heads first, and a last dimension that is not contiguous."""
    qkv = torch.randn(2, 9, 6, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    copies = [x.contiguous() for x in qkv.split(2, 2)]
    layouts = [copies, qkv.split(2, 2), [x.transpose(1, 2).contiguous().transpose(1, 2) for x in copies]]
    layouts += [[x.transpose(2, 3).contiguous().transpose(2, 3) for x in copies]]
    y = torch.randn(2, 9, 2, 8, dtype=torch.float64)
    results = [with_gradients(kernel, *each, y, dtype, feature_map="elu", direction="causal") for each in layouts]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("number", [torch.inf, torch.nan])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_masked_keys_are_not_read(dtype, direction, number):
    q, k, v, y = make_case()
    mask = torch.ones(2, 70, dtype=torch.bool)
    mask[0, :9], mask[0, 50::3], mask[1] = False, False, False
    results = []
    for filling in (0.0, number):
        for x in (k, v):
            x[~mask] = filling
        options = {"feature_map": "elu", "direction": direction, "key_mask": mask}
        results.append(with_gradients(kernel, q, k, v, y, dtype, **options))
    out, q_grad, k_grad, v_grad = results[0]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert not k_grad[~mask].any() and not v_grad[~mask].any() and k_grad.any()
    without = torch.zeros(2, 70, dtype=torch.bool)  # queries without a key
    without[0, :9], without[1] = direction == "causal", True
    assert not out[without].any() and not q_grad[without].any() and out[~without].any(-1).all()


# ---- state ----


@pytest.mark.parametrize("dtype", list(BOUND))
def test_state_of_packed_sequences_with_exponents(dtype):
    """Two sequences, each in two calls, answer as whole ones."""
    ends, options = torch.tensor([0, 40, 100]), GIVEN | {"direction": "causal"}
    q, k, v, exponents = (x.to(dtype) for x in (*make_case(100, 100, "given", batch=1)[:3], rising(100, rise=20.0)))
    whole = kernel(q, k, v, **options, key_exponents=exponents, cu_seqlens_q=ends, cu_seqlens_k=ends)[0]
    state = torch.zeros(2, 2, 6, 6, dtype=torch.float64)
    before = torch.full((2, 2), -torch.inf, dtype=torch.float64)
    out = torch.zeros_like(whole)
    for parts in ([(0, 25), (40, 41)], [(25, 40), (41, 100)]):
        tokens = torch.cat([torch.arange(*part) for part in parts])
        own = torch.tensor([0, parts[0][1] - parts[0][0], len(tokens)])
        own_options = options | {"key_exponents": exponents[:, tokens], "cu_seqlens_q": own, "cu_seqlens_k": own}
        out[:, tokens], _, state = kernel(
            *(x[:, tokens] for x in (q, k, v)), **own_options, state=state, state_exponents=before
        )
        before = torch.stack([exponents[0, part[1] - 1] for part in parts]).double()
    assert_close([out], [whole.double()], BOUND[dtype])


# ---- as an operator ----


def arguments(dtype=torch.float32, requires_grad=True):
    torch.manual_seed(0)
    row = torch.float64 if dtype == torch.float64 else torch.float32
    q, k, v, _ = (x.to(dtype).requires_grad_(requires_grad) for x in make_case(7, 7))
    options = {"feature_map": "elu", "direction": "causal", "key_mask": torch.rand(2, 7) < 0.8, "eps": 0.1}
    return (q, k, v), options | rotations(7, 7, 2, dtype=row)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_opcheck(dtype):
    tensors, options = arguments(dtype)
    opcheck(kernel, tensors, options)
    opcheck(kernel, tensors, {"feature_map": "relu", "direction": "bidirectional", "eps": 1.0})


def test_opcheck_of_packed_sequences_with_exponents_and_of_a_state():
    ends = torch.tensor([0, 7, 20])
    leaves = [x.float().requires_grad_() for x in (*make_case(20, 20, "given", batch=1)[:3], rising(20))]
    options = GIVEN | {"direction": "causal", "cu_seqlens_q": ends, "cu_seqlens_k": ends, "key_exponents": leaves.pop()}
    opcheck(kernel, leaves, options)
    tensors, options = arguments(requires_grad=False)
    opcheck(kernel, tensors, {**options, "state": torch.ones(2, 2, 6, 6, dtype=torch.float64)})


@pytest.mark.parametrize("wanted", [[True, True, True], [False, True, False], [True, False, False]])
def test_opcheck_of_the_backward(wanted):
    tensors, options = arguments(requires_grad=False)
    out, denominators, _ = kernel(*tensors, **options)
    grad = torch.randn_like(out)
    opcheck(backward, (grad, out, denominators, wanted, *tensors), options)
    every = backward(grad, out, denominators, [True] * 3, *tensors, **options)
    some = backward(grad, out, denominators, wanted, *tensors, **options)
    for a, b in zip([x for x, w in zip(every, wanted, strict=True) if w], some, strict=True):
        assert torch.equal(a, b)


# ---- what is refused ----

Q = torch.ones(2, 3, 2, 4)
ROW = torch.ones(1, 3, 2)
ROWS = {"key_cos": ROW, "key_sin": ROW}
STATE = torch.zeros(2, 2, 4, 5, dtype=torch.float64)
EXPONENTS, ENDS = torch.zeros(2, 3, 2), torch.tensor([0, 3])

BAD = [
    ({"q": Q.int()}, "q must be float32, float64, bfloat16 or float16, got Int"),
    ({"q": Q[0]}, r"q must be \[batch, tokens, heads, size\] of Float, got Float \[3, 2, 4\]"),
    ({"k": Q.double()}, r"k must be \[batch, tokens, heads, size\] of Float, got Double"),
    ({"k": Q[..., :3]}, r"k must be \[batch, keys, key_heads, features\] to match q, .*, got \[2, 3, 2, 3\]"),
    ({"k": Q[:1]}, r"k must be .* to match q, .*, got \[1, 3, 2, 4\]"),
    ({"v": Q[:, :2]}, r"v must be \[batch, keys, key_heads, value_dim\] to match k, .*, got \[2, 2, 2, 4\]"),
    ({"v": Q[:, :, :1]}, r"v must be .* to match k, .*, got \[2, 3, 1, 4\]"),
    ({"q": Q[:, :, :1]}, "heads must be a multiple of key_heads = 2, got 1"),
    ({"k": Q[:, :, :0], "v": Q[:, :, :0]}, "key_heads must be >= 1, got 0"),
    ({"q": Q[..., :0], "k": Q[..., :0]}, "features must be >= 1, got 0"),
    ({"v": Q[..., :0]}, "value_dim must be >= 1, got 0"),
    ({"v": Q.to("meta")}, "v must be on the device of q, cpu, got meta"),
    ({"feature_map": "softmax"}, 'feature_map must be "given", "elu" or "relu", got "softmax"'),
    ({"direction": "left"}, 'direction must be "bidirectional" or "causal", got "left"'),
    ({"denominator": "none"}, 'denominator must be "plain" or "rotated", got "none"'),
    ({"layout": "thirds"}, 'layout must be "pairs" .* got "thirds"'),
    ({"eps": -1.0}, "eps must be finite and >= 0, got -1"),
    ({"eps": float("nan")}, "eps must be finite and >= 0, got nan"),
    ({"key_cos": ROW}, "key_cos and key_sin must be given together, got key_cos alone"),
    ({"query_sin": ROW}, "query_cos and query_sin must be given together, got query_sin alone"),
    ({"key_cos": ROW[:, :2], "key_sin": ROW[:, :2]}, r"key_cos and key_sin must be \[1 or batch, 3, R/2\], got .*"),
    ({"key_cos": ROW.double(), "key_sin": ROW}, "key_cos and key_sin must be Float for data of Float, got Double"),
    ({"key_cos": ROW.expand(3, 3, 2), "key_sin": ROW.expand(3, 3, 2)}, "key.* got 3"),
    ({"query_cos": torch.ones(1, 3, 3), "query_sin": torch.ones(1, 3, 3)}, "query.* got 3"),
    ({"key_mask": torch.ones(2, 3)}, r"key_mask must be bool \[1 or 2, 3\], got Float \[2, 3\]"),
    ({"key_mask": torch.ones(2, 4, dtype=torch.bool)}, r"key_mask must be bool \[1 or 2, 3\], got Bool \[2, 4\]"),
    ({"state": STATE.float()}, r"state must be Double \[2, 2, 4, 5\], got Float"),
    ({"state": STATE[:1]}, r"state must be Double \[2, 2, 4, 5\], got Double \[1, 2, 4, 5\]"),
    ({"state": STATE, "direction": "bidirectional"}, "direction must be RF_LINEAR_CAUSAL with a state, got 1"),
    ({"state": STATE, "q": Q[:, 1:]}, "queries must equal keys = 3 with a state, got 2"),
    ({"key_exponents": EXPONENTS[..., 0]}, r"key_exponents must be Float \[2, 3, 2\], got Float \[2, 3\]"),
    ({"key_exponents": EXPONENTS.double()}, r"key_exponents must be Float \[2, 3, 2\], got Double"),
    ({"key_exponents": EXPONENTS}, "feature_map must be RF_FEATURES_GIVEN"),
    ({"cu_seqlens_q": ENDS}, "cu_seqlens_q and cu_seqlens_k must be given together, got cu_seqlens_q alone"),
    ({"cu_seqlens_q": ENDS.float(), "cu_seqlens_k": ENDS}, r"cu_seqlens_q must be int32 or int64 \[sequences \+ 1\]"),
    ({"cu_seqlens_q": ENDS, "cu_seqlens_k": ENDS[:1]}, r"cu_seqlens_k must have .* cu_seqlens_q, \[2\], got \[1\]"),
    ({"cu_seqlens_q": ENDS, "cu_seqlens_k": ENDS}, "batch must be 1 with packed sequences, got 2"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(change, message):
    given = {"q": Q, "k": Q, "v": Q, "feature_map": "elu", "direction": "causal"} | change
    with pytest.raises(ValueError, match=rf"\[linear_attention\] {message}"):
        kernel(given.pop("q"), given.pop("k"), given.pop("v"), **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out": lambda x: x[:1]}, "out must have the dtype and shape of the forward's"),
        ({"denominators": lambda x: x[0]}, "denominators must have the dtype and shape of the forward's"),
        ({"grad_out": lambda x: x.double()}, "grad_out must have the dtype and shape of the forward's"),
    ],
)
def test_the_backward_refuses(change, message):
    options = {"feature_map": "elu", "direction": "causal"}
    out, denominators, _ = kernel(Q, Q, Q, **options)
    given = {"grad_out": out, "out": out, "denominators": denominators}
    given |= {name: function(given[name]) for name, function in change.items()}
    with pytest.raises(ValueError, match=rf"\[linear_attention\] {message}"):
        backward(*given.values(), [True] * 3, Q, Q, Q, **options)


def test_gradients_that_there_are_not():
    leaf = Q.clone().requires_grad_()
    options = {"feature_map": "elu", "direction": "causal"}
    with pytest.raises(NotImplementedError, match=r"key_cos must not require grad, .* Hint: key_cos.detach\(\)"):
        kernel(Q, Q, Q, **options, **{name: x.clone().requires_grad_() for name, x in ROWS.items()})
    with pytest.raises(NotImplementedError, match=r"must not require grad with a state, .* Hint: torch.no_grad\(\)"):
        kernel(Q, leaf, Q, **options, state=STATE)
    with torch.no_grad():
        kernel(Q, leaf, Q, **options, state=STATE)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(Q, Q)
        with pytest.raises(NotImplementedError, match=r"\[linear_attention\] v must not carry a tangent"):
            kernel(Q, Q, dual, feature_map="elu", direction="causal")
