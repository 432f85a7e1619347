"""What evaluate says of a masked language model, against transformers and NumPy in float64 over the same rows: loss,
accuracy, and the loss of the training split's unigrams, counted from the shards' bytes."""

import numpy as np
import pytest
import torch
import transformers

from cli_support import make_data, results
from parity_case import perturbed
from shard_file import probe, shard_tokens
from tolerances import T4_MAX


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of transformers' making, moved by N(0, 0.3), beside data of its vocabulary."""
    folder = tmp_path_factory.mktemp("masked")
    make_data(folder)
    size = len((folder / "data" / "vocab.txt").read_text().splitlines())
    torch.manual_seed(5)
    sizes = dict(vocab_size=size, max_position_embeddings=64, hidden_size=16, num_hidden_layers=2)
    sizes |= dict(num_attention_heads=2, intermediate_size=24)
    model = perturbed(transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**sizes)))
    # So that the likeliest token is the right one at some places.
    tokens = np.concatenate([shard_tokens(path) for path in (folder / "data").glob("train*.rfs")])
    model.cls.predictions.bias.data[int(np.bincount(tokens).argmax())] += 5
    model.save_pretrained(folder / "model")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / "model" / name).write_bytes((folder / "data" / name).read_bytes())
    return folder


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_masked_language_model(model, batch):
    probability, seed, length = 0.4, 9, 24
    asked = dict(split="valid", max_length=length, mask_probability=probability, seed=seed)
    rows = probe("rows", model / "data", **asked)
    assert len(rows) > 10
    theirs = transformers.RoFormerForMaskedLM.from_pretrained(model / "model").double().eval()
    labels = [label for row in rows for label in row["labels"]]
    with torch.no_grad():
        logits = torch.cat([theirs(torch.tensor([row["ids"]])).logits[0, row["places"]] for row in rows])
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels)).item()
    right = (logits.argmax(-1) == torch.tensor(labels)).tolist()
    tokens = np.concatenate([shard_tokens(path) for path in sorted((model / "data").glob("train*.rfs"))])
    counts = 1 + np.bincount(tokens, minlength=theirs.config.vocab_size)
    unigram = -np.log(counts[labels] / counts.sum()).mean()

    (got,) = results(
        "evaluate", "--model", model / "model", "--data", model / "data", "--padded", "--max-length", length,
        "--batch", batch, "--mask-probability", probability, "--seed", seed,
    )  # fmt: skip
    assert got["predicted_tokens"] == len(labels)
    assert 0 < sum(right) < len(right)
    assert got["accuracy"] == pytest.approx(np.mean(right), rel=1e-15)
    assert abs(got["loss"] - loss) <= T4_MAX * loss
    assert got["unigram_loss"] == pytest.approx(unigram, rel=1e-12)
