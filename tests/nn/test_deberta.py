"""DeBERTa and Eq. 10 as printed (R-REL-06) against loops over the equations."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import normal, zero

REFUSED = {"deberta": [
        ({"max_relative_positions": 0}, "max_relative_positions must be -1.*0"),
        ({"max_relative_positions": -2}, "max_relative_positions must be an integer from -1.*-2"),
        ({"position_buckets": 7}, "position_buckets must be.*even.*7"),
        ({"position_buckets": 0}, "position_buckets must be.*0"),
        ({"position_buckets": 8, "max_relative_positions": 5}, "max_relative_positions must be above 5.*8.*got 5"),
        ({"pos_att_type": []}, r"pos_att_type must list c2p, p2c or both, got \[\]"),
        ({"pos_att_type": ["c2p", "p2p"]}, "pos_att_type must list.*p2p"),
        ({"pos_att_type": 3}, "pos_att_type must list.*3"),
        ({"share_att_key": "yes"}, "share_att_key must be true or false.*yes"),
        ({"p2c": "theirs"}, "p2c must be one of code, paper.*theirs"),
        ({"p2c": "paper", "pos_att_type": ["c2p"]}, 'p2c must be absent where pos_att_type lists no p2c, got "paper"'),
        ({"norm_rel_ebd": "layer_norm"}, "norm_rel_ebd"),
]}  # fmt: skip

STARTS = {
    "deberta": {
        **dict.fromkeys(("rel_embeddings", "pos_key_proj_weight", "pos_query_proj_weight"), normal),
        **dict.fromkeys(("pos_key_proj_bias", "pos_query_proj_bias"), zero),
    },
    "deberta-literal": {"rel_embeddings": normal},
}

POSITIONS = [3, 0, 9, 40, 41, 90, 7]
K = 6


def clamped(distance: int) -> int:
    """delta of the paper with i - j = distance."""
    return 0 if distance <= -K else 2 * K - 1 if distance >= K else distance + K


def bucketed(distance: int, buckets: int, max_positions: int) -> int:
    """DeBERTa-v2: the row of a distance; the ceiling of the logarithm is the least j with (n/m)^c <= (max/m)^j."""
    m = buckets // 2
    n = abs(distance)
    if n > m:
        steps, far = m - 1, max_positions - 1
        j = next((j for j in range(m + 1) if n**steps * m**j <= far**j * m**steps), m + 1)  # past m: the last row
        distance = int(math.copysign(m + j, distance))
    return max(0, min(distance + buckets, 2 * buckets - 1))


def score_of(case: Case, kr, qr, delta, positions, *, paper=False, terms=("c2p", "p2c"), scale=None):
    """kr, qr: row of P -> [H*D]."""
    s = 1 / np.sqrt(case.head_dim * (1 + len(terms))) if scale is None else scale

    def score(b, h, m, n):
        q, k = case.q(b, m, h), case.k(b, n, h)
        distance = positions[m] - positions[n]
        total = q @ k
        if "c2p" in terms:
            total += q @ case.head(kr(delta(distance)), h)
        if "p2c" in terms:
            total += k @ case.head(qr(delta(-distance if paper else distance)), h)
        return s * total

    return score


def own_projection(encoding, which, layer=0):
    p = parameter(encoding, "rel_embeddings")
    weight, bias = (parameter(encoding, f"layer.{layer}.pos_{which}_proj_{kind}") for kind in ("weight", "bias"))
    return lambda row: weight @ p[row] + bias


def own_projections(encoding, layer=0):
    return own_projection(encoding, "key", layer), own_projection(encoding, "query", layer)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("p2c", ["code", "paper"])
def test_equation(layer, p2c):
    case = Case()
    encoding = case.encoding("deberta", num_hidden_layers=2, max_relative_positions=K, p2c=p2c)
    score = score_of(case, *own_projections(encoding, layer), clamped, POSITIONS, paper=p2c == "paper")
    case.check(encoding, score, POSITIONS, layer=layer)


@pytest.mark.parametrize("p2c", ["code", "paper"])
def test_neighbours_only(p2c):
    """Distances that use a part of the table."""
    case = Case(tokens=4)
    encoding = case.encoding("deberta", max_relative_positions=20, p2c=p2c)
    positions = [5, 4, 7, 6]
    score = score_of(case, *own_projections(encoding), lambda d: d + 20, positions, paper=p2c == "paper")
    case.check(encoding, score, positions)
    assert encoding.terms(torch.tensor(positions)).key_table.rows.shape[1] == 7


def test_share_att_key():
    """Distances through the layer's own W_q and W_k, biases included, as transformers does it."""
    case = Case()
    encoding = case.encoding("deberta", max_relative_positions=K, share_att_key=True)
    p = parameter(encoding, "rel_embeddings")
    assert len(list(encoding.parameters())) == 1
    score = score_of(
        case, lambda r: case.w_k @ p[r] + case.b_k, lambda r: case.w_q @ p[r] + case.b_q, clamped, POSITIONS
    )
    case.check(encoding, score, POSITIONS)


