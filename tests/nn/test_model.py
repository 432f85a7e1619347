"""Models over the table of position encodings: one body, both attentions, caches, checkpoints, examples.

What a model computes is compared with transformers in tests/oracles (RoFormer, BERT, NEZHA, decoders); encodings have
tests of their own. Here every encoding runs in a model, and a model must agree with itself.
"""

import json
import math
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_MODEL, assert_same, perturbed
from encoding_files import INFOS, sweep_keys

SIZES = TINY_MODEL | {"hidden_size": 24, "num_labels": 4}
NAMES = list(INFOS)
HEAD_DIM = 12
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
LINEAR = [(name, site) for name in ("elu", "shen", "favor", "relu") for site in ("after_map", "before_map")]
LINEAR.append(("cosine", "before_map"))
# Rotations that change as a sequence grows: the cache then holds unrotated keys.
GROWING = {"dynamic": {"rope_type": "dynamic", "factor": 4.0}}
GROWING["longrope"] = {"rope_type": "longrope", "short_factor": [1.0] * 6, "original_max_position_embeddings": 6}
GROWING["longrope"]["long_factor"] = [3.0, 1.0, 2.0, 5.0, 1.5, 4.0]


def config_of(name, **changes):
    encoding = {"type": name} | sweep_keys(name, HEAD_DIM)
    causal = INFOS[name]["needs_causal"]
    return SIZES | {"position_encoding": encoding, "is_decoder": causal} | changes


def ids_of(batch, tokens, seed=1):
    return torch.randint(1, 37, (batch, tokens), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", NAMES)
def test_directories_round_trip(name, tmp_path, monkeypatch):
    model = perturbed(roformer_cpp.build_model(config_of(name), "RfEncoderForMaskedLM"))
    model.save(tmp_path)
    again = roformer_cpp.load_model(tmp_path)
    assert again.config == model.config | {"architectures": [model.head]} and again.head == model.head
    expected, loaded = dict(model.named_parameters()), dict(again.named_parameters())
    assert expected.keys() == loaded.keys()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)
    ids = ids_of(3, 7)
    assert torch.equal(again(ids)["logits"], model(ids)["logits"])
    own = model.config["model_type"] == "rf_encoder"
    assert own == (name != "rope")
    if own:
        assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["RfEncoderForMaskedLM"]
    if name == "alibi":  # for which transformers has no model, unless another test has called register()
        monkeypatch.setattr(transformers.CONFIG_MAPPING, "_extra_content", {})
        for auto in (transformers.AutoConfig, transformers.AutoModel):
            with pytest.raises(ValueError, match="rf_encoder"):
                auto.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_bodies_are_equal_for_one_seed(name):
    """Arms of a comparison differ in the encoding alone."""
    plain = dict(roformer_cpp.build_model(config_of("none"), "RoFormerForMaskedLM", seed=5).named_parameters())
    model = dict(roformer_cpp.build_model(config_of(name), "RoFormerForMaskedLM", seed=5).named_parameters())
    for key in plain:
        if name == "t5" and key.endswith(("query.weight", "key.weight")):  # scores without 1/sqrt(D): other deviations
            torch.testing.assert_close(model[key] * (plain[key].norm() / model[key].norm()), plain[key])
        else:
            assert torch.equal(model[key], plain[key]), key
    assert all(key.startswith("position_encoding.") for key in model.keys() - plain.keys())


def cached(model, ids, steps, mask=None, **inputs):
    """Hidden states of the tokens given in these steps with one cache."""
    cache, parts, first = model.new_cache(), [], 0
    for count in steps:
        part = slice(first, first + count)
        rows = {"attention_mask": mask[:, part]} if mask is not None else {}
        rows |= {key: value[:, part] for key, value in inputs.items()}
        parts.append(model(ids[:, part], cache=cache, **rows)["hidden"])
        first += count
        assert cache.tokens() == first
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_with_and_without_autocast(name):
    """Every parameter has one. Training in bfloat16: projections are lowered, and the terms go with them."""
    model = perturbed(roformer_cpp.build_model(config_of(name)))
    ids = ids_of(3, 9)
    full = model(ids)["hidden"].detach()
    with torch.autocast("cpu", torch.bfloat16):
        lowered = model(ids)["hidden"]
    assert 0 < (lowered - full).abs().max() <= tol.BF16_MODEL * full.abs().max()
    slopes, weights = torch.linspace(-1, 2, full.numel()).view_as(full), dict(model.named_parameters())
    ours, exact = (
        torch.autograd.grad((hidden * slopes).sum(), list(weights.values()))
        for hidden in (lowered, model(ids)["hidden"])
    )
    for key, grad in zip(weights, exact, strict=True):
        assert grad.isfinite().all() and grad.abs().max() > 0, key
    ours, exact = (torch.cat([x.flatten() for x in grads]) for grads in (ours, exact))
    assert (ours - exact).norm() <= tol.AUTOCAST_GRADIENT * exact.norm()


