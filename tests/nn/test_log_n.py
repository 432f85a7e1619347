"""Scores scaled by log n (kexue.fm/archives/8823; the program of ReRoPE, which clips), alone and with encodings."""

import numpy as np
import pytest
import torch

import roformer_cpp
import rope_reference
from encoding_case import TINY_MODEL
from pair_loops import assert_t1, draw_qkv, pair_loops

SWEEP_KEYS = {"log-n": {"original_max_position_embeddings": 2}}

D, TRAINED = 6, 3
POSITIONS = torch.tensor([0, 1, 2, 9, 40])


def factors(rule, positions):
    """Of each query."""
    if rule == "length":
        return [np.log(positions[-1] - positions[0] + 1) / np.log(TRAINED)] * len(positions)
    return [max(1.0, np.log(p + 1) / np.log(TRAINED)) for p in positions]


def log_n(rule="position", **keys):
    return roformer_cpp.encoding("log-n", num_attention_heads=2, head_dim=D, rule=rule,
                                 original_max_position_embeddings=TRAINED, **keys)  # fmt: skip


rules = pytest.mark.parametrize("rule", ["position", "length"])


@rules
def test_pair_loops(rule):
    torch.manual_seed(0)
    q, k, v = draw_qkv(5, 2, D)
    scale = factors(rule, POSITIONS.tolist())
    expected = pair_loops(q, k, v, lambda h, i, j, q_i, k_j: scale[i] * (q_i @ k_j) / np.sqrt(D))
    terms = log_n(rule).terms(POSITIONS, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, positions=POSITIONS), expected)


@rules
@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_key_of_rope(layout, rule):
    """The rotated product is scaled, and values stay as they are."""
    torch.manual_seed(0)
    q, k, v = draw_qkv(5, 2, D)
    scale = factors(rule, POSITIONS.tolist())
    turned = lambda x: torch.from_numpy(rope_reference.rope(x.numpy(), POSITIONS.numpy(), layout=layout))  # noqa: E731
    expected = pair_loops(turned(q), turned(k), v, lambda h, i, j, q_i, k_j: scale[i] * (q_i @ k_j) / np.sqrt(D))
    encoding = roformer_cpp.encoding("rope", head_dim=D, layout=layout, log_n=rule, max_position_embeddings=TRAINED)
    terms = encoding.terms(POSITIONS, dtype=torch.float64)
    assert_t1(roformer_cpp.attention(q, k, v, terms, positions=POSITIONS), expected)


def test_sequences_have_lengths_of_their_own():
    positions, sequences = torch.tensor([0, 1, 2, 0, 1, 2, 3]), torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    packed = log_n("length").terms(positions, sequences=sequences).query.cos
    alone = [log_n("length").terms(torch.arange(n)).query.cos for n in (3, 4)]
    assert torch.equal(packed, torch.cat(alone, 1))
    assert log_n("length").changes_with_length and not log_n().changes_with_length


@pytest.mark.parametrize("name, keys, words", [
    ("log-n", {"rule": "square"}, r"log-n.rule must be one of position, length, got \"square\""),
    ("log-n", {"original_max_position_embeddings": 1}, "original_max_position_embeddings must be at least 2 .* got 1"),
    ("log-n", {"head_dim": 7}, "head_dim must be even for log-n, got 7"),
    ("rope", {"log_n": "position", "partial_rotary_factor": 0.5}, "log_n needs all of the 64 elements .* got 32"),
    ("rope", {"log_n": "position", "trainable": True}, "log_n must be none where frequencies are trained"),
    ("rope", {"log_n": "position", "max_position_embeddings": 1}, "max_position_embeddings must be at least 2"),
])  # fmt: skip
def test_refuses(name, keys, words):
    with pytest.raises(ValueError, match=words):
        roformer_cpp.encoding(name, **keys)


@pytest.mark.parametrize("encoding, named", [
    ("log-n", "log-n"),
    (["sinusoidal", {"type": "log-n", "rule": "length"}], "log-n"),
    ({"type": "rope", "log_n": "position"}, "rope with log_n"),
    ({"type": "rope", "log_n": "length"}, "rope with log_n"),
])  # fmt: skip
def test_linear_attention_has_no_scores(encoding, named):
    config = TINY_MODEL | {"position_encoding": encoding, "attention": "linear"}
    message = rf"\[linear_attention\] position_encoding must not scale scores by log n, .* got {named}$"
    with pytest.raises(ValueError, match=message):
        roformer_cpp.build_model(config)
    roformer_cpp.build_model(config | {"attention": "softmax"})
