"""Linear attention's operator with exponents of keys and with packed sequences, against the equation over all pairs in
float64 (core/include/rf/linear_attention.h), gradients of the exponents included.
"""

import itertools

import pytest
import torch
from torch.library import opcheck

import tolerances as tol
from roformer_cpp import attention  # noqa: F401 - registers the operators

kernel = torch.ops.roformer.linear_attention_kernel.default

BOUND = {torch.float32: tol.LINEAR_KERNEL_F32, torch.float64: tol.LINEAR_F64}
EPS = 0.01


def formula(q, k, v, exponents=None, causal=True):
    """One sequence, features given: [T, H, F], [S, Hk, F], [S, Hk, Dv], [S, Hk]."""
    queries, keys, group = q.size(0), k.size(0), q.size(1) // k.size(1)
    weights = torch.einsum("thf,shf->hts", q, k.repeat_interleave(group, 1))
    last = torch.arange(queries) + keys - queries
    seen = torch.arange(keys) <= last[:, None] if causal else torch.ones(queries, keys, dtype=torch.bool)
    if exponents is not None and keys > 0:
        of_head = exponents.repeat_interleave(group, 1).t()  # [H, S]
        gap = of_head[:, None, :] - of_head[:, last.clamp(min=0)][:, :, None]
        weights = weights * gap.masked_fill(~seen, -torch.inf).exp()
    weights = weights.masked_fill(~seen, 0)
    weights = weights / (weights.sum(-1, keepdim=True) + EPS)
    return torch.einsum("hts,shd->thd", weights, v.repeat_interleave(group, 1))


