"""Prefixes of attention (C-11): the mask of UniLM from its definition, in every kernel; and prefix language models, by
themselves and in the engine. Packed sequences with prefixes are in test_attention.py."""

import numpy as np
import pytest
import torch

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_MODEL, perturbed
from rf_engine import Engine
from rf_generation import Decoder
from roformer_cpp import attention

SIZES = TINY_MODEL | {"vocab_size": 41, "hidden_size": 24, "max_position_embeddings": 64}


def drawn(batch, tokens, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, tokens, 2, 8, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3)]


def unilm(types):
    """bert4keras: idx = cumsum(segment_ids); a query attends to a key iff idx_k <= idx_q. bool [B,1,T,S]."""
    index = types.cumsum(1)
    return index[:, None, None, :] <= index[:, None, :, None]


def formula(q, k, v, attend):
    scores = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~attend, float("-inf")).softmax(-1)
    return torch.einsum("bhts,bshd->bthd", weights, v)


def types_of(prefixes, tokens):
    return (torch.arange(tokens) >= torch.tensor(prefixes)[:, None]).long()


@pytest.mark.parametrize("kernel", ("fused", "explicit", "ref"))
@pytest.mark.parametrize("prefixes", ((5, 1, 12), (40, 0, 97), (150, 64, 149)), ids=str)
def test_the_mask_of_unilm(prefixes, kernel):
    tokens = max(13, *prefixes) + 1
    q, k, v = drawn(3, tokens, torch.float32 if kernel == "fused" else torch.float64)
    expected = formula(q.double(), k.double(), v.double(), unilm(types_of(prefixes, tokens)))
    out = attention(q, k, v, is_causal=True, prefix=torch.tensor(prefixes), kernel=kernel)
    atol = tol.FUSED_F32 if kernel == "fused" else tol.PATHS_F64
    torch.testing.assert_close(out.double(), expected, atol=atol, rtol=atol)
    causal = attention(q, k, v, is_causal=True, kernel=kernel)
    assert (causal - out).abs().max() > tol.VISIBLE


@pytest.mark.parametrize("kernel", ("fused", "explicit", "ref"))
def test_packed_sequences(kernel):
    lengths, prefixes = (70, 1, 0, 33), (31, 0, 4, 33)
    ends = torch.tensor([0, *np.cumsum(lengths)])
    q, k, v = drawn(1, sum(lengths), torch.float32 if kernel == "fused" else torch.float64)
    out = attention(
        q, k, v, is_causal=True, cu_seqlens=ends, prefix=torch.tensor(prefixes, dtype=torch.int32), kernel=kernel
    )
    for begin, length, prefix in zip(ends.tolist(), lengths, prefixes, strict=False):
        own = slice(begin, begin + length)
        alone = formula(*(x[:, own].double() for x in (q, k, v)), unilm(types_of((prefix,), length)))
        atol = tol.FUSED_F32 if kernel == "fused" else tol.PATHS_F64
        torch.testing.assert_close(out[:, own].double(), alone, atol=atol, rtol=atol)


def test_tiles_that_nobody_sees_are_not_read():
    """Keys far behind a query and its prefix may be anything."""
    q, k, v = drawn(1, 400, torch.float32)
    prefix = torch.tensor([60])
    expected = attention(q, k, v, is_causal=True, prefix=prefix, kernel="fused")[:, :48]
    for x in (k, v):
        x[:, 200:] = float("nan")
    assert torch.equal(attention(q, k, v, is_causal=True, prefix=prefix, kernel="fused")[:, :48], expected)


@pytest.mark.parametrize(("prefix", "options", "words"), [
    ([1, 2], {"is_causal": False}, r"prefix needs is_causal.*got \(-1, -1\)"),
    ([1, 2], {"window": (3, -1)}, r"prefix needs is_causal.*got \(3, 0\)"),
    ([1, -2], {}, "prefix must be >= 0, got -2 at 1"),
    ([1], {}, r"int64 \[2\], one for each entry of the batch, got.*\[1\]"),
    ([1.0, 2.0], {}, "prefix must be int32 or int64"),
])  # fmt: skip
@pytest.mark.parametrize("kernel", ("auto", "explicit", "ref"))
def test_what_is_refused(prefix, options, words, kernel):
    q, k, v = (x.float() for x in drawn(2, 5))
    with pytest.raises(ValueError, match=words):
        attention(q, k, v, **{"is_causal": True, "kernel": kernel, "prefix": torch.tensor(prefix)} | options)


# ---- prefix language models


def make_model(head="RfEncoderForCausalLM", **changes):
    config = SIZES | {"is_decoder": True, "prefix_lm": True} | changes
    return perturbed(roformer_cpp.build_model(config, head, seed=4), seed=5).eval()


def pair(prefix=6, tokens=11, seed=2):
    ids = torch.randint(1, 41, (1, tokens), generator=torch.Generator().manual_seed(seed))
    return ids, types_of((prefix,), tokens)


