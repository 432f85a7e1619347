"""Rotary position embedding as complex multiplication in float64 (arXiv 2104.09864, Eq. 12-15; spec R-ROPE-02).

    z = x_a + i x_b,   y = z * scale * exp(i p theta_i),   theta_i = base^(-2i/R)

Angles of large positions come from mpmath, because the float64 product p * theta_i is itself too coarse there.
"""

import mpmath
import numpy as np

_EXACT_BELOW = 64  # p * theta_i in float64 is then good to 1e-14


def rotation(positions, num_freqs, base=10000.0, freqs=None):
    """exp(i p theta_i), complex128, shape positions.shape + [num_freqs]."""
    positions = np.asarray(positions, dtype=np.float64)
    if np.abs(positions).max(initial=0) < _EXACT_BELOW:
        theta = np.float64(base) ** (-np.arange(num_freqs) / num_freqs) if freqs is None else np.asarray(freqs)
        return np.exp(1j * positions[..., None] * theta)
    with mpmath.workdps(40):
        if freqs is None:
            theta = [mpmath.power(mpmath.mpf(float(base)), -mpmath.mpf(i) / num_freqs) for i in range(num_freqs)]
        else:
            theta = [mpmath.mpf(float(f)) for f in freqs]
        rows = {p: [complex(mpmath.expj(mpmath.mpf(p) * t)) for t in theta] for p in set(positions.ravel().tolist())}
    return np.array([rows[p] for p in positions.ravel().tolist()]).reshape(*positions.shape, num_freqs)


def pair_indices(layout, rotary_dim):
    """The elements a and b of each pair."""
    i = np.arange(rotary_dim // 2)
    return (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + rotary_dim // 2)


def rope(
    x,
    positions,
    *,
    layout,
    base=10000.0,
    freqs=None,
    scale=1.0,
    rotary_dim=None,
    heads_first=False,
    direction="forward",
):
    """The arguments of roformer_cpp.rope as NumPy arrays; float64 result."""
    x = np.asarray(x, dtype=np.float64)
    rotary_dim = 2 * len(freqs) if freqs is not None else rotary_dim or x.shape[-1]
    factor = scale * rotation(positions, rotary_dim // 2, base, freqs)
    factor = {"forward": factor, "transpose": factor.conj(), "inverse": 1 / factor}[direction]
    if heads_first:
        x = x.swapaxes(-2, -3)
    y = x.copy()
    if factor.ndim == 3:  # [B, T, R/2] beside leading dimensions that flatten to B
        factor = factor.reshape(*x.shape[:-2], rotary_dim // 2)
    a, b = pair_indices(layout, rotary_dim)
    z = (x[..., a] + 1j * x[..., b]) * factor[..., None, :]
    y[..., a], y[..., b] = z.real, z.imag
    return y.swapaxes(-2, -3) if heads_first else y


def magnitude(x, *, layout, rotary_dim=None):
    """|x_a| + |x_b| at both elements of each pair, |x| elsewhere: what an error bound is relative to."""
    x = np.abs(np.asarray(x, dtype=np.float64))
    a, b = pair_indices(layout, rotary_dim or x.shape[-1])
    total = x[..., a] + x[..., b]
    result = x.copy()
    result[..., a] = result[..., b] = total
    return result


def turned(x, rotation, layout):
    """x [.., T, H, D] turned by the rows (cos, sin), [.., T, R/2], of a rotation; float64."""
    x, (cos, sin) = np.asarray(x, dtype=np.float64), (np.asarray(rows, dtype=np.float64) for rows in rotation)
    a, b = pair_indices(layout, 2 * cos.shape[-1])
    z = (x[..., a] + 1j * x[..., b]) * (cos + 1j * sin)[..., None, :]
    y = x.copy()
    y[..., a], y[..., b] = z.real, z.imag
    return y
