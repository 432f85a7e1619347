"""RoFormerV2 (R-VAR-05) against a float64 forward from its description: training, the engine, ONNX, directories."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import roformer_cpp
import roformer_v2_reference as reference
import tolerances as tol
from engine_case import assert_close, make_sequences
from onnx_case import kept, padded, run
from parity_case import assert_close_gradients, gradients_of, make_batch
from rf_engine import Engine, EngineError

CHANGES = ({}, {"embedding_size": 16}, {"hidden_act": "gelu", "num_attention_heads": 3})


def saved(folder, **changes):
    """Saves a model with random weights; its configuration and weights."""
    config = reference.config_of(**changes)
    weights = reference.random_weights(config)
    reference.save(folder, config, weights)
    return config, weights


def in_double(weights):
    return {name: x.double() for name, x in weights.items()}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_forward_and_gradients(changes, dtype, tmp_path):
    config, weights = saved(tmp_path, **changes)
    model = roformer_cpp.load_model(tmp_path, dtype=str(dtype).removeprefix("torch."))
    ids, mask, types = make_batch()
    exact = {name: x.requires_grad_() for name, x in in_double(weights).items()}
    hidden, logits = reference.forward(exact, config, ids, mask, types)
    ours = model(ids, mask, token_type_ids=types)
    for got, expected in ((ours["hidden"], hidden), (ours["logits"], logits)):
        bound = tol.MODEL_F64 if dtype == torch.float64 else tol.T4_MAX
        assert (got - expected).abs().max() <= bound * expected.abs().max()
    chosen = (torch.arange(ids.numel()) % 3 == 1) & mask.flatten().bool()
    labels = torch.where(chosen, ids.flatten() * 7 % 61, -100)
    for each in (ours["logits"], logits):
        torch.nn.functional.cross_entropy(each.flatten(0, 1), labels).backward()
    assert_close_gradients(gradients_of(model), {name: x.grad.to(dtype) for name, x in exact.items()})


def test_dropout_comes_before_the_norm_of_the_embeddings():
    """So that every row leaves it with a mean square of one, in training as well."""
    config = reference.config_of(num_hidden_layers=1, hidden_dropout_prob=0.5)
    model = roformer_cpp.build_model(config, "RoFormerModel", seed=1).train()
    parameters = dict(model.named_parameters())
    with torch.no_grad():  # the layer adds nothing: the output is the norm of the norm of the norm of the embeddings
        parameters["encoder.layer.0.attention.output.dense.weight"].zero_()
        parameters["encoder.layer.0.output.dense.weight"].zero_()
    hidden = model(torch.arange(1, 41)[None])["hidden"]
    assert 0.35 < (hidden == 0).double().mean() < 0.65
    assert (hidden.square().mean(-1) - 1).abs().max() < 1e-4


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_engine_and_onnx(changes, tmp_path):
    config, weights = saved(tmp_path, **changes)
    ids, types = make_sequences()
    rows, mask, kinds = map(torch.as_tensor, padded(ids, types))
    expected = reference.forward(in_double(weights), config, rows, mask, kinds)
    hidden, logits = (kept(x.numpy(), mask.numpy()) for x in expected)
    engine, bare = Engine(tmp_path, token_budget=16), Engine(tmp_path, head="none")
    ours = engine.logits(ids, types=types)
    assert_close(ours, logits)
    assert np.array_equal(engine.vocabulary_logits(ids, [0, 3, 42], types=types), ours[[0, 3, 42]])
    assert_close(bare.hidden(ids, types=types), hidden)
    mean = np.stack([x[: len(row)].mean(0).numpy() for x, row in zip(expected[0], ids, strict=True)])
    assert_close(bare.pooled(ids, "mean", types=types), mean)
    for precision in ("bfloat16", "int8"):
        low = Engine(tmp_path, head="none", precision=precision).hidden(ids, types=types)
        cosine = (low * hidden).sum(-1) / np.linalg.norm(low, axis=-1) / np.linalg.norm(hidden, axis=-1)
        assert cosine.mean() > tol.LOW_PRECISION_COSINE
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    assert_close(kept(run(tmp_path / "model.onnx", rows, mask, kinds)["logits"], mask.numpy()), logits)


def test_directories(tmp_path):
    """Saved as roformer_v2, with the port's keys and names, and bit by bit the same; transformers refuses it."""
    _, weights = saved(tmp_path / "theirs")
    roformer_cpp.load_model(tmp_path / "theirs").save(tmp_path / "ours")
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert written["model_type"] == "roformer_v2" and written["architectures"] == ["RoFormerForMaskedLM"]
    assert written["use_bias"] is False and written["norm_type"] == "rms_norm"
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    assert stored.keys() - weights.keys() == {"roformer.encoder.embed_positions.weight"}
    assert all(torch.equal(stored[name], weights[name]) for name in weights)
    again = roformer_cpp.load_model(tmp_path / "ours")
    ids, mask, types = make_batch()
    first = roformer_cpp.load_model(tmp_path / "theirs")(ids, mask, token_type_ids=types)["logits"]
    assert torch.equal(again(ids, mask, token_type_ids=types)["logits"], first)
    with pytest.raises(ValueError, match="roformer_v2"):
        transformers.AutoModel.from_pretrained(tmp_path / "ours")


def test_a_bias_is_refused(tmp_path):
    config = reference.config_of()
    weights = reference.random_weights(config) | {"roformer.encoder.layer.1.output.dense.bias": torch.ones(24)}
    reference.save(tmp_path, config, weights)
    with pytest.raises(RuntimeError, match=r"layer\.1\.output\.dense\.bias"):
        roformer_cpp.load_model(tmp_path)
    with pytest.raises(EngineError, match=r"layer\.1\.output\.dense\.bias"):
        Engine(tmp_path)


def test_initial_values():
    """bert4keras' truncated normals: a deviation of 1 / sqrt(n L), nothing beyond twice 1.1368 of it."""
    layers = 4
    config = reference.config_of(hidden_size=256, embedding_size=256, intermediate_size=512, num_hidden_layers=layers)
    for name, x in roformer_cpp.build_model(config, "RoFormerForMaskedLM", seed=2).named_parameters():
        if "embeddings" in name:
            continue
        unit = (x.shape[1] * layers) ** -0.5
        assert abs(x.std().item() / unit - 1) < 0.02, name
        assert 2.2 * unit < x.abs().max() <= 2 * 1.1369 * unit, name


@pytest.mark.parametrize("encoding", ("alibi", "transformer-xl", "deberta"))
def test_other_encodings(encoding, tmp_path):
    """The family goes with every encoding, also those that read a layer's projections, which have no biases."""
    config = reference.config_of(position_encoding=encoding, family="roformer_v2")
    del config["model_type"], config["architectures"]
    model = roformer_cpp.build_model(config, "RfEncoderForMaskedLM", seed=3)
    ids = torch.arange(1, 12)[None]
    logits = model(ids)["logits"]
    model.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["family"] == "roformer_v2"
    assert torch.equal(roformer_cpp.load_model(tmp_path)(ids)["logits"], logits)
    assert_close(Engine(tmp_path).logits([ids[0].int().numpy()]), logits[0].detach().numpy())
