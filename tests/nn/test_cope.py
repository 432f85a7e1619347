"""CoPE (Golovneva et al. 2024, section 4; R-REL-16) against loops in float64."""

import math

import pytest
import torch

from encoding_case import Case, parameter
from initial_values import zero

REFUSED = {"cope": [
    ({"npos_max": 0, "is_decoder": True}, "npos_max"),
    ({"is_decoder": False}, "cope needs causal attention"),
]}  # fmt: skip

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
    case.check(encoding, counted(case, encoding), positions, key_positions, layer=LAYER, causal=True)


def test_what_is_no_number_stays_none():
    """A run that diverges ends by its loss."""
    encoding, q = encoding_of(Case()), torch.full((1, 5, 2, 4), torch.nan, dtype=torch.float64)
    terms = encoding.terms(torch.arange(5), queries=q, keys=q, dtype=torch.float64)
    assert terms.pair_bias[0, 0].tril().isnan().tril().sum() == 15
