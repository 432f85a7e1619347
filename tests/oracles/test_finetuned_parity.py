"""transformers opens every fine-tuned model, and computes what predict says of records."""

import json

import numpy as np
import pytest
import torch
import transformers

import cli_support
import task_files
from cli_support import refused, results
from tolerances import T4_MAX

SMALL = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=128,
    type_vocab_size=2,
)


@pytest.fixture(scope="module", params=["roformer", "bert"])
def initial(request, tmp_path_factory):
    """A model of transformers' making, moved by N(0, 0.3), with a vocabulary of ours."""
    folder = tmp_path_factory.mktemp(request.param)
    cli_support.make_corpus(folder / "corpus")
    results("vocab", "--input", folder / "corpus", "--size", 150, "--output", folder / "model" / "vocab.txt")
    words = (folder / "model" / "vocab.txt").read_text().splitlines()
    torch.manual_seed(1)
    if request.param == "roformer":
        config = transformers.RoFormerConfig(vocab_size=len(words), embedding_size=16, **SMALL)
        model = transformers.RoFormerForMaskedLM(config)
    else:
        model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(words), **SMALL))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    model.save_pretrained(folder / "model")
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="BertTokenizer")))
    return folder / "model"


def tuned(initial, tmp_path, task, *more):
    files = task_files.write_splits(tmp_path, task_files.KINDS[task], train=24, valid=12)
    files.pop("test")
    command = ["finetune", "--task", task, "--model", initial, "--train", files["train"], "--valid", files["valid"]]
    results(*command, "--output", tmp_path / "out", "--learning-rates", "1e-3", "--batch", 8, "--epochs", 1, *more)
    rows = [json.loads(line) for line in files["valid"].read_text().splitlines()]
    return tmp_path / "out", rows, results("predict", "--model", tmp_path / "out", "--input", files["valid"])


