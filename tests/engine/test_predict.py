"""roformer predict and evaluate on random perturbed models: windows against transformers, batches, precisions,
and models that do not fit. tests/oracles/test_finetuned_parity.py compares predictions and losses of each task."""

import json

import numpy as np
import pytest
import torch
import transformers

from cli_support import refused, results
from engine_case import assert_near, make_oracle

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(56))]
LENGTH = 40
SIZES = {"vocab_size": len(WORDS), "type_vocab_size": 2, "max_position_embeddings": LENGTH}
LABELS = ["a", "b", "c"]
OF_TEXTS = ("ForSequenceClassification", "classification", ["text", "label"])
COUNT = 12


def text(random, most=20):
    return " ".join(random.choice(WORDS[5:], random.integers(1, most + 1)))


class Tuned:
    """A model directory with a task, and the model of transformers that made it."""

    def __init__(self, folder, family, head, task, columns, **settings):
        outputs = {"num_labels": len(LABELS), "id2label": dict(enumerate(LABELS)), "problem_type": None}
        self.oracle = make_oracle(family, head, **(SIZES | outputs | settings.pop("config", {})))
        self.oracle.save_pretrained(folder)
        self.folder = folder
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
        columns = {column: column for column in columns}
        task = {"kind": task, "columns": columns, "labels": LABELS, "max_length": LENGTH} | settings
        (folder / "task.json").write_text(json.dumps(task))
        self.tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))

    def lines(self, command, records, *more):
        data = self.folder / "records.jsonl"
        data.write_text("".join(json.dumps(record) + "\n" for record in records))
        return results(command, "--model", self.folder, "--input", data, *more)

    def logits(self, text):
        with torch.no_grad():
            return self.oracle(**self.tokenizer(text, return_tensors="pt")).logits[0].double().numpy()


def softmax(logits):
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


@pytest.fixture
def random():
    return np.random.default_rng(7)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_windows(pooling, random, tmp_path):
    """A word is a token: a window has eight of them, and the next one repeats three."""
    tuned = Tuned(tmp_path, "RoFormer", *OF_TEXTS, max_length=10, windows=3, stride=3, pooling=pooling)
    records = [{"text": text(random, most=30)} for _ in range(COUNT)]
    for line, record in zip(tuned.lines("predict", records), records, strict=True):
        words = record["text"].split()
        begins = [0, *(b for b in (5, 10) if b + 3 < len(words))]
        logits = np.stack([tuned.logits(" ".join(words[b : b + 8])) for b in begins])
        pooled = logits.mean(0) if pooling == "mean" else logits.max(0)
        assert_near([line["probabilities"][label] for label in LABELS], softmax(pooled))


def test_a_prediction_does_not_depend_on_the_batch(random, tmp_path):
    tuned = Tuned(tmp_path, "RoFormer", *OF_TEXTS)
    records = [{"text": text(random), "label": random.choice(LABELS)} for _ in range(COUNT)]
    expected = tuned.lines("predict", records)
    (measured,) = tuned.lines("evaluate", records)
    for tokens in (1, 30, 100):
        assert tuned.lines("predict", records, "--batch-tokens", tokens) == expected
        (again,) = tuned.lines("evaluate", records, "--batch-tokens", tokens)
        assert again == measured
    backwards = tuned.lines("predict", records[::-1])[::-1]
    assert [x["probabilities"] for x in backwards] == [x["probabilities"] for x in expected]


@pytest.mark.parametrize(("precision", "most"), [("bfloat16", 0.1), ("int8", 0.2)])
def test_precisions(precision, most, random, tmp_path):
    """Near float32, and not the same."""
    tuned = Tuned(tmp_path, "Bert", *OF_TEXTS, config={"hidden_size": 64, "intermediate_size": 128})
    records = [{"text": text(random)} for _ in range(COUNT)]

    def probabilities(*more):
        return np.array([list(x["probabilities"].values()) for x in tuned.lines("predict", records, *more)])

    assert 0 < np.abs(probabilities("--precision", precision) - probabilities()).mean() < most


def test_models_that_do_not_fit_their_task(random, tmp_path):
    tuned = Tuned(tmp_path, "Bert", "ForTokenClassification", "tokens", ["tokens", "labels"])
    predict = ["predict", "--model", tuned.folder, "--text", "w1"]
    assert "goes with tasks that read one" in refused(*predict)
    task = tmp_path / "task.json"
    settings = json.loads(task.read_text())
    task.write_text(json.dumps(settings | {"kind": "classification", "columns": {"text": "text", "label": "label"}}))
    message = refused(*predict)
    assert "head of its task" in message and "ForSequenceClassification" in message
    task.write_text(json.dumps(settings))
    message = refused(*predict, "--max-length", LENGTH + 1)
    assert "max-length must be a length that the model reads, got 41" in message and "40" in message
    assert "batch-tokens must be at least 1, got 0" in refused(*predict, "--batch-tokens", 0)
