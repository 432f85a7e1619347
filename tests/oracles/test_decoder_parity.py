"""Decoders against transformers 5: cross-attention (R-ROPE-14: no rotation on either side) and the key/value
cache (R-HF-10), for RoFormer and BERT, on random, perturbed models."""

import pytest
import torch
import transformers

import roformer_cpp
import tolerances as tol

SIZES = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 37,
    "max_position_embeddings": 40,
    "is_decoder": True,
}
CLASSES = {
    "roformer": (transformers.RoFormerForCausalLM, transformers.RoFormerConfig),
    "bert": (transformers.BertLMHeadModel, transformers.BertConfig),
}


def make_oracle(family, **changes):
    torch.manual_seed(0)
    model_class, config_class = CLASSES[family]
    model = model_class(config_class(**(SIZES | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


def make_inputs():
    """Ids and mask of three sequences, encoder states and their mask."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 53, (3, 9), generator=generator)
    mask = torch.ones(3, 9, dtype=torch.int64)
    mask[1, -2:] = 0
    states = torch.randn(3, 5, 24, generator=generator)
    states_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0]])
    return ids, mask, states, states_mask


def assert_close(ours, theirs):
    assert ours.shape == theirs.shape
    difference, scale = (ours - theirs).abs(), theirs.abs().max()
    assert difference.max() <= tol.T4_MAX * scale
    assert difference.mean() <= tol.T4_MEAN * scale


@pytest.mark.parametrize("masked", (True, False))
@pytest.mark.parametrize("family", CLASSES)
def test_cross_attention(family, masked, tmp_path):
    """Logits, and gradients of every parameter and of the encoder states."""
    oracle = make_oracle(family, add_cross_attention=True)
    oracle.save_pretrained(tmp_path)
    model = roformer_cpp.load_model(tmp_path)
    ids, mask, states, states_mask = make_inputs()
    states_mask = states_mask if masked else None
    our_states, their_states = states.clone().requires_grad_(), states.clone().requires_grad_()
    ours = model(ids, mask, encoder_hidden=our_states, encoder_mask=states_mask)["logits"]
    theirs = oracle(
        ids, attention_mask=mask, encoder_hidden_states=their_states, encoder_attention_mask=states_mask
    ).logits
    assert_close(ours, theirs)
    for logits in (ours, theirs):
        (logits * torch.linspace(-1, 2, logits.numel()).view_as(logits)).mean().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()} | {"states": our_states.grad}
    expected = {name: p.grad for name, p in oracle.named_parameters() if p.requires_grad}
    expected = {name: grad for name, grad in expected.items() if grad is not None} | {"states": their_states.grad}
    largest = max(grad.abs().max() for grad in expected.values())
    for name, grad in expected.items():
        scale = max(grad.abs().max(), tol.GRADIENT_FLOOR * largest)
        assert (gradients[name] - grad).abs().max() <= tol.GRADIENT_F32 * scale, name


@pytest.mark.parametrize("cross", (False, True))
@pytest.mark.parametrize("family", CLASSES)
def test_cache(family, cross, tmp_path):
    """Steps of 4, 1 and 4 tokens, against transformers' own steps and against its full computation."""
    oracle = make_oracle(family, add_cross_attention=cross, use_cache=True)
    oracle.save_pretrained(tmp_path)
    model = roformer_cpp.load_model(tmp_path)
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
            out = oracle(
                ids[:, part], attention_mask=mask[:, :first], past_key_values=past, use_cache=True, **theirs_cross
            )
            past = out.past_key_values
            assert_close(parts[-1], out.logits)
    assert_close(torch.cat(parts, dim=1), full)


def test_encoder_states_are_checked(tmp_path):
    make_oracle("roformer").save_pretrained(tmp_path / "without")
    make_oracle("roformer", add_cross_attention=True).save_pretrained(tmp_path / "with")
    without, model = (roformer_cpp.load_model(tmp_path / kind) for kind in ("without", "with"))
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