@pytest.mark.parametrize("name", NAMES)
def test_cached_equals_full(name):
    """R-HF-10: a few tokens, then one at a time, then several."""
    model = perturbed(roformer_cpp.build_model(config_of(name, is_decoder=True), "RoFormerForCausalLM"))
    ids = ids_of(3, 11)
    assert_same(cached(model, ids, (4, 1, 1, 3, 2)), model(ids)["hidden"])
    # Later tokens may lie before the first: what counts from the start of a sequence then counts anew.
    falling = torch.arange(20, 9, -1).expand(3, 11)
    steps = cached(model, ids, (4, 1, 6), positions=falling)
    assert_same(steps, model(ids, positions=falling)["hidden"])


@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize("rotary_value", (False, True))
def test_cached_equals_full_where_rotations_change(kind, rotary_value):
    """Keys rotated for 4 tokens are wrong when there are 11: the last step sees all of them as the full computation
    does. Earlier steps could not know how long the sequence would be, so only the last is compared."""
    encoding = {"type": "rope", "rope_parameters": GROWING[kind]}
    config = config_of("rope", is_decoder=True, position_encoding=encoding, rotary_value=rotary_value)
    config |= {"max_position_embeddings": 6, "num_hidden_layers": 1}
    model = perturbed(roformer_cpp.build_model(config))
    ids = ids_of(3, 11)
    full = model(ids)["hidden"]
    steps = cached(model, ids, (4, 1, 1, 3, 2))
    assert_same(steps[:, -2:], full[:, -2:])
    assert (steps[:, :4] - full[:, :4]).abs().max() > tol.ROTARY_VALUE_SHIFT


@pytest.mark.parametrize("name", ("rope", "alibi", "learned", "t5", "fox", "fire"))
def test_cache_with_padding_and_packing(name):
    model = perturbed(roformer_cpp.build_model(config_of(name, is_decoder=True, rotary_value=name == "rope")))
    ids = ids_of(2, 9)
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, :3] = 0  # on the left, as batches of prompts are padded
    shown = mask.bool()
    steps = cached(model, ids, (5, 1, 3), mask=mask)
    assert_same(steps[shown], model(ids, mask)["hidden"][shown])
    # A mask in later calls only: what came before is shown.
    late = mask.roll(6, dims=1)
    cache = model.new_cache()
    first = model(ids[:, :5], cache=cache)["hidden"]
    rest = model(ids[:, 5:], late[:, 5:], cache=cache)["hidden"]
    assert_same(torch.cat([first, rest], 1)[late.bool()], model(ids, late)["hidden"][late.bool()])
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 1, -1, -1], [0, 0, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.int32)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7, 8]])
    full = model(ids, segments=segments, positions=positions)["hidden"]
    steps = cached(model, ids, (6, 1, 2), segments=segments, positions=positions)
    assert_same(steps[segments >= 0], full[segments >= 0])


