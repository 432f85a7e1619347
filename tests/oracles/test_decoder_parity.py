"""Decoders against transformers 5: cross-attention (R-ROPE-14: no rotation on either side) and the key/value
cache (R-HF-10), for RoFormer and BERT, on random, perturbed models."""

import pytest
import torch

import roformer_cpp
import tolerances as tol
from engine_case import CAUSAL_HEADS, VOCAB, make_oracle
from parity_case import assert_close, assert_close_gradients, gradients_of, weighted_mean


def make_decoder(family, folder, **changes):
    oracle = make_oracle(family, CAUSAL_HEADS[family], num_hidden_layers=2, is_decoder=True, **changes)
    oracle.save_pretrained(folder)
    return oracle, roformer_cpp.load_model(folder)


def make_inputs():
    """Ids and mask of three sequences, encoder states and their mask."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, VOCAB, (3, 9), generator=generator)
    mask = torch.ones(3, 9, dtype=torch.int64)
    mask[1, -2:] = 0
    states = torch.randn(3, 5, 24, generator=generator)
    states_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0]])
    return ids, mask, states, states_mask


@pytest.mark.parametrize("masked", (True, False))
@pytest.mark.parametrize("family", CAUSAL_HEADS)
def test_cross_attention(family, masked, tmp_path):
    """Logits, and gradients of every parameter and of the encoder states."""
    oracle, model = make_decoder(family, tmp_path, add_cross_attention=True)
    ids, mask, states, states_mask = make_inputs()
    states_mask = states_mask if masked else None
    our_states, their_states = states.clone().requires_grad_(), states.clone().requires_grad_()
    ours = model(ids, mask, encoder_hidden=our_states, encoder_mask=states_mask)["logits"]
    given = {"encoder_hidden_states": their_states, "encoder_attention_mask": states_mask}
    theirs = oracle(ids, attention_mask=mask, **given).logits
    assert_close(ours, theirs)
    weighted_mean([ours]).backward()
    weighted_mean([theirs]).backward()
    expected = gradients_of(oracle) | {"states": their_states.grad}
    found = gradients_of(model) | {"states": our_states.grad}
    assert_close_gradients({name: found[name] for name in expected}, expected)


@pytest.mark.parametrize("cross", (False, True))
@pytest.mark.parametrize("family", CAUSAL_HEADS)
def test_cache(family, cross, tmp_path):
    """Steps of 4, 1 and 4 tokens, against transformers' own steps and against its full computation."""
    oracle, model = make_decoder(family, tmp_path, add_cross_attention=cross, use_cache=True)
    ids, mask, states, states_mask = make_inputs()
    ours_cross = {"encoder_hidden": states, "encoder_mask": states_mask} if cross else {}
    theirs_cross = {"encoder_hidden_states": states, "encoder_attention_mask": states_mask} if cross else {}
    with torch.no_grad():
        full = oracle(ids, attention_mask=mask, **theirs_cross).logits
        cache, past, first, parts = model.new_cache(), None, 0, []
        for count in (4, 1, 4):
            part = slice(first, first + count)
            first += count
            parts.append(model(ids[:, part], mask[:, part], cache=cache, **ours_cross)["logits"])
            ours_cross = {}  # kept by the cache
            given = dict(attention_mask=mask[:, :first], past_key_values=past, use_cache=True, **theirs_cross)
            out = oracle(ids[:, part], **given)
            past = out.past_key_values
            assert_close(parts[-1], out.logits)
    assert_close(torch.cat(parts, dim=1), full)


def test_encoder_states_are_checked(tmp_path):
    _, without = make_decoder("RoFormer", tmp_path / "without")
    _, model = make_decoder("RoFormer", tmp_path / "with", add_cross_attention=True)
    ids, _, states, states_mask = make_inputs()
    with pytest.raises(ValueError, match="encoder states need a model with add_cross_attention"):
        without(ids, encoder_hidden=states)
    with pytest.raises(ValueError, match="needs encoder states, got none"):
        model(ids)
    for bad in (states[:2], states[..., :20], states[:, :0], states[0]):
        with pytest.raises(ValueError, match=r"encoder states must be \[3, keys, 24\]"):
            model(ids, encoder_hidden=bad)
    for dtype, name in ((torch.float64, "Double"), (torch.bfloat16, "BFloat16"), (torch.int64, "Long")):
        with pytest.raises(ValueError, match=f"encoder states must be Float, got {name}"):
            model(ids, encoder_hidden=states.to(dtype))
    exact = model(ids, encoder_hidden=states)["hidden"]
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            lowered = model(ids, encoder_hidden=states.to(dtype))["hidden"]
            assert 0 < (lowered - exact).abs().max() <= tol.BF16_MODEL * exact.abs().max()
        with pytest.raises(ValueError, match="encoder states must be BFloat16, got Double"):
            model(ids, encoder_hidden=states.double())
    with pytest.raises(ValueError, match=r"encoder mask must be \[3, 5\], got \[3, 4\]"):
        model(ids, encoder_hidden=states, encoder_mask=states_mask[:, :4])
    cache = model.new_cache()
    model(ids, encoder_hidden=states, cache=cache)
    with pytest.raises(ValueError, match="first call with a cache only, got them again after 9 tokens"):
        model(ids, encoder_hidden=states, cache=cache)
