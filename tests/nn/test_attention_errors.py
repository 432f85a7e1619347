"""What attention refuses, each with the rule and the value: one rule and one message for every kernel. Rules of shapes,
dtypes and devices are those of ops/src/attention_call.cpp, rules of extents and values those of core.
"""

import re

import pytest
import torch

import roformer_cpp
from attention_terms import D, all_terms, data
from roformer_cpp import DistanceTable, Rotation, Terms, attention

SHAPE = (2, 3, 4, 4, 2)


def refuses(error, message, *arguments, **options):
    with pytest.raises(error, match=re.escape(message)):
        attention(*arguments, **options)


def all_refuse(message, tensors, *arguments, **options):
    for kernel in ("explicit", "ref"):
        refuses(ValueError, message, *tensors, *arguments, kernel=kernel, **options)
    single = [x.float() if x.is_floating_point() else x for x in tensors]
    refuses(ValueError, message.replace("Double", "Float"), *single, *arguments, kernel="auto", **options)


def zeros(*shape):
    return torch.zeros(shape)


def rotation(*shape):
    return Rotation(zeros(*shape), zeros(*shape))


def table(lo, hi, *shape):
    return DistanceTable(zeros(*shape), lo, hi)


@pytest.mark.parametrize(("change", "message"), [
    ((None, lambda k: k[:1], None), "k must be [batch, keys, key_heads, head_dim] to match q, [2, 3, 4, 6], got [1,"),
    ((None, None, lambda v: v[:, :3]), "value_dim] to match k, [2, 4, 2, 6], got [2, 3, 2, 6]"),
    ((lambda q: q[:, :, :3], None, None), "[attention] heads must be a multiple of key_heads = 2, got 3"),
    ((lambda q: q[..., :0], lambda k: k[..., :0], None), "[attention] head_dim must be >= 1, got 0"),
    ((lambda q: q.long(),) * 3, "[attention] q must be floating-point, got Long"),
])  # fmt: skip
def test_data(change, message):
    all_refuse(message, [x if f is None else f(x) for f, x in zip(change, data(*SHAPE), strict=True)])


def test_dtypes_dimensions_and_names():
    q, k, v = data(*SHAPE)
    rule = "[attention] k must be [batch, tokens, heads, size] of"
    refuses(ValueError, f"{rule} Double, got Float [2, 4, 2, 6]", q, k.float(), v)
    refuses(ValueError, f"{rule} Float, got Double [2, 4, 2, 6]", q.float(), k, v.float())
    refuses(ValueError, "[attention] q must be [batch, tokens, heads, head_dim], got [3, 4, 6]", q[0], k, v)
    refuses(ValueError, "kernel must be auto, fused, explicit or ref, got", q, k, v, kernel="fast")
    terms = Terms(value_table=table(-1, 1, 1, 3, D))
    refuses(ValueError, "value_table.width must be 5, got 6", q, k, v[..., :5], terms)
    rule = "[terms] layout must be pairs or halves, got 'interleaved'"
    refuses(ValueError, rule, q, k, v, Terms(layout="interleaved"))
    refuses(TypeError, "[terms] pair_bias must be a tensor, got list", q, k, v, Terms(pair_bias=[[0.0]]))


SCORES = "must be [1 or batch, 1 or heads,"


@pytest.mark.parametrize(("terms", "message"), [
    ({"content_bias": zeros(4, 5)}, "content_bias must be [4, 6], got [4, 5]"),
    ({"key_table": table(-2, 3, 4, 5, 6)},
     "key_table must have 3 dimensions and a row for each of the distances -2..3, got [4, 5, 6]"),
    ({"query_table": table(-2, 2, 2, 5, 6)}, "query_table.heads must be 1 or heads = 4, got 2"),
    ({"bias": table(-2, 2, 4, 5, 1)}, "bias must have 2 dimensions and a row for each of the distances"),
    ({"gate": table(-2, 2, 1, 5, 2)}, "gate.width must be 6, got 2"),
    ({"bias": table(1, 0, 1, 1)}, "the range of bias must be lo <= hi, got 1..0"),
    ({"gate": table(-(2**63), 2**63 - 1, 1, 1, 6)}, "the range of gate must be lo <= hi, got -9223372036854775808.."),
    ({"query": rotation(1, 3, 4)}, "query.pairs must be in 1..3, got 4"),
    ({"key": rotation(1, 3, 2)},
     "key_cos and key_sin must be [1 or batch, 4, R/2] or [1 or batch, 4, 1 or 2, R/2], got [1, 3, 2]"),
    ({"value": Rotation(zeros(2, 4, 2), zeros(2, 4, 1))}, "value_cos and value_sin must be"),
    ({"query": rotation(1, 3, 2, 2)}, "[1 or batch, 3, 1 or 4, R/2], got [1, 3, 2, 2]"),
    ({"key": rotation(3, 4, 2, 2)}, "key.batch must be 1 or batch = 2, got 3"),
    ({"position_query": zeros(4, 9, 6)}, "position_query and position_key must be given together, got position_query"),
    ({"position_query": zeros(4, 9, 6), "position_key": zeros(4, 8, 6)}, "must be [4, 9, 6], got [4, 8, 6]"),
    ({"position_query": zeros(4, 3, 6), "position_key": zeros(4, 3, 6)},
     "query_positions must be in 0..2, the rows of position_query and position_key, got 3"),
    ({"bias": table(0, 2, 1, 3)._replace(rows=zeros(1, 3).cfloat())}, "bias must be floating-point, got ComplexFloat"),
    ({"reset_row": torch.zeros(4, dtype=torch.int64)}, "reset_row must be floating-point, got Long"),
    ({"value": Rotation(zeros(1, 4, 2), zeros(1, 4, 2).bool())}, "value_sin must be floating-point, got Bool"),
    ({"pair_bias": zeros(1, 1, 3, 4).bool()}, "pair_bias must be floating-point, got Bool"),
    ({"scale": float("nan")}, "scale must be finite, got nan"),
    ({"reset_row": zeros(2)}, "reset_row must be [4], got [2]"),
    ({"key_score": zeros(2, 4, 3)}, f"key_score {SCORES} 4], got [2, 4, 3]"),
    ({"key_score": zeros(3, 4, 4)}, "key_score.batch must be 1 or batch = 2, got 3"),
    ({"pair_bias": zeros(2, 4, 1, 4)}, f"pair_bias {SCORES} 3, 4], got [2, 4, 1, 4]"),
    ({"pair_bias": zeros(2, 2, 3, 4)}, "pair_bias.heads must be 1 or heads = 4, got 2"),
])  # fmt: skip
def test_terms(terms, message):
    all_refuse(message, data(*SHAPE), Terms(**terms))


