"""Vectors and factors by distance against loops in float64: Shaw's, and Eq. 5 as it stands (R-REL-01), NEZHA's
(R-REL-09: the sinusoid is of the shifted index), Music Transformer's (R-REL-07), and methods 1 to 4 of Huang et al.
(R-REL-08)."""

from functools import partial

import mpmath
import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from encoding_case import Case, parameter
from initial_values import normal

REFUSED = {
    "shaw": [
        ({"max_relative_position": -1}, "shaw.max_relative_position must be an integer from 0 to .*, got -1"),
        ({"values": 3}, "shaw.values must be true or false, got 3"),
    ],
    "shaw-literal": [({"r_min": 2, "r_max": 1}, "r_min must not exceed r_max, got 2 and 1")],
    "music": [({"is_decoder": False}, "music needs causal attention")],
    "huang-m1": [({"max_relative_position": -2}, r"max_relative_position must be an integer from 0 to \d+, got -2")],
}

# Gates of 1 leave scores as they are.
STARTS = {
    **{name: {"key": normal, "value": normal} for name in ("shaw", "shaw-literal")},
    **{f"huang-m{i}": {"gate": partial(normal, mean=1)} for i in (1, 2, 3)},
    "huang-m4": {"key_query": normal},
    "music": {"key": normal},
}

D, T, CLIP, ROWS, LAYER = 6, 9, 3, 10, 1


def clipped(m, n, clip=CLIP):
    return min(max(n - m, -clip), clip)


def of_vectors(case, keys, values):
    """q.(k + keys(h, m, n)) / sqrt(D), and v + values(h, m, n)."""

    def score(b, h, m, n):
        return case.q(b, m, h) @ (case.k(b, n, h) + keys(h, m, n)) / np.sqrt(D)

    return score, lambda b, h, m, n: case.v(b, n, h) + values(h, m, n)


def shaw(case, encoding):
    tables = [np.zeros((2 * CLIP + 1, D))] * 2
    for i, name in enumerate(("key", "value")):
        if f"layer.{LAYER}.{name}" in encoding.state_dict():
            tables[i] = parameter(encoding, f"layer.{LAYER}.{name}")
    return of_vectors(case, *(lambda h, m, n, x=x: x[clipped(m, n) + CLIP] for x in tables))


def shaw_literal(case, encoding):
    """k = W_k (x_n + p~k_r), v = W_v (x_n + p~v_r), r = clip(m - n, r_min, r_max)."""

    def moved(weight, name):
        return lambda h, m, n: case.head(weight, h) @ parameter(encoding, name)[min(max(m - n, -2), 3) + 2]

    return of_vectors(case, moved(case.w_k, "key"), moved(case.w_v, "value"))


def nezha(case, encoding, clip=64):
    """T[c, 2t] = sin(c 10000^(-2t/d)), T[c, 2t + 1] = cos of the same, c = clip(j - i, -k, k) + k."""

    def row(h, m, n):
        angles = [(clipped(m, n, clip) + clip) * mpmath.mpf(10000) ** (-mpmath.mpf(i - i % 2) / D) for i in range(D)]
        return np.array([float(mpmath.cos(x) if i % 2 else mpmath.sin(x)) for i, x in enumerate(angles)])

    assert not list(encoding.parameters())
    return of_vectors(case, row, row)


def music(case, encoding):
    """softmax((Q K^T + skew(Q E_r^T)) / sqrt(D)) V; the paper's skew: pad a column on the left, reshape to [L + 1, L],
    drop the first row."""
    rows = parameter(encoding, f"layer.{LAYER}.key")
    assert rows.shape == (case.heads, ROWS, D)

    def score(b, h, m, n):
        products = np.array([case.q(b, i, h) for i in range(T)]) @ rows[h, ROWS - T :].T
        skewed = np.pad(products, ((0, 0), (1, 0))).reshape(T + 1, T)[1:]
        return case.product(b, h, m, n) + skewed[m, n] / np.sqrt(D)

    return score, None


def huang(case, encoding):
    (a,) = (parameter(encoding, name) for name, _ in encoding.named_parameters() if name.startswith(f"layer.{LAYER}."))

    def score(b, h, m, n):
        q, k, c = case.q(b, m, h), case.k(b, n, h), clipped(m, n)
        return {
            "huang-m1": lambda: a[h, abs(c), 0] * (q @ k),
            "huang-m2": lambda: a[h, c + CLIP, 0] * (q @ k),
            "huang-m3": lambda: sum(q[i] * a[h, c + CLIP, i] * k[i] for i in range(D)),
            "huang-m4": lambda: q @ k + (q + k) @ a[c + CLIP],
        }[encoding.name]() / np.sqrt(D)

    return score, None


@pytest.mark.parametrize(("name", "equation", "keys"), [
    ("shaw", shaw, {"max_relative_position": CLIP}),
    ("shaw", shaw, {"max_relative_position": CLIP, "values": False}),
    ("shaw-literal", shaw_literal, {"r_min": -2, "r_max": 3}),
    ("nezha", nezha, {}),
    ("nezha", partial(nezha, clip=CLIP), {"max_relative_position": CLIP}),
    ("music", music, {"max_position_embeddings": ROWS, "is_decoder": True}),
    *[(f"huang-m{i}", huang, {"max_relative_position": CLIP}) for i in (1, 2, 3, 4)],
])  # fmt: skip
def test_pair_loops(name, equation, keys):
    case = Case(tokens=T, head_dim=D)
    encoding = case.encoding(name, num_hidden_layers=2, **keys)
    score, value = equation(case, encoding)
    case.check(encoding, score, range(T), value=value, layer=LAYER, causal=name == "music")


def test_literal_serves_grouped_keys():
    """A key head's rows are those of every query head that it serves; deberta's are made by the same function."""
    torch.manual_seed(0)
    literal = roformer_cpp.encoding("shaw-literal", num_attention_heads=4, head_dim=D)
    weights = (torch.randn(4 * D, 4 * D), torch.randn(2 * D, 4 * D), torch.randn(2 * D, 4 * D))
    table = literal.terms(torch.arange(3), projections=weights).key_table.rows
    assert table.shape == (4, 33, D)
    assert torch.equal(table[0], table[1]) and torch.equal(table[2], table[3])
    assert (table[1] - table[2]).abs().max() > tol.VISIBLE
    with pytest.raises(ValueError, match="the key projection of the layer must be given, got none"):
        literal.terms(torch.arange(3))


def test_distances_beyond_the_table_of_music():
    far, music = torch.arange(ROWS + 1), Case().encoding("music", is_decoder=True, max_position_embeddings=ROWS)
    message = rf"distances must be below the {ROWS} rows of the table \(max_position_embeddings\), got {ROWS}"
    with pytest.raises(ValueError, match=message):
        music.terms(far)
    music.terms(far, sequences=torch.tensor([[0] * ROWS + [1]]))  # none of them within a sequence


def test_huang_clips_nothing_by_default():
    encoding = roformer_cpp.encoding("huang-m4", head_dim=4, max_position_embeddings=9)
    assert encoding.state_dict()["layer.0.key_query"].shape == (2 * 8 + 1, 4)
