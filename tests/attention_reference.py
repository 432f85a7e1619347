"""Attention over terms as float64 loops, written from the equation at the head of core/terms/rf/attention_terms.h.

One loop each over batch, head, query and key; NumPy only for the dot products over a head's elements. It shares nothing
with the product but the names of the terms. No dropout, no gradients.
"""

import numpy as np


def _array(x) -> np.ndarray:
    return np.asarray(x.detach().double().numpy() if hasattr(x, "detach") else x, dtype=np.float64)


def _turned(x: np.ndarray, rotation, layout: str, batch: int, token: int, head: int) -> np.ndarray:
    """R x: pair i turned counter-clockwise by the angle whose cosine and sine are given; the rest as it is."""
    if rotation is None:
        return x
    cos, sin = (_array(rows)[batch % len(rows), token] for rows in (rotation.cos, rotation.sin))
    if cos.ndim == 2:  # rows for each head
        cos, sin = cos[head % len(cos)], sin[head % len(sin)]
    y = x.copy()
    pairs = len(cos)
    for i in range(pairs):
        first, second = (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + pairs)
        y[first] = x[first] * cos[i] - x[second] * sin[i]
        y[second] = x[second] * cos[i] + x[first] * sin[i]
    return y


def _row(table, head: int, distance: int) -> np.ndarray:
    rows = _array(table.rows)
    return rows[head % len(rows), min(max(distance, table.lo), table.hi) - table.lo]


def _score(q, k, terms, head: int, p_m: int, p_n: int) -> float:
    """score(m, n) for rotated vectors: q and k are (plain, rotated)."""
    size, distance = len(q[0]), p_m - p_n
    scale = 1 / np.sqrt(size) if terms.scale is None else terms.scale
    content = q[1] if terms.content_bias is None else q[1] + _array(terms.content_bias)[head]
    if terms.gate is not None:
        content = content * _row(terms.gate, head, distance)
    total = content @ k[1]
    if terms.key_table is not None:
        biased = q[0] if terms.position_bias is None else q[0] + _array(terms.position_bias)[head]
        total += biased @ _row(terms.key_table, head, distance)
    if terms.query_table is not None:
        total += k[0] @ _row(terms.query_table, head, distance)
    return scale * total + _position_score(terms, head, p_m, p_n, scale)


def _position_score(terms, head: int, p_m: int, p_n: int, scale: float) -> float:
    if terms.reset_row is not None and p_m == 0:
        return float(_array(terms.reset_row)[head])
    if terms.reset_col is not None and p_n == 0:
        return float(_array(terms.reset_col)[head])
    total = 0.0
    if terms.bias is not None:
        total += float(_row(terms.bias, head, p_m - p_n))
    if terms.position_query is not None:
        total += scale * (_array(terms.position_query)[head, p_m] @ _array(terms.position_key)[head, p_n])
    return total


def _score_of_tokens(terms, b: int, head: int, m: int, n: int) -> float:
    total = 0.0
    if terms.key_score is not None:
        kappa = _array(terms.key_score)
        total += float(kappa[b % len(kappa), head % kappa.shape[1], n])
    if terms.pair_bias is not None:
        pairs = _array(terms.pair_bias)
        total += float(pairs[b % len(pairs), head % pairs.shape[1], m, n])
    return total


def _of_rows(ids, batch: int) -> np.ndarray:
    ids = np.asarray(ids, dtype=np.int64)
    return np.broadcast_to(ids if ids.ndim == 2 else ids[None], (batch, ids.shape[-1]))


def reference(q, k, v, terms, positions, key_positions=None, attend=None) -> np.ndarray:
    """out [B,T,H,Dv] in float64.

    Args:
        q: ``[B,T,H,D]``; ``k``: ``[B,S,Hk,D]``; ``v``: ``[B,S,Hk,Dv]``; tensors or arrays of any floating dtype.
        terms: a ``roformer_cpp.Terms``.
        positions: integers ``[T]`` or ``[B,T]``; ``key_positions`` likewise, default ``positions``.
        attend: bool, broadcastable to ``[B,H,T,S]``; default all. Queries without a key give 0.
    """
    q, k, v = _array(q), _array(k), _array(v)
    (batch, queries, heads, _), keys, group = q.shape, k.shape[1], q.shape[2] // max(k.shape[2], 1)
    query_ids = _of_rows(positions, batch)
    key_ids = _of_rows(positions if key_positions is None else key_positions, batch)
    allowed = np.broadcast_to(True if attend is None else np.asarray(attend), (batch, heads, queries, keys))
    out = np.zeros((batch, queries, heads, v.shape[3]))
    for b, h, m in np.ndindex(batch, heads, queries):
        open_keys = np.flatnonzero(allowed[b, h, m])
        if len(open_keys) == 0:
            continue
        q_m = (q[b, m, h], _turned(q[b, m, h], terms.query, terms.layout, b, m, h))
        scores, values = [], []
        for n in open_keys:
            k_n = (k[b, n, h // group], _turned(k[b, n, h // group], terms.key, terms.layout, b, n, h // group))
            by_position = _score(q_m, k_n, terms, h, int(query_ids[b, m]), int(key_ids[b, n]))
            scores.append(by_position + _score_of_tokens(terms, b, h, m, n))
            value = _turned(v[b, n, h // group], terms.value, terms.layout, b, n, h // group)
            if terms.value_table is not None:
                value = value + _row(terms.value_table, h, int(query_ids[b, m] - key_ids[b, n]))
            values.append(value)
        weights = np.exp(np.array(scores) - max(scores))
        out[b, m, h] = (weights / weights.sum()) @ np.array(values)
    return out


def window_mask(queries: int, keys: int, left: int = -1, right: int = -1) -> np.ndarray:
    """bool [T,S]: -left <= j - (i + S - T) <= right, -1 meaning no limit."""
    step = np.arange(keys)[None, :] - (np.arange(queries)[:, None] + keys - queries)
    return ((left < 0) | (step >= -left)) & ((right < 0) | (step <= right))
