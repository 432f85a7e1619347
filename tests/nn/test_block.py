"""The block of ModernBERT in an rf_encoder: against transformers' ModernBERT, and with encodings of each kind in the
engine."""

import numpy as np
import pytest
import torch
import transformers

import roformer_cpp
from encoding_case import TINY_MODEL
from encoding_files import INFOS, sweep_keys
from engine_case import assert_close
from onnx_case import padded, run
from rf_engine import Engine, EngineError

BLOCK = {**TINY_MODEL, "model_type": "rf_encoder", "block": "modernbert", "num_hidden_layers": 4, "local_attention": 6}
LONG = torch.randint(1, 37, (2, 20), generator=torch.Generator().manual_seed(0))


def built(head="Model", **keys):
    model = roformer_cpp.build_model(BLOCK | keys, f"RfEncoder{head}")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    return model


def theirs_of(model):
    """ModernBERT of transformers in float64, with the same weights."""
    keys = {key: BLOCK[key] for key in (*TINY_MODEL, "local_attention")} | {"pad_token_id": 0}
    kinds = ("full_attention", "sliding_attention")
    rope = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in kinds}
    config = transformers.ModernBertConfig(**keys, norm_eps=model.config["layer_norm_eps"], rope_parameters=rope)
    oracle = transformers.ModernBertModel(config).double().eval()
    ours = dict(model.named_parameters())
    values = {"embeddings.tok_embeddings.weight": ours["embeddings.word_embeddings.weight"]}
    values["embeddings.norm.weight"] = ours["embeddings.LayerNorm.weight"]
    values["final_norm.weight"] = ours["encoder.final_norm.weight"]
    for i in range(4):
        layer = {key.removeprefix(f"encoder.layer.{i}."): x for key, x in ours.items() if f"layer.{i}." in key}
        projections = [layer[f"attention.self.{each}.weight"] for each in ("query", "key", "value")]
        values[f"layers.{i}.attn.Wqkv.weight"] = torch.cat(projections)
        values[f"layers.{i}.attn.Wo.weight"] = layer["attention.output.dense.weight"]
        halves = [layer["intermediate.gate.weight"], layer["intermediate.dense.weight"]]
        values[f"layers.{i}.mlp.Wi.weight"] = torch.cat(halves)
        values[f"layers.{i}.mlp.Wo.weight"] = layer["output.dense.weight"]
        values[f"layers.{i}.mlp_norm.weight"] = layer["output.LayerNorm.weight"]
        if i > 0:
            values[f"layers.{i}.attn_norm.weight"] = layer["attention.output.LayerNorm.weight"]
    oracle.load_state_dict(values)
    return oracle


def test_as_modernbert():
    """A padded row too; every key of the block is in its place, as ours has none that theirs lacks."""
    keys = {"position_encoding": {"type": "rope", "layout": "halves"}, "type_vocab_size": 0}
    model = built(**keys)
    oracle = theirs_of(model)
    assert sum(x.numel() for x in model.parameters()) == sum(x.numel() for x in oracle.parameters())
    mask = torch.ones_like(LONG)
    mask[1, 13:] = 0
    with torch.no_grad():
        ours, theirs = model(LONG, mask)["hidden"], oracle(LONG, mask).last_hidden_state
    assert_close(ours[mask.bool()].numpy(), theirs[mask.bool()].numpy())
    assert (built(**keys, local_attention=None)(LONG)["hidden"] - model(LONG)["hidden"]).abs().max() > 0.01


# What is added to words, to every layer's input, and turns words; scores that read tokens; tables of keys and values;
# numbers by position with resets; rotations that differ between queries and keys.
@pytest.mark.parametrize("name", ["learned", "floater", "complex", "path", "shaw", "tupe-r", "xpos"])
def test_encodings(name, tmp_path):
    """Python's modules, the engine and ONNX; the modules of the trainer give the same bits as Python's."""
    keys = {"position_encoding": {"type": name, **sweep_keys(name, 8)}}
    head = "ForCausalLM" if INFOS[name]["needs_causal"] else "ForMaskedLM"
    model = built(head, **keys, is_decoder=INFOS[name]["needs_causal"])
    ours = model(LONG)["logits"].detach()
    assert torch.equal(model._script.forward(model._tensors(), False, {"input_ids": LONG}, 1, None)["logits"], ours)
    model.save(tmp_path)
    assert torch.equal(roformer_cpp.load_model(tmp_path)(LONG)["logits"], ours)
    try:
        engine = Engine(tmp_path)
    except EngineError as error:
        assert not INFOS[name]["engine"], error
        return
    rows = [row.numpy().astype(np.int32) for row in LONG]
    assert_close(engine.logits(rows).reshape(ours.shape), ours.numpy())


@pytest.mark.parametrize("name", ["rope", "kerple-log", "shaw-literal", "t5"])
def test_onnx(name, tmp_path):
    model = built("ForMaskedLM", position_encoding=name)
    model.save(tmp_path)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", length=20)
    row = LONG[0].numpy()
    out = run(tmp_path / "model.onnx", *padded([row], [[0] * len(row)]))
    assert_close(out["logits"][0], model(LONG[:1])["logits"][0].detach().numpy())


def test_gradients_through_windows():
    """Of every parameter, in float64, by differences along a random direction."""
    model = built(position_encoding="kerple-log").double()
    weights = torch.randn(2, 20, BLOCK["hidden_size"], generator=torch.Generator().manual_seed(1)).double()
    (model(LONG)["hidden"] * weights).sum().backward()
    for name, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)).double()
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                parameter.add_(step * direction)
                values.append((model(LONG)["hidden"] * weights).sum())
                parameter.sub_(step * direction)
        slope = (parameter.grad * direction).sum()
        assert abs((values[0] - values[1]) / 2e-6 - slope) <= 1e-6 * max(1, parameter.grad.norm()), name
