"""`roformer forward` against transformers on saved random models."""

import numpy as np
import pytest
import torch

import tolerances
from cli_support import results
from engine_case import TYPES, VOCAB, make_oracle

HEADS = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]


def expected_output(model, ids, mask, types):
    with torch.no_grad():
        output = model(torch.tensor(ids), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(types))
    if hasattr(output, "start_logits"):
        return torch.stack([output.start_logits, output.end_logits]).numpy()
    return (output.logits if hasattr(output, "logits") else output.last_hidden_state).numpy()


@pytest.mark.parametrize("head", [*HEADS, "ForMultipleChoice"])
def test_equal_to_transformers(tmp_path, head):
    model = make_oracle("RoFormer", head, embedding_size=16)
    model.save_pretrained(tmp_path / "model")
    rng = np.random.default_rng(2)
    shape = (3, 2, 11) if head == "ForMultipleChoice" else (3, 11)
    ids, types = rng.integers(0, VOCAB, shape), rng.integers(0, TYPES, shape)
    mask = np.ones(shape, int)
    mask[0, ..., 7:] = 0
    given = ["--model", tmp_path / "model", "--output", tmp_path / "out.npy"]
    for key, array in dict(ids=ids, mask=mask, types=types).items():
        np.save(tmp_path / f"{key}.npy", array)
        given += [f"--{key}", tmp_path / f"{key}.npy"]
    expected = expected_output(model, ids, mask, types)
    for dtype in ("float32", "bfloat16"):
        (report,) = results("forward", *given, "--precision", dtype)
        got = np.load(tmp_path / "out.npy")
        assert report["architecture"] == f"RoFormer{head}" and report["shape"] == list(expected.shape)
        assert got.dtype == np.float32 and got.shape == expected.shape
        difference = np.abs(got - expected) / np.abs(expected).max()
        if dtype == "float32":
            assert difference.max() <= tolerances.T4_MAX and difference.mean() <= tolerances.T4_MEAN
        else:
            assert tolerances.T4_MAX < difference.max() <= tolerances.BF16_MODEL
