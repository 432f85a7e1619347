"""`classifier_pooling`: sequence classification from the mean of the tokens, as ModernBERT's configuration names it.

The second source is the body of transformers' models, the mean in float64, and the modules of their heads.
"""

import json

import numpy as np
import pytest
import torch

import roformer_cpp
from engine_case import SIZES, assert_close, make_oracle, make_sequences
from onnx_case import OPSETS, kept, padded, run
from rf_engine import Engine

FAMILIES, HEAD = ("RoFormer", "Bert"), "RfEncoderForSequenceClassification"


def make_model(family, folder):
    """A directory with the key, and transformers' model of the same weights."""
    oracle, before = make_oracle(family, "ForSequenceClassification"), folder / "before"
    oracle.save_pretrained(before)
    config = json.loads((before / "config.json").read_text())
    if family == "Bert":
        config["family"] = "bert"
        config["position_encoding"] = "learned"
    ours = {"model_type": "rf_encoder", "architectures": [HEAD], "classifier_pooling": "mean"}
    (before / "config.json").write_text(json.dumps(config | ours))
    roformer_cpp.load_model(before).save(folder)
    return oracle


def expected(oracle, ids, mask, types):
    """Logits of rows [B, T]."""
    with torch.no_grad():
        given = {"attention_mask": torch.as_tensor(mask), "token_type_ids": torch.as_tensor(types)}
        hidden = oracle.base_model(input_ids=torch.as_tensor(ids), **given).last_hidden_state
        kept_BT1 = given["attention_mask"][:, :, None].double()
        mean = ((hidden.double() * kept_BT1).sum(1) / kept_BT1.sum(1)).float()
        if hasattr(oracle, "bert"):
            return oracle.classifier(torch.tanh(oracle.bert.pooler.dense(mean))).numpy()
        inner = oracle.classifier.dense(mean)
        activation = torch.nn.functional.gelu(inner)
        return oracle.classifier.out_proj(activation).numpy()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_training_model(family, side, tmp_path):
    oracle = make_model(family, tmp_path)
    rows, mask, types = padded(*make_sequences(), side=side)
    model = roformer_cpp.load_model(tmp_path)
    given = {"attention_mask": torch.as_tensor(mask), "token_type_ids": torch.as_tensor(types)}
    out = model(torch.as_tensor(rows), **given)
    wanted = expected(oracle, rows, mask, types)
    if side == "right" or family == "RoFormer":  # positions of a learned table count padding
        assert_close(out["logits"].detach().numpy(), wanted)
    first = oracle(input_ids=torch.as_tensor(rows), **given).logits.detach().numpy()
    assert np.abs(first - wanted).max() > 0.1  # the key changes something
    single = torch.as_tensor(rows[:1])
    whole = expected(oracle, rows[:1], np.ones_like(rows[:1]), types[:1])
    assert_close(model(single, token_type_ids=torch.as_tensor(types[:1]))["logits"].detach().numpy(), whole)
    segments = torch.as_tensor(mask).int() - 1
    packed = model(torch.as_tensor(rows), token_type_ids=torch.as_tensor(types), segments=segments)["logits"]
    torch.testing.assert_close(packed, out["logits"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_engine(family, tmp_path):
    oracle = make_model(family, tmp_path)
    ids, types = make_sequences()
    wanted = [expected(oracle, i[None].astype(int), np.ones((1, len(i)), int), t[None].astype(int)) for i, t in
              zip(ids, types, strict=True)]  # fmt: skip
    wanted = np.concatenate(wanted)
    assert_close(Engine(tmp_path, token_budget=16).logits(ids, types=types), wanted)
    padded_ids = [np.concatenate([i, np.full(3, 7, np.int32)]) for i in ids]
    padded_types = [np.concatenate([t, np.zeros(3, np.int32)]) for t in types]
    attend = [np.concatenate([np.ones(len(i), np.uint8), np.zeros(3, np.uint8)]) for i in ids]
    assert_close(Engine(tmp_path).logits(padded_ids, types=padded_types, attend=attend), wanted)
    lowered = Engine(tmp_path, precision="bfloat16").logits(ids, types=types)
    assert np.abs(lowered - wanted).mean() < 0.1 * np.abs(wanted).mean()


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_onnx(family, opset, tmp_path):
    oracle = make_model(family, tmp_path)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset, task="logits")
    batch = padded(*make_sequences())
    found = run(tmp_path / "model.onnx", *batch)
    assert_close(kept(found["logits"], batch[1]), expected(oracle, *batch))


def test_the_key_is_kept_and_checked(tmp_path):
    make_model("RoFormer", tmp_path)
    model = roformer_cpp.load_model(tmp_path)
    model.save(tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["classifier_pooling"] == "mean" and config["model_type"] == "rf_encoder"
    with pytest.raises(ValueError, match='classifier_pooling must be cls or mean, got "max"'):
        roformer_cpp.build_model(config | {"classifier_pooling": "max"})
    plain = {"model_type": "roformer", "classifier_pooling": "mean"} | SIZES
    with pytest.raises(ValueError, match=r"no key that transformers would not honour .* got classifier_pooling: mean"):
        roformer_cpp.build_model(plain)
