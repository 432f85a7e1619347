"""Softmax attention pair by pair in float64, for encodings whose papers give a score and a value for each pair."""

import numpy as np
import torch

import roformer_cpp
import tolerances as tol


def array(x) -> np.ndarray:
    return x.detach().double().numpy()


def pair_loops(q, k, v, score, value=None, is_causal=False) -> np.ndarray:
    """out_i = sum_j softmax_j(score(h, i, j, q_i, k_j)) value(h, i, j, v_j) for tokens i, j; q, k, v [B,T,H,D]."""
    q, k, v = (array(x) for x in (q, k, v))
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, i, h in np.ndindex(q.shape[:3]):
        keys = range(i + 1 if is_causal else k.shape[1])
        scores = np.array([score(h, i, j, q[b, i, h], k[b, j, h]) for j in keys])
        values = [v[b, j, h] if value is None else value(h, i, j, v[b, j, h]) for j in keys]
        weights = np.exp(scores - scores.max())
        out[b, i, h] = (weights / weights.sum()) @ np.array(values)
    return out


def draw_qkv(tokens=7, heads=2, head_dim=6, batch=2):
    return (torch.randn(batch, tokens, heads, head_dim, dtype=torch.float64) for _ in range(3))


def check_bias(encoding, bias, positions, *, heads, layer=0, is_causal=False):
    """softmax(q.k / sqrt(D) + bias(head, position of the query, position of the key)): outside the scale."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(len(positions), heads, 4)
    at = positions.tolist()
    expected = pair_loops(
        q, k, v, lambda h, i, j, q_i, k_j: q_i @ k_j / np.sqrt(4) + bias(h, at[i], at[j]), is_causal=is_causal
    )
    terms = encoding.terms(positions, layer=layer, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, positions=positions, is_causal=is_causal), expected)


def assert_t1(ours, theirs):
    np.testing.assert_allclose(array(ours), theirs, atol=tol.T1_ATOL, rtol=tol.T1_RTOL)


def perturb(module, about=0.0):
    """Parameters of float64 large enough that their effect shows."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(about, tol.PERTURBED)
    return module