def test_positions():
    q, k, v = data(*SHAPE)
    rows = {"key_positions": torch.arange(4)}
    refuses(ValueError, "query positions must be integers", q, k, v, positions=torch.arange(3.0), **rows)
    refuses(ValueError, "query_positions must be [1 or 2, 3], got [1, 2]", q, k, v, positions=torch.arange(2), **rows)
    refuses(ValueError, "[1 or 2, 3], got [3, 3]", q, k, v, positions=torch.arange(3).expand(3, 3), **rows)
    refuses(ValueError, "positions must come with key_positions, got key_positions alone", q, k, v, **rows)
    rule = "key_positions must be given when there are not as many keys"
    refuses(ValueError, rule, q, k, v, positions=torch.arange(3))
    terms = all_terms(*SHAPE[:4])
    far = {"positions": torch.arange(3), "key_positions": torch.arange(4) - 2**53 - 2}
    bias = Terms(bias=DistanceTable(zeros(1, 3), 0, 2))
    refuses(ValueError, "key_positions must be within 2^53, got -9007199254740994", q, k, v, bias, **far)
    negative = {"positions": torch.arange(-1, 2), "key_positions": torch.arange(4)}
    refuses(ValueError, "positions must be in 0..239, the rows of position_query", q, k, v, terms, **negative)


def test_masks_and_windows():
    tensors = data(*SHAPE)
    refuses(ValueError, "mask must be bool, [B, S] or four dimensions", *tensors, mask=torch.ones(2, 4))
    refuses(ValueError, "got torch.bool [2, 3, 4]", *tensors, mask=torch.ones(2, 3, 4, dtype=torch.bool))
    rule = "mask must be bool and broadcast to [batch, heads, queries, keys] = [2, 4, 3, 4], got Bool [3, 1, 1, 4]"
    refuses(ValueError, rule, *tensors, mask=torch.ones(3, 4, dtype=torch.bool))
    for window in (-1, 1.5, (1, -2), (1, 2, 3)):
        rule = "window must be a number >= 0 or (left, right) with -1 for no limit"
        refuses(ValueError, f"{rule}, got {window}", *tensors, window=window)


def test_packed_sequences():
    q, k, v = data(1, 4, 4, 2, 2)
    for ends, message in (
        ([1, 4], "cu_seqlens_q must begin with 0, got 1"),
        ([0, 3], "cu_seqlens_q must end with queries = 4, got 3"),
        ([0, 3, 2, 4], "cu_seqlens_q must not decrease, got 2 after 3"),
    ):
        all_refuse(message, (q, k, v), cu_seqlens=torch.tensor(ends))
    ends = torch.tensor([0, 4])
    refuses(ValueError, "cu_seqlens must be int32 or int64", q, k, v, cu_seqlens=ends.float())
    refuses(ValueError, "cu_seqlens must be int32 or int64", q, k, v, cu_seqlens=ends[:, None])
    refuses(ValueError, "cu_seqlens_k must come with cu_seqlens", q, k, v, cu_seqlens_k=ends)
    rule = "cu_seqlens_k must have the shape of cu_seqlens_q, [2], got [3]"
    refuses(ValueError, rule, q, k, v, cu_seqlens=ends, cu_seqlens_k=torch.tensor([0, 1, 4]))
    mask = torch.ones(1, 4, dtype=torch.bool)
    refuses(ValueError, "packed sequences must not have a mask", q, k, v, cu_seqlens=ends, mask=mask)
    two = [x.expand(2, -1, -1, -1) for x in (q, k, v)]
    refuses(ValueError, "batch must be 1 with packed sequences, got 2", *two, cu_seqlens=ends)


def test_what_the_fused_kernel_needs():
    tensors, needs = data(*SHAPE), "[attention] kernel fused needs"
    refuses(ValueError, f"{needs} float32, bfloat16 or float16, got Double", *tensors, kernel="fused")
    single, target = (x.float() for x in tensors), roformer_cpp.target()
    roformer_cpp.set_target("ref")
    try:
        refuses(ValueError, f"{needs} RF_KERNEL not to be ref, got RF_KERNEL=ref", *single, kernel="fused")
    finally:
        roformer_cpp.set_target("" if target != "ref" else "ref")
