"""What linear attention refuses, by name and value (spec R-LIN-03, R-LIN-10, R-REL-10)."""

import pytest
import torch

import roformer_cpp
from roformer_cpp import DistanceTable, LinearAttention, LinearAttentionState, Rotation, Terms, linear_attention
from term_list import TERMS, scores_shape, shape

Q = torch.randn(2, 3, 2, 4, generator=torch.Generator().manual_seed(0))
ROWS = torch.ones(1, 3, 2)


def given(term):
    sizes = scores_shape(term.name, 1, 2, 3, 3) if term.kind == "SCORES" else shape(term.name, 2, 3, 4, 3)
    numbers = torch.zeros(sizes)
    return DistanceTable(numbers, -1, 1) if term.kind == "TABLE" else numbers


@pytest.mark.parametrize("term", [term for term in TERMS if term.kind != "ROTATION"], ids=lambda term: term.symbol)
def test_pairwise_terms(term):
    with pytest.raises(ValueError, match=rf"\[linear_attention\] .*has no pairwise terms, got {term.symbol}$"):
        linear_attention(Q, Q, Q, terms=Terms(**{term.name: given(term)}))


def rotation(cos, sin=None):
    return Rotation(cos, cos if sin is None else sin)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"terms": Terms(value=rotation(ROWS))}, "values must not be rotated"),
    ({"terms": Terms(key=rotation(ROWS)), "rope_site": "none"}, "rope_site must be .*, got none"),
    ({"terms": Terms(key=rotation(ROWS[:, :2]))}, r"of keys must be .* or \[1 or 2, 3, pairs\], got \[1, 2, 2\]"),
    ({"terms": Terms(query=rotation(torch.ones(1, 3, 3, 2)))},
     r"of queries must be \[1 or 2, 3, 1 or 2, pairs\] or .*, got \[1, 3, 3, 2\]"),
    ({"terms": Terms(query=rotation(ROWS, ROWS[..., :1]))}, r"of queries must be .*, got \[1, 3, 2\] and \[1, 3, 1\]"),
    ({"terms": Terms(query=rotation(torch.ones(1, 3, 3)))}, "at most the 4 elements .*, got 6"),
    ({"feature_map": "shen_original", "is_causal": True}, "feature_map must not be shen_original in causal"),
    ({"feature_map": "softmax"}, 'linear.feature_map must be one of elu, .*, got "softmax"'),
    ({"rope_site": "after"}, 'linear.rope_site must be one of after_map, before_map, none, got "after"'),
    ({"feature_map": "cosine", "rotate_denominator": True}, "rotate_denominator must be false .* before_map"),
    ({"rope_site": "none", "rotate_denominator": True}, "linear.rotate_denominator must be false .* none"),
    ({"eps": -1.0}, "linear.eps must be a number >= 0 and <= 1, got -1"),
    ({"eps": float("nan")}, r"\[linear_attention\] options must be finite numbers, .*'eps': nan"),
    ({"feature_eps": 0.5}, "linear.feature_eps must only be given with feature_map favor or relu, got 0.5"),
    ({"feature_map": "favor", "feature_eps": 2.0}, "linear.feature_eps must be a number .*, got 2"),
    ({"projection": torch.zeros(8, 4)}, "projection must be given with feature_map favor and relu, .* got one"),
    ({"feature_map": "relu", "projection": torch.zeros(8, 5)}, r"projection must be \[features, 4\], got \[8, 5\]"),
    ({"key_mask": torch.ones(2, 4, dtype=torch.bool)}, r"key_mask must be \[1 or 2, 3\], got \[2, 4\]"),
    ({"key_mask": torch.ones(2, 3)}, "key_mask must be bool, got Float"),
    ({"state": LinearAttentionState()}, "a state needs causal attention .*, got bidirectional"),
])  # fmt: skip
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        linear_attention(Q, Q, Q, **arguments)


@pytest.mark.parametrize(("tensors", "message"), [
    ((Q[0], Q, Q), "q must be .*, got 3 dimensions"),
    ((Q.int(), Q, Q), "q must be float32, float64, bfloat16 or float16, got Int"),
    ((Q, Q.double(), Q), "k must have the dtype of q, Float, got Double"),
    ((Q, Q[:1], Q), r"agree .*, got \[2, 3, 2, 4\], \[1, 3, 2, 4\] and"),
    ((Q, Q, Q[:, :2]), r"agree .* \[2, 2, 2, 4\]"),
    ((Q[:, :, :1], Q, Q), r"agree .*, got \[2, 3, 1, 4\]"),
    ((Q, Q, Q[..., :0]), "v must have a head_dim of at least 1, got 0"),
])  # fmt: skip
def test_bad_shapes(tensors, message):
    with pytest.raises(ValueError, match=rf"\[linear_attention\] .*{message}"):
        linear_attention(*tensors)


