"""Attention over terms (nn/src/attention*.cpp) against the loops of attention_reference.py: R-ATT-02, R-CONV-11."""

import numpy as np
import pytest
import torch

import tolerances as tol
from attention_reference import reference, window_mask
from attention_terms import D, all_terms, data, each_term, positions_of, with_gradients
from roformer_cpp import DistanceTable, attention

KERNELS = ["auto", "explicit", "ref"]
# Batch, queries, keys, query heads, key heads.
SHAPES = [
    (2, 5, 7, 4, 2),
    (1, 1, 3, 2, 2),
    (2, 6, 6, 2, 1),
    (1, 4, 1, 2, 2),
    (1, 7, 4, 3, 3),
    (0, 3, 3, 2, 2),
    (1, 1, 1, 1, 1),
    (1, 3, 0, 2, 2),
    (1, 0, 3, 2, 2),
]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def assert_close(actual, expected):
    actual, expected = (x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in (actual, expected))
    np.testing.assert_allclose(actual, expected, atol=tol.T1_ATOL, rtol=tol.T1_RTOL)


@pytest.mark.parametrize("kind", ["steps", "scattered"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_terms_at_once(shape, kind):
    batch, queries, keys, heads, _ = shape
    q, k, v = data(*shape)
    terms = all_terms(batch, queries, keys, heads)
    positions, key_positions = positions_of(kind, batch, queries, keys)
    for causal in (False, True):
        terms.layout = "halves" if causal else "pairs"
        places = {"positions": positions, "key_positions": key_positions}
        out = attention(q, k, v, terms, **places, is_causal=causal, window=3, kernel="explicit")
        attend = window_mask(queries, keys, 3, 0 if causal else 3)
        assert_close(out, reference(q, k, v, terms, positions, key_positions, attend))


@pytest.mark.parametrize("kind", ["scattered", "before", "after"])
@pytest.mark.parametrize("name", sorted(each_term(1, 1, 1, 1)))
def test_each_term_alone(name, kind):
    shape = (2, 4, 5, 2, 1)
    q, k, v = data(*shape)
    terms = each_term(*shape[:4])[name]
    positions, key_positions = positions_of(kind, *shape[:3])
    out = attention(q, k, v, terms, positions=positions, key_positions=key_positions)
    assert_close(out, reference(q, k, v, terms, positions, key_positions))
    if kind == "scattered" and name != "reset_row":  # the others may be the same for all keys
        assert not torch.allclose(out, attention(q, k, v)), "the term does nothing"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_plain_attention_equals_torch(kernel, causal):
    q, k, v = data(2, 9, 9, 3, 3)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal
    )
    assert_close(attention(q, k, v, is_causal=causal, kernel=kernel), expected.transpose(1, 2))


def test_positions_of_one_row_are_those_of_all():
    q, k, v = data(3, 5, 5, 2, 2)
    terms = all_terms(3, 5, 5, 2)
    for positions in (torch.arange(5), torch.tensor([0, 1, 5, 6, 7])):
        out = attention(q, k, v, terms, positions=positions)
        assert_close(attention(q, k, v, terms, positions=positions.expand(3, 5)), out)
        assert_close(attention(q, k, v, terms, positions=positions.int().expand(3, 5)), out)


@pytest.mark.parametrize("second", [[0, 1, 2, 9, 10, 11], [6, 7, 8, 9, 10, 11]])
def test_rows_of_a_batch_do_not_see_each_other(second):
    """The second row has a gap or other distances, so that the whole batch is gathered; alone, the first takes the
    shifts."""
    q, k, v = data(2, 6, 6, 2, 2)
    terms = all_terms(1, 6, 6, 2)
    keys, positions = torch.arange(6), torch.stack([torch.arange(6), torch.tensor(second)])
    both = attention(q, k, v, terms, positions=positions, key_positions=keys, kernel="explicit")
    for row in range(2):
        given = {"positions": positions[row], "key_positions": keys, "kernel": "explicit"}
        assert_close(both[row : row + 1], attention(*(x[row : row + 1] for x in (q, k, v)), terms, **given))


def test_default_positions_are_level_with_the_last_keys():
    q, k, v = data(1, 3, 5, 2, 2)
    terms = each_term(1, 3, 5, 2)["key_table"]
    out = attention(q, k, v, terms)
    assert_close(out, attention(q, k, v, terms, positions=torch.arange(2, 5), key_positions=torch.arange(5)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_any_strides(kernel):
    qkv = torch.randn(2, 5, 3, 2, D, dtype=torch.float64)
    terms = all_terms(2, 5, 5, 2)
    views = qkv.unbind(2)
    whole = attention(*(x.contiguous() for x in views), terms, kernel=kernel)
    assert_close(attention(*views, terms, kernel=kernel), whole)
    turned = [x.transpose(1, 3).contiguous().transpose(1, 3) for x in views]
    assert_close(attention(*turned, terms, kernel=kernel), whole)


def test_windows_count_tokens():
    shape = (1, 4, 7, 1, 1)
    q, k, v = data(*shape)
    none = each_term(*shape[:4])["scale"]
    for causal in (False, True):
        for window in (None, 0, 2, (1, -1), (-1, 1), (2, 0)):
            left, right = (-1, -1) if window is None else (window, window) if isinstance(window, int) else window
            attend = window_mask(4, 7, left, 0 if causal else right)
            out = attention(q, k, v, none, is_causal=causal, window=window)
            assert_close(out, reference(q, k, v, none, torch.arange(3, 7), torch.arange(7), attend))


@pytest.mark.parametrize("kernel", KERNELS)
def test_masks(kernel):
    q, k, v = data(2, 3, 4, 2, 2)
    keys = torch.tensor([[True, True, True, False], [False, True, False, True]])
    pairs = torch.rand(1, 2, 3, 4) < 0.7
    none = each_term(2, 3, 4, 2)["scale"]
    for mask, attend in ((keys, keys[:, None, None]), (pairs, pairs), (pairs & keys[:, None, None],) * 2):
        out = attention(q, k, v, none, mask=mask, kernel=kernel)
        assert_close(out, reference(q, k, v, none, torch.arange(1, 4), torch.arange(4), attend))


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
    out = attention(
        q, k, v, terms, positions=torch.arange(1, 6), key_positions=torch.arange(4), is_causal=True, mask=mask,
        kernel=kernel,
    )  # fmt: skip
    assert out[:, :2].eq(0).all() and out[:, 2:].ne(0).all()
    for grad in torch.autograd.grad(out[:, :2].sum(), (q, k, v), retain_graph=True):
        assert grad.eq(0).all()
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert grads[0][:, :2].eq(0).all() and all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("kind", ["steps", "scattered"])
def test_gradients(kind):
    """R-ATT-05, and of every term; the first query has no key. test_attention_paths.py compares combinations of terms
    with the loops, whose gradients tests/ops/test_attention_ref.py checks term by term."""
    shape = (1, 3, 2, 2, 1)
    positions, key_positions = positions_of(kind, *shape[:3])
    run, inputs = with_gradients(
        data(*shape), all_terms(*shape[:4], positions=12), positions=positions, key_positions=key_positions,
        is_causal=True, kernel="explicit",
    )  # fmt: skip
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


def test_second_gradients():
    shape = (1, 2, 2, 1, 1)
    for name in ("key_table", "query_table", "value_table", "bias", "gate", "gate_number"):
        terms = each_term(*shape[:4])[name]
        run, inputs = with_gradients(data(*shape), terms, positions=torch.arange(2), kernel="explicit")
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [("auto", torch.float64), ("explicit", torch.float64), ("ref", torch.float64), ("fused", torch.float32)],
)
def test_packed_sequences_equal_separate_ones(kernel, dtype):
    lengths, key_lengths = (3, 0, 1, 4), (3, 2, 2, 5)
    ends, key_ends = (torch.tensor((0, *n)).cumsum(0) for n in (lengths, key_lengths))
    (q, _, _), (_, k, v) = data(1, 8, 1, 2, 2), data(1, 1, 12, 2, 2)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    terms = all_terms(1, 8, 12, 2)
    out = attention(
        q, k, v, terms, is_causal=True, window=2, cu_seqlens=ends.int(), cu_seqlens_k=key_ends, kernel=kernel
    )
    assert out.shape == q.shape
    for i in range(4):
        rows, keys = slice(ends[i], ends[i + 1]), slice(key_ends[i], key_ends[i + 1])
        own = all_terms(1, 8, 12, 2)
        own.__dict__.update(terms.__dict__)
        own.query = type(terms.query)(*(x[:, rows] for x in terms.query))
        own.key, own.value = (type(terms.key)(*(x[:, keys] for x in each)) for each in (terms.key, terms.value))
        own.key_score, own.pair_bias = terms.key_score[:, :, keys], terms.pair_bias[:, :, rows, keys]
        alone = attention(q[:, rows], k[:, keys], v[:, keys], own, is_causal=True, window=2, kernel=kernel)
        assert torch.equal(out[:, rows], alone)


def test_no_packed_sequences():
    q, k, v = data(1, 0, 0, 2, 2)
    assert attention(q, k, v, cu_seqlens=torch.tensor([0])).shape == q.shape


def test_a_gate_is_computed_in_chunks():
    """64 queries of 64 keys with 1056 elements exceed one chunk."""
    q, k = (torch.randn(1, 64, 1, 1056, dtype=torch.float64, requires_grad=True) for _ in range(2))
    gate = DistanceTable(torch.randn(1, 5, 1056, dtype=torch.float64, requires_grad=True), -2, 2)
    terms = type(all_terms(1, 1, 1, 1))(gate=gate)
    distance = (torch.arange(64)[:, None] - torch.arange(64)).clamp(-2, 2) + 2
    scores = torch.einsum("btd,tsd,bsd->bts", q[:, :, 0], gate.rows[0, distance], k[:, :, 0]) / 1056**0.5
    expected = (scores.softmax(-1) @ k[:, :, 0]).unsqueeze(2)
    out = attention(q, k, k, terms)
    assert_close(out, expected)
    weights = torch.randn(out.shape, dtype=out.dtype)
    pairs = [torch.autograd.grad(x, (q, k, gate.rows), weights) for x in (out, expected)]
    for ours, theirs in zip(*pairs, strict=True):
        assert_close(ours, theirs)


def test_the_environments_loops():
    import roformer_cpp

    q, k, v = data(1, 4, 4, 2, 2)
    terms = all_terms(1, 4, 4, 2)
    expected = attention(q, k, v, terms, kernel="ref")
    target = roformer_cpp.target()
    roformer_cpp.set_target("ref")
    try:
        assert torch.equal(attention(q, k, v, terms), expected)
    finally:
        roformer_cpp.set_target("" if target != "ref" else "ref")
