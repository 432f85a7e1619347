"""transformers opens every fine-tuned model by the class of its task, and computes what predict says of records
and the loss that evaluate reports."""

import json

import numpy as np
import pytest
import torch
import transformers

import task_files
from cli_support import refused, results
from engine_case import assert_near
from parity_case import save_with_vocabulary

SMALL = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
SMALL |= dict(max_position_embeddings=128, type_vocab_size=2)


@pytest.fixture(scope="module", params=["RoFormer", "Bert"])
def initial(request, tmp_path_factory):
    return save_with_vocabulary(tmp_path_factory.mktemp(request.param), "AutoModelForMaskedLM", request.param, **SMALL)


def tuned(initial, folder, task):
    """The model's directory, records, and what predict says of them."""
    files = task_files.write_splits(folder, task_files.KINDS[task], train=24, valid=12)
    files.pop("test")
    command = ["finetune", "--task", task, "--model", initial, "--train", files["train"], "--valid", files["valid"]]
    results(*command, "--output", folder / "out", "--learning-rates", "1e-3", "--batch", 8, "--epochs", 1)
    report = json.loads((folder / "out" / "report.json").read_text())
    assert ("bag_of_words" in report) == (task in ("classification", "triples", "choice"))
    rows = [json.loads(line) for line in files["valid"].read_text().splitlines()]
    return folder / "out", rows, results("predict", "--model", folder / "out", "--input", files["valid"])


class Theirs:
    """The model and the tokenizer of transformers; its methods give the numbers that predict has for a record."""

    def __init__(self, folder, head, problem_type):
        auto = getattr(transformers, f"AutoModelFor{head}")
        self.model, report = auto.from_pretrained(folder, output_loading_info=True)
        assert not any(report.values()), report
        assert type(self.model).__name__.endswith(f"For{head}") and self.model.config.problem_type == problem_type
        self.model.eval()
        self.tokenizer = transformers.BertTokenizer.from_pretrained(folder)

    def output(self, *texts, **options):
        self.encoded = self.tokenizer(*texts, return_tensors="pt", **options)
        with torch.no_grad():
            return self.model(**self.encoded)

    def text(self, row):
        x = self.output(row["text"]).logits[0].double()
        activations = {"single_label_classification": lambda x: x.softmax(-1), "regression": lambda x: x}
        return activations.get(self.model.config.problem_type, torch.sigmoid)(x)

    def triple(self, row):
        return [self.output(row["A"], row[candidate]).logits[0, 0].double().sigmoid() for candidate in "BC"]

    def choice(self, row):
        encoded = self.tokenizer([row["text"]] * len(row["choices"]), row["choices"], return_tensors="pt", padding=True)
        with torch.no_grad():
            return self.model(**{key: value[None] for key, value in encoded.items()}).logits[0].double().softmax(-1)

    def tokens(self, row):
        """The classes of words, by their first pieces."""
        best = self.output(row["tokens"], is_split_into_words=True).logits[0].argmax(-1).tolist()
        return [best[self.encoded.word_ids(0).index(i)] for i in range(len(row["tokens"]))]

    def answer(self, row):
        """The score of the best span of at most 30 tokens, as in run_qa, and where it is."""
        output = self.output(row["question"], row["context"])
        offsets = self.tokenizer(row["question"], row["context"], return_offsets_mapping=True)["offset_mapping"]
        places = [i for i, side in enumerate(self.encoded.sequence_ids(0)) if side == 1]
        start, end = output.start_logits[0], output.end_logits[0]
        spans = [(i, j) for i in places for j in places if i <= j < i + 30]
        return max((float(start[i] + end[j]), offsets[i][0], offsets[j][1]) for i, j in spans)

    def costs(self, task, row, numbers):
        """What the targets of a record add to the loss, which is the mean over all targets."""
        if task in ("classification", "choice"):
            gold = self.model.config.label2id[row["label"]] if task == "classification" else row["label"]
            return [-numbers[gold].log()]
        if task == "regression":
            return [(numbers[0] - row["label"]) ** 2]
        if task in ("multi_label", "triples"):
            wanted = [label in (row["labels"] if task == "multi_label" else row["label"]) for label in LABELS[task]]
            return [-(p if is_wanted else 1 - p).log() for p, is_wanted in zip(numbers, wanted, strict=True)]
        if task == "tokens":
            scores = self.output(row["tokens"], is_split_into_words=True).logits[0].double().log_softmax(-1)
            first = [self.encoded.word_ids(0).index(i) for i in range(len(row["tokens"]))]
            return [-scores[i, self.model.config.label2id[x]] for i, x in zip(first, row["labels"], strict=True)]
        output = self.output(row["question"], row["context"])
        begin = row["answers"]["answer_start"][0]
        offsets = self.tokenizer(row["question"], row["context"], return_offsets_mapping=True)["offset_mapping"]
        context = [i for i, side in enumerate(self.encoded.sequence_ids(0)) if side == 1]
        at = [next(i for i in context if offsets[i][end] == begin + end * len("abba")) for end in (0, 1)]
        ends = output.start_logits, output.end_logits
        return [-logits[0].double().log_softmax(-1)[i] for logits, i in zip(ends, at, strict=True)]