def test_states_of_other_calls():
    state, one = LinearAttentionState(), Q[:1]
    with pytest.raises(ValueError, match=r"as many queries as keys .*, got 2 queries and 3 keys"):
        linear_attention(Q[:, 1:], Q, Q, is_causal=True, state=state)
    with pytest.raises(ValueError, match="no packing, got 3 queries and 3 keys, packed"):
        linear_attention(one, one, one, is_causal=True, state=state, cu_seqlens=torch.tensor([0, 3]))
    linear_attention(Q, Q, Q, "shen", is_causal=True, state=state, kernel="explicit")
    for tensors, name, message in (
        ((Q[:1],) * 3, "shen", r"sum of the state must be Float \[1, 2, 4, 4\], got Float \[2, 2, 4, 4\]"),
        ((Q.double(),) * 3, "shen", r"sum of the state must be Double \[2, 2, 4, 4\], got Float"),
        ((Q, Q, Q[..., :3]), "shen", r"sum of the state must be Float \[2, 2, 4, 3\], got Float \[2, 2, 4, 4\]"),
        ((Q, Q, Q), "elu", "a state must come from calls with the same feature_map, got one with maximum"),
    ):
        with pytest.raises(ValueError, match=message):
            linear_attention(*tensors, name, is_causal=True, state=state)
    del state.tensors["maximum"]
    with pytest.raises(ValueError, match="the same feature_map, got one without maximum"):
        linear_attention(Q, Q, Q, "shen", is_causal=True, state=state)


def test_bad_cu_seqlens():
    for ends in ([0, 2], [1, 3], [0, 2, 1, 3], [3]):
        with pytest.raises(ValueError, match=r"cu_seqlens must rise from 0 to the 3 keys, got \["):
            linear_attention(Q, Q, Q, cu_seqlens=torch.tensor(ends))
    for ends in (torch.tensor([[0, 3]]), torch.tensor(3), torch.tensor([0.0, 3.0]), torch.zeros(0, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"cu_seqlens must be int32 or int64 \[sequences \+ 1\], got torch"):
            linear_attention(Q[:1], Q[:1], Q[:1], cu_seqlens=ends)
    with pytest.raises(ValueError, match="packed sequences must have batch size 1, got 2"):
        linear_attention(Q, Q, Q, cu_seqlens=torch.tensor([0, 3]))
    none = Q[:1, :0]
    assert linear_attention(none, none, none, cu_seqlens=torch.tensor([0])).shape == none.shape


@pytest.mark.parametrize(("options", "message"), [
    ({"num_features": 8}, "linear.num_features must only be given with feature_map favor or relu, got 8"),
    ({"feature_map": "shen", "redraw_every": 5}, "linear.redraw_every must only .*, got 5"),
    ({"feature_map": "cosine", "orthogonal": False}, "linear.orthogonal must only .*, got false"),
    ({"feature_map": "elu", "seed": 3}, "linear.seed must only .*, got 3"),
    ({"feature_map": "favor", "num_features": 7}, r"linear.num_features must be even .*, got 7"),
    ({"feature_map": "favor", "num_features": 0}, "linear.num_features must be an integer from 1 .*, got 0"),
    ({"feature_map": "favor", "num_features": 2.5}, "linear.num_features must be an integer .*, got 2.5"),
    ({"feature_map": "favor", "orthogonal": 1}, "linear.orthogonal must be true or false, got 1"),
    ({"feature_map": "favor", "orthogonal_scaling": 2}, "linear.orthogonal_scaling must be .* from 0 to 1, got 2"),
    ({"feature_map": "favor", "orthogonal": False, "orthogonal_scaling": 1}, "linear.orthogonal_scaling must be 0"),
    ({"feature_map": "favor", "redraw_every": -1}, "linear.redraw_every must be an integer from 0 .*, got -1"),
    ({"feature_map": "favor", "seed": -1}, "linear.seed must be an integer from 0 .*, got -1"),
    ({"rotate_denominator": "yes"}, 'linear.rotate_denominator must be true or false, got "yes"'),
    ({"feature_map": "favor", "nb_features": 266}, 'every key must be known, got "linear.nb_features"'),
])  # fmt: skip
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=rf"\[attention\] {message}"):
        LinearAttention(4, **options)


def test_bad_draws_and_odd_features_where_nothing_turns_them():
    for sizes in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="must be positive, got {} and {}".format(*sizes)):
            roformer_cpp.orthogonal_features(*sizes, seed=0)
    for redundant in ("before_map", "none"):
        assert LinearAttention(4, feature_map="favor", num_features=7, rope_site=redundant)(Q, Q, Q).shape == Q.shape
