"""Attention over terms (nn/src/attention*.cpp): what its arguments mean, queries without keys (R-CONV-11), and its
paths. The explicit one and the float64 loops (core/ref/attention*.cpp), neither of which is written from the other,
agree in values and every gradient over random combinations of terms."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import tolerances as tol
from attention_cases import PARTS, make_case
from attention_reference import reference, window_mask
from attention_terms import all_terms, data, with_gradients
from roformer_cpp import DistanceTable, Rotation, Terms, attention
from term_list import TABLES

KERNELS = ["explicit", "ref"]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def assert_close(actual, expected):
    actual, expected = (x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in (actual, expected))
    np.testing.assert_allclose(actual, expected, atol=tol.T1_ATOL, rtol=tol.T1_RTOL)


def test_default_positions_are_level_with_the_last_keys():
    q, k, v = data(1, 3, 5, 2, 2)
    terms = Terms(key_table=all_terms(1, 3, 5, 2).key_table)
    out = attention(q, k, v, terms)
    assert_close(out, attention(q, k, v, terms, positions=torch.arange(2, 5), key_positions=torch.arange(5)))


def test_windows_count_tokens():
    q, k, v = data(1, 4, 7, 1, 1)
    none = Terms(scale=0.3)
    for causal in (False, True):
        for window in (None, 0, 2, (1, -1), (-1, 1), (2, 0)):
            left, right = (-1, -1) if window is None else (window, window) if isinstance(window, int) else window
            attend = window_mask(4, 7, left, 0 if causal else right)
            out = attention(q, k, v, none, is_causal=causal, window=window)
            assert_close(out, reference(q, k, v, none, torch.arange(3, 7), torch.arange(7), attend))


@pytest.mark.parametrize("kernel", KERNELS)
def test_masked_keys(kernel):
    """Their numbers change nothing, however large; the loops do not even read them, so that a NaN stays outside too. A
    query with no other keys has output 0 in every path."""
    q, k, v = data(1, 3, 4, 2, 2)
    mask = torch.tensor([True, True, True, False]).expand(1, 1, 3, 4).clone()
    mask[..., 2, :] = False
    expected = attention(q, k, v, mask=mask, kernel=kernel)
    for number in (1e30, torch.nan) if kernel == "ref" else (1e30,):
        k[:, 3], v[:, 3] = number, number
        assert torch.equal(attention(q, k, v, mask=mask, kernel=kernel), expected)
    v[:, 3] = torch.nan
    assert attention(q, k, v, mask=mask, kernel=kernel)[:, 2].eq(0).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("with_terms", [False, True])
def test_queries_without_keys(with_terms, kernel):
    """Output 0 and gradient 0, exactly (R-CONV-11); here queries 0 and 1, by the causal mask and by a mask."""
    q, k, v = (x.requires_grad_() for x in data(1, 5, 4, 2, 2))
    terms = all_terms(1, 5, 4, 2) if with_terms else None
    mask = torch.ones(1, 1, 5, 4, dtype=torch.bool)
    mask[:, :, 1] = False
    places = {"positions": torch.arange(1, 6), "key_positions": torch.arange(4)}
    out = attention(q, k, v, terms, **places, is_causal=True, mask=mask, kernel=kernel)
    assert out[:, :2].eq(0).all() and out[:, 2:].ne(0).all()
    for grad in torch.autograd.grad(out[:, :2].sum(), (q, k, v), retain_graph=True):
        assert grad.eq(0).all()
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert grads[0][:, :2].eq(0).all() and all(grad.isfinite().all() for grad in grads)


def test_second_gradients():
    tables = {name: getattr(all_terms(1, 2, 2, 1), name) for name in TABLES}
    number = DistanceTable(tables["gate"].rows[..., :1].contiguous(), *tables["gate"][1:])
    for name, table in [*tables.items(), ("gate", number)]:
        tensors, rules = data(1, 2, 2, 1, 1), {"positions": torch.arange(2), "kernel": "explicit"}
        run, inputs = with_gradients(tensors, Terms(**{name: table}), **rules)
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("prefix", [None, torch.tensor([2, 1, 0, 5])], ids=["window", "prefix"])
@pytest.mark.parametrize("kernel", ["explicit", "ref", "fused"])
def test_packed_sequences_equal_separate_ones(kernel, prefix):
    lengths, key_lengths = (3, 0, 1, 4), (3, 2, 2, 5)
    ends, key_ends = (torch.tensor((0, *n)).cumsum(0) for n in (lengths, key_lengths))
    q, k, v = data(1, 8, 12, 2, 2, torch.float32 if kernel == "fused" else torch.float64)
    terms = all_terms(1, 8, 12, 2)
    rules = {"is_causal": True, "kernel": kernel, "window": 2 if prefix is None else None}
    out = attention(q, k, v, terms, cu_seqlens=ends.int(), cu_seqlens_k=key_ends, prefix=prefix, **rules)
    assert out.shape == q.shape
    for i in range(4):
        rows, keys = slice(ends[i], ends[i + 1]), slice(key_ends[i], key_ends[i + 1])
        parts = {"query": rows, "key": keys, "value": keys}
        parts = {name: Rotation(*(x[:, part] for x in getattr(terms, name))) for name, part in parts.items()}
        parts |= {"key_score": terms.key_score[:, :, keys], "pair_bias": terms.pair_bias[:, :, rows, keys]}
        own_prefix = None if prefix is None else prefix[i : i + 1]
        tensors = q[:, rows], k[:, keys], v[:, keys]
        alone = attention(*tensors, replace(terms, **parts), prefix=own_prefix, **rules)
        assert torch.equal(out[:, rows], alone)
    none = q[:, :0]
    assert attention(none, none, none, cu_seqlens=torch.tensor([0]), kernel=kernel).shape == none.shape


def test_a_gate_is_computed_in_chunks():
    """64 queries of 64 keys with 1056 elements exceed one chunk."""
    q, k = (torch.randn(1, 64, 1, 1056, dtype=torch.float64, requires_grad=True) for _ in range(2))
    gate = DistanceTable(torch.randn(1, 5, 1056, dtype=torch.float64, requires_grad=True), -2, 2)
    terms = Terms(gate=gate)
    distance = (torch.arange(64)[:, None] - torch.arange(64)).clamp(-2, 2) + 2
    scores = torch.einsum("btd,tsd,bsd->bts", q[:, :, 0], gate.rows[0, distance], k[:, :, 0]) / 1056**0.5
    expected = (scores.softmax(-1) @ k[:, :, 0]).unsqueeze(2)
    out = attention(q, k, k, terms)
    assert_close(out, expected)
    weights = torch.randn(out.shape, dtype=out.dtype)
    pairs = (torch.autograd.grad(x, (q, k, gate.rows), weights) for x in (out, expected))
    for ours, theirs in zip(*pairs, strict=True):
        assert_close(ours, theirs)


# ---- paths ----


def values_and_gradients(case, kernel):
    leaves = {name: x.clone().requires_grad_() for name, x in case.leaves().items()}
    out = case.with_leaves(leaves).run(kernel)
    weights = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    # Not asked for by the result: a position bias without a key table.
    grads = torch.autograd.grad((out * weights).sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
    return {"out": out.detach()} | dict(zip(leaves, grads, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_explicit_equals_loops(seed):
    case = make_case(seed)
    explicit, loops = (values_and_gradients(case, kernel) for kernel in ("explicit", "ref"))
    for name, expected in loops.items():
        torch.testing.assert_close(explicit[name], expected, atol=tol.PATHS_F64, rtol=0, msg=name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_auto_is_explicit_in_float64_and_fused_elsewhere(dtype):
    for seed, part in enumerate(PARTS):
        case = make_case(seed, ("query", "key", part)).to(dtype)
        assert torch.equal(case.run("auto"), case.run("explicit" if dtype == torch.float64 else "fused"))


def test_autocast_lowers_what_enters_the_fused_kernel():
    case = make_case(1, ("query", "bias")).to(torch.float32)
    lowered = replace(case, q=case.q.bfloat16(), k=case.k.bfloat16(), v=case.v.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        out = case.run("fused")
    assert out.dtype == torch.float32
    assert torch.equal(out, lowered.run("fused").float())


def test_a_gate_that_the_queries_are_computed_from():
    torch.manual_seed(0)
    rows, k = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((1, 4, 4), (1, 4, 1, 4)))
    terms = Terms(gate=DistanceTable(rows, -2, 1))

    def gradients(kernel):
        out = attention(rows.view(1, 4, 1, 4).sin(), k, k, terms, kernel=kernel)
        return torch.autograd.grad(out.square().sum(), (rows, k))

    for explicit, loops in zip(gradients("explicit"), gradients("ref"), strict=True):
        torch.testing.assert_close(explicit, loops, atol=tol.PATHS_F64, rtol=0)
