"""Biases and vectors by buckets of distances, against loops over the equations and exact bucket arithmetic: T5
(R-REL-04, Eq. 8), TUPE-A and TUPE-R with its code's reset (R-REL-05), DeBERTa and Eq. 10 as printed (R-REL-06)."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import Case, parameter
from initial_values import normal, one, zero

# ---- T5 ----

REFUSED = {"t5": [
    ({"relative_attention_num_buckets": 31}, "relative_attention_num_buckets must be even.*31"),
    ({"relative_attention_num_buckets": 2}, "relative_attention_num_buckets must be an integer from 4.*2"),
    ({"relative_attention_num_buckets": 1, "is_decoder": True}, "from 2 to 1024, got 1"),
    ({"relative_attention_max_distance": 8}, "relative_attention_max_distance must be an integer from 9.*8"),
    ({"relative_attention_max_distance": 2**21}, "relative_attention_max_distance must be.*2097152"),
    ({"scale": 0.5}, "scale must be one of none, sqrt, got 0.5"),
    ({"num_buckets": 32}, "num_buckets"),
]}  # fmt: skip

STARTS = {"t5": {"relative_attention_bias": normal}}

POSITIONS = [3, 0, 9, 40, 41, 200, 7]  # in no order, with gaps


def bucket(rel: int, *, both: bool, buckets: int = 32, max_distance: int = 128) -> int:
    """Spec R-REL-04 for rel = key - query; the logarithm's floor is the largest j with (n/e)^c >= (max/e)^j."""
    count = buckets // 2 if both else buckets
    offset, n = (count * (rel > 0), abs(rel)) if both else (0, max(0, -rel))
    exact = count // 2
    if n < exact:
        return offset + n
    steps = count - exact
    j = max(j for j in range(steps + 1) if n**steps * exact**j >= max_distance**j * exact**steps)
    return offset + min(count - 1, exact + j)


def buckets_by_distance(distances: range, **config) -> list[int]:
    """What the product takes: the bias is its bucket's number."""
    encoding = roformer_cpp.encoding("t5", **config)
    with torch.no_grad():
        encoding.relative_attention_bias.copy_(torch.arange(len(encoding.relative_attention_bias))[:, None])
    rows, lo, hi = encoding.terms(torch.arange(3)).bias
    return [int(rows[0, min(max(d, lo), hi) - lo]) for d in distances]


# With 1000 and 729 many distances are exactly on a threshold.
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (4, 729), (12, 1000), (64, 33)])
def test_buckets_are_exact(buckets, max_distance, causal):
    config = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": max_distance}
    distances = range(-1100, 1101, 1 if max_distance > 100 else 7)
    expected = [bucket(-d, both=not causal, buckets=buckets, max_distance=max_distance) for d in distances]
    assert buckets_by_distance(distances, is_decoder=causal, **config) == expected


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", ["none", "sqrt"])
def test_equation_of_t5(causal, scale):
    case = Case()
    encoding = case.encoding("t5", is_decoder=causal, scale=scale)
    b = parameter(encoding, "relative_attention_bias")
    s = 1 if scale == "none" else 1 / np.sqrt(case.head_dim)

    def score(i, h, m, n):
        rel = POSITIONS[n] - POSITIONS[m]
        return s * case.q(i, m, h) @ case.k(i, n, h) + b[bucket(rel, both=not causal), h]

    case.check(encoding, score, POSITIONS, causal=causal)


# ---- TUPE ----

REFUSED["tupe-a"] = [({"relative_attention_num_buckets": 32}, "relative_attention_num_buckets")]
REFUSED["tupe-r"] = [
    ({"relative_attention_num_buckets": 7}, "relative_attention_num_buckets must be even.*7"),
    ({"relative_attention_max_distance": 8}, "relative_attention_max_distance must be.*8"),
]

TUPE_A = dict.fromkeys(("pos", "pos_q_weight", "pos_k_weight"), normal) | {"pos_ln_weight": one}
TUPE_A |= dict.fromkeys(("pos_ln_bias", "pos_q_bias", "pos_k_bias"), zero)
STARTS |= {"tupe-a": TUPE_A, "tupe-r": {**TUPE_A, "relative_attention_bias": normal}}


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
def test_equation_of_tupe(name, positions):
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
    for places, got in (([[0, 10]], 10), ([[3], [12, 3]], 12), ([[-1, 3]], -1)):
        with pytest.raises(ValueError, match=rf"\[{name}\] positions must be in 0..9.*got {got}"):
            encoding.terms(*map(torch.tensor, places))


# ---- DeBERTa ----

REFUSED |= {"deberta": [
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
    ({"norm_rel_ebd": "rms_norm"}, "norm_rel_ebd must be one of none, layer_norm.*rms_norm"),
    ({"layer_norm_eps": 1e-5}, "layer_norm_eps"),
    ({"share_att_key": True, "pos_key_bias": False}, "pos_key_bias"),
    ({"norm_rel_ebd": "layer_norm", "layer_norm_eps": 2.0}, "layer_norm_eps must be.*2"),
]}  # fmt: skip

STARTS["deberta-literal"] = {"rel_embeddings": normal}
STARTS["deberta"] = dict.fromkeys(("rel_embeddings", "pos_key_proj_weight", "pos_query_proj_weight"), normal)
STARTS["deberta"] |= dict.fromkeys(("pos_key_proj_bias", "pos_query_proj_bias"), zero)

FAR = [3, 0, 9, 40, 41, 90, 7]
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
    if "norm_rel_ebd" in config:
        p = p - p.mean(1, keepdims=True)
        p = p / np.sqrt((p * p).mean(1, keepdims=True) + config["layer_norm_eps"])
        p = p * parameter(encoding, "norm_weight") + parameter(encoding, "norm_bias")
    if encoding.name == "deberta-literal":
        return lambda row: case.w_k @ p[row], lambda row: case.w_q @ p[row]
    if config.get("share_att_key"):  # biases included, as in transformers
        return lambda row: case.w_k @ p[row] + case.b_k, lambda row: case.w_q @ p[row] + case.b_q

    def own(side):
        weight, bias = (f"layer.{layer}.pos_{side}_proj_{kind}" for kind in ("weight", "bias"))
        has_bias = side == "query" or config.get("pos_key_bias", True)
        assert (bias in dict(encoding.named_parameters())) == has_bias
        weight, bias = parameter(encoding, weight), parameter(encoding, bias) if has_bias else 0
        return lambda row: weight @ p[row] + bias

    return (lambda row: own("key")(row)), (lambda row: own("query")(row))  # one of them may be absent


@pytest.mark.parametrize("positions", [FAR, [5, 4, 7, 6]], ids=["far", "near"])
@pytest.mark.parametrize(("name", "config"), [
    ("deberta", {"p2c": "paper"}),
    ("deberta", {"pos_att_type": "c2p|p2c"}),
    ("deberta", {"position_buckets": 8, "max_relative_positions": 50, "p2c": "paper"}),
    ("deberta", {"pos_key_bias": False}),
    ("deberta", {"norm_rel_ebd": "layer_norm", "layer_norm_eps": 0.1}),
    ("deberta", {"norm_rel_ebd": "layer_norm", "layer_norm_eps": 0.1, "share_att_key": True}),
    ("deberta-literal", {}),
])  # fmt: skip
def test_equation_of_deberta(name, config, positions):
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


def test_shared_projections_must_be_given():
    for name, config in (("deberta", {"share_att_key": True}), ("deberta-literal", {})):
        with pytest.raises(ValueError, match=rf"\[{name}\] .*projections"):
            roformer_cpp.encoding(name, **config).terms(torch.arange(3))