def opened(model_dir, head, problem_type):
    model, report = getattr(transformers, f"AutoModelFor{head}").from_pretrained(model_dir, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert type(model).__name__.endswith(f"For{head}") and model.config.problem_type == problem_type
    return model.eval(), transformers.BertTokenizer.from_pretrained(model_dir)


def logits(model, tokenizer, *texts, **options):
    encoded = tokenizer(*texts, return_tensors="pt", padding=True, truncation=True, max_length=128, **options)
    with torch.no_grad():
        return model(**encoded), encoded


def close(got, expected):
    expected = np.asarray(expected)
    assert np.abs(np.asarray(got) - expected).max() <= T4_MAX * max(1, np.abs(expected).max()), (got, expected)


def test_classification(initial, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, "classification")
    model, tokenizer = opened(out, "SequenceClassification", "single_label_classification")
    assert model.config.id2label == {0: "no", 1: "yes"} and model.config.label2id == dict(no=0, yes=1)
    output, _ = logits(model, tokenizer, [row["text"] for row in rows])
    for line, expected in zip(lines, output.logits.double().softmax(-1).tolist(), strict=True):
        close([line["probabilities"]["no"], line["probabilities"]["yes"]], expected)


def test_multi_label(initial, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, "multi_label")
    model, tokenizer = opened(out, "SequenceClassification", "multi_label_classification")
    assert model.config.id2label == {0: "abba", 1: "gaga"}
    output, _ = logits(model, tokenizer, [row["text"] for row in rows])
    for line, expected in zip(lines, output.logits.double().sigmoid().tolist(), strict=True):
        close([line["probabilities"][label] for label in ("abba", "gaga")], expected)
        assert line["labels"] == [n for n, p in zip(("abba", "gaga"), expected, strict=True) if p > 0.5]


def test_regression(initial, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, "regression")
    model, tokenizer = opened(out, "SequenceClassification", "regression")
    output, _ = logits(model, tokenizer, [row["text"] for row in rows])
    close([line["score"] for line in lines], output.logits[:, 0])


def test_triples(initial, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, "triples")
    model, tokenizer = opened(out, "SequenceClassification", "multi_label_classification")
    for candidate in "BC":
        output, _ = logits(model, tokenizer, [row["A"] for row in rows], [row[candidate] for row in rows])
        close([line["scores"][candidate] for line in lines], output.logits[:, 0].double().sigmoid())


def test_choice(initial, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, "choice")
    model, tokenizer = opened(out, "MultipleChoice", None)
    for line, row in zip(lines, rows, strict=True):
        encoded = tokenizer([row["text"]] * len(row["choices"]), row["choices"], return_tensors="pt", padding=True)
        with torch.no_grad():
            output = model(**{key: value.unsqueeze(0) for key, value in encoded.items()})
        close(line["probabilities"], output.logits[0].double().softmax(-1))


def test_tokens(initial, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, "tokens")
    model, tokenizer = opened(out, "TokenClassification", None)
    assert model.config.id2label == {0: "B-X", 1: "I-X", 2: "O"}
    for line, row in zip(lines, rows, strict=True):
        output, encoded = logits(model, tokenizer, row["tokens"], is_split_into_words=True)
        words = encoded.word_ids(0)
        best = output.logits[0].argmax(-1).tolist()
        expected = [model.config.id2label[best[words.index(i)]] for i in range(len(row["tokens"]))]
        assert line["labels"] == expected


def test_answers(initial, tmp_path):
    out, rows, lines = tuned(initial, tmp_path, "answers")
    model, tokenizer = opened(out, "QuestionAnswering", None)
    for line, row in zip(lines, rows, strict=True):
        output, encoded = logits(model, tokenizer, row["question"], row["context"], return_offsets_mapping=False)
        offsets = tokenizer(row["question"], row["context"], return_offsets_mapping=True)["offset_mapping"]
        in_context = [i for i, s in enumerate(encoded.sequence_ids(0)) if s == 1]
        start, end = output.start_logits[0], output.end_logits[0]
        pairs = [(start[i] + end[j], offsets[i][0], offsets[j][1]) for i in in_context for j in in_context if i <= j]
        score, begin, stop = max((float(s), b, e) for s, b, e in pairs if (e - b) < 200)
        best = line["candidates"][0]
        close([best["score"]], [score])
        assert (best["start"], best["answer"]) == (begin, row["context"][begin:stop])


def choice_loss(model, tokenizer, rows):
    losses = []
    for row in rows:
        encoded = tokenizer([row["text"]] * len(row["choices"]), row["choices"], return_tensors="pt", padding=True)
        with torch.no_grad():
            output = model(
                **{key: value.unsqueeze(0) for key, value in encoded.items()}, labels=torch.tensor([row["label"]])
            )
        losses.append(float(output.loss))
    return np.mean(losses)


def tokens_loss(model, tokenizer, rows):
    """The mean over all words, those of a record as a sum."""
    total, count = 0, 0
    for row in rows:
        encoded = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
        words = encoded.word_ids(0)
        labels = torch.full((1, len(words)), -100)
        for i, label in enumerate(row["labels"]):
            labels[0, words.index(i)] = model.config.label2id[label]
        with torch.no_grad():
            total += float(model(**encoded, labels=labels).loss) * len(row["labels"])
        count += len(row["labels"])
    return total / count


def answers_loss(model, tokenizer, rows):
    losses = []
    for row in rows:
        encoded = tokenizer(row["question"], row["context"], return_offsets_mapping=True, return_tensors="pt")
        offsets = encoded.pop("offset_mapping")[0].tolist()
        context = [i for i, kind in enumerate(encoded.sequence_ids(0)) if kind == 1]
        (text,), (begin,) = row["answers"]["text"], row["answers"]["answer_start"]
        start = next(i for i in context if offsets[i][0] <= begin < offsets[i][1])
        end = next(i for i in context if offsets[i][0] < begin + len(text) <= offsets[i][1])
        with torch.no_grad():
            output = model(**encoded, start_positions=torch.tensor([start]), end_positions=torch.tensor([end]))
        losses.append(float(output.loss))
    return np.mean(losses)


@pytest.mark.parametrize(
    ("task", "head", "loss"),
    [
        ("choice", "MultipleChoice", choice_loss),
        ("tokens", "TokenClassification", tokens_loss),
        ("answers", "QuestionAnswering", answers_loss),
    ],
)
def test_losses(initial, tmp_path, task, head, loss):
    """In float64 on transformers' side. Records ask different numbers of things, so a mean of means would depend on the
    batch."""
    out, rows, _ = tuned(initial, tmp_path, task)
    model, tokenizer = opened(out, head, None)
    expected = loss(model.double(), tokenizer, rows)
    for tokens in (1, 50, 4096):
        (measured,) = results("evaluate", "--model", out, "--input", tmp_path / "valid.jsonl", "--batch-tokens", tokens)
        close([measured["loss"]], [expected])


def test_a_fine_tuned_model_is_a_start_for_another(initial, tmp_path):
    """Its encoder, and a head of the same names, which must have the shape that the task needs."""
    out, _, _ = tuned(initial, tmp_path / "first", "classification")
    if "roformer" in str(initial):
        again, _, lines = tuned(out, tmp_path / "second", "tokens")
        assert len(lines) == 12 and (again / "task.json").exists()
    else:
        files = task_files.write_splits(tmp_path / "second", task_files.tokens, train=24, valid=12)
        message = refused(*task_files.options(out, files, tmp_path / "third", "tokens"))
        assert "classifier.bias" in message and "[3]" in message and "[2]" in message
