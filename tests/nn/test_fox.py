"""The forget gate of FoX (Lin et al. 2025, section 3) against loops in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import normal, zero

REFUSED = {"fox": [({"is_decoder": False}, r"fox needs causal attention \(is_decoder\), got a bidirectional model")]}
STARTS = {"fox": {"fgate_proj_weight": normal, "fgate_proj_bias": zero}}

LAYER = 1


def encoding_of(case):
    return case.encoding("fox", num_hidden_layers=2, is_decoder=True)


def forgetting(case, encoding):
    """s q.k and the logarithms of the gates after the key, up to the query."""
    weight = parameter(encoding, f"layer.{LAYER}.fgate_proj_weight")
    bias = parameter(encoding, f"layer.{LAYER}.fgate_proj_bias")
    ahead = case.y.shape[1] - case.x.shape[1]

    def score(b, h, m, n):
        gates = [1 / (1 + np.exp(-(weight[h] @ case.y[b, t] + bias[h]))) for t in range(n + 1, m + ahead + 1)]
        return case.product(b, h, m, n) + sum(np.log(gates))

    return score


@pytest.mark.parametrize("keys", [None, 9])
def test_scores_are_those_of_the_paper(keys):
    """Also of queries that come after other keys."""
    case = Case(keys=keys, heads=3)
    encoding = encoding_of(case)
    at = torch.arange(case.y.shape[1])
    case.check(encoding, forgetting(case, encoding), at[-case.x.shape[1] :], at, layer=LAYER, causal=True)


def test_gates_follow_the_order_of_tokens():
    case = Case()
    encoding = encoding_of(case)
    case.check(encoding, forgetting(case, encoding), [5, 100, 3, 3, 0, 1, 2], layer=LAYER, causal=True)


def test_what_is_read_is_combined_by_encoding():
    """Numbers of tokens of an encoding do not reach the others."""
    case = Case()
    fox, alibi = encoding_of(case), case.encoding("alibi", num_hidden_layers=2)
    at, hidden = torch.arange(7), torch.from_numpy(case.y)
    both = roformer_cpp.combine_encodings([alibi, fox]).terms(at, layer=1, hidden_states=hidden, dtype=torch.float64)
    alone = fox.terms(at, layer=1, hidden_states=hidden, dtype=torch.float64)
    assert torch.equal(both.key_score, alone.key_score) and both.bias is not None
    with pytest.raises(ValueError, match="each term must be set by one encoding, got key_score from two"):
        roformer_cpp.combine_encodings([fox, fox]).terms(at, layer=1, hidden_states=hidden)


@pytest.mark.parametrize("hidden, words", [
    (None, r"\[encoding\] terms must be given hidden_states of all 7 keys, which this encoding reads, got none"),
    (torch.zeros(2, 6, 6), "hidden_states of all 7 keys, which this encoding reads, got 6"),
    (torch.zeros(2, 7, 5), r"\[fox\] hidden_states must be \[batch, tokens, 6\], got \[2, 7, 5\]"),
    (torch.zeros(7, 6), r"\[fox\] hidden_states must be \[batch, tokens, 6\], got \[7, 6\]"),
])  # fmt: skip
def test_refuses(hidden, words):
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding("fox", hidden_size=6, is_decoder=True).terms(torch.arange(7), hidden_states=hidden)
