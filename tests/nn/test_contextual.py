"""Scores that depend on tokens, against loops in float64: the forget gate of FoX (Lin et al. 2025, section 3), CoPE
(Golovneva et al. 2024, section 4; R-REL-16), DAPE (Zheng et al. 2024, section 3.2; R-REL-17), and PaTH (Yang et al.
2025, section 3; R-REL-18) against products of reflections."""

import math

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import TINY_MODEL, Case, parameter
from initial_values import HEADS, normal, of_linear, of_log, zero
from tolerances import PATH_LOGITS, PATH_SCORES, T1_ATOL, T1_RTOL

# ---- FoX ----

REFUSED = {"fox": [({"is_decoder": False}, r"fox needs causal attention \(is_decoder\), got a bidirectional model")]}
STARTS = {"fox": {"fgate_proj_weight": normal, "fgate_proj_bias": zero}}

LAYER = 1


def fox_of(case):
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


def test_gates_follow_the_order_of_tokens():
    case = Case()
    encoding = fox_of(case)
    case.check(encoding, forgetting(case, encoding), [5, 100, 3, 3, 0, 1, 2], layer=LAYER, causal=True)


def test_what_is_read_is_combined_by_encoding():
    """Numbers of tokens of an encoding do not reach the others."""
    case = Case()
    fox, alibi = fox_of(case), case.encoding("alibi", num_hidden_layers=2)
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
def test_hidden_states_that_fox_refuses(hidden, words):
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding("fox", hidden_size=6, is_decoder=True).terms(torch.arange(7), hidden_states=hidden)


# ---- CoPE ----

REFUSED |= {"cope": [
    ({"npos_max": 0, "is_decoder": True}, "npos_max"),
    ({"is_decoder": False}, "cope needs causal attention"),
]}  # fmt: skip

SWEEP_KEYS = {"cope": {"npos_max": 4}}
STARTS |= {"cope": {"pos_emb": zero}}  # listing 1 of the paper


def cope_of(case, places=4):
    return case.encoding("cope", num_hidden_layers=2, npos_max=places, is_decoder=True)


def counted(case, encoding):
    table = parameter(encoding, f"layer.{LAYER}.pos_emb")  # [D, npos_max]

    def score(b, h, m, n):
        last = m + len(case.y[0]) - len(case.x[0])  # the query's own place among the keys
        q = case.q(b, m, h)
        scores = [case.product(b, h, m, j) for j in range(n, last + 1)]
        place = min(sum(1 / (1 + math.exp(-each)) for each in scores), table.shape[1] - 1)
        below = math.floor(place)
        above = min(below + 1, table.shape[1] - 1)
        row = (1 - (place - below)) * table[:, below] + (place - below) * table[:, above]
        return scores[0] + q @ row

    return score


@pytest.mark.parametrize("places", [1, 3, 64])
@pytest.mark.parametrize("keys", [None, 9])
def test_scores_of_cope(places, keys):
    case = Case(heads=3, head_dim=8, keys=keys)
    encoding = cope_of(case, places)
    positions, key_positions = torch.arange(7), None if keys is None else torch.arange(keys)
    case.check(encoding, counted(case, encoding), positions, key_positions, layer=LAYER, causal=True)


def test_what_is_no_number_stays_none():
    """A run that diverges ends by its loss."""
    encoding, q = cope_of(Case()), torch.full((1, 5, 2, 4), torch.nan, dtype=torch.float64)
    terms = encoding.terms(torch.arange(5), queries=q, keys=q, dtype=torch.float64)
    assert terms.pair_bias[0, 0].tril().isnan().tril().sum() == 15


# ---- DAPE ----

REFUSED |= {"dape": [
    ({"bias": "rope"}, 'dape.bias must be one of alibi, .*fire, got "rope"'),
    ({"bias": "kerple"}, 'must be one of .*, got "kerple"'),
    ({"bias": 3}, "dape.bias"),
    ({"mlp_width": 0}, "mlp_width"),
]}  # fmt: skip

SWEEP_KEYS |= {"dape": {"mlp_width": 3}}
# The authors' program: torch's linear layers of scores and biases of the heads.
STARTS["dape"] = {f"mlp2_0_{part}": of_linear(2 * HEADS) for part in ("weight", "bias")}
STARTS["dape"] |= {f"mlp2_2_{part}": of_linear(32) for part in ("weight", "bias")}
STARTS["dape"] |= {"bias.log_r1": of_log(2), "bias.log_r2": of_log(1)}

INNER = 5
POSITIONS = torch.tensor([[0, 1, 2, 5, 6, 40, 7], [3, 9, 4, 0, 50, 1, 2]])  # of each row


def dape_of(case, bias):
    return case.encoding("dape", num_hidden_layers=2, mlp_width=INNER, bias=bias)


def kerple(encoding, distance):
    r1, r2 = (np.exp(parameter(encoding, f"bias.log_{name}")) for name in ("r1", "r2"))
    return -r1 * np.log1p(r2 * abs(distance))