def test_literal_equation():
    case = Case()
    encoding = case.encoding("deberta-literal", max_relative_positions=K)
    p = parameter(encoding, "rel_embeddings")
    scale = 1 / np.sqrt(case.head_dim)
    score = score_of(case, lambda r: case.w_k @ p[r], lambda r: case.w_q @ p[r], clamped, POSITIONS, scale=scale)
    case.check(encoding, score, POSITIONS)


@pytest.mark.parametrize("terms", [["c2p"], ["p2c"], "c2p|p2c"])
def test_one_term(terms):
    case = Case()
    encoding = case.encoding("deberta", max_relative_positions=K, pos_att_type=terms)
    names = [name for name, _ in encoding.named_parameters()]
    listed = terms.split("|") if isinstance(terms, str) else terms
    assert any("pos_key_proj" in name for name in names) == ("c2p" in listed)
    assert any("pos_query_proj" in name for name in names) == ("p2c" in listed)
    kr = own_projection(encoding, "key") if "c2p" in listed else None
    qr = own_projection(encoding, "query") if "p2c" in listed else None
    score = score_of(case, kr, qr, clamped, POSITIONS, terms=listed)
    case.check(encoding, score, POSITIONS)


@pytest.mark.parametrize("p2c", ["code", "paper"])
def test_log_buckets(p2c):
    case = Case()
    config = {"max_relative_positions": 50, "position_buckets": 8, "p2c": p2c}
    encoding = case.encoding("deberta", **config)
    assert encoding.rel_embeddings.shape == (16, case.width)
    score = score_of(case, *own_projections(encoding), lambda d: bucketed(d, 8, 50), POSITIONS, paper=p2c == "paper")
    case.check(encoding, score, POSITIONS)


def rows_by_distance(distances: range, buckets: int, max_positions: int) -> list[int]:
    """What the product takes: content-to-position keys are the numbers of their rows."""
    config = {"max_relative_positions": max_positions, "position_buckets": buckets, "pos_att_type": ["c2p"]}
    encoding = roformer_cpp.encoding("deberta", head_dim=1, **config)
    with torch.no_grad():
        encoding.rel_embeddings.copy_(torch.arange(len(encoding.rel_embeddings))[:, None])
        encoding.get_parameter("layer.0.pos_key_proj_weight").fill_(1)
    rows, lo, hi = encoding.terms(torch.tensor([0, 5000])).key_table
    return [int(rows[0, min(max(d, lo), hi) - lo]) for d in distances]


# 82 and 1001 put many distances exactly on a threshold.
@pytest.mark.parametrize(("buckets", "max_positions"), [(4, 82), (6, 1001), (8, 512), (20, 82), (256, 1001)])
def test_log_buckets_are_exact(buckets, max_positions):
    distances = range(-1100, 1101)
    expected = [bucketed(d, buckets, max_positions) for d in distances]
    assert rows_by_distance(distances, buckets, max_positions) == expected


@pytest.mark.parametrize(("buckets", "max_positions"), [(256, 82), (256, 129), (4, 3)])
def test_fewer_positions_than_the_buckets_of_one_distance_are_refused(buckets, max_positions):
    rule = f"max_relative_positions must be above {buckets // 2 + 1} for position_buckets = {buckets}"
    with pytest.raises(ValueError, match=f"{rule}, got {max_positions}"):
        rows_by_distance(range(1), buckets, max_positions)


@pytest.mark.parametrize(("name", "config"), [("deberta", {"share_att_key": True}), ("deberta-literal", {})])
def test_shared_projections_must_be_given(name, config):
    with pytest.raises(ValueError, match=rf"\[{name}\] .*projections"):
        roformer_cpp.encoding(name, **config).terms(torch.arange(3))
