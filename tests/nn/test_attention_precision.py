"""Attention over terms in 16 and 32 bits: its error against the float64 loops beside that of the plain formula."""

import numpy as np
import pytest
import torch

import tolerances as tol
from attention_reference import reference, window_mask
from attention_terms import all_terms, data, from_dict, positions_of, to_dict, with_gradients
from roformer_cpp import attention

SHAPE = (1, 24, 24, 2, 1)
TIMES = 5  # draws whose errors are added up: one draw's are the chance of a few roundings


def plain_formula(q, k, v, terms, positions, key_positions, attend):
    """The equation of core/terms/rf/attention_terms.h in the dtype of q, with every pair's rows written out."""
    dtype, group = q.dtype, q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(x.transpose(1, 2).repeat_interleave(group, 1) for x in (k, v))
    query_ids, key_ids = positions.reshape(-1), key_positions.reshape(-1)
    distance = query_ids[:, None] - key_ids

    def rows(table):
        return table.rows[:, distance.clamp(table.lo, table.hi) - table.lo].to(dtype)

    def turned(x, rotation):
        pairs = rotation.cos.shape[-1]
        a, b, rest = x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2], x[..., 2 * pairs :]
        cos, sin = (y.unsqueeze(1) for y in rotation)
        both = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(dtype)
        return torch.cat((both, rest), -1)

    gated = (turned(q, terms.query) + terms.content_bias[:, None])[:, :, :, None] * rows(terms.gate)
    scores = torch.einsum("bhtsd,bhsd->bhts", gated, turned(k, terms.key))
    scores = scores + torch.einsum("bhtd,htsd->bhts", q + terms.position_bias[:, None], rows(terms.key_table))
    scores = scores + torch.einsum(
        "bhsd,htsd->bhts", k, rows(terms.query_table).expand(q.shape[1], *distance.shape, q.shape[3])
    )
    place = torch.einsum(
        "htd,hsd->hts", terms.position_query[:, query_ids], terms.position_key[:, key_ids]
    ) * terms.scale + rows(terms.bias)
    place = torch.where(key_ids.eq(0), terms.reset_col[:, None, None], place)
    place = torch.where(query_ids.eq(0)[:, None], terms.reset_row[:, None, None], place)
    place = place + terms.key_score[:, :, None] + terms.pair_bias
    scores = (scores * terms.scale + place).masked_fill(~attend, -torch.inf)
    weights = scores.softmax(-1)
    out = weights @ turned(v, terms.value) + torch.einsum("bhts,htsd->bhtd", weights, rows(terms.value_table))
    return out.transpose(1, 2)


def rounded(dtype):
    """Terms and data that `dtype` holds exactly, and the same in float64."""
    terms = all_terms(*SHAPE[:4], dtype=dtype)
    # Scores of order 1: with larger ones every error is that of a few softmax ties.
    for name in ("key_table", "query_table"):
        table = getattr(terms, name)
        setattr(terms, name, table._replace(rows=(table.rows / 4).to(dtype)))
    return data(*SHAPE, dtype=dtype), terms


def largest_error(out, expected):
    return (out.double() - torch.as_tensor(expected)).abs().max().item()