def alibi(encoding, distance):
    """Of a power of two heads (Press et al. 2022)."""
    return -abs(distance) * 2.0 ** (-8 * np.arange(1, 5) / 4)


def adapted(case, encoding, bias):
    names = ("mlp2_0_weight", "mlp2_0_bias", "mlp2_2_weight", "mlp2_2_bias")
    w_1, b_1, w_2, b_2 = (parameter(encoding, f"layer.{LAYER}.{name}") for name in names)

    def score(b, h, m, n):
        scores = np.array([case.product(b, each, m, n) for each in range(case.heads)])
        by_distance = bias(encoding, (POSITIONS[b, m] - POSITIONS[b, n]).item())
        inner = w_1 @ np.concatenate([scores, by_distance]) + b_1
        return (scores + by_distance + w_2 @ np.where(inner > 0, inner, 0.01 * inner) + b_2)[h]

    return score


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("name", "bias"), [("kerple-log", kerple), ("alibi", alibi)])
def test_scores_of_dape(name, bias, causal):
    case = Case(heads=4, head_dim=8)
    encoding = dape_of(case, name)
    case.check(encoding, adapted(case, encoding, bias), POSITIONS, layer=LAYER, causal=causal)


def test_fire_is_a_bias_too():
    """With weights of 0 the network adds nothing."""
    case = Case(heads=2, head_dim=8)
    fire = roformer_cpp.encoding("fire", num_attention_heads=2, is_decoder=True).double()
    encoding = roformer_cpp.encoding("dape", num_attention_heads=2, head_dim=8, bias="fire", is_decoder=True).double()
    with torch.no_grad():
        for name, value in encoding.named_parameters():
            value.copy_(fire.get_parameter(name.removeprefix("bias.")) if name.startswith("bias.") else 0)
    ours, theirs = (case.attention(each, POSITIONS.sort().values, causal=True) for each in (encoding, fire))
    np.testing.assert_allclose(ours, theirs, atol=T1_ATOL, rtol=T1_RTOL)


def test_refuses_other_heads_and_rows():
    encoding = roformer_cpp.encoding("dape", num_attention_heads=4, head_dim=8)
    for x, positions, words in (
        (torch.zeros(1, 5, 2, 8), torch.arange(5), r"\[dape\] queries must have 4 heads, got 2"),
        (torch.zeros(3, 5, 4, 8), torch.zeros(2, 5).long(), "positions must be those of the 3 rows of queries, got 2"),
    ):
        with pytest.raises(ValueError, match=words):
            encoding.terms(positions, queries=x, keys=x)


# ---- PaTH ----

SWEEP_KEYS |= {"path": {"w_rank": 3}}
PATH = ("w_proj_0_weight", "w_proj_1_weight", "w_conv1d_weight", "bt_proj_weight")
STARTS["path"] = dict.fromkeys(PATH, normal) | {"bt_proj_bias": zero}

RANK, TAPS = 3, 3


def path_of(case, layers=2):
    return case.encoding("path", num_hidden_layers=layers, w_rank=RANK, is_decoder=True)


def reflections(case, encoding, b, h, of_sequence):
    """H_t of each token."""
    inner, outer, taps, u, bias = (parameter(encoding, f"layer.{LAYER}.{name}") for name in (*PATH, "bt_proj_bias"))
    z = [outer @ inner @ x for x in case.y[b]]
    found = []
    for t, x in enumerate(case.y[b]):
        own = [each for each in range(t + 1) if of_sequence[each] == of_sequence[t]]
        v = sum(taps[:, TAPS - 1 - apart] * z[each] for apart, each in enumerate(reversed(own[-TAPS:])))
        v = case.head(v / (1 + np.exp(-v)), h)
        w = v / np.sqrt(v @ v + 1e-6)
        beta = 2 / (1 + np.exp(-(u[h] @ x + bias[h])))
        found.append(np.eye(case.head_dim) - beta * np.outer(w, w))
    return found


def reflected(case, encoding, of_sequence=None):
    of_sequence = np.zeros(case.y.shape[1]) if of_sequence is None else np.asarray(of_sequence)
    ahead = case.y.shape[1] - case.x.shape[1]

    def score(b, h, m, n):
        if of_sequence[m + ahead] != of_sequence[n]:
            return -np.inf
        vector, product = case.k(b, n, h), reflections(case, encoding, b, h, of_sequence)
        for t in range(n + 1, m + ahead + 1):
            if of_sequence[t] == of_sequence[n]:
                vector = vector @ product[t]
        return vector @ case.q(b, m, h) / np.sqrt(case.head_dim)

    return score


@pytest.mark.parametrize("keys", [None, 9])
@pytest.mark.parametrize(("of", "score_of"), [(fox_of, forgetting), (path_of, reflected)], ids=["fox", "path"])
def test_scores_by_the_tokens_between(of, score_of, keys):
    """Also of queries that come after other keys."""
    case = Case(keys=keys, heads=3)
    encoding = of(case)
    at = torch.arange(case.y.shape[1])
    case.check(encoding, score_of(case, encoding), at[-case.x.shape[1] :], at, layer=LAYER, causal=True)


