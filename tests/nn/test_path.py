"""PaTH (Yang et al. 2025, section 3; R-REL-18) against products of reflections in float64."""

import numpy as np
import pytest
import torch

import roformer_cpp
from encoding_case import TINY_MODEL, Case, parameter
from initial_values import normal, zero

SWEEP_KEYS = {"path": {"w_rank": 3}}
STARTS = {
    "path": {
        **dict.fromkeys(("w_proj_0_weight", "w_proj_1_weight", "w_conv1d_weight", "bt_proj_weight"), normal),
        "bt_proj_bias": zero,
    }
}

LAYER, RANK, TAPS = 1, 3, 3


def encoding_of(case, layers=2):
    return case.encoding("path", num_hidden_layers=layers, w_rank=RANK, is_decoder=True)


def reflections(case, encoding, b, h, of_sequence):
    """H_t of each token."""
    names = ("w_proj_0_weight", "w_proj_1_weight", "w_conv1d_weight", "bt_proj_weight", "bt_proj_bias")
    inner, outer, taps, u, bias = (parameter(encoding, f"layer.{LAYER}.{name}") for name in names)
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
def test_scores_are_those_of_the_paper(keys):
    """Also of queries that come after other keys."""
    case = Case(keys=keys, heads=3)
    encoding = encoding_of(case)
    at = torch.arange(case.y.shape[1])
    case.check(encoding, reflected(case, encoding), at[-case.x.shape[1] :], at, layer=LAYER, causal=True)


@pytest.mark.parametrize(
    "of_sequence", [[0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 0, 1, 0, 1], [5, 5, 2, 2, 2, 9, 9], [0, 0, 1, 0, -1, 1, 1]]
)
@pytest.mark.parametrize("queries", [7, 3])
def test_packed_sequences_do_not_see_each_other(of_sequence, queries):
    """Neither in products nor in the convolution, also where a sequence comes back."""
    case = Case(batch=1)
    encoding = encoding_of(case)
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
        torch.testing.assert_close(found, model(ids)["logits"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("tokens", "keys"), [(1, 1), (2, 2), (3, 3), (300, 300), (5, 300), (128, 256), (129, 129)])
def test_blocks(tokens, keys):
    """The scores of some queries and keys of many."""
    case = Case(batch=1, tokens=tokens, keys=keys, heads=1)
    encoding = encoding_of(case)
    q, k, _ = case.qkv()
    given = {"queries": q, "keys": k, "hidden_states": torch.from_numpy(case.y)}
    at = torch.arange(keys)
    found = encoding.terms(at[keys - tokens :], at, layer=LAYER, **given, dtype=torch.float64).pair_bias[0, 0]
    product, ahead = reflections(case, encoding, 0, 0, np.zeros(keys)), keys - tokens
    for m in {0, min(1, tokens - 1), tokens // 2, tokens - 1}:
        vector = case.q(0, m, 0)
        for n in range(m + ahead, -1, -1):
            expected = (vector - case.q(0, m, 0)) @ case.k(0, n, 0) / np.sqrt(case.head_dim)
            assert found[m, n].item() == pytest.approx(expected, abs=1e-10)
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
def test_refuses(causal, hidden, heads, words):
    x = torch.zeros(1, 7, heads, 4)
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding("path", num_attention_heads=2, head_dim=4, is_decoder=causal).terms(
            torch.arange(7), hidden_states=hidden, queries=x, keys=x
        )
