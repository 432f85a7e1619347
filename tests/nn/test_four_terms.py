"""Eq. 6: the product of projected sums is the sum of four products (R-REL-02), which relative encodings replace."""

import numpy as np
import torch

import roformer_cpp
from tolerances import T1_ATOL, T1_RTOL


def test_four_terms_as_attention():
    """The terms with p are expressible: K = W_k p_n by key, Q = W_q p_m by query, and position meets position by a.c.

    With one query at position P-1 each distance is one key, so tables by distance hold anything that depends on n.
    """
    draw = np.random.default_rng(1).standard_normal
    tokens, width, size = 5, 6, 4
    x, p, w_q, w_k, v = draw((tokens, width)), draw((tokens, width)), *draw((2, size, width)), draw((tokens, size))
    last = tokens - 1
    scores = ((x[last] + p[last]) @ w_q.T) @ (w_k @ (x + p).T) / np.sqrt(size)
    weights = np.exp(scores - scores.max())
    expected = weights / weights.sum() @ v

    def tensor(a):
        return torch.from_numpy(np.ascontiguousarray(a))[None]

    projected = (p @ w_k.T)[::-1]  # by distance 0, 1, ..
    terms = roformer_cpp.Terms(
        key_table=roformer_cpp.DistanceTable(tensor(projected), 0, last),
        query_table=roformer_cpp.DistanceTable(tensor(np.tile(w_q @ p[last], (tokens, 1))), 0, last),
        position_query=tensor(p @ w_q.T),
        position_key=tensor(p @ w_k.T),
    )
    q, k = tensor(x[last:] @ w_q.T)[:, :, None], tensor(x @ w_k.T)[:, :, None]
    positions = torch.arange(tokens)
    out = roformer_cpp.attention(
        q, k, tensor(v)[:, :, None], terms, positions=positions[last:], key_positions=positions
    )
    np.testing.assert_allclose(out[0, 0, 0].numpy(), expected, T1_RTOL, T1_ATOL)
