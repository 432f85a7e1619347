"""`classifier_pooling`: sequence classification from the mean of the tokens, as ModernBERT's configuration names it.

The second source is the body of transformers' models, the mean in float64, and the modules of their heads.
"""

import json

import numpy as np
import pytest
import torch

import roformer_cpp
from engine_case import SIZES, assert_close, change_config, make_oracle, make_sequences
from onnx_case import OPSETS, padded, run
from rf_engine import Engine

HEAD = "RfEncoderForSequenceClassification"


def expected(oracle, ids, mask, types):
    """Logits of rows [B, T]."""
    hidden = oracle.base_model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    kept_BT1 = mask[:, :, None].double()
    mean = ((hidden.double() * kept_BT1).sum(1) / kept_BT1.sum(1)).float()
    if hasattr(oracle, "bert"):
        return oracle.classifier(torch.tanh(oracle.bert.pooler.dense(mean))).numpy()
    return oracle.classifier.out_proj(torch.nn.functional.gelu(oracle.classifier.dense(mean))).numpy()


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
@torch.no_grad()
def test_logits(family, tmp_path):
    """Of the module, the engine and ONNX files, of rows with padding on each side."""
    oracle, before = make_oracle(family, "ForSequenceClassification"), tmp_path / "before"
    oracle.save_pretrained(before)
    keys = {"family": "bert", "position_encoding": "learned"} if family == "Bert" else {}
    change_config(before, model_type="rf_encoder", architectures=[HEAD], classifier_pooling="mean", **keys)
    model = roformer_cpp.load_model(before)
    model.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["classifier_pooling"] == "mean"
    ids, types = make_sequences()
    for side in ("left", "right") if family == "RoFormer" else ("right",):  # positions of a learned table count padding
        rows, mask, kinds = map(torch.as_tensor, padded(ids, types, side))
        wanted = expected(oracle, rows, mask, kinds)
        first = oracle(input_ids=rows, attention_mask=mask, token_type_ids=kinds).logits.numpy()
        assert np.abs(first - wanted).max() > 0.1  # the key changes something
        assert_close(model(rows, mask, token_type_ids=kinds)["logits"].numpy(), wanted)
        assert_close(model(rows, token_type_ids=kinds, segments=mask.int() - 1)["logits"].numpy(), wanted)
    assert_close(Engine(tmp_path, token_budget=16).logits(ids, types=types), wanted)
    attended = {"types": list(kinds.numpy()), "attend": list(mask.numpy())}
    assert_close(Engine(tmp_path).logits(list(rows.numpy()), **attended), wanted)
    lowered = Engine(tmp_path, precision="bfloat16").logits(ids, types=types)
    assert np.abs(lowered - wanted).mean() < 0.1 * np.abs(wanted).mean()
    for opset in OPSETS:
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset, task="logits")
        assert_close(run(tmp_path / "model.onnx", rows, mask, kinds)["logits"], wanted)


def test_refused_keys():
    for model_type, pooling, message in (
        ("rf_encoder", "max", "classifier_pooling must be cls or mean, got .max"),
        ("roformer", "mean", "would not honour .* got classifier_pooling: mean"),
    ):
        with pytest.raises(ValueError, match=message):
            roformer_cpp.build_model(SIZES | {"model_type": model_type, "classifier_pooling": pooling})
