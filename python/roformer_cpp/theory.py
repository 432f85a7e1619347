"""The mathematics of rotary position embedding in NumPy, float64, to read, to plot and to test against.

Everything here is written from the equations of RoFormer (arXiv 2104.09864) and nothing is fast. Vectors are read as
complex numbers by pairs (2i, 2i+1): x_{2i} + i x_{2i+1}; a rotation by m theta is counter-clockwise.
"""

import numpy as np

# ---- complex numbers and rotations of the plane ----


def as_complex(x):
    """``[.., d]`` read as ``[.., d/2]`` complex numbers, interleaved."""
    x = np.asarray(x, dtype=np.float64)
    return x[..., 0::2] + 1j * x[..., 1::2]


def as_real(z):
    """The inverse of ``as_complex``."""
    z = np.asarray(z)
    return np.stack([z.real, z.imag], axis=-1).reshape(*z.shape[:-1], 2 * z.shape[-1])


def complex_matrix(z):
    """The matrix ``[[a, -b], [b, a]]`` that multiplies a vector (x, y) as a + bi multiplies x + yi."""
    return np.array([[z.real, -z.imag], [z.imag, z.real]])


def polar(z):
    """Length and angle of a complex number, the angle in radians within [-pi, pi]."""
    return np.hypot(z.real, z.imag), np.arctan2(z.imag, z.real)


def from_polar(length, angle):
    """The inverse of ``polar``: length (cos angle + i sin angle) = length e^{i angle} (Euler)."""
    return length * (np.cos(angle) + 1j * np.sin(angle))


def rotation_matrix(angle):
    """``Rot(angle)``, counter-clockwise; ``complex_matrix(e^{i angle})``."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def pair_products(q, k):
    """h_i = q_i k_i*, the products of the pairs of two vectors ``[.., d]`` read as complex numbers: ``[.., d/2]``."""
    return as_complex(q) * as_complex(k).conj()


def inner_product(q, k):
    """The inner product of real vectors ``[.., d]`` as Re sum_i q_i k_i*."""
    return pair_products(q, k).sum(axis=-1).real


# ---- rotary position embedding ----


def frequencies(dim, base=10000.0):
    """theta_i = base^(-2i/dim), i = 0 .. dim/2 - 1 (Eq. 15)."""
    return float(base) ** (-np.arange(0, dim, 2) / dim)


def rotary_matrix(position, dim, base=10000.0):
    """The block-diagonal R^d_{Theta,m} (Eq. 15), ``[dim, dim]``: one 2x2 rotation by m theta_i for each pair."""
    matrix = np.zeros((dim, dim))
    for i, theta in enumerate(frequencies(dim, base)):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = rotation_matrix(position * theta)
    return matrix


def rotate(x, position, base=10000.0):
    """R_m x for vectors ``[.., d]`` (Eq. 13, 34): each pair times e^{i m theta_i}."""
    return as_real(as_complex(x) * np.exp(1j * position * frequencies(np.shape(x)[-1], base)))


def score(q, k, distance, base=10000.0):
    """(R_m q) . (R_n k) for m - n = distance and vectors ``[.., d]``, in closed form (Eq. 16)::

    sum_i (q_{2i} k_{2i} + q_{2i+1} k_{2i+1}) cos(r theta_i) + (q_{2i} k_{2i+1} - q_{2i+1} k_{2i}) sin(r theta_i)
    """
    angle = distance * frequencies(np.shape(q)[-1], base)
    same = q[..., 0::2] * k[..., 0::2] + q[..., 1::2] * k[..., 1::2]
    cross = q[..., 0::2] * k[..., 1::2] - q[..., 1::2] * k[..., 0::2]
    return np.sum(same * np.cos(angle) + cross * np.sin(angle), axis=-1)


# ---- long-term decay (section 3.4.3) ----


def partial_sums(distance, dim, base=10000.0):
    """S_0 = 0 and S_j = sum_{i<j} e^{i r theta_i}, j = 1 .. dim/2 (Eq. 36): ``[.., dim/2 + 1]`` for ``[..]``."""
    terms = np.exp(1j * np.multiply.outer(distance, frequencies(dim, base)))
    return np.concatenate([np.zeros_like(terms[..., :1]), np.cumsum(terms, axis=-1)], axis=-1)


def abel_terms(q, k, distance, base=10000.0):
    """S_{i+1} (h_{i+1} - h_i), i = 0 .. dim/2 - 1, with h_{dim/2} = 0: the score is the real part of minus their sum
    (summation by parts, Eq. 36)."""
    steps = np.diff(np.append(pair_products(q, k), 0))
    return partial_sums(distance, len(q), base)[1:] * steps


def abel_bound(q, k, distance, base=10000.0):
    """The bound of Eq. 37: max_i |h_{i+1} - h_i| * sum_j |S_j|, with h_{dim/2} = 0."""
    steps = np.diff(np.append(pair_products(q, k), 0))
    return float(np.abs(steps).max() * np.abs(partial_sums(distance, len(q), base)).sum())


def decay_curve(distance, dim=128, base=10000.0):
    """Figure 2: the mean of |S_1| .. |S_{dim/2}|, for one or several distances.

    It falls from (dim/2 + 1) / 2 at distance 0, not monotonically, and levels off. This bound decays; the score of
    given vectors need not (its variance for random vectors does not).
    """
    return np.abs(partial_sums(distance, dim, base)[..., 1:]).mean(axis=-1)


# ---- sinusoids, and encodings that do not work ----


def sinusoid(position, dim, base=10000.0):
    """Eq. 4: columns 2t and 2t+1 are sin and cos of position * base^(-2t/dim)."""
    return as_real(1j * np.exp(-1j * position * frequencies(dim, base)))


def sinusoid_shift(offset, dim, base=10000.0):
    """The matrix that takes ``sinusoid(p)`` to ``sinusoid(p + offset)`` for every p: blocks [[cos, sin], [-sin, cos]]
    of offset * theta_t."""
    return rotary_matrix(-offset, dim, base)


def sinusoid_period(column, dim, base=10000.0):
    """Period in positions of a column of the sine-only encoding sin(p base^(-column/dim))."""
    return 2 * np.pi * float(base) ** (column / dim)


def raw_label(position, length):
    """A strawman: the position itself. Grows without bound."""
    return np.array([float(position)])


def normalised_label(position, length):
    """A strawman: position / length. The same position has another label in a text of another length."""
    return np.array([position / length])


def binary_label(position, length):
    """A strawman: the position in ceil(log2 length) binary digits. Unique and bounded, but neighbours may differ in
    every digit."""
    digits = max(1, int(np.ceil(np.log2(length))))
    return np.array([(position >> bit) & 1 for bit in reversed(range(digits))])
