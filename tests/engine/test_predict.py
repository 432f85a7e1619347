"""roformer evaluate against transformers, for each task on random perturbed models: a row is computed alone there, and
without padding here. tests/oracles/test_saved_models.py compares predictions, but for those of triples and windows."""

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
COUNT = 12


def text(random, least=1, most=20):
    return " ".join(random.choice(WORDS[5:], random.integers(least, most + 1)))


class Tuned:
    """A model directory with a task, and the model of transformers that made it."""

    def __init__(self, folder, family, head, task, columns, labels=None, problem_type=None, **settings):
        names = labels or ["x"]
        outputs = {"num_labels": len(names), "id2label": dict(enumerate(names)), "problem_type": problem_type}
        self.oracle = make_oracle(family, head, **(SIZES | (outputs if labels else {}) | settings.pop("config", {})))
        self.oracle.save_pretrained(folder)
        self.folder = folder
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
        columns = {column: column for column in columns}
        task = {"kind": task, "columns": columns, "labels": labels or [], "max_length": LENGTH} | settings
        (folder / "task.json").write_text(json.dumps(task))
        self.tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))

    def lines(self, command, records, *more):
        data = self.folder / "records.jsonl"
        data.write_text("".join(json.dumps(record) + "\n" for record in records))
        return results(command, "--model", self.folder, "--input", data, *more)

    def output(self, *texts, **options):
        encoded = self.tokenizer(*texts, return_tensors="pt", **options)
        with torch.no_grad():
            return self.oracle(**encoded), encoded

    def logits(self, *texts, **options):
        return self.output(*texts, **options)[0].logits[0].double().numpy()

    def choice_logits(self, first, choices):
        rows = [self.tokenizer(first, choice, return_tensors="pt") for choice in choices]
        with torch.no_grad():
            return np.array([self.oracle(**{k: v[None] for k, v in row.items()}).logits.item() for row in rows])


def softmax(logits):
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


@pytest.fixture
def random():
    return np.random.default_rng(7)


def losses_of(logits, gold):
    """Cross-entropy of the labels with these indices."""
    return [-np.log(softmax(x)[i]) for x, i in zip(logits, gold, strict=True)]


def test_regression(random, tmp_path):
    config = {"num_labels": 1, "problem_type": "regression"}
    tuned = Tuned(tmp_path, "Bert", "ForSequenceClassification", "regression", ["text", "label"], config=config)
    records = [{"text": text(random), "label": float(random.normal())} for _ in range(COUNT)]
    expected = np.array([tuned.logits(record["text"])[0] for record in records])
    (measured,) = tuned.lines("evaluate", records)
    labels = np.array([record["label"] for record in records])
    assert_near([measured["loss"], measured["mse"]], [np.mean((expected - labels) ** 2)] * 2)
    assert_near(measured["pearson"], np.corrcoef(expected, labels)[0, 1])


def test_triples(random, tmp_path):
    config = {"num_labels": 1, "problem_type": "multi_label_classification"}
    tuned = Tuned(tmp_path, "RoFormer", "ForSequenceClassification", "triples", ["A", "B", "C", "label"], config=config)
    records = [{**{c: text(random, most=12) for c in "ABC"}, "label": random.choice(["B", "C"])} for _ in range(COUNT)]
    expected = np.array([[tuned.logits(r["A"], r[c])[0] for c in "BC"] for r in records])
    sigmoid = 1 / (1 + np.exp(-expected))
    for line, row in zip(tuned.lines("predict", records), sigmoid, strict=True):
        assert_near([line["scores"]["B"], line["scores"]["C"]], row)
        assert line["label"] == "BC"[np.argmax(row)]
    (measured,) = tuned.lines("evaluate", records)
    wanted = np.array([[r["label"] == c for c in "BC"] for r in records])
    assert_near(measured["loss"], np.mean(-np.log(np.where(wanted, sigmoid, 1 - sigmoid))))