def test_who_sees_whom():
    """The prefix sees itself and nothing after it; later tokens see what is before them."""
    model, (ids, types) = make_model(), pair()
    with torch.no_grad():
        hidden = model(ids, token_type_ids=types)["hidden"]
        for changed in range(ids.shape[1]):
            other = ids.clone()
            other[0, changed] = other[0, changed] % 40 + 1
            moved = (model(other, token_type_ids=types)["hidden"] - hidden).abs().amax(-1)[0] > 0
            expected = torch.arange(11) >= (0 if changed < 6 else changed)
            assert torch.equal(moved, expected), changed


def test_a_text_alone_is_read_both_ways():
    """Without types all is prefix: the same body as a bidirectional model's."""
    model = make_model("RfEncoderModel")
    plain = roformer_cpp.build_model(SIZES, "RoFormerModel", seed=4).eval()
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, x in plain.named_parameters():
            x.copy_(own[name])
        ids = pair()[0]
        torch.testing.assert_close(model(ids)["hidden"], plain(ids)["hidden"])
        first = model(ids)["hidden"][:, 0]
        pooled = first @ own["pooler.dense.weight"].T + own["pooler.dense.bias"]
        torch.testing.assert_close(model(ids)["pooled"], pooled)


def test_padding_and_a_cache():
    model, (ids, types) = make_model(), pair()
    with torch.no_grad():
        expected = model(ids, token_type_ids=types)["logits"]
        padded = torch.cat([ids, torch.zeros(1, 3, dtype=torch.int64)], 1)
        mask = (torch.arange(14) < 11).long()[None]
        more = torch.cat([types, torch.zeros(1, 3, dtype=torch.int64)], 1)
        torch.testing.assert_close(model(padded, mask, token_type_ids=more)["logits"][:, :11], expected)
        with pytest.raises(ValueError, match=r"one sequence each.*got segments"):
            model(ids, segments=torch.zeros(1, 11, dtype=torch.int32))


@pytest.mark.parametrize("changes", ({}, {"position_encoding": "t5"}, {"family": "roformer_v2"}), ids=str)
def test_the_engine(changes, tmp_path):
    model, (ids, types) = make_model(**changes), pair()
    model.save(tmp_path)
    again = roformer_cpp.load_model(tmp_path)
    assert again.config["prefix_lm"] is True and again.config["model_type"] == "rf_encoder"
    with torch.no_grad():
        out = model(ids, token_type_ids=types)
        assert torch.equal(again(ids, token_type_ids=types)["logits"], out["logits"])
    row, kinds = ids[0].int().numpy(), types[0].int().numpy()
    engine = Engine(tmp_path)
    logits = engine.logits([row, row[:3]], types=[kinds, kinds[:3]])[:11]
    assert np.abs(logits - out["logits"][0].numpy()).max() <= tol.T4_MAX * np.abs(logits).max()
    decoder = Decoder(engine, 2, 20)  # the prefix, then token by token
    steps = [decoder.append([0], [row[:6]])[0]] + [decoder.append([0], [row[t : t + 1]])[0] for t in range(6, 11)]
    assert np.array_equal(np.stack(steps), logits[5:])
    pooled = Engine(tmp_path, head="none").pooled([row], "pooler", types=[kinds])[0]
    assert np.abs(pooled - out["pooled"][0].numpy()).max() <= tol.T4_MAX * np.abs(pooled).max()


@pytest.mark.parametrize(("changes", "words"), [
    ({"is_decoder": False}, "prefix_lm needs is_decoder"),
    ({"attention": "linear"}, "prefix_lm needs softmax attention"),
    ({"type_vocab_size": 1}, "prefix_lm needs two token types"),
    ({"pooler_activation": "tanh"}, 'pooler_activation must be "linear"'),
    ({"model_type": "roformer"}, "model_type roformer.*prefix_lm"),
])  # fmt: skip
def test_configurations(changes, words):
    with pytest.raises(ValueError, match=words):
        make_model(**changes)


# ---- training on pairs


def in_batch(vectors, scale=20.0):
    """The loss of stage 1 of RoFormer-Sim by NumPy loops."""
    unit, total = vectors / np.sqrt((vectors**2).sum(1, keepdims=True)), 0.0
    for i in range(len(unit)):
        scores = [scale * (unit[i] @ unit[j]) if j != i else -np.inf for j in range(len(unit))]
        total += np.logaddexp.reduce(scores) - scores[i + 1 - 2 * (i % 2)]  # the partner
    return total / len(unit)


@pytest.mark.parametrize("rows", (2, 4, 10))
def test_similarity_loss(rows):
    vectors = torch.randn(rows, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))
    loss = torch.ops.roformer.similarity_loss(vectors)
    np.testing.assert_allclose(loss.item(), in_batch(vectors.numpy()), atol=tol.T1_ATOL, rtol=tol.T1_RTOL)
    assert (loss.item() > 0.5) == (rows > 2)
    assert torch.autograd.gradcheck(torch.ops.roformer.similarity_loss, vectors.requires_grad_())


def test_vectors_that_are_refused():
    for vectors in (torch.zeros(3, 4), torch.zeros(0, 4), torch.zeros(4), torch.zeros(2, 4).long()):
        with pytest.raises(ValueError, match=r"\[similarity_loss\] vectors must be floating-point \[2 pairs, C\]"):
            torch.ops.roformer.similarity_loss(vectors)
