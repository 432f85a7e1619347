"""Shaw's relative vectors, and Eq. 5 as it stands: R-REL-01."""

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from initial_values import normal
from pair_loops import array, assert_t1, draw_qkv, pair_loops, perturb

REFUSED = {
    "shaw": [
        ({"max_relative_position": -1}, "shaw.max_relative_position must be an integer from 0 to .*, got -1"),
        ({"values": 3}, "shaw.values must be true or false, got 3"),
    ],
    "shaw-literal": [({"r_min": 2, "r_max": 1}, "r_min must not exceed r_max, got 2 and 1")],
}

STARTS = {name: {"key": normal, "value": normal} for name in ("shaw", "shaw-literal")}

H, D, T, CLIP = 2, 6, 7, 3


def shaw(**config):
    shape = {"num_hidden_layers": 2, "num_attention_heads": H, "head_dim": D, "max_relative_position": CLIP}
    return perturb(roformer_cpp.encoding("shaw", **(shape | config)))


def literal(heads=H, r_min=-2, r_max=3):
    shape = {"num_attention_heads": heads, "head_dim": D}
    return perturb(roformer_cpp.encoding("shaw-literal", **shape, r_min=r_min, r_max=r_max))


@pytest.mark.parametrize("values", [True, False])
def test_pair_loops(values):
    """e_ij = (x_i W_Q).(x_j W_K + a^K_ij) / sqrt(d), z_i = sum_j alpha_ij (x_j W_V + a^V_ij), a_ij = w_clip(j-i)."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(T, H, D)
    encoding = shaw(values=values)
    keys = array(encoding.state_dict()["layer.1.key"])
    assert keys.shape == (2 * CLIP + 1, D)
    value_rows = array(encoding.state_dict()["layer.1.value"]) if values else np.zeros_like(keys)

    def row(i, j):
        return min(max(j - i, -CLIP), CLIP) + CLIP

    expected = pair_loops(
        q,
        k,
        v,
        lambda h, i, j, q_i, k_j: q_i @ (k_j + keys[row(i, j)]) / np.sqrt(D),
        lambda h, i, j, v_j: v_j + value_rows[row(i, j)],
    )
    terms = encoding.terms(torch.arange(T), layer=1, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms), expected)


def projected(x, weight, heads=H):
    return (x @ weight.T).unflatten(-1, (heads, D))


def test_literal_pair_loops():
    """k = W_k (x_n + p~k_r), v = W_v (x_n + p~v_r), r = clip(m - n, r_min, r_max)."""
    torch.manual_seed(0)
    encoding = literal()
    x = torch.randn(1, T, H * D, dtype=torch.float64)
    weights = [torch.randn(H * D, H * D, dtype=torch.float64) / D for _ in range(3)]
    q, k, v = (projected(x, weight) for weight in weights)
    tables = {name: array(rows) for name, rows in encoding.state_dict().items()}
    x_np, (_, w_k, w_v) = array(x)[0], [array(weight).reshape(H, D, H * D) for weight in weights]

    def moved(name, m, n):
        return x_np[n] + tables[name][min(max(m - n, -2), 3) + 2]

    expected = pair_loops(
        q,
        k,
        v,
        lambda h, m, n, q_m, _: q_m @ (w_k[h] @ moved("key", m, n)) / np.sqrt(D),
        lambda h, m, n, _: w_v[h] @ moved("value", m, n),
    )
    terms = encoding.terms(torch.arange(T), projections=tuple(weights), dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms), expected)


def test_literal_serves_grouped_keys():
    """A key head's rows are those of every query head that it serves; deberta's are made by the same function."""
    torch.manual_seed(0)
    weights = (torch.randn(4 * D, 4 * D), torch.randn(2 * D, 4 * D), torch.randn(2 * D, 4 * D))
    rows = roformer_cpp.encoding("shaw-literal", num_attention_heads=4, head_dim=D).terms(
        torch.arange(3), projections=weights
    )
    table = rows.key_table.rows
    assert table.shape == (4, 33, D)
    assert torch.equal(table[0], table[1]) and torch.equal(table[2], table[3])
    assert (table[1] - table[2]).abs().max() > tol.VISIBLE


def test_literal_needs_projections():
    with pytest.raises(ValueError, match="the key projection of the layer must be given, got none"):
        literal().terms(torch.arange(3))
