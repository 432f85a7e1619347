"""Linear attention of GPUs (python/roformer_cpp/gpu/linear_attention.py), run by Triton's interpreter, against the
float64 loops of the operator on the CPU. Tiles and chunks are small, so that few tokens fill several of them.
"""

import itertools

import pytest
import torch

import tolerances as tol
from roformer_cpp import attention  # noqa: F401 - registers the operators

pytest.importorskip("triton")
from roformer_cpp.gpu import linear_attention as gpu

truth_forward = torch.ops.roformer.linear_attention_kernel.default
truth_backward = torch.ops.roformer.linear_attention_kernel_backward.default

BOUND = {torch.float32: tol.LINEAR_KERNEL_F32, torch.float64: tol.LINEAR_F64}
BOUND |= {torch.float16: tol.LINEAR_FUSED_EPS * 2.0**-10, torch.bfloat16: tol.LINEAR_FUSED_EPS * 2.0**-7}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of 16 float32 tokens and 16 columns, two to a chunk."""
    monkeypatch.setattr(gpu, "_TILE", 32)
    monkeypatch.setattr(gpu, "_TILES", 2)
    monkeypatch.setattr(gpu, "_BLOCK", 16)
    monkeypatch.setattr(gpu, "_BLOCK_SUMS", 16)


def rotation(name, tokens, pairs, batch=1):
    """At small angles, which keep rotated denominators away from 0; tokens end at the same angle."""
    speeds = tol.LINEAR_KERNEL_ANGLE * torch.arange(1, pairs + 1, dtype=torch.float64)
    angles = (100 + torch.arange(-tokens, 0, dtype=torch.float64))[:, None] * speeds
    angles = angles * torch.arange(1, 1 + batch)[:, None, None]
    return {f"{name}_cos": angles.cos(), f"{name}_sin": angles.sin()}


def rotations(queries, keys, pairs, batch=1):
    return rotation("query", queries, pairs, batch) | rotation("key", keys, pairs, batch)


def rising(keys, batch=1):
    """Exponents that rise now and then, once by far, and begin with -infinity."""
    steps = torch.rand(batch, keys, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    steps = steps.where(steps > 0.8, 0.0)
    steps[:, keys // 2] = 200.0
    exponents = (steps.cumsum(1) - 3).float().double()
    exponents[:, :2] = -torch.inf
    return exponents


def mask(batch, keys):
    return torch.rand(batch, keys, generator=torch.Generator().manual_seed(1)) < 0.7


def make_case(queries=41, keys=41, batch=1, heads=1, key_heads=1, features=6, value_dim=5, **options):
    """q, k, v, a gradient of out, float64 numbers that float16 holds; and the options."""
    generator = torch.Generator().manual_seed(0)
    sizes = [(queries, heads, features), (keys, key_heads, features), (keys, key_heads, value_dim)]
    sizes.append((queries, heads, value_dim))
    q, k, v, y = (torch.randn(batch, *size, generator=generator).bfloat16().double() for size in sizes)
    if options["feature_map"] == "given":
        q, k = q.abs() + 0.125, k.abs() + 0.125
    return (q, k, v, y), options


def of_dtype(options, dtype):
    row = torch.float64 if dtype == torch.float64 else torch.float32
    return {name: x.to(row) if name.endswith(("cos", "sin", "key_exponents")) else x for name, x in options.items()}


def assert_close(ours, truth, dtype):
    for i, (got, want) in enumerate(zip(ours, truth, strict=True)):
        assert got.shape == want.shape and got.dtype == dtype
        largest = max([1.0, *want.abs().flatten().tolist()])
        assert ((got.double() - want).abs() <= BOUND[dtype] * largest).all(), ("out", "q", "k", "v")[i]


def computed(forward, backward, case, options):
    q, k, v, y = case
    out, denominators, _ = forward(q, k, v, **options)
    return [out, *backward(y, out, denominators, [True] * 3, q, k, v, **options)]


OURS = gpu.linear_attention_kernel, gpu.linear_attention_kernel_backward


def check(case, options, dtype=torch.float32):
    ours = computed(*OURS, [x.to(dtype) for x in case], of_dtype(options, dtype))
    assert_close(ours, computed(truth_forward, truth_backward, case, options), dtype)


# ---- values and gradients ----

CAUSAL, BIDIRECTIONAL = {"direction": "causal"}, {"direction": "bidirectional"}
ELU, RELU, GIVEN = {"feature_map": "elu"}, {"feature_map": "relu", "eps": 0.5}, {"feature_map": "given"}
ENDS = {"cu_seqlens_q": torch.tensor([0, 20, 20, 25, 25, 41]), "cu_seqlens_k": torch.tensor([0, 19, 24, 24, 24, 60])}
MANY_KEYS = {"cu_seqlens_q": torch.tensor([0, 2, 9]), "cu_seqlens_k": torch.tensor([0, 90, 90])}
SHARED_ENDS = torch.tensor([0, 33, 41], dtype=torch.int32)

T33, ROTATED = {"queries": 33, "keys": 33}, {"denominator": "rotated"}

CASES = {
    "causal": dict(ELU, **CAUSAL, heads=2),
    "causal, rotated pairs, group, mask": dict(ELU, **CAUSAL, **T33, batch=2, heads=2, key_mask=mask(2, 33), eps=0.25,
                                               **rotations(33, 33, 3, batch=2)),
    "causal, rotated halves, blocks of columns": dict(ELU, **CAUSAL, **T33, **rotations(33, 33, 8), layout="halves",
                                                      features=19, value_dim=18),
    "causal, rotated denominator, blocks of columns": dict(ELU, **CAUSAL, **T33, **rotations(33, 33, 9), **ROTATED,
                                                           features=19),
    "causal, rotated denominator of halves": dict(ELU, **CAUSAL, **rotations(41, 41, 2), **ROTATED, layout="halves"),
    "causal, more keys": dict(RELU, **CAUSAL, keys=60, queries=23, key_mask=mask(1, 60), **rotations(23, 60, 2)),
    "causal, more queries, only keys rotated": dict(ELU, **CAUSAL, keys=23, queries=50, **rotation("key", 23, 3)),
    "causal, exponents": dict(GIVEN, **CAUSAL, batch=2, key_exponents=rising(41, 2), eps=0.01),
    "causal, exponents, more queries": dict(GIVEN, **CAUSAL, key_exponents=rising(35), queries=50, keys=35),
    "causal, exponents, more keys": dict(GIVEN, **CAUSAL, key_exponents=rising(60), queries=9, keys=60),
    "causal, packed": dict(ELU, **CAUSAL, keys=60, **ENDS, **rotations(41, 60, 2)),
    "causal, packed, exponents, shared ends": dict(GIVEN, **CAUSAL, cu_seqlens_q=SHARED_ENDS, cu_seqlens_k=SHARED_ENDS,
                                                   heads=2, key_exponents=rising(41)),
    "bidirectional, rotated": dict(ELU, **BIDIRECTIONAL, keys=50, batch=2, key_mask=mask(1, 50), layout="halves",
                                   **rotations(41, 50, 2)),
    "bidirectional, rotated denominator": dict(GIVEN, **BIDIRECTIONAL, **rotations(41, 41, 3), **ROTATED, heads=2,
                                               key_heads=2),
    "bidirectional, packed": dict(RELU, **BIDIRECTIONAL, keys=60, heads=2, **ENDS),
    "bidirectional, packed, many keys": dict(ELU, **BIDIRECTIONAL, queries=9, keys=90, **MANY_KEYS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_the_loops(name):
    check(*make_case(**CASES[name]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_values_by_dtype(dtype, monkeypatch):
    """bfloat16 with products of float32 numbers, because the interpreter multiplies bfloat16 numbers wrongly."""
    monkeypatch.setitem(gpu._PRODUCTS, torch.bfloat16, gpu._PRODUCTS[torch.float32])
    check(*make_case(**ELU, **CAUSAL, key_mask=mask(1, 41)), dtype)


def test_denominators_of_0():
    """Rotated features have products, and those of denominators have none: outputs and gradients are 0."""
    q, k = torch.tensor([1.0, -1.0]).expand(1, 4, 1, 2), torch.tensor([-1.0, 1.0]).expand(1, 4, 1, 2)
    case = [x.double() for x in (q, k, torch.ones(1, 4, 1, 5), torch.ones(1, 4, 1, 5))]
    options = {"feature_map": "relu", **CAUSAL, **rotation("key", 4, 1)}
    check(case, options)
    assert not any(x.any() for x in computed(*OURS, case, options))


def test_wanted_gradients():
    (q, k, v, y), options = make_case(20, 20, **ELU, **CAUSAL)
    q, k, v, y = (x.float() for x in (q, k, v, y))
    out, denominators, _ = gpu.linear_attention_kernel(q, k, v, **options)
    given = y, out, denominators
    every = gpu.linear_attention_kernel_backward(*given, [True] * 3, q, k, v, **options)
    for wanted in ([False, True, False], [True, False, True]):
        some = gpu.linear_attention_kernel_backward(*given, wanted, q, k, v, **options)
        for a, b in zip([x for x, w in zip(every, wanted, strict=True) if w], some, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (1, 0, 3), (1, 3, 0), (1, 0, 0)])
def test_no_tokens(batch, queries, keys, direction):
    case, options = make_case(queries, keys, batch, **ELU, direction=direction)
    assert not any(result.any() for result in computed(*OURS, case, options))


def test_masked_keys_are_not_read():
    (q, k, v, y), options = make_case(33, 33, **ELU, **CAUSAL, batch=2)
    allowed = mask(2, 33)
    allowed[0, :9], allowed[1] = False, False  # queries without a key
    results = []
    for filling in (0.0, torch.nan):
        k, v = (x.masked_fill(~allowed[:, :, None, None], filling) for x in (k, v))
        results.append(computed(*OURS, [x.float() for x in (q, k, v, y)], options | {"key_mask": allowed}))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    out, _, dk, dv = results[0]
    assert not dk[~allowed].any() and not dv[~allowed].any() and not out[1].any()


def test_strides():
    """Slices of a fused qkv, and rows that are not contiguous."""
    qkv = torch.randn(1, 9, 6, 8, generator=torch.Generator().manual_seed(0))
    y = torch.randn(1, 9, 2, 8, generator=torch.Generator().manual_seed(1))
    q, k, v = qkv.split(2, 2)
    layouts = [[x.contiguous() for x in (q, k, v, y)], [q, k, v, y]]
    layouts.append([x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v, y)])
    results = [computed(*OURS, layout, ELU | CAUSAL) for layout in layouts]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_offsets_beyond_int32():
    """Of heads and tokens whose strides are below 2^31; few pages of the memory are touched."""
    memory = torch.empty(2**30 * 3 + 64, dtype=torch.float16)
    (q, k, v, _), options = make_case(**ELU, **CAUSAL, queries=4, keys=4, heads=4)
    for strides in ((0, 6, 2**30, 1), (0, 2**30, 6, 1)):
        far = memory.as_strided(q.shape, strides).copy_(q)
        out = gpu.linear_attention_kernel(far, k.half(), v.half(), **options)[0]
        assert torch.equal(out, gpu.linear_attention_kernel(q.half(), k.half(), v.half(), **options)[0])


# ---- state ----


@pytest.mark.parametrize("packed", [False, True])
def test_state(packed):
    """In two calls, the first one of few tokens; the state that is given is not changed."""
    batch = 1 if packed else 2
    exponents = rising(41, batch).clamp(min=-4)
    (q, k, v, _), options = make_case(**GIVEN, **CAUSAL, batch=batch, key_exponents=exponents, value_dim=3)
    ends = {"cu_seqlens_q": torch.tensor([0, 1, 5]), "cu_seqlens_k": torch.tensor([0, 1, 5])}
    state = torch.rand(2, 1, 6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    before = torch.full((2, 1), -4.0, dtype=torch.float64)
    for first, last in itertools.pairwise((0, 5, 41)):
        now = slice(first, last)
        own = options | {"key_exponents": exponents[:, now], "state": state, "state_exponents": before}
        if packed:
            own |= {name: x * (last - first) // 5 for name, x in ends.items()}
        kept = state.clone()
        out, _, truth = truth_forward(q[:, now], k[:, now], v[:, now], **own)
        given = (x[:, now].float() for x in (q, k, v))
        ours, _, state_after = gpu.linear_attention_kernel(*given, **of_dtype(own, torch.float32))
        assert torch.equal(state, kept) and state_after.dtype == torch.float64
        assert_close([ours, state_after.float()], [out, truth], torch.float32)
        # A sequence's exponent is now that of its last key.
        state = truth
        tails = own["cu_seqlens_k"][1:] - 1 if packed else [-1]
        before = own["key_exponents"][0, tails] if packed else own["key_exponents"][:, -1]


def test_state_without_exponents():
    (q, k, v, _), options = make_case(**ELU, **CAUSAL, **rotations(41, 41, 3))
    state = torch.rand(1, 1, 6, 6, dtype=torch.float64)
    out, _, truth = truth_forward(q, k, v, **options, state=state)
    given = (x.float() for x in (q, k, v))
    ours, _, state_after = gpu.linear_attention_kernel(*given, **of_dtype(options, torch.float32), state=state)
    assert_close([ours, state_after.float()], [out, truth], torch.float32)


# ---- what is refused ----

Q = torch.ones(2, 3, 2, 4)
ROW = torch.ones(1, 3, 2)
STATE = torch.zeros(2, 2, 4, 5, dtype=torch.float64)
EXPONENTS, THREE = torch.zeros(2, 3, 2), torch.tensor([0, 3])

BAD = [
    ({"q": Q.int()}, "q must be float32, float64, bfloat16 or float16, got Int"),  # one of the operator's own
    ({"q": Q[:, :, :1]}, "heads must be a multiple of key_heads = 2, got 1"),
    ({"k": Q[:, :, :0], "v": Q[:, :, :0]}, "key_heads must be >= 1, got 0"),
    ({"q": Q[..., :0], "k": Q[..., :0]}, "features must be >= 1, got 0"),
    ({"v": Q[..., :0]}, "value_dim must be >= 1, got 0"),
    ({"q": Q[:, :, :1].expand(2, 3, 2**16, 4), "k": Q[:, :, :1], "v": Q[:, :, :1]}, "heads must be <= 65535 on a GPU"),
    ({"q": Q[..., :1].expand(2, 3, 2, 2**21), "k": Q[..., :1].expand(2, 3, 2, 2**21)}, r"features \* \(value_dim \+ 1"),
    ({"eps": -1.0}, "eps must be finite and >= 0, got -1"),
    ({"eps": float("nan")}, "eps must be finite and >= 0, got nan"),
    ({"key_cos": ROW.expand(3, 3, 2), "key_sin": ROW.expand(3, 3, 2)}, "key.batch must be 1 or batch = 2, got 3"),
    ({"query_cos": torch.ones(1, 3, 3), "query_sin": torch.ones(1, 3, 3)}, r"query.pairs must be in 1..2, got 3"),
    ({"state": STATE, "direction": "bidirectional"}, 'direction must be "causal" with a state, got bidirectional'),
    ({"state": STATE, "q": Q[:, 1:]}, "queries must equal keys = 3 with a state, got 2"),
    ({"state": STATE, "key_exponents": EXPONENTS, "feature_map": "given"}, "state_exponents must be given"),
    ({"key_exponents": EXPONENTS}, 'feature_map must be "given" with key_exponents, got elu'),
    (
        {"key_exponents": EXPONENTS, **GIVEN, **BIDIRECTIONAL},
        'direction must be "causal" with key_exponents, got bidir',
    ),
    ({"cu_seqlens_q": THREE, "cu_seqlens_k": THREE}, "batch must be 1 with packed sequences, got 2"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(change, message):
    given = {"q": Q, "k": Q, "v": Q, **ELU, **CAUSAL} | change
    with pytest.raises(ValueError, match=rf"\[linear_attention\] {message}"):
        gpu.linear_attention_kernel(given.pop("q"), given.pop("k"), given.pop("v"), **given)


def test_the_backward_refuses():
    out, denominators, _ = gpu.linear_attention_kernel(Q, Q, Q, **ELU, **CAUSAL)
    with pytest.raises(ValueError, match=r"\[linear_attention\] out must have the dtype and shape of the forward's"):
        gpu.linear_attention_kernel_backward(out, out[:1], denominators, [True] * 3, Q, Q, Q, **ELU, **CAUSAL)
    with pytest.raises(ValueError, match=r"\[linear_attention\] eps must be finite"):
        OURS[1](out, out, denominators, [True] * 3, Q, Q, Q, **ELU, **CAUSAL, eps=float("inf"))