def test_positions_on_several_axes():
    """A text's axes are equal: M-RoPE then is RoPE. A place in a grid matters; a cache goes on with it."""
    model = perturbed(roformer_cpp.build_model(config_of("mrope", is_decoder=True)))
    encoding = {"type": "rope", "layout": "halves"}
    plain = perturbed(roformer_cpp.build_model(config_of("rope", is_decoder=True, position_encoding=encoding)))
    ids = ids_of(2, 8)
    text = torch.arange(8)[None, :, None].expand(2, 8, 3)
    assert_same(model(ids, positions=text)["hidden"], plain(ids)["hidden"])
    grid = torch.stack([torch.zeros(8, dtype=torch.int64), torch.arange(8) // 4, torch.arange(8) % 4], -1)[None]
    full = model(ids, positions=grid)["hidden"]
    assert (full - plain(ids)["hidden"]).abs().max() > tol.ROTARY_VALUE_SHIFT
    cache = model.new_cache()
    parts = [model(ids[:, part], positions=grid[:, part], cache=cache)["hidden"] for part in (slice(5), slice(5, 8))]
    assert_same(torch.cat(parts, 1), full)
    with pytest.raises(ValueError, match="those of the cache, 3, got 1"):
        model(ids[:, :1], positions=torch.zeros(1, dtype=torch.int64), cache=cache)
    with pytest.raises(ValueError, match="got -1 at row 0, column 2, axis 1"):
        model(ids[:, :3], positions=torch.tensor([[[0, 0, 0], [1, 1, 1], [1, -1, 1]]]))


@pytest.mark.parametrize("name", ["shaw", "huang-m4", "deberta"])
def test_tables_meet_what_was_projected_and_not_what_was_rotated(name):
    """A table by distance that met rotated queries or keys would see where they are."""
    config = config_of(name) | {"position_encoding": ["rope", name], "is_decoder": True}
    model, ids = perturbed(roformer_cpp.build_model(config, "RfEncoderModel")), ids_of(2, 9)
    hidden = model(ids)["hidden"]
    assert_same(model(ids, positions=torch.arange(9) + 17)["hidden"], hidden)
    assert_same(cached(model, ids, (4, 1, 4)), hidden)


@pytest.mark.parametrize(("feature_map", "rope_site"), LINEAR)
def test_linear_attention_streams(feature_map, rope_site, tmp_path):
    """Causal linear attention keeps sums in place of keys; its random features are in the checkpoint."""
    attention = {"type": "linear", "feature_map": feature_map, "rope_site": rope_site}
    model = perturbed(roformer_cpp.build_model(config_of("rope", is_decoder=True, attention=attention)))
    ids = ids_of(2, 9)
    full = model(ids)["hidden"]
    assert (cached(model, ids, (4, 1, 4)) - full).abs().max() <= tol.STREAMED_RTOL * full.abs().max()
    model.save(tmp_path)
    assert torch.equal(roformer_cpp.load_model(tmp_path)(ids)["hidden"], full)


@pytest.mark.parametrize("kind", GROWING)
def test_linear_attention_refuses_to_turn_its_sums(kind):
    """Sums cannot be rotated anew: a cache ends where the rotation of what it holds would change."""
    encoding = {"type": "rope", "rope_parameters": GROWING[kind]}
    config = config_of("rope", is_decoder=True, position_encoding=encoding, attention="linear")
    model = perturbed(roformer_cpp.build_model(config | {"max_position_embeddings": 6}))
    ids = ids_of(2, 7)
    cache = model.new_cache()
    parts = torch.cat([model(part, cache=cache)["hidden"] for part in ids[:, :6].split((4, 1, 1), 1)], 1)
    assert (parts - model(ids[:, :6])["hidden"]).abs().max() <= tol.STREAMED_RTOL * parts.abs().max()
    with pytest.raises(ValueError, match="6 tokens in a cache must not change, got 1 tokens that change it"):
        model(ids[:, 6:], cache=cache)
    assert cache.tokens() == 6


def test_linear_attention_resumes_its_redraws(tmp_path):
    """The features are drawn anew in training; a run that goes on from a checkpoint draws the same."""
    attention = {"type": "linear", "feature_map": "favor", "redraw_every": 2}
    model = perturbed(roformer_cpp.build_model(config_of("rope", attention=attention, hidden_dropout_prob=0.0)))
    ids = ids_of(2, 9)
    model.train()
    seen = [model(ids)["hidden"] for _ in range(3)]
    assert not torch.equal(seen[0], seen[-1])
    model.save(tmp_path)
    again = roformer_cpp.load_model(tmp_path).train()
    for _ in range(3):
        assert torch.equal(again(ids)["hidden"], model(ids)["hidden"])


@pytest.mark.parametrize(("name", "value", "words"), [
    ("projection", math.nan, r"finite in Float, got nan in linear_attention.1.projection\[0, 0\]"),
    ("projection", 7, "linear_attention.1.projection must hold floats, got Long"),
    ("redraws", 1.5, "linear_attention.1.redraws must hold I64, got Float"),
])  # fmt: skip
def test_damaged_random_features_are_named(name, value, words, tmp_path):
    roformer_cpp.build_model(config_of("rope", attention={"type": "linear", "feature_map": "favor"})).save(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    full = f"linear_attention.1.{name}"
    tensors[full] = torch.full(tensors[full].shape, value)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(RuntimeError, match=words):
        roformer_cpp.load_model(tmp_path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_example_configurations(path, tmp_path):
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
    config = json.loads(path.read_text())
    model = roformer_cpp.build_model(config | small | {"vocab_size": 37}, "RfEncoderForMaskedLM")
    model.save(tmp_path)
    ids = ids_of(2, 9)
    logits = roformer_cpp.load_model(tmp_path)(ids)["logits"]
    assert logits.shape == (2, 9, 37) and torch.equal(logits, model(ids)["logits"])
    names = {name: name for name in ("bert", "roformer", "roformer_v2")} | {"wobert": "bert"}
    assert model.config["model_type"] == names.get(path.stem, "rf_encoder")


@pytest.mark.parametrize(("changes", "words"), [
    ({"position_encoding": "alibi", "rotary_value": True}, "rotary_value.*alibi"),
    ({"position_encoding": "rope", "rotary_value": True, "attention": "linear"}, "rotary_value.*linear"),
    ({"position_encoding": ["rope", "shaw"], "attention": "linear"}, "linear.*pairwise terms, got shaw"),
    ({"is_decoder": True, "attention": {"type": "linear", "feature_map": "shen_original"}}, "be shen_original"),
])  # fmt: skip
def test_bad_configurations_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        roformer_cpp.build_model(config_of("rope") | changes)


def test_bad_use_of_a_cache_is_named():
    bidirectional = roformer_cpp.build_model(config_of("rope"))
    with pytest.raises(ValueError, match="cache needs causal attention"):
        bidirectional(ids_of(1, 3), cache=bidirectional.new_cache())
    model = roformer_cpp.build_model(config_of("rope", is_decoder=True))
    cache = model.new_cache()
    model(ids_of(2, 3), cache=cache)
    with pytest.raises(ValueError, match="batch must be that of the cache, 2, got 3"):
        model(ids_of(3, 3), cache=cache)
    deeper = roformer_cpp.build_model(config_of("rope", is_decoder=True, num_hidden_layers=3))
    with pytest.raises(ValueError, match="same model, got one of another model, with 2 layers"):
        deeper(ids_of(2, 3), cache=cache)
    wider = config_of("rope", is_decoder=True, hidden_size=48, num_attention_heads=4)
    with pytest.raises(ValueError, match="same model"):
        roformer_cpp.build_model(wider)(ids_of(2, 3), cache=cache)
    refusal = pytest.raises(ValueError, match="keys of a cache must be BFloat16, got Float")
    with refusal, torch.autocast("cpu", torch.bfloat16):
        model(ids_of(2, 3), cache=cache)
    linear = roformer_cpp.build_model(config_of("rope", is_decoder=True, attention="linear"))
    with pytest.raises(ValueError, match="same model"):
        linear(ids_of(2, 3), cache=cache)
    sums = linear.new_cache()
    linear(ids_of(2, 3), cache=sums)
    with pytest.raises(ValueError, match="batch must be that of the cache, 2, got 1"):
        linear(ids_of(1, 3), cache=sums)
    # A call that throws leaves the cache as it was.
    with pytest.raises(ValueError, match="token ids must be in"):
        model(torch.full((2, 1), 37), cache=cache)
    assert cache.tokens() == 3
    learned = roformer_cpp.build_model(config_of("learned", is_decoder=True))
    cache = learned.new_cache()
    learned(ids_of(2, 31), cache=cache)
    with pytest.raises(ValueError, match=r"must be in 0\.\.31"):
        learned(ids_of(2, 2), cache=cache)
    assert cache.tokens() == 31


def test_a_cache_goes_with_outputs_of_every_token():
    """The first token of a later call is not the first of its sequence."""
    ids = ids_of(2, 5)
    for head in ("SequenceClassification", "MultipleChoice"):
        model = roformer_cpp.build_model(config_of("learned", is_decoder=True), f"RfEncoderFor{head}")
        with pytest.raises(ValueError, match=f"a head that reads every token, got .*{head}"):
            model(ids, cache=model.new_cache())
    model = roformer_cpp.build_model(config_of("learned", is_decoder=True) | {"model_type": "bert"})
    cache = model.new_cache()
    assert torch.equal(model(ids[:, :2], cache=cache)["pooled"], model(ids[:, :2])["pooled"])
    assert "pooled" not in model(ids[:, 2:], cache=cache)


def test_unknown_inputs_are_named():
    with pytest.raises(TypeError, match=r"\[input\] attention_mask must be a tensor, got list.*return_tensors"):
        roformer_cpp.build_model(config_of("rope"))(ids_of(1, 3), [[1, 1, 1]])
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'positons'"):
        roformer_cpp.build_model(config_of("rope"))(ids_of(1, 3), positons=torch.arange(3))
