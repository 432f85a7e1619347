"""Nested tensors with the layout torch.jagged."""

import pytest
import torch

import roformer_cpp
import tolerances as tol

LENGTHS = (5, 3, 7)
SHAPE = {"num_attention_heads": 2, "head_dim": 8, "hidden_size": 16}
MODEL = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def nested(*rows, **options):
    return torch.nested.nested_tensor(list(rows), layout=torch.jagged, **options)


def vectors(lengths=LENGTHS):
    return nested(*(torch.randn(n, 2, 8) for n in lengths), requires_grad=True)


@pytest.mark.parametrize("heads_first", (False, True))
@pytest.mark.parametrize("name", (None, "rope", "alibi"))
def test_attention_within_rows(name, heads_first):
    torch.manual_seed(1)
    q, k, v = vectors(), vectors(), vectors()

    def terms(positions):
        return None if name is None else roformer_cpp.encoding(name, **SHAPE).terms(positions)

    of_all = terms(torch.cat([torch.arange(n) for n in LENGTHS]))
    given = [x.transpose(1, 2) for x in (q, k, v)] if heads_first else (q, k, v)
    out = roformer_cpp.attention(*given, of_all, is_causal=True, heads_first=heads_first)
    out = out.transpose(1, 2) if heads_first else out
    (out.values() ** 2).sum().backward()
    ours = {"out": out, "q": q.grad, "k": k.grad, "v": v.grad}
    for row, length in enumerate(LENGTHS):
        each = [x[row].detach()[None].requires_grad_() for x in (q, k, v)]
        if name is None:
            turned = (x.transpose(1, 2) for x in each)
            alone = torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=True).transpose(1, 2)
        else:
            alone = roformer_cpp.attention(*each, terms(torch.arange(length)), is_causal=True)
        (alone**2).sum().backward()
        for found, wanted in zip(ours.values(), (alone, *(x.grad for x in each)), strict=True):
            assert torch.allclose(found[row], wanted[0], **tol.COMPILED_F32)


@pytest.mark.parametrize("head", ("RfEncoderForMaskedLM", "RfEncoderForSequenceClassification"))
def test_a_model(head):
    model = roformer_cpp.build_model(MODEL | {"num_labels": 3}, head)
    rows = [torch.arange(1, n + 1) for n in LENGTHS]
    by_token = head.endswith("MaskedLM")
    labels = nested(*rows) if by_token else torch.tensor([0, 2, 1])
    out = model(nested(*rows), labels=labels, output_hidden_states=True)
    alone = [model(row[None])["logits"][0] for row in rows]
    for row, logits in enumerate(alone):
        assert torch.allclose(out["logits"][row], logits, **tol.COMPILED_F32)
        assert out["hidden_states"][-1][row].shape == (LENGTHS[row], 16)
    joined = (torch.cat(alone), torch.cat(rows)) if by_token else (torch.stack(alone), labels)
    assert torch.allclose(out["loss"], torch.nn.functional.cross_entropy(*joined), **tol.COMPILED_F32)


def test_what_is_refused():
    q, ids = vectors(), nested(torch.arange(3), torch.arange(2))
    model = roformer_cpp.build_model(MODEL, "RfEncoderModel")
    lengths = [q, vectors((2, 3, 4)), vectors((3, 2, 4))]
    for call, rule in (
        (lambda: roformer_cpp.attention(q, q, torch.zeros(3, 7, 2, 8)), "v must be jagged .*, got torch.strided"),
        (lambda: roformer_cpp.attention(*lengths), "k and v must have rows of the same"),
        (lambda: roformer_cpp.attention(q, q, q, mask=torch.ones(3, 7, dtype=bool)), "mask must be left out"),
        (lambda: roformer_cpp.attention(q, q, q, return_weights=True), "return_weights must be left out"),
        (lambda: model(ids, torch.ones(2, 3).long()), "jagged input_ids must be .*, without attention_mask"),
    ):
        with pytest.raises(ValueError, match=rule):
            call()