@pytest.mark.parametrize("of_sequence", [
    [0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 0, 1, 0, 1], [5, 5, 2, 2, 2, 9, 9], [0, 0, 1, 0, -1, 1, 1]])  # fmt: skip
@pytest.mark.parametrize("queries", [7, 3])
def test_packed_sequences_do_not_see_each_other(of_sequence, queries):
    """Neither in products nor in the convolution, also where a sequence comes back."""
    case = Case(batch=1)
    encoding = path_of(case)
    case.x = case.x[:, 7 - queries :]
    at = torch.arange(7)
    score = reflected(case, encoding, of_sequence)
    case.check(encoding, score, at[7 - queries :], at, layer=LAYER, causal=True, sequences=of_sequence)


def test_padding_changes_nothing():
    """On the left, and between two tokens."""
    config = TINY_MODEL | {"position_encoding": "path", "is_decoder": True, "initializer_range": 0.5}
    model, ids = roformer_cpp.build_model(config, "RoFormerForCausalLM"), torch.arange(1, 9).view(1, 8)
    for shown in ([0, 0, 0] + [1] * 8, [1, 1, 1, 1, 0, 0, 1, 1, 1, 1]):
        mask = torch.tensor([shown])
        padded = torch.full_like(mask, 5)
        padded[mask > 0] = ids[0]
        found = model(padded, mask)["logits"][:, mask[0] > 0]
        torch.testing.assert_close(found, model(ids)["logits"], **PATH_LOGITS)


@pytest.mark.parametrize(("tokens", "keys"), [(1, 1), (2, 2), (3, 3), (300, 300), (5, 300), (128, 256), (129, 129)])
def test_blocks(tokens, keys):
    """The scores of some queries and keys of many."""
    case = Case(batch=1, tokens=tokens, keys=keys, heads=1)
    encoding = path_of(case)
    q, k, _ = case.qkv()
    given = {"queries": q, "keys": k, "hidden_states": torch.from_numpy(case.y)}
    at = torch.arange(keys)
    found = encoding.terms(at[keys - tokens :], at, layer=LAYER, **given, dtype=torch.float64).pair_bias[0, 0]
    product, ahead = reflections(case, encoding, 0, 0, np.zeros(keys)), keys - tokens
    for m in {0, min(1, tokens - 1), tokens // 2, tokens - 1}:
        vector = case.q(0, m, 0)
        for n in range(m + ahead, -1, -1):
            expected = (vector - case.q(0, m, 0)) @ case.k(0, n, 0) / np.sqrt(case.head_dim)
            assert found[m, n].item() == pytest.approx(expected, abs=PATH_SCORES)
            vector = product[n] @ vector


def test_long_rows_keep_their_precision():
    """Scores of float32 beside float64 at 512 tokens; no score is longer than its query and key."""
    shape = {"num_attention_heads": 2, "head_dim": 16, "is_decoder": True}
    torch.manual_seed(0)
    encoding = roformer_cpp.encoding("path", **shape)
    hidden, q, k = torch.randn(1, 512, 32), *torch.randn(2, 1, 512, 2, 16)

    def scores(dtype):
        encoding.to(dtype)
        given = {"hidden_states": hidden.to(dtype), "queries": q.to(dtype), "keys": k.to(dtype)}
        bias = encoding.terms(torch.arange(512), **given, dtype=dtype).pair_bias.detach().double()
        return (bias + torch.einsum("bthd,bshd->bhts", q.double(), k.double()) / 4).tril()

    short, exact = scores(torch.float32), scores(torch.float64)
    assert exact.std() > 0.2 and (short - exact).abs().max() < 1e-4
    lengths = q.double().norm(dim=-1).transpose(1, 2)[..., None] * k.double().norm(dim=-1).transpose(1, 2)[:, :, None]
    assert (exact.abs() <= lengths / 4 * (1 + 1e-9)).all()


@pytest.mark.parametrize("causal, hidden, heads, words", [
    (False, None, 2, r"path needs causal attention \(is_decoder\), got a bidirectional model"),
    (True, None, 2, "terms must be given hidden_states of all 7 keys, which this encoding reads, got none"),
    (True, torch.zeros(1, 7, 5), 2, r"\[path\] hidden_states must be \[batch, tokens, 8\], got \[1, 7, 5\]"),
    (True, torch.zeros(1, 7, 8), 3, r"\[path\] queries must have 2 heads, got 3"),
])  # fmt: skip
def test_what_path_refuses(causal, hidden, heads, words):
    x, shape = torch.zeros(1, 7, heads, 4), {"num_attention_heads": 2, "head_dim": 4, "is_decoder": causal}
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding("path", **shape).terms(torch.arange(7), hidden_states=hidden, queries=x, keys=x)
