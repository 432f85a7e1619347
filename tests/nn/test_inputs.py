"""Inputs of models: masks and packed rows, and what is refused with the value and its place. Comparisons with
transformers are in tests/oracles/test_encoder_parity.py."""

import pytest
import torch

import roformer_cpp
from encoding_case import TINY_MODEL, assert_same, perturbed
from nn.test_model import ids_of

SIZES = TINY_MODEL | {"hidden_size": 24, "embedding_size": 16, "max_position_embeddings": 16, "type_vocab_size": 3}


def build(head="RoFormerForMaskedLM", **changes):
    return perturbed(roformer_cpp.build_model(SIZES | changes, head))


@pytest.mark.parametrize("dropout", [0.0, 1e-6])  # the fused and the explicit path; 1e-6 rounds to nothing dropped
def test_a_fully_masked_sequence_attends_to_nothing(dropout):
    """R-CONV-11: a query without a key has output 0, so nothing of the values reaches it, and gradient 0."""
    model = build(attention_probs_dropout_prob=dropout, hidden_dropout_prob=0.0).train()
    ids, mask = ids_of(3, 7), torch.ones(3, 7, dtype=torch.long)
    mask[1] = 0
    alone, hidden = model.encode(ids), model.encode(ids, mask)
    for row in (0, 2):
        assert_same(hidden[row], alone[row])
    hidden[1].square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
        assert ".self." not in name or not parameter.grad.any(), name
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_("self.value" not in name)
    assert torch.equal(hidden[1], model.encode(ids, mask)[1])


@pytest.mark.parametrize("is_decoder", [False, True])
def test_rows_may_be_packed_differently(is_decoder):
    """By the fused kernel, which takes rows of a batch as one; the third row's segments come back, which is for a mask.
    Padding attends to nothing, not even to padding."""
    model, ids = build(is_decoder=is_decoder, rotary_value=is_decoder), ids_of(3, 8)
    segments = [[0, 0, 0, 1, 1, 1, 1, 1], [2, 2, 5, 5, 5, 5, -1, -1], [0, 1, 1, 0, 0, 1, 0, 1]]
    positions = [[0, 1, 2, 0, 1, 2, 3, 4], [0, 1, 0, 1, 2, 3, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3]]
    segments, positions = torch.tensor(segments, dtype=torch.int32), torch.tensor(positions)
    packed, masked = (model.encode(ids[:n], segments=segments[:n], positions=positions[:n]) for n in (2, 3))
    assert_same(masked[:2], packed)
    for row in range(3):
        for segment in {0, 1, 2, 5} & set(segments[row].tolist()):
            own = segments[row] == segment
            assert_same(masked[row, own], model.encode(ids[row, own][None])[0])


@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification", "MultipleChoice", "QuestionAnswering"])
def test_an_empty_batch_gives_empty_outputs(head):
    out = build(f"RoFormerFor{head}")(torch.zeros(0, 5, dtype=torch.long))
    assert out["hidden"].shape == (0, 5, 24)
    assert out["start_logits" if head == "QuestionAnswering" else "logits"].numel() == 0


def changed(**places):
    ids = ids_of(2, 5)
    for value, (row, column) in zip(places.values(), ((1, 3), (0, 2)), strict=False):
        ids[row, column] = value
    return ids


ONES, INTS = torch.ones(2, 5, dtype=torch.long), torch.zeros(2, 5, dtype=torch.int32)


@pytest.mark.parametrize(("ids", "inputs", "words"), [
    (changed(high=37), {}, "[input] token ids must be in 0..36, got 37 at row 1, column 3"),
    (changed(high=37, low=-1), {}, "got -1 at row 0, column 2"),
    (ids_of(2, 0), {}, "at least one token, got shape [2, 0]"),
    (ids_of(2, 5)[0], {}, "must be [batch, tokens], got 1 dimensions"),
    (ids_of(2, 5).int(), {}, "token ids must be Long, got Int"),
    (ids_of(2, 5), {"token_type_ids": 3 * ONES}, "token types must be in 0..2, got 3 at row 0, column 0"),
    (ids_of(2, 5), {"attention_mask": ONES[:, :4]}, "must have the shape [2, 5] of the token ids, got [2, 4]"),
    (ids_of(2, 5), {"attention_mask": ONES, "segments": INTS}, "segments and a mask must not be given together"),
    (ids_of(2, 5), {"segments": INTS - 2}, "segments must be in -1..2147483647, got -2"),
    (ids_of(2, 5), {"positions": torch.tensor([0, 1, 2, 3, -4])}, "got -4 at row 0, column 4"),
    (ids_of(2, 5), {"positions": torch.arange(5.0)}, "positions must be Long, got Float"),
    (ids_of(2, 5), {"num_choices": 2}, "num_choices must be 1"),
])  # fmt: skip
def test_errors_name_the_value_and_its_place(ids, inputs, words):
    with pytest.raises(ValueError) as refused:
        build()(ids, **inputs)
    assert words in str(refused.value)


def test_errors_of_heads():
    choice = build("RoFormerForMultipleChoice")
    with pytest.raises(ValueError, match="a multiple of the 2 choices, got 3"):
        choice(ids_of(3, 5), num_choices=2)
    with pytest.raises(ValueError, match="need a language model, got RoFormerForMultipleChoice"):
        choice.masked_lm_logits(torch.zeros(1, 24))
    for shape in ([2, 23], []):
        with pytest.raises(ValueError, match=rf"hidden states must be \[.., 24\], got \[{str(shape)[1:-1]}\]"):
            build().masked_lm_logits(torch.zeros(shape))
