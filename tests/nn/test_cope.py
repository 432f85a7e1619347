"""CoPE (Golovneva et al. 2024, section 4; R-REL-16) against loops in float64."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, check_gradients, parameter
from initial_values import zero
from tolerances import T1_ATOL, T1_RTOL

SWEEP_KEYS = {"cope": {"npos_max": 4}}
STARTS = {"cope": {"pos_emb": zero}}  # listing 1 of the paper

LAYER = 1


def encoding_of(case, places=4):
    return case.encoding("cope", num_hidden_layers=2, npos_max=places, is_decoder=True)


def counted(case, encoding):
    table = parameter(encoding, f"layer.{LAYER}.pos_emb")  # [D, npos_max]

    def score(b, h, m, n):
        last = m + len(case.y[0]) - len(case.x[0])  # the query's own place among the keys
        q = case.q(b, m, h)
        scores = [q @ case.k(b, j, h) / math.sqrt(case.head_dim) for j in range(n, last + 1)]
        place = min(sum(1 / (1 + math.exp(-each)) for each in scores), table.shape[1] - 1)
        below = math.floor(place)
        above = min(below + 1, table.shape[1] - 1)
        row = (1 - (place - below)) * table[:, below] + (place - below) * table[:, above]
        return scores[0] + q @ row

    return score


@pytest.mark.parametrize("places", [1, 3, 64])
@pytest.mark.parametrize("keys", [None, 9])
def test_scores_are_those_of_the_paper(places, keys):
    case = Case(heads=3, head_dim=8, keys=keys)
    encoding = encoding_of(case, places)
    positions, key_positions = torch.arange(7), None if keys is None else torch.arange(keys)
    ours = case.attention(encoding, positions, key_positions, layer=LAYER, causal=True)
    expected = case.loops(counted(case, encoding), causal=True)
    np.testing.assert_allclose(ours, expected, atol=T1_ATOL, rtol=T1_RTOL)


def test_gradients():
    case = Case(batch=1, tokens=4)
    encoding = encoding_of(case)
    check_gradients(case, encoding, torch.arange(4), layer=LAYER, causal=True)

    def run(q, k, v):
        terms = encoding.terms(torch.arange(4), layer=LAYER, queries=q, keys=k, dtype=torch.float64)
        return roformer_cpp.attention(q, k, v, terms, is_causal=True)

    assert torch.autograd.gradcheck(run, tuple(x.requires_grad_() for x in case.qkv()))


def test_what_is_no_number_stays_none():
    """A run that diverges ends by its loss."""
    encoding, q = encoding_of(Case()), torch.full((1, 5, 2, 4), torch.nan, dtype=torch.float64)
    terms = encoding.terms(torch.arange(5), queries=q, keys=q, dtype=torch.float64)
    assert terms.pair_bias[0, 0].tril().isnan().tril().sum() == 15


def test_starts_without_positions():
    encoding = roformer_cpp.encoding("cope", is_decoder=True, head_dim=6)
    assert parameter(encoding, "layer.0.pos_emb").shape == (6, 64)
    assert not parameter(encoding, "layer.0.pos_emb").any()


@pytest.mark.parametrize(("keys", "words"), [
    ({"npos_max": 0, "is_decoder": True}, "npos_max"),
    ({}, "cope needs causal attention"),
])  # fmt: skip
def test_refuses(keys, words):
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding("cope", **keys)
