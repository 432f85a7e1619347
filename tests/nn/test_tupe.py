"""TUPE-A and TUPE-R (R-REL-05) against loops over the paper's equation and its code's reset."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import normal, one, zero

REFUSED = {
    "tupe-a": [({"relative_attention_num_buckets": 32}, "relative_attention_num_buckets")],
    "tupe-r": [
        ({"relative_attention_num_buckets": 7}, "relative_attention_num_buckets must be even.*7"),
        ({"relative_attention_max_distance": 8}, "relative_attention_max_distance must be.*8"),
    ],
}

TUPE_A = {
    **dict.fromkeys(("pos", "pos_q_weight", "pos_k_weight"), normal),
    **dict.fromkeys(("pos_ln_bias", "pos_q_bias", "pos_k_bias"), zero),
    "pos_ln_weight": one,
}
STARTS = {"tupe-a": TUPE_A, "tupe-r": {**TUPE_A, "relative_attention_bias": normal}}


def position_scores(case: Case, encoding, positions) -> np.ndarray:
    """[H, m, n]: everything of the score but the words, for short distances (buckets 0..7 are single distances)."""

    def vector(row: int) -> np.ndarray:
        p = parameter(encoding, "pos")[row]
        normed = (p - p.mean()) / np.sqrt(p.var() + 1e-5)
        return normed * parameter(encoding, "pos_ln_weight") + parameter(encoding, "pos_ln_bias")

    def product(i: int, j: int, h: int) -> float:
        a = parameter(encoding, "pos_q_weight") @ vector(i) + parameter(encoding, "pos_q_bias")
        c = parameter(encoding, "pos_k_weight") @ vector(j) + parameter(encoding, "pos_k_bias")
        return case.head(a, h) @ case.head(c, h) / np.sqrt(2 * case.head_dim)

    relative = encoding.name == "tupe-r"
    table = parameter(encoding, "relative_attention_bias") if relative else None
    scores = np.zeros((case.heads, len(positions), len(positions)))
    for h, m, n in np.ndindex(scores.shape):
        i, j = positions[m], positions[n]
        scores[h, m, n] = product(0, 0, h) if i == 0 else product(1, 1, h) if j == 0 else product(i + 1, j + 1, h)
        if relative:
            assert abs(i - j) < 8
            inside = i - j if i >= j else 16 + j - i
            scores[h, m, n] += table[16 if i == 0 else 32 if j == 0 else inside, h]
    return scores


@pytest.mark.parametrize("name", ["tupe-a", "tupe-r"])
@pytest.mark.parametrize("positions", [[0, 1, 2, 3, 4, 5, 6], [4, 1, 7, 5, 5, 2, 3], [0, 1, 2, 0, 1, 2, 3]])
def test_equation(name, positions):
    case = Case()
    encoding = case.encoding(name, max_position_embeddings=8)
    extra = position_scores(case, encoding, positions)

    def score(b, h, m, n):
        return case.q(b, m, h) @ case.k(b, n, h) / np.sqrt(2 * case.head_dim) + extra[h, m, n]

    case.check(encoding, score, positions)


def test_resets_have_buckets_of_their_own():
    """Spec A.7: a table of bucket numbers shows them; a softmax does not see that of a row."""
    encoding = roformer_cpp.encoding("tupe-r", num_attention_heads=1)
    with torch.no_grad():
        for p in encoding.parameters():
            p.zero_()
        encoding.relative_attention_bias.copy_(torch.arange(33)[:, None])
    terms = encoding.terms(torch.arange(4))
    assert (terms.reset_row.item(), terms.reset_col.item()) == (16, 32)


@pytest.mark.parametrize("name", ["tupe-a", "tupe-r"])
def test_beyond_the_table(name):
    encoding = roformer_cpp.encoding(name, max_position_embeddings=10)
    assert encoding.terms(torch.tensor([9])).position_query.shape[1] == 10
    with pytest.raises(ValueError, match=rf"\[{name}\] positions must be in 0..9.*got 10"):
        encoding.terms(torch.tensor([0, 10]))
    with pytest.raises(ValueError, match="got 12"):
        encoding.terms(torch.tensor([3]), torch.tensor([12, 3]))
    with pytest.raises(ValueError, match="got -1"):
        encoding.terms(torch.tensor([-1, 3]))
