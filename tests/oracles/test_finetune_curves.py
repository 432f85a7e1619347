"""Loss curves of `roformer finetune` beside transformers' models, trained in float64 on the same batches by torch's own
AdamW, clipping and losses, with the schedule of docs/finetuning.md: BERT with its learned positions, and RoFormer.

An epoch is one batch, so that every step has a line in the metrics and its records are known.
"""

import json
import math

import numpy as np
import pytest
import torch
import transformers

import task_files
import tolerances as tol
from cli_support import results
from parity_case import AdamW, exact_table, save_with_vocabulary

STEPS, RECORDS, LENGTH, SEED = 10, 24, 32, 5
RATE, WARMUP, DECAY, CLIP = 3e-3, 0.3, 0.1, 1.0
SMALL = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40)
SMALL |= dict(max_position_embeddings=LENGTH, type_vocab_size=2, hidden_dropout_prob=0.0)
SMALL |= dict(attention_probs_dropout_prob=0.0)
AUTO_CLASS = "AutoModelForSequenceClassification"


def graded_pairs(seed):
    """Two texts, and a number with a fraction."""
    record = task_files.regression(seed)
    return dict(text=record["text"], pair=" ".join(task_files.sentence(seed, 4)), label=record["label"] + 0.25)


# The records of a task, and its number of labels.
TASKS = dict(classification=(task_files.pairs, 2), regression=(graded_pairs, 1))


@pytest.fixture(scope="module", params=[(task, family) for task in TASKS for family in ("Bert", "RoFormer")])
def case(request, tmp_path_factory):
    """The task, a model of transformers' making with its head, moved by N(0, 0.3), and the task's files."""
    (task, family), folder = request.param, tmp_path_factory.mktemp("curves")
    records, labels = TASKS[task]
    files = task_files.write_splits(folder, records, train=RECORDS, valid=8)
    return task, save_with_vocabulary(folder, AUTO_CLASS, family, num_labels=labels, **SMALL), files


def rate_of(step):
    warmup = math.ceil(WARMUP * STEPS)
    return RATE * step / warmup if step <= warmup else RATE * (STEPS - step) / (STEPS - warmup)


def curve(task, model_dir, files):
    """Loss and gradient norm [STEPS, 2] of each step, in float64."""
    model = exact_table(getattr(transformers, AUTO_CLASS).from_pretrained(model_dir).double().train())
    rows = [json.loads(line) for line in files["train"].read_text().splitlines()]
    tokenizer = transformers.BertTokenizer.from_pretrained(model_dir)
    texts = ([row[name] for row in rows] for name in ("text", "pair"))
    batch = dict(tokenizer(*texts, return_tensors="pt", padding=True, truncation=True, max_length=LENGTH))
    labels = torch.tensor([row["label"] if task == "regression" else int(row["label"] == "yes") for row in rows])
    optimizer = AdamW(model, DECAY, betas=(0.9, 0.999), eps=1e-8)
    found = []
    for step in range(1, STEPS + 1):
        logits = model(**batch).logits
        if task == "regression":
            loss = torch.nn.functional.mse_loss(logits[:, 0], labels.double())
        else:
            loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        found.append((loss.item(), optimizer.update(rate_of(step), CLIP)))
    return np.array(found)


def test_losses_are_those_of_float64(case, tmp_path):
    task, model_dir, files = case
    expected = curve(*case)
    splits = {name: files[name] for name in ("train", "valid")}
    settings = ["--learning-rates", RATE, "--epochs", STEPS, "--batch", RECORDS, "--max-length", LENGTH, "--seed", SEED]
    settings += ["--warmup", WARMUP, "--weight-decay", DECAY, "--clip-norm", CLIP, "--precision", "float32"]
    results(*task_files.options(model_dir, splits, tmp_path / "out", task, *settings))
    (path,) = (tmp_path / "out").glob(f"lr-*/seed-{SEED}/metrics.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [line for line in lines if line["type"] == "train"]
    assert [line["learning_rate"] for line in steps] == pytest.approx([rate_of(s) for s in range(1, STEPS + 1)])
    got = np.array([(line["loss"], line["gradient_norm"]) for line in steps])
    assert len(got) == STEPS and expected[-1, 0] < expected[0, 0]
    # Of the largest: a loss that falls is a difference of outputs and targets, which do not.
    off = np.abs(got - expected).max(axis=0) / expected.max(axis=0)
    assert (off <= (tol.TUNED_LOSS, tol.TUNED_NORM)).all(), off
