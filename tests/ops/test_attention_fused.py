"""The fused kernel of attention as a PyTorch operator (ops/src/attention*.cpp) and behind kernel="fused": values and
every gradient against the explicit path in float64, rounding beside that of the explicit path in the same dtype.
"""

import itertools

import pytest
import torch
from torch.library import opcheck

import roformer_cpp
import tolerances as tol
from attention_cases import PARTS, make_case
from roformer_cpp import DistanceTable, Terms
from term_list import NUMBERS, PAIRS, SCORES, TABLES, TENSORS, scores_shape, shape

kernel = torch.ops.roformer.attention_kernel.default
LOW = [torch.float32, torch.bfloat16, torch.float16]
ALL = len(TENSORS)


def with_gradients(out, leaves):
    weights = torch.arange(out.numel(), dtype=torch.float64).cos().view_as(out).to(out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves, materialize_grads=True)]


def values_and_gradients(case, path):
    leaves = {name: x.clone().requires_grad_() for name, x in case.leaves().items()}
    results = with_gradients(case.with_leaves(leaves).run(path), list(leaves.values()))
    return dict(zip(("out", *leaves), results, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_fused_equals_explicit(seed):
    case = make_case(seed)
    fused, exact = values_and_gradients(case.to(torch.float32), "fused"), values_and_gradients(case, "explicit")
    limit = {"atol": tol.FUSED_F32, "rtol": tol.FUSED_F32}
    for name, expected in exact.items():
        torch.testing.assert_close(fused[name].double(), expected, **limit, msg=lambda m, n=name: f"{n}: {m}")


def operator_arguments(dtype=torch.float32, absent=(), requires_grad=True, batch=2):
    torch.manual_seed(0)
    queries, keys, heads, key_heads, dim, positions = 5, 7, 4, 2, 6, 9
    row_dtype = torch.float64 if dtype == torch.float64 else torch.float32

    def drawn(*size, dtype=dtype):
        return torch.randn(size, dtype=dtype, requires_grad=requires_grad)

    shapes = {
        **dict.fromkeys(("query_cos", "query_sin"), (1, queries, 2)),
        **dict.fromkeys(("key_cos", "key_sin"), (batch, keys, key_heads, 3)),
        **dict.fromkeys(("value_cos", "value_sin"), (1, keys, 1)),
        **{name: shape(name, heads, positions, dim) for name in (*NUMBERS, *PAIRS)},
        **{name: shape(name, heads if name == "bias" else 1, positions, dim, rows=6) for name in TABLES},
        **{name: scores_shape(name, 1, heads, queries, keys) for name in SCORES},
    }
    terms = [None if name in absent else drawn(*shapes[name], dtype=row_dtype) for name in TENSORS]
    q, k, v = (drawn(batch, *size, dim) for size in ((queries, heads), (keys, key_heads), (keys, key_heads)))
    mask = torch.rand(batch, 1, 1, keys) < 0.8
    return q, k, v, torch.arange(queries)[None], torch.arange(keys)[None], mask, terms, [-3, 2] * 5


PACKED = {"cu_seqlens_q": torch.tensor([0, 2, 2, 5]), "cu_seqlens_k": torch.tensor([0, 1, 4, 7], dtype=torch.int32)}


@pytest.mark.parametrize(
    ("dtype", "absent", "options"),
    [
        (torch.float32, (), {"left": 4, "dropout": 0.3, "seed": 3, "stream": 5}),
        (torch.float32, TENSORS, {"layout": "halves"}),
        (torch.bfloat16, ("gate", "key_table", "query_cos", "query_sin"), {"scale": 0.5, "right": 0}),
        (torch.float64, (), {"layout": "halves"}),
        (torch.float32, (), {"left": 1, **PACKED}),
        (torch.float64, (), {"left": 1, **PACKED}),
    ],
)
def test_opcheck(dtype, absent, options):
    opcheck(kernel, operator_arguments(dtype, absent, batch=1 if "cu_seqlens_q" in options else 2), options)


@pytest.mark.parametrize("packed", [{}, PACKED])
def test_opcheck_of_the_backward(packed):
    *tensors, terms, ranges = operator_arguments(requires_grad=False, batch=1 if packed else 2)
    out, log_sum = kernel(*tensors, terms, ranges, **packed)
    wanted = [True] * 3 + [x is not None for x in terms]
    backward = torch.ops.roformer.attention_kernel_backward.default
    opcheck(backward, (torch.randn_like(out), out, log_sum, wanted, *tensors, terms, ranges), packed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out": lambda x: x[:1]}, "out must have the dtype and shape of the forward's"),
        ({"log_sum": lambda x: x[0]}, "log_sum must have the dtype and shape of the forward's"),
        ({"grad_out": lambda x: x.double()}, "grad_out must have the dtype and shape of the forward's"),
        ({"terms": lambda x: x[1:]}, f"terms must have {ALL} entries, got {ALL - 1}"),
        ({"ranges": lambda x: x[1:]}, "ranges must have 10 entries, got 9"),
        ({"terms": lambda x: [None] * ALL}, "wanted must name terms that are given, got the absent content_bias"),
    ],
)
def test_the_backward_refuses(change, message):
    *tensors, terms, ranges = operator_arguments(requires_grad=False)
    out, log_sum = kernel(*tensors, terms, ranges)
    given = {"grad_out": out, "out": out, "log_sum": log_sum, "terms": terms, "ranges": ranges}
    given |= {name: function(given[name]) for name, function in change.items()}
    wanted = [name == "content_bias" for name in ("q", "k", "v", *TENSORS)]
    backward = torch.ops.roformer.attention_kernel_backward.default
    with pytest.raises(ValueError, match=message):
        backward(given["grad_out"], given["out"], given["log_sum"], wanted, *tensors, given["terms"], given["ranges"])


IDS, ENDS, META = torch.arange(4)[None], torch.tensor([0, 2, 4]), torch.zeros(1, 1, device="meta")
BAD = [
    ({"v": torch.ones(1, 4, 2, 6, device="meta")}, "v must be on the device of q, cpu, got meta"),
    ({"query_positions": IDS.int()}, "query_positions must be int64, got Int"),
    ({"key_positions": torch.arange(5)[None]}, r"key_positions must be \[1 or 1, 4\], got \[1, 5\]"),
    ({"mask": torch.ones(1, 1, 4, 4)}, "mask must be bool and broadcast to .*, got Float"),
    ({"layout": "both"}, 'layout must be "pairs".*, got "both"'),
    ({"query_cos": torch.ones(1, 4, 2)}, "query_cos and query_sin must be given together, got query_cos alone"),
    ({"bias": META}, "bias must be on the device of q, cpu, got meta"),
    ({"position_query": torch.ones(4, 6)}, r"position_query must be \[4, 0, 6\], got \[4, 6\]"),
    ({"content_bias": torch.ones(4, 6).double()}, "content_bias must be Float for data of Float, got Double"),
    ({"cu_seqlens_q": ENDS.float()}, r"cu_seqlens_q must be int32 or int64 \[sequences \+ 1\], got Float \[3\]"),
    ({"cu_seqlens_q": ENDS[:0]}, r"cu_seqlens_q must be int32 or int64 .*, got Long \[0\]"),
    ({"cu_seqlens_k": ENDS[None]}, r"cu_seqlens_k must be int32 or int64 .*, got Long \[1, 3\]"),
    ({"cu_seqlens_k": META[0].long()}, "cu_seqlens_k must be on the device of q, cpu, got meta"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(change, message):
    """The rules of the operator that the checks of roformer_cpp.attention hide: tests/nn/test_attention_errors.py has
    the others."""
    q, k = torch.ones(1, 4, 4, 6), torch.ones(1, 4, 2, 6)
    given = {"q": q, "k": k, "v": k, "query_positions": IDS, "key_positions": IDS, "mask": None} | change
    terms = [given.pop(name, None) for name in TENSORS]
    with pytest.raises(ValueError, match=rf"^\[attention\] {message}"):
        kernel(*(given.pop(name) for name in list(given)[:6]), terms, [0] * 10, **given)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("terms", "ranges"), [(0, 10), (ALL - 1, 10), (ALL + 1, 10), (ALL, 0), (ALL, 9), (ALL, 11)])
def test_lists_of_other_lengths_are_refused(terms, ranges, requires_grad):
    q = torch.ones(1, 2, 1, 4, requires_grad=requires_grad)
    ids = torch.arange(2)[None]
    rule = f"{ALL} entries, got {terms}" if terms != ALL else f"10 entries, got {ranges}"
    with pytest.raises(ValueError, match=rule):
        kernel(q, q, q, ids, ids, None, [None] * terms, [0] * ranges)


@pytest.mark.parametrize("dtype", LOW)
def test_slices_of_a_fused_qkv(dtype):
    qkv = torch.randn(2, 5, 6, 8).to(dtype)
    views, copies = qkv.split(2, 2), [x.contiguous() for x in qkv.split(2, 2)]
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in copies]
    outs, grads = [], []
    for tensors in (views, heads_first, copies):
        leaves = [x.detach().requires_grad_() for x in tensors]
        outs.append(roformer_cpp.attention(*leaves, kernel="fused"))
        grads.append(torch.autograd.grad(outs[-1].square().sum(), leaves))
    for other in (0, 1):
        assert torch.equal(outs[other], outs[2])
        assert all(torch.equal(a, b) for a, b in zip(grads[other], grads[2], strict=True))


@pytest.mark.parametrize(("queries", "number"), [(1, torch.nan), (70, torch.nan), (70, torch.inf)])
@pytest.mark.parametrize("dtype", LOW)
def test_padding_is_not_read(dtype, number, queries):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, tokens, 2, 16).to(dtype) for tokens in (queries, 70, 70))
    mask = torch.ones(2, 70, dtype=torch.bool)
    mask[0, 50:] = False
    mask[1, ::3] = False
    results = []
    for filling in (0.0, number):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        with torch.no_grad():
            for x in leaves[1:]:
                x[~mask] = filling
        out = roformer_cpp.attention(*leaves, mask=mask, kernel="fused")
        results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("path", ["fused", "ref"])
