"""ONNX files of every family of other libraries, run by ONNX Runtime, beside transformers."""

import numpy as np
import onnxruntime
import pytest

import decoder_embedders as decoders
import foreign_encoders as encoders
import roformer_cpp
from engine_case import assert_close
from onnx_case import OPSETS, kept, open_session, oracle_outputs, padded, run
from rotary_decoders import make_decoder, make_rows, oracle_logits

SHAPES = ({}, {"hidden_size": 60, "num_attention_heads": 6, "intermediate_size": 44})
PAD = 3  # of decoders that classify
DECODERS = [(case, head) for case in decoders.CASES for head in ("Model", "ForCausalLM", "ForSequenceClassification")]
T5 = [("t5", {}), ("t5", {"feed_forward_proj": "gated-gelu", "d_kv": 10})]
CASES = [*(case for case in encoders.CASES if case[0] not in encoders.WITHOUT_GRAPH), *DECODERS, *T5]


def make(family, head, folder, changes):
    if family == "t5":
        return decoders.make_t5(folder, **head)
    if family in encoders.FAMILIES:
        return encoders.make_encoder(family, head, folder, **changes)
    keys = {"head_dim": 10} if changes and "head_dim" in decoders.CASES[family][1] else {}
    return decoders.make_bare(family, folder, head, num_labels=3, pad_token_id=PAD, **keys)


def batches_of(config, head):
    """Two shapes, with padding at the end; many choices, since rounding may fill the bound of two or three logits."""
    random, types = np.random.default_rng(7), getattr(config, "type_vocab_size", 0) or 1
    for lengths in ((5, 9) * 12, (13, 1, 7) * 8) if head == "ForMultipleChoice" else ((5, 9), (13, 1, 7)):
        ids, kinds = ([random.integers(least, most, n) for n in lengths] for least, most in ((4, 60), (0, types)))
        batch = padded(ids, kinds)
        if head == "ForSequenceClassification" and not hasattr(config, "type_vocab_size"):
            batch[0][batch[1] == 0] = PAD
        yield [each[None] for each in batch] if head == "ForMultipleChoice" else batch


@pytest.mark.parametrize(("family", "head", "i"), [(*case, i) for i, case in enumerate(CASES)])
def test_families(family, head, i, tmp_path):
    oracle = make(family, head, tmp_path, SHAPES[i // 2 % 2])
    if family == "llama-bidirectional":  # of its few logits, transformers' own rounding fills the bound
        oracle = oracle.double()
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=OPSETS[i % 2], length=13)
    for batch in batches_of(oracle.config, head):
        theirs, ours = oracle_outputs(oracle, *batch), run(tmp_path / "model.onnx", *batch)
        assert ours.keys() >= theirs.keys() and theirs
        for name, value in theirs.items():
            assert_close(kept(ours[name], batch[1]), value)
    wanted = ["input_ids", "attention_mask"]
    wanted += ["token_type_ids"] * ((getattr(oracle.config, "type_vocab_size", 0) or 0) > 1)
    assert [each.name for each in open_session(tmp_path / "model.onnx").get_inputs()] == wanted
    longer = [np.ones((1, 14), np.int64)[(None,) * (head == "ForMultipleChoice")]] * 3
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
        run(tmp_path / "model.onnx", *longer)


@pytest.mark.parametrize("family", ["olmo", "glm4", "starcoder2", "nemotron", "persimmon", "opt"])
def test_decoders(family, tmp_path):
    """Norms without weights, of results, of 1 + weight and of heads; the square of ReLU; windows; trained positions."""
    oracle = make_decoder(family, tmp_path)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=17)
    for row in make_rows():
        ids = row[None].astype(np.int64)
        assert_close(
            run(tmp_path / "model.onnx", ids, np.ones_like(ids), None)["logits"][0], oracle_logits(oracle, row)
        )