@pytest.mark.parametrize("kind", ["steps", "scattered"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_errors_beside_the_plain_formula(dtype, kind):
    """Of the output and, in 16 bits, of every gradient."""
    torch.manual_seed(0)
    positions, key_positions = positions_of(kind, *SHAPE[:3])
    attend = torch.as_tensor(window_mask(24, 24, -1, 0))
    flat = to_dict(rounded(dtype)[1])
    names = [name for name, x in flat.items() if x.is_floating_point() and name != "scale"]
    errors = []
    for _ in range(TIMES):
        (q, k, v), terms = rounded(dtype)
        run, inputs = with_gradients((q, k, v), terms, positions=positions, key_positions=key_positions, is_causal=True)
        weights = torch.randn(q.shape).to(dtype)

        def plain(q, k, v, *rest, terms=terms):
            flat = to_dict(terms) | dict(zip(names, rest, strict=True))
            return plain_formula(q, k, v, from_dict(flat), positions, key_positions, attend)

        def results(function, inputs, weights=weights):
            out = function(*inputs)
            return out.detach(), *torch.autograd.grad(out, inputs, weights.to(out.dtype))

        exact = results(plain, [x.detach().double().requires_grad_() for x in inputs])
        both = results(run, inputs), results(plain, inputs)
        assert both[0][0].dtype == dtype
        errors.append([[largest_error(x, truth) for x, truth in zip(each, exact, strict=True)] for each in both])
    ours, theirs = np.sum(errors, axis=0)
    worse = np.greater(ours, tol.LOW_PRECISION_RATIO * theirs)
    # Its derivative is 0: what remains is the rounding of the output times its gradient.
    place = 4 + names.index("reset_row")
    worse[place] = ours[place] > tol.FUSED_RESET_ROW * torch.finfo(dtype).eps
    worse[1:] &= dtype.itemsize < 4
    assert not worse.any(), np.array(["out", "q", "k", "v", *names])[worse]
    assert theirs[0] < 1, "the plain formula is wrong, and this test tests nothing"


def test_autocast():
    """Training: float32 parameters, bfloat16 products."""
    torch.manual_seed(0)
    positions, key_positions = positions_of("steps", *SHAPE[:3])
    (q, k, v), terms = rounded(torch.float32)
    attend = torch.as_tensor(window_mask(24, 24, -1, 0))
    expected = reference(q, k, v, terms, positions, key_positions, attend)
    half = from_dict(
        {
            name: x.bfloat16() if x.dtype == torch.float32 and "cos" not in name and "sin" not in name else x
            for name, x in to_dict(terms).items()
        }
    )
    plain = plain_formula(*(x.bfloat16() for x in (q, k, v)), half, positions, key_positions, attend)
    bound = tol.LOW_PRECISION_RATIO * largest_error(plain, expected)
    run, inputs = with_gradients((q, k, v), terms, positions=positions, key_positions=key_positions, is_causal=True)
    truth = torch.autograd.grad(run(*(x.double() for x in inputs)).sum(), inputs)
    largest = max(exact.abs().max() for exact in truth)
    for cast in (inputs, tuple(x.detach().bfloat16().requires_grad_() for x in inputs[:3]) + inputs[3:]):
        with torch.autocast("cpu", torch.bfloat16):
            out = run(*cast)
        assert out.dtype == cast[0].dtype
        assert largest_error(out, expected) <= bound
        for x, grad, exact in zip(cast, torch.autograd.grad(out.sum(), cast), truth, strict=True):
            assert grad.dtype == x.dtype
            scale = max(exact.abs().max(), tol.GRADIENT_FLOOR * largest)
            assert largest_error(grad, exact.double()) <= tol.AUTOCAST_GRADIENT * scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_long_plain_sequence(dtype):
    """Beyond the length to which bfloat16 takes explicit products, with and without a mask."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1100, 1, 8).to(dtype) for _ in range(3))
    exact = attention(q.double(), k.double(), v.double(), is_causal=True, kernel="explicit")
    plain_scores = (q[:, :, 0] @ k[:, :, 0].mT) / 8**0.5
    plain = plain_scores.masked_fill(~torch.ones(1100, 1100, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    bound = tol.LOW_PRECISION_RATIO * largest_error((plain @ v[:, :, 0]).unsqueeze(2), exact)
    for options in ({"is_causal": True}, {"mask": torch.ones(1, 1, 1100, 1100, dtype=torch.bool).tril()}):
        for kernel in ("auto", "explicit"):
            assert largest_error(attention(q, k, v, kernel=kernel, **options), exact) <= bound


@pytest.mark.parametrize("terms_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_terms_may_be_of_another_dtype(dtype, terms_dtype):
    torch.manual_seed(0)
    q, k, v = data(*SHAPE, dtype=dtype)
    terms = all_terms(*SHAPE[:4], dtype=terms_dtype)
    positions, key_positions = positions_of("steps", *SHAPE[:3])
    outs = [
        attention(q, k, v, terms, positions=positions, key_positions=key_positions, kernel=kernel)
        for kernel in ("explicit", "ref")
    ]
    assert outs[0].dtype == outs[1].dtype == dtype
    atol, rtol = {
        torch.float64: (tol.T1_ATOL, tol.T1_RTOL),
        torch.float32: (tol.T3_ATOL, tol.T3_RTOL),
        torch.bfloat16: (tol.BF16_ATTENTION, tol.BF16_ATTENTION),
    }[dtype]
    torch.testing.assert_close(*outs, atol=atol, rtol=rtol)


def test_weights_below_normal_numbers_are_zero():
    """Products of subnormal numbers would be some 100 times slower."""
    q, k, v = (
        torch.tensor(x).reshape(1, -1, 1, 2) for x in ([1.0, 0.0], [0.0, 0.0, -90.0, 0.0], [1.0, 1.0, 2e38, 1.0])
    )
    out = attention(q, k, v, scale=1.0)
    assert torch.equal(out, torch.ones_like(out))