def test_a_query_without_keys_has_output_and_gradient_zero(path, dtype):
    case = make_case(5, PARTS).to(dtype)
    case.mask = torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    for name, x in values_and_gradients(case, path).items():
        assert not x.any(), name


@pytest.mark.parametrize("path", ["fused", "explicit", "ref"])
@pytest.mark.parametrize(("batch", "queries", "keys"), [(2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 3, 3)])
def test_no_tokens(batch, queries, keys, path):
    q = torch.ones(batch, queries, 2, 4, requires_grad=True)
    k = torch.ones(batch, keys, 1, 4)
    places = {"positions": torch.arange(queries), "key_positions": torch.arange(keys)}
    out = roformer_cpp.attention(q, k, k, **places, kernel=path)
    assert out.shape == q.shape and not out.any()
    assert not torch.autograd.grad(out.sum(), q)[0].any()


@pytest.mark.parametrize("packed", [False, True])
def test_dropout_is_that_of_the_probabilities(packed):
    """With the identity as values the output is the probabilities: what is dropped is what roformer::dropout drops of
    them as one list, [H, T, S] of the first entry or packed sequence, then of the next; and gradients are those of
    that."""
    batch, queries, keys, heads = (1, 40, 140, 3) if packed else (2, 37, 70, 3)
    q, k = (torch.randn(batch, tokens, heads, 70, requires_grad=True) for tokens in (queries, keys))
    v = torch.eye(keys)[None, :, None].expand(batch, keys, heads, keys).contiguous().requires_grad_()
    entries = [(i, slice(None), slice(None)) for i in range(batch)]
    options = {"dropout": 0.25, "seed": 5, "stream": 7 << 16}
    if packed:
        ends, key_ends = (0, 3, 3, 40), (0, 70, 75, 140)
        entries = [(0, slice(*a), slice(*b)) for a, b in zip(*map(itertools.pairwise, (ends, key_ends)), strict=True)]
        options |= {"cu_seqlens_q": torch.tensor(ends), "cu_seqlens_k": torch.tensor(key_ends)}
    places = torch.arange(queries)[None], torch.arange(keys)[None]
    out, _ = kernel(q, k, v, *places, None, [None] * len(TENSORS), [0] * 10, **options)
    weights = [(torch.einsum("thd,shd->hts", q[i, a], k[i, b]) / 70**0.5).softmax(-1) for i, a, b in entries]
    dropped = torch.ops.roformer.dropout(torch.cat([x.flatten() for x in weights]), 0.25, 5, 7 << 16)
    parts = [part.view_as(x) for part, x in zip(dropped.split([x.numel() for x in weights]), weights, strict=True)]
    outs = [torch.einsum("hts,shd->thd", x, v[i, b]) for x, (i, _, b) in zip(parts, entries, strict=True)]
    expected = torch.cat(outs).view_as(out)
    assert torch.equal(out.eq(0), expected.eq(0))
    torch.testing.assert_close(out, expected, atol=tol.T2_ATOL, rtol=tol.T2_RTOL)
    direction = torch.randn_like(out)
    for a, b in zip(*(torch.autograd.grad((x * direction).sum(), (q, k, v)) for x in (out, expected)), strict=True):
        torch.testing.assert_close(a, b, atol=tol.T3_ATOL, rtol=tol.T3_RTOL)


