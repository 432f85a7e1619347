"""Linear attention in float64 NumPy, query by query and key by key, from the equations (Eq. 18-19 and the papers of the
feature maps). The whole T x S matrix of weights is formed, which is what the library never does."""

import numpy as np

MAPS = ["elu", "shen_original", "shen", "favor", "relu", "cosine"]
CAUSAL_MAPS = [name for name in MAPS if name != "shen_original"]
FEATURE_EPS = {"favor": 1e-4, "relu": 1e-3}


def rotate(x, angles):
    """Pairs (2i, 2i+1) of x turned by angles[i]; the elements after them as they are."""
    pairs = 2 * len(angles)
    turned = (x[0:pairs:2] + 1j * x[1:pairs:2]) * np.exp(1j * angles)
    y = np.array(x, dtype=np.float64)
    y[0:pairs:2], y[1:pairs:2] = turned.real, turned.imag
    return y


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def query_map(name, x, projection):
    if name == "elu":
        return np.array([t + 1 if t > 0 else np.exp(t) for t in x])
    if name in ("shen", "shen_original"):
        return softmax(x)
    if name == "cosine":
        return np.append(x / np.linalg.norm(x), 1.0)
    scaled = x / len(x) ** 0.25
    products = projection @ scaled
    if name == "relu":
        return np.maximum(products, 0) + FEATURE_EPS[name]
    return np.exp(products - scaled @ scaled / 2 - products.max()) + FEATURE_EPS[name]


def key_maps(name, keys, projection, causal):
    """Features of the keys one query sees, all at one scale (which cancels in the quotient)."""
    if name == "shen":
        return [np.exp(k) for k in keys]
    if name == "shen_original":
        return list(np.exp(keys) / np.exp(keys).sum(axis=0))
    if name != "favor":
        return [query_map(name, k, projection) for k in keys]
    features, largest = [], -np.inf
    maxima = [(projection @ (k / len(k) ** 0.25)).max() for k in keys]
    for k, maximum in zip(keys, maxima, strict=True):
        scaled = k / len(k) ** 0.25
        # The eps is added when the key comes, at the scale of the largest so far, and is rescaled with the sums.
        largest = max(largest, maximum) if causal else max(maxima)
        feature = np.exp(projection @ scaled - scaled @ scaled / 2 - largest) + FEATURE_EPS[name]
        features.append(feature * np.exp(largest - max(maxima)))
    return features


def weights(q, keys, name, projection=None, *, causal=False, site="after_map", turn=None, rotate_denominator=False):
    """Weights of the keys for one query, and their denominator. turn: (angles of q, angles of each key) or None."""
    if turn is not None and site == "before_map":
        q, keys = rotate(q, turn[0]), np.array([rotate(k, a) for k, a in zip(keys, turn[1], strict=True)])
    f, g = query_map(name, q, projection), key_maps(name, keys, projection, causal)
    plain = np.array([f @ x for x in g])
    if turn is None or site == "before_map":
        return plain / plain.sum(), plain.sum()
    turned = np.array([rotate(f, turn[0]) @ rotate(x, a) for x, a in zip(g, turn[1], strict=True)])
    denominator = turned.sum() if rotate_denominator else plain.sum()
    return turned / denominator, denominator


def attention(q, k, v, name, projection=None, *, causal=False, mask=None, sequences=None, angles=None, **options):
    """q [B,T,H,D], k [B,S,H,D], v [B,S,H,Dv]; angles: (of queries [T,R/2], of keys [S,R/2]); sequences [S]."""
    batch, queries, heads, _ = q.shape
    keys = k.shape[1]
    out = np.zeros((batch, queries, heads, v.shape[-1]))
    for b, m, h in np.ndindex(batch, queries, heads):
        seen = np.ones(keys, bool) if mask is None else mask[b].copy()
        if causal:
            seen[max(m + keys - queries + 1, 0) :] = False
        if sequences is not None:
            own = sequences[m + keys - queries]
            seen &= (sequences == own) & (own >= 0)
        if not seen.any():
            continue
        turn = None if angles is None else (angles[0][m], angles[1][seen])
        w, _ = weights(q[b, m, h], k[b, seen, h], name, projection, causal=causal, turn=turn, **options)
        out[b, m, h] = w @ v[b, seen, h]
    return out
