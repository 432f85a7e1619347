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


def projections_of(case: Case, encoding, config, layer):
    """W_kr and W_qr of a layer as functions of a row of P, [H*D]."""
    p = parameter(encoding, "rel_embeddings")
    if encoding.name == "deberta-literal":
        return lambda row: case.w_k @ p[row], lambda row: case.w_q @ p[row]
    if config.get("share_att_key"):  # biases included, as in transformers
        return lambda row: case.w_k @ p[row] + case.b_k, lambda row: case.w_q @ p[row] + case.b_q

    def own(side):
        weight, bias = (parameter(encoding, f"layer.{layer}.pos_{side}_proj_{kind}") for kind in ("weight", "bias"))
        return lambda row: weight @ p[row] + bias

    return (lambda row: own("key")(row)), (lambda row: own("query")(row))  # one of them may be absent


@pytest.mark.parametrize("positions", [POSITIONS, [5, 4, 7, 6]], ids=["far", "near"])
@pytest.mark.parametrize(("name", "config"), [
    ("deberta", {}),
    ("deberta", {"p2c": "paper"}),
    ("deberta", {"share_att_key": True}),
    ("deberta", {"pos_att_type": ["c2p"]}),
    ("deberta", {"pos_att_type": ["p2c"]}),
    ("deberta", {"pos_att_type": "c2p|p2c"}),
    ("deberta", {"position_buckets": 8, "max_relative_positions": 50}),
    ("deberta", {"position_buckets": 8, "max_relative_positions": 50, "p2c": "paper"}),
    ("deberta-literal", {}),
])  # fmt: skip
def test_equation(name, config, positions):
    case, layer = Case(tokens=len(positions)), 1
    encoding = case.encoding(name, num_hidden_layers=2, **{"max_relative_positions": K} | config)
    kr, qr = projections_of(case, encoding, config, layer)
    terms = config.get("pos_att_type", ["c2p", "p2c"])
    terms = terms.split("|") if isinstance(terms, str) else terms
    scale = 1 / np.sqrt(case.head_dim * (1 if name == "deberta-literal" else 1 + len(terms)))
    sign = -1 if config.get("p2c") == "paper" else 1

    def row(distance):
        return bucketed(distance, 8, 50) if "position_buckets" in config else clamped(distance)

    def score(b, h, m, n):
        q, k, distance = case.q(b, m, h), case.k(b, n, h), positions[m] - positions[n]
        total = q @ k
        if "c2p" in terms:
            total += q @ case.head(kr(row(distance)), h)
        if "p2c" in terms:
            total += k @ case.head(qr(row(sign * distance)), h)
        return scale * total

    case.check(encoding, score, positions, layer=layer)
    names = [name for name, _ in encoding.named_parameters()]
    own = name == "deberta" and not config.get("share_att_key")
    assert any("pos_key_proj" in each for each in names) == (own and "c2p" in terms)
    assert any("pos_query_proj" in each for each in names) == (own and "p2c" in terms)


def test_near_distances_take_a_part_of_the_table():
    encoding = roformer_cpp.encoding("deberta", max_relative_positions=20)
    assert encoding.terms(torch.tensor([5, 4, 7, 6])).key_table.rows.shape[1] == 7


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
