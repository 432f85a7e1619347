"""`roformer forward` against transformers on saved random models."""

import numpy as np
import pytest
import torch
import transformers

import tolerances
from cli_support import results

CONFIG = dict(
    vocab_size=61,
    hidden_size=24,
    embedding_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=32,
    type_vocab_size=3,
    num_labels=4,
)
HEADS = [
    "RoFormerModel",
    "RoFormerForMaskedLM",
    "RoFormerForSequenceClassification",
    "RoFormerForTokenClassification",
    "RoFormerForQuestionAnswering",
    "RoFormerForMultipleChoice",
]


def saved_model(name, folder, **changes):
    torch.manual_seed(5)
    config = transformers.RoFormerConfig(**{**CONFIG, **changes})
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    model.save_pretrained(folder)
    return model


def expected_output(model, ids, mask, types):
    with torch.no_grad():
        output = model(torch.tensor(ids), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(types))
    if hasattr(output, "start_logits"):
        return torch.stack([output.start_logits, output.end_logits]).numpy()
    return (output.logits if hasattr(output, "logits") else output.last_hidden_state).numpy()


@pytest.mark.parametrize("name", HEADS)
def test_equal_to_transformers(tmp_path, name):
    model = saved_model(name, tmp_path / "model")
    rng = np.random.default_rng(2)
    shape = (3, 2, 11) if name == "RoFormerForMultipleChoice" else (3, 11)
    ids, types = rng.integers(0, 61, shape), rng.integers(0, 3, shape)
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
        assert report["architecture"] == name and report["shape"] == list(expected.shape)
        assert got.dtype == np.float32 and got.shape == expected.shape
        difference = np.abs(got - expected) / np.abs(expected).max()
        if dtype == "float32":
            assert difference.max() <= tolerances.T4_MAX and difference.mean() <= tolerances.T4_MEAN
        else:
            assert tolerances.T4_MAX < difference.max() <= tolerances.BF16_MODEL
