"""Dropout of models: where its draws come from (nn/include/rf/nn/model.h). Rates and scales are tested in C++."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roformer_cpp
from encoding_case import TINY_IDS as IDS
from encoding_case import TINY_MODEL

SIZES = TINY_MODEL | {"hidden_size": 24, "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
HEADS = ("RoFormerForMaskedLM", "RoFormerForSequenceClassification")

every_head = pytest.mark.parametrize("head", HEADS)


def training_model(head="RoFormerForMaskedLM", **changes):
    return roformer_cpp.build_model(SIZES | changes, head).train()


def passes(model, count=3, **options):
    return [model(IDS, **options)["logits"].detach() for _ in range(count)]


def all_differ(results):
    return all(not torch.equal(a, b) for i, a in enumerate(results) for b in results[:i])


@every_head
def test_every_pass_draws_a_new_mask(head):
    model = training_model(head)
    assert all_differ(passes(model))
    assert all_differ([model.encode(IDS) for _ in range(3)])
    model.eval()
    state = torch.get_rng_state()
    assert torch.equal(*passes(model, 2)) and torch.equal(torch.get_rng_state(), state)


@every_head
def test_torchs_seed_repeats_a_run(head):
    model = training_model(head)
    torch.manual_seed(5)
    first = passes(model)
    state = torch.get_rng_state()
    after = passes(model)
    torch.manual_seed(5)
    assert all(torch.equal(a, b) for a, b in zip(passes(model), first, strict=True))
    torch.set_rng_state(state)
    assert all(torch.equal(a, b) for a, b in zip(passes(model), after, strict=True))
    torch.manual_seed(6)
    assert not torch.equal(passes(model, 1)[0], first[0])


def test_a_key_decides_alone():
    model = training_model()
    state = torch.get_rng_state()
    first = passes(model, 2, dropout_key=(3, 7))
    assert torch.equal(*first)
    assert torch.equal(torch.get_rng_state(), state), "a key draws nothing"
    other = [passes(model, 1, dropout_key=key)[0] for key in ((3, 8), (4, 7))]
    assert all_differ([first[0], *other])
    with pytest.raises(ValueError, match="dropout_key must be two numbers, seed and step, got 1"):
        model(IDS, dropout_key=[3])


def test_a_pass_that_is_computed_again_drops_the_same():
    """Gradient checkpointing: the backward runs the forward a second time."""
    model = training_model()
    given = torch.linspace(-1, 2, 2 * 9 * 37).view(2, 9, 37)

    def gradients(run):
        torch.manual_seed(4)
        model.zero_grad()
        ((run(IDS) + run(IDS + 1)) * given).sum().backward()  # two micro-batches
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    def forward(ids):
        return model(ids)["logits"]

    plain = gradients(forward)
    again = gradients(lambda ids: checkpoint(forward, ids, use_reentrant=False))
    assert any(grad.any() for grad in plain) and all(torch.equal(a, b) for a, b in zip(again, plain, strict=True))


def test_passes_at_once_share_nothing():
    model = training_model()

    def run(seed):
        return [passes(model, 1, dropout_key=(seed, step))[0] for step in range(6)]

    alone = [run(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for expected, found in zip(alone, pool.map(run, range(4)), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