LABELS = {"multi_label": ("abba", "gaga"), "triples": "BC"}
ONE, SEVERAL = "single_label_classification", "multi_label_classification"


def numbers_of_labels(line):
    return list(line["probabilities"].values())


def span(line):
    best = line["candidates"][0]
    return best["score"], best["start"], best["start"] + len(best["answer"])


# The head and problem type of a task, its labels, and the numbers of a record and of a line of predict.
TASKS = {
    "classification": ("SequenceClassification", ONE, ["no", "yes"], Theirs.text, numbers_of_labels),
    "multi_label": ("SequenceClassification", SEVERAL, ["abba", "gaga"], Theirs.text, numbers_of_labels),
    "regression": ("SequenceClassification", "regression", None, Theirs.text, lambda line: [line["score"]]),
    "triples": ("SequenceClassification", SEVERAL, None, Theirs.triple, lambda line: list(line["scores"].values())),
    "choice": ("MultipleChoice", None, None, Theirs.choice, lambda line: line["probabilities"]),
    "tokens": ("TokenClassification", None, ["B-X", "I-X", "O"], Theirs.tokens, lambda line: line["labels"]),
    "answers": ("QuestionAnswering", None, None, Theirs.answer, span),
}


@pytest.mark.parametrize("task", TASKS)
def test_predictions(initial, task, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, task)
    head, problem_type, labels, numbers_of, numbers_in = TASKS[task]
    theirs = Theirs(out, head, problem_type)
    config = theirs.model.config
    if labels:
        assert config.id2label == dict(enumerate(labels)) and config.label2id == {x: i for i, x in enumerate(labels)}
    costs = []
    for line, row in zip(lines, rows, strict=True):
        found, expected = numbers_in(line), numbers_of(theirs, row)
        assert_near([config.label2id[label] for label in found] if task == "tokens" else found, expected)
        costs += theirs.costs(task, row, expected)
        if task == "multi_label":
            assert line["labels"] == [label for label, p in zip(labels, found, strict=True) if p > 0.5]
    # Records ask different numbers of things: a mean of means would depend on the batch.
    arguments = ("evaluate", "--model", out, "--input", tmp_path / "valid.jsonl", "--batch-tokens")
    assert_near([results(*arguments, tokens)[0]["loss"] for tokens in (1, 50)], np.mean(costs))


def test_a_fine_tuned_model_is_a_start_for_another(initial, tmp_path):
    """Its encoder, and a head of the same names, which must have the shape that the task needs."""
    out, _, _ = tuned(initial, tmp_path / "first", "classification")
    if "RoFormer" in str(initial):
        again, _, lines = tuned(out, tmp_path / "second", "tokens")
        assert len(lines) == 12 and (again / "task.json").exists()
    else:
        files = task_files.write_splits(tmp_path / "second", task_files.tokens, train=24, valid=12)
        message = refused(*task_files.options(out, files, tmp_path / "third", "tokens"))
        assert "classifier.bias" in message and "[3]" in message and "[2]" in message
