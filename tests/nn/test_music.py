"""Music Transformer: R-REL-07."""

import numpy as np
import pytest
import torch

import roformer_cpp
from initial_values import normal
from pair_loops import array, assert_t1, draw_qkv, pair_loops, perturb

STARTS = {"music": {"key": normal}}
REFUSED = {"music": [({"is_decoder": False}, "music needs causal attention")]}

H, D, T, ROWS = 2, 6, 7, 10


def music(rows=ROWS, **config):
    shape = {"num_hidden_layers": 2, "num_attention_heads": H, "head_dim": D, "is_decoder": True}
    return perturb(roformer_cpp.encoding("music", **shape, max_position_embeddings=rows, **config))


def skew(scores):
    """The paper's: pad a column on the left, reshape to [L + 1, L], drop the first row."""
    length = len(scores)
    return np.pad(scores, ((0, 0), (1, 0))).reshape(length + 1, length)[1:]


def test_skew_is_indexing_by_distance():
    golden = [[3, 0, 4, 5], [6, 7, 0, 8], [9, 10, 11, 0], [12, 13, 14, 15]]
    scores = np.arange(16).reshape(4, 4)
    assert skew(scores).tolist() == golden
    for i in range(4):
        for j in range(i + 1):
            assert skew(scores)[i, j] == scores[i, j - i + 3]


def test_pair_loops():
    """softmax((Q K^T + S_rel) / sqrt(D)) V, S_rel[i, j] = q_i . E_r[j - i + L - 1] for j <= i."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(T, H, D)
    encoding = music()
    rows = array(encoding.state_dict()["layer.1.key"])
    assert rows.shape == (H, ROWS, D)
    expected = pair_loops(
        q, k, v, lambda h, i, j, q_i, k_j: q_i @ (k_j + rows[h, j - i + ROWS - 1]) / np.sqrt(D), is_causal=True
    )
    terms = encoding.terms(torch.arange(T), layer=1, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, is_causal=True), expected)


def test_distances_beyond_the_table():
    far = torch.arange(ROWS + 1)
    message = rf"distances must be below the {ROWS} rows of the table \(max_position_embeddings\), got {ROWS}"
    with pytest.raises(ValueError, match=message):
        music().terms(far)
    music().terms(far, sequences=torch.tensor([[0] * ROWS + [1]]))  # none of them within a sequence