@pytest.mark.parametrize("path", ["fused", "ref"])
def test_second_derivatives_and_tangents_are_refused(path):
    q = torch.ones(1, 2, 1, 2, requires_grad=True)
    out = roformer_cpp.attention(q, q, q, kernel=path)
    with pytest.raises(NotImplementedError, match=r"\[attention\] create_graph must be false.* kernel explicit"):
        torch.autograd.grad(out.sum(), q, create_graph=True)
    q = q.detach()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        with pytest.raises(NotImplementedError, match=r"\[attention\] .* must not carry a tangent"):
            roformer_cpp.attention(dual, q, q, kernel=path)


@pytest.mark.parametrize("score", [1e4, 1e7, 1e10])
def test_equal_scores_share_their_weight_whatever_their_size(score):
    """Plain tiles and those that the causal window cuts form scores alike."""
    q = torch.full((1, 200, 1, 64), (score / 8) ** 0.5)
    v = torch.randn(1, 200, 1, 64, generator=torch.Generator().manual_seed(0))
    out = roformer_cpp.attention(q, q, v, is_causal=True, kernel="fused")
    expected = v.double().cumsum(1) / torch.arange(1, 201).view(1, -1, 1, 1)
    torch.testing.assert_close(out.double(), expected, atol=tol.FUSED_F32, rtol=0)


