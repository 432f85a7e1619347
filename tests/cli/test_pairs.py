"""Pretraining on pairs of sentences, next-sentence and sentence-order prediction: the losses against transformers and
torch in float64 over the same rows, what is learned and what cannot be, resuming, what opens the model, bad input."""

import json
import random
import signal

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import task_files
from cli_support import metrics, refused, results, stopped
from shard_file import probe
from tolerances import T4_MAX

TASKS = ("next_sentence", "sentence_order")
EARLY, LATE = ([f"{side}{i}" for i in range(10)] for side in ("early", "late"))
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODEL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
MODEL |= dict(max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LENGTH = 16


def ordered(rng):
    """A document whose order can be told: six early words, then six late ones."""
    return rng.choices(EARLY, k=6) + rng.choices(LATE, k=6)


def make_data(folder, document, words, documents=600):
    rng = random.Random(1)
    (folder / "words").mkdir(parents=True)
    (folder / "words" / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
    (folder / "words" / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    (folder / "text.txt").write_text("\n".join(" ".join(document(rng)) for _ in range(documents)) + "\n")
    given = ["--input", folder / "text.txt", "--documents", "line", "--valid-fraction", 0.2]
    results("prepare", *given, "--model", folder / "words", "--output", folder / "data")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("pairs"), ordered, EARLY + LATE)


RUN = dict(stages=[dict(max_length=LENGTH, batch=16, steps=8)], precision="float32", log_every_steps=2)
RUN |= dict(schedule=dict(kind="constant", learning_rate=2e-3, warmup_steps=2))


def pretrain(folder, output, model=None, **keys):
    model = {} if "init_from" in keys else {"model": MODEL | (model or {})}
    config = output.with_suffix(".json")
    config.write_text(json.dumps(RUN | model | keys))
    return ["pretrain", "--config", config, "--data", folder / "data", "--output", output]


@pytest.fixture(scope="module")
def trained(data):
    """A RoFormer, which has learned the order, and a BERT of some steps."""
    steps = [dict(max_length=LENGTH, batch=32, steps=250)]
    results(*pretrain(data, data / "roformer", pairs="sentence_order", stages=steps))
    bert = dict(family="bert", position_encoding="learned")
    results(*pretrain(data, data / "bert", pairs="next_sentence", model=bert))
    return data


def test_the_order_is_learned(trained):
    (evaluation,) = metrics(trained / "roformer", "evaluation")
    documents = json.loads((trained / "data" / "data.json").read_text())["splits"]["valid"]["documents"]
    assert evaluation["pairs"] == documents > 100 and evaluation["pair_accuracy"] > 0.9
    lines = metrics(trained / "roformer", "train")
    assert lines[0]["pair_loss"] > 0.5 and lines[-1]["pair_loss"] < 0.3 and lines[-1]["pair_accuracy"] > 0.9
    for line in (evaluation, lines[0]):
        assert {"loss", "pair_loss", "pair_accuracy"} <= line.keys()


def probe_rows(data, pairs, seed=1):
    asked = dict(split="valid", max_length=LENGTH, mask_probability=0.7, seed=seed, pairs=pairs)
    rows = probe("rows", data / "data", **asked)
    assert len(rows) > 50 and 0.2 < np.mean([row["pair_label"] for row in rows]) < 0.8
    return rows


def bert_logits(folder):
    theirs, info = transformers.BertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    theirs = theirs.double().eval()

    def logits(ids, types):
        out = theirs(torch.tensor([ids]), token_type_ids=torch.tensor([types]))
        return out.prediction_logits[0], out.seq_relationship_logits

    return logits


def roformer_logits(folder):
    """transformers' RoFormerForMaskedLM, and the pooler and the layer of pairs by hand."""
    theirs, info = transformers.RoFormerForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and len(info["unexpected_keys"]) == 4
    theirs, stored = theirs.double().eval(), load_file(folder / "model.safetensors")
    pooler, classes = (
        [torch.from_numpy(stored[f"{name}.{part}"]).double() for part in ("weight", "bias")]
        for name in ("roformer.pooler.dense", "cls.seq_relationship")
    )

    def logits(ids, types):
        out = theirs(torch.tensor([ids]), token_type_ids=torch.tensor([types]), output_hidden_states=True)
        first = out.hidden_states[-1][:, 0]
        pooled = torch.tanh(torch.nn.functional.linear(first, *pooler))
        return out.logits[0], torch.nn.functional.linear(pooled, *classes)

    return logits


@pytest.mark.parametrize("family", ("bert", "roformer"))
def test_losses_are_those_of_transformers(family, trained):
    task = dict(bert="next_sentence", roformer="sentence_order")[family]
    logits_of = dict(bert=bert_logits, roformer=roformer_logits)[family](trained / family)
    token_losses, pair_losses, right = [], [], []
    with torch.no_grad():
        for row in probe_rows(trained, task):
            tokens, pair = logits_of(row["ids"], row["types"])
            labels, label = torch.tensor(row["labels"], dtype=torch.long), torch.tensor([row["pair_label"]])
            if len(labels):
                cross_entropy = torch.nn.functional.cross_entropy(tokens[row["places"]], labels, reduction="none")
                token_losses += cross_entropy.tolist()
            pair_losses.append(torch.nn.functional.cross_entropy(pair, label).item())
            right.append(pair.argmax(-1).item() == row["pair_label"])
    given = ["--model", trained / family, "--data", trained / "data", "--max-length", LENGTH, "--pairs", task]
    for packing in ([], ["--padded"]):
        (got,) = results("evaluate", *given, "--mask-probability", 0.7, "--seed", 1, *packing)
        assert got["pairs"] == len(right) and got["pair_accuracy"] == pytest.approx(np.mean(right), rel=1e-12)
        assert abs(got["loss"] - np.mean(token_losses)) <= T4_MAX * np.mean(token_losses)
        assert abs(got["pair_loss"] - np.mean(pair_losses)) <= T4_MAX * max(np.mean(pair_losses), 1)
    assert np.mean(pair_losses) > 1e-3


def test_a_killed_run_has_the_same_bits(data, tmp_path):
    stages = [dict(max_length=LENGTH, batch=16, accumulate=2, steps=14), dict(max_length=9, batch=8, steps=10)]
    keys = dict(pairs="next_sentence", stages=stages, model=dict(hidden_dropout_prob=0.1), log_every_steps=3)
    keys |= dict(checkpoint_every_steps=2, evaluate_every_steps=5)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    results(*pretrain(data, whole, **keys))
    code, _, _ = stopped(signal.SIGKILL, (cut / "checkpoint-6").exists, *pretrain(data, cut, **keys))
    assert code == -signal.SIGKILL
    results(*pretrain(data, cut, **keys), "--resume")
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert metrics(cut) == metrics(whole) != []
    other = refused(*pretrain(data, cut, **keys | dict(pairs="sentence_order")), "--resume")
    assert "/pairs" in other


def test_what_opens_the_model(trained, tmp_path):
    for family, name in (("roformer", "RoFormerForPreTraining"), ("bert", "BertForPreTraining")):
        config = json.loads((trained / family / "config.json").read_text())
        assert config["architectures"] == [name]
        (best, *_) = results("fill-mask", "--model", trained / family, "--text", "early1 [MASK] late2", "--top-k", 1)
        assert best
        (plain,) = results("evaluate", "--model", trained / family, "--data", trained / "data", "--max-length", LENGTH)
        assert "pairs" not in plain and plain["loss"] > 0
    # From the pooler of another run, and from a run without one.
    results(*pretrain(trained, tmp_path / "plain"))
    for start in (trained / "roformer", tmp_path / "plain"):
        output = tmp_path / f"from-{start.name}"
        results(*pretrain(trained, output, pairs="sentence_order", init_from=str(start)))
    first = [metrics(tmp_path / f"from-{name}", "train")[0]["pair_accuracy"] for name in ("roformer", "plain")]
    assert first[0] > 0.9 > first[1]


def test_fine_tuning_of_a_bert_begins_from_the_pooler(trained, tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "early1 late1\ta\nlate1 early1\tb\n" * 8)
    files = dict.fromkeys(("train", "valid"), tmp_path / "train.tsv")
    more = ("--epochs", 1, "--learning-rates", 1e-9, "--max-length", LENGTH)
    results(*task_files.options(trained / "bert", files, tmp_path / "tuned", "classification", *more))
    before, after = (load_file(path / "model.safetensors") for path in (trained / "bert", tmp_path / "tuned"))
    assert np.abs(before["bert.pooler.dense.weight"] - after["bert.pooler.dense.weight"]).max() < 1e-6


def one_document(folder, text):
    make_data(folder, lambda rng: ["early1"], EARLY, documents=4)
    for name in ("one.txt", "valid.txt"):
        (folder / name).write_text(text)
    given = ["--input", folder / "one.txt", "--valid-input", folder / "valid.txt", "--model", folder / "words"]
    results("prepare", *given, "--output", folder / "data")
    return folder


def test_bad_input_is_named(data, trained, tmp_path):
    def message(folder=data, **keys):
        said = refused(*pretrain(folder, tmp_path / "out", **keys))
        assert not list((tmp_path / "out").glob("checkpoint-*"))
        return said.splitlines()[-1]

    types = "type_vocab_size must be at least 2 with pairs, got 1"
    assert message(pairs="sentence_order", model=dict(type_vocab_size=1)) == f"[run file] model.{types}"
    results(*pretrain(data, tmp_path / "one-type", model=dict(type_vocab_size=1)))
    started = message(pairs="sentence_order", init_from=str(tmp_path / "one-type"))
    assert started == f"[run file] init_from.{types}"
    single = one_document(tmp_path / "single", "early1 early2 early3 early4 early5 early6\n")
    assert "must have at least two documents for next-sentence prediction, got one" in message(single, pairs=TASKS[0])
    short = one_document(tmp_path / "short", "early1\n")
    assert "must have a document of at least 2 tokens to divide into a pair, got none" in message(short, pairs=TASKS[1])

    plain = tmp_path / "one-type"
    evaluate = ["evaluate", "--data", data / "data", "--model", plain, "--max-length", LENGTH]
    rule = "[evaluate] pairs need a model that was pretrained with them, a ..ForPreTraining, got"
    message = refused(*evaluate, "--pairs", "next_sentence").splitlines()[-1]
    assert message == f'{rule} "RoFormerForMaskedLM" in {plain}'
    assert "must be one of" in refused(*evaluate, "--pairs", "sop", code=2)
    given = ["--model", trained / "bert", "--input", data / "text.txt", "--pairs", "next_sentence"]
    assert "--pairs must be left out with --input" in refused("evaluate", *given, code=2)