def test_choice(random, tmp_path):
    """Of the first token."""
    columns, config = ["text", "choices", "label"], {"summary_type": "first"}
    tuned = Tuned(tmp_path, "RoFormer", "ForMultipleChoice", "choice", columns, config=config)
    records = []
    for _ in range(COUNT):
        choices = [text(random, most=12) for _ in range(random.integers(2, 5))]
        records.append({"text": text(random), "choices": choices, "label": int(random.integers(len(choices)))})
    expected = [tuned.choice_logits(r["text"], r["choices"]) for r in records]
    (measured,) = tuned.lines("evaluate", records)
    assert_near(measured["loss"], np.mean(losses_of(expected, [r["label"] for r in records])))


def test_tokens(random, tmp_path):
    labels = ["B-X", "I-X", "O"]
    tuned = Tuned(tmp_path, "RoFormer", "ForTokenClassification", "tokens", ["tokens", "labels"], labels)
    records, costs = [], []
    for _ in range(COUNT):
        words = text(random).split()
        records.append({"tokens": words, "labels": list(random.choice(labels, len(words)))})
        logits = tuned.logits(words, is_split_into_words=True)[1:-1]  # a word is one token here
        costs += losses_of(logits, map(labels.index, records[-1]["labels"]))
    (measured,) = tuned.lines("evaluate", records)
    assert_near(measured["loss"], np.mean(costs))


def test_answers(random, tmp_path):
    columns = ["question", "context", "answers", "start"]
    tuned = Tuned(tmp_path, "Bert", "ForQuestionAnswering", "answers", columns)
    records, costs = [], []
    for _ in range(COUNT):
        words = text(random, least=3).split()
        begin = int(random.integers(len(words)))
        answer = {"text": [words[begin]], "answer_start": [len("".join(word + " " for word in words[:begin]))]}
        records.append({"question": text(random, most=6), "context": " ".join(words), "answers": answer})
        output, encoded = tuned.output(records[-1]["question"], records[-1]["context"])
        wanted = list(encoded["input_ids"][0]).index(WORDS.index("[SEP]")) + 1 + begin
        ends = [x[0].double().numpy() for x in (output.start_logits, output.end_logits)]
        costs.append(np.mean(losses_of(ends, [wanted, wanted])))
    (measured,) = tuned.lines("evaluate", records)
    assert_near(measured["loss"], np.mean(costs))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_windows(pooling, random, tmp_path):
    """A word is a token: a window has eight of them, and the next one repeats three."""
    settings = {"max_length": 10, "windows": 3, "stride": 3, "pooling": pooling}
    columns = ["text", "label"]
    tuned = Tuned(tmp_path, "RoFormer", "ForSequenceClassification", "classification", columns, LABELS, **settings)
    records = [{"text": text(random, most=30)} for _ in range(COUNT)]
    for line, record in zip(tuned.lines("predict", records), records, strict=True):
        words = record["text"].split()
        begins = [0, *(b for b in (5, 10) if b + 3 < len(words))]
        logits = np.stack([tuned.logits(" ".join(words[b : b + 8])) for b in begins])
        pooled = logits.mean(0) if pooling == "mean" else logits.max(0)
        assert_near([line["probabilities"][label] for label in LABELS], softmax(pooled))


def test_a_prediction_does_not_depend_on_the_batch(random, tmp_path):
    tuned = Tuned(tmp_path, "RoFormer", "ForSequenceClassification", "classification", ["text", "label"], LABELS)
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
    config = {"hidden_size": 64, "intermediate_size": 128}
    columns = ["text", "label"]
    tuned = Tuned(tmp_path, "Bert", "ForSequenceClassification", "classification", columns, LABELS, config=config)
    records = [{"text": text(random)} for _ in range(COUNT)]

    def probabilities(*more):
        return np.array([list(x["probabilities"].values()) for x in tuned.lines("predict", records, *more)])

    difference = np.abs(probabilities("--precision", precision) - probabilities())
    assert 0 < difference.mean() < most


def test_models_that_do_not_fit_their_task(random, tmp_path):
    tuned = Tuned(tmp_path, "Bert", "ForTokenClassification", "tokens", ["tokens", "labels"], LABELS)
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