def make_case(queries, keys, batch=1, rise=2.0, seed=0):
    """q, k, v, the gradient of the output, and exponents that rise now and then. Features are positive."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(batch, *shape, generator=generator, dtype=torch.float64)

    steps = normal(keys, 2).abs() * (torch.rand(batch, keys, 2, generator=generator) < 0.1)
    q, k = normal(queries, 4, 6).abs() + 0.1, normal(keys, 2, 6).abs() + 0.1
    exponents = (rise * steps.cumsum(1) - 3).float().double()  # as float32 holds them
    return q, k, normal(keys, 2, 5), normal(queries, 4, 5), exponents


def gradients(function, tensors, y):
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, y.to(out.dtype), materialize_grads=True)]


def assert_close(ours, truth, bound):
    for got, want in zip(ours, truth, strict=True):
        assert got.shape == want.shape
        largest = max([1.0, *want.abs().flatten().tolist()])
        assert ((got.double() - want).abs() <= bound * largest).all()


def run(q, k, v, exponents=None, causal=True, **packed):
    direction = "causal" if causal else "bidirectional"
    return kernel(q, k, v, feature_map="given", direction=direction, eps=EPS, key_exponents=exponents, **packed)[0]


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("rise", [2.0, 500.0])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (150, 150), (70, 200), (200, 70), (0, 3), (3, 0)])
def test_exponents_of_keys(queries, keys, rise, dtype):
    q, k, v, y, exponents = make_case(queries, keys, batch=2, rise=rise)

    def of_entries(*tensors):
        return torch.stack([formula(*entry) for entry in zip(*tensors, strict=True)])

    truth = gradients(of_entries, (q, k, v, exponents), y)
    ours = gradients(run, [x.to(dtype) for x in (q, k, v, exponents)], y)
    assert_close(ours, truth, BOUND[dtype])


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("ends_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("kind", ["bidirectional", "causal", "exponents"])
def test_packed_sequences(kind, ends_type, dtype):
    """Of other lengths for keys than for queries, one without queries, one without keys, one with neither."""
    ends_q, ends_k = [0, 70, 70, 75, 75, 150], [0, 90, 95, 95, 95, 160]
    q, k, v, y, _ = make_case(150, 160)
    exponents = torch.cat([make_case(1, b - a, seed=b)[4] for a, b in itertools.pairwise(ends_k)], 1)
    tensors = (q, k, v, exponents)[: 4 if kind == "exponents" else 3]

    def apart(q, k, v, *exponents):
        parts = []
        for (a, b), (c, d) in zip(itertools.pairwise(ends_q), itertools.pairwise(ends_k), strict=True):
            own = [x[0, c:d] for x in (k, v, *exponents)]
            parts.append(formula(q[0, a:b], *own, causal=kind != "bidirectional"))
        return torch.cat(parts)[None]

    def packed(*tensors):
        of_q, of_k = (torch.tensor(ends, dtype=ends_type) for ends in (ends_q, ends_k))
        return run(*tensors, causal=kind != "bidirectional", cu_seqlens_q=of_q, cu_seqlens_k=of_k)

    truth = gradients(apart, tensors, y)
    assert_close(gradients(packed, [x.to(dtype) for x in tensors], y), truth, BOUND[dtype])


@pytest.mark.parametrize("dtype", list(BOUND))
def test_state_of_packed_sequences_with_exponents(dtype):
    """Two sequences, each in two calls, answer as whole ones."""
    (q, k, v, _, exponents), ends = make_case(100, 100, rise=20.0), torch.tensor([0, 40, 100])
    q, k, v, exponents = (x.to(dtype) for x in (q, k, v, exponents))
    whole = run(q, k, v, exponents, cu_seqlens_q=ends, cu_seqlens_k=ends)
    state = torch.zeros(2, 2, 6, 6, dtype=torch.float64)
    before = torch.full((2, 2), -torch.inf, dtype=torch.float64)
    out = torch.zeros_like(whole)
    for parts in ([(0, 25), (40, 41)], [(25, 40), (41, 100)]):
        tokens = torch.cat([torch.arange(*part) for part in parts])
        own = torch.tensor([0, parts[0][1] - parts[0][0], len(tokens)])
        out[:, tokens], _, state = kernel(
            *(x[:, tokens] for x in (q, k, v)),
            feature_map="given",
            direction="causal",
            eps=EPS,
            key_exponents=exponents[:, tokens],
            cu_seqlens_q=own,
            cu_seqlens_k=own,
            state=state,
            state_exponents=before,
        )
        before = torch.stack([exponents[0, part[1] - 1] for part in parts]).double()
    assert_close([out], [whole.double()], BOUND[dtype])


def test_opcheck():
    q, k, v, _, exponents = (x.float() for x in make_case(20, 20))
    ends = torch.tensor([0, 7, 20])
    options = {"feature_map": "given", "direction": "causal", "cu_seqlens_q": ends, "cu_seqlens_k": ends}
    leaves = [x.requires_grad_() for x in (q, k, v)]
    opcheck(kernel, leaves, {**options, "key_exponents": exponents.requires_grad_()})


ROWS, ENDS = torch.ones(1, 3, 2, 4), torch.tensor([0, 3])
BAD = [
    ({"key_exponents": torch.zeros(1, 3)}, r"key_exponents must be Float \[1, 3, 2\], got Float \[1, 3\]"),
    ({"key_exponents": torch.zeros(1, 3, 2).double()}, r"key_exponents must be Float \[1, 3, 2\], got Double"),
    ({"key_exponents": -torch.arange(6.0).view(1, 3, 2)}, "key_exponents must be .* not fall from key to key, got -2"),
    ({"key_exponents": torch.zeros(1, 3, 2), "direction": "bidirectional"}, "direction must be RF_LINEAR_CAUSAL"),
    ({"key_exponents": torch.zeros(1, 3, 2), "feature_map": "elu"}, "feature_map must be RF_FEATURES_GIVEN"),
    ({"cu_seqlens_q": ENDS}, "cu_seqlens_q and cu_seqlens_k must be given together, got cu_seqlens_q alone"),
    ({"cu_seqlens_q": ENDS.float(), "cu_seqlens_k": ENDS}, r"cu_seqlens_q must be int32 or int64 \[sequences \+ 1\]"),
    ({"cu_seqlens_q": ENDS, "cu_seqlens_k": ENDS[:1]}, r"cu_seqlens_k must be Long \[2\], got Long \[1\]"),
    ({"cu_seqlens_q": ENDS, "cu_seqlens_k": ENDS - 1}, "cu_seqlens_k must begin with 0, got -1"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=rf"\[linear_attention\] {message}"):
        kernel(ROWS, ROWS, ROWS, **({"feature_map": "given", "direction": "causal"} | change))