def test_a_window_of_any_size_leaves_out_nothing():
    q, k, v = torch.randn(3, 1, 70, 2, 8, generator=torch.Generator().manual_seed(0))
    whole = roformer_cpp.attention(q, k, v, is_causal=True, kernel="fused")
    for left in (70, 2**62, 2**63 - 1):
        assert torch.equal(roformer_cpp.attention(q, k, v, is_causal=True, window=(left, -1), kernel="fused"), whole)


def test_a_query_without_keys_has_gradient_0_whatever_is_given():
    leaves = [torch.randn(1, 6, 2, 8, requires_grad=True) for _ in range(3)]
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[:, :, 3] = False
    out = roformer_cpp.attention(*leaves, mask=mask, kernel="fused")
    given = torch.ones_like(out)
    given[:, 3] = float("nan")
    grads = torch.autograd.grad(out, leaves, given, retain_graph=True)
    assert grads[0][:, 3].eq(0).all()
    given[:, 3] = 0
    for ours, theirs in zip(grads, torch.autograd.grad(out, leaves, given), strict=True):
        assert torch.equal(ours, theirs) and theirs.ne(0).any()


def gated_case(width, kind, dtype):
    """q, k, v over several tiles, a gate beside a table and a bias, and positions."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tables = {"gate": (-40, 90, width), "key_table": (-7, 9, 24), "bias": (-200, 200)}
    rows = {name: normal(2, hi - lo + 1, *wide) for name, (lo, hi, *wide) in tables.items()}
    positions = {"steps": torch.arange(130), "scattered": torch.randint(0, 130, (130,), generator=generator)}[kind]
    q, k, v = normal(1, 110, 2, 24), normal(1, 130, 1, 24), normal(1, 130, 1, 20)
    leaves = [x.to(dtype).double() for x in (q, k, v)] + list(rows.values())

    def run(path, q, k, v, *rows):
        terms = {name: DistanceTable(x, *tables[name][:2]) for name, x in zip(tables, rows, strict=True)}
        options = dict(positions=positions[20:], key_positions=positions, is_causal=True, kernel=path)
        return roformer_cpp.attention(q, k, v, Terms(**terms), **options)

    return run, leaves


@pytest.mark.parametrize("kind", ["steps", "scattered"])
@pytest.mark.parametrize("width", [1, 24])
@pytest.mark.parametrize("target", ["", "AVX2", "SSE4"])
def test_a_gate_over_several_tiles(set_target, target, width, kind):
    set_target(target)
    run, leaves = gated_case(width, kind, torch.float32)
    results = []
    for path, dtype in (("explicit", torch.float64), ("fused", torch.float32)):
        own = [x.to(dtype, copy=True).requires_grad_() for x in leaves]
        results.append(with_gradients(run(path, *own), own))
    for exact, fused in zip(*results, strict=True):
        assert ((fused.double() - exact).abs() <= tol.FUSED_F32 * exact.abs().max().clamp_min(1)).all()


@pytest.mark.parametrize("width", [1, 24])
def test_a_gate_in_bfloat16_beside_explicit(width):
    run, leaves = gated_case(width, "steps", torch.bfloat16)
    results = {}
    for path, dtype in (("exact", torch.float64), ("fused", torch.bfloat16), ("explicit", torch.bfloat16)):
        dtypes = [dtype] * 3 + [torch.float64 if path == "exact" else torch.float32] * 3
        own = [x.to(each, copy=True).requires_grad_() for x, each in zip(leaves, dtypes, strict=True)]
        results[path] = with_gradients(run("explicit" if path == "exact" else path, *own), own)
    exact = results.pop("exact")
    ours, theirs = (
        sum((x.double() - truth).abs().max() / truth.abs().max() for x, truth in zip(each, exact, strict=True))
        for each in results.values()
    )
    assert ours <= tol.LOW_PRECISION_RATIO * theirs


def test_every_nan_stays_nan(set_target):
    q, k, v = torch.randn(3, 1, 20, 1, 8, generator=torch.Generator().manual_seed(0))
    k[0, 5, 0, 2] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    for target in ("", "AVX2", "SSE4"):
        set_target(target)
        assert roformer_cpp.attention(q, k, v, kernel="fused").isnan().all()
