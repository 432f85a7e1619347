"""roformer train-similar: losses against NumPy and torch, that they fall, resuming, what follows from the model, and
bad input."""

import json
import math
import random
import shutil
import signal

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import roformer_cpp
from cli_support import metrics, refused, results, run, stopped
from training_case import same_model

WORDS = ["red", "blue", "big", "small", "cat", "dog", "runs", "sleeps", "old", "new", "house", "tree"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
SIZES |= dict(max_position_embeddings=64, vocab_size=len(SPECIAL) + len(WORDS))
SIZES |= dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def sentences(count, seed=1):
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.sample(WORDS, 4)
        yield " ".join(words), " ".join(sorted(words))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("similar")
    config = SIZES | {"model_type": "roformer"}
    roformer_cpp.build_model(config, "RoFormerForMaskedLM", seed=1).save(folder / "start")
    (folder / "start" / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    (folder / "start" / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    lines = [f"{a}\t{b}\t1" for a, b in sentences(64)]
    (folder / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel", *lines, "red\tblue cat\t0"]) + "\n")
    made = list(sentences(12, seed=2))
    scored = [f"{a}\t{b}\t5" for a, b in made[:6]]
    scored += [f"{a}\t{b}\t1" for (a, _), (_, b) in zip(made[6:], made[:6], strict=True)]
    (folder / "valid.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel", *scored]) + "\n")
    return folder


def arguments(house, output, *more):
    """`more`: names and values, which take the place of those here."""
    given = {"--model": house / "start", "--pairs": house / "pairs.tsv", "--label": 1, "--output": output}
    given |= {"--columns": "text=sentence1,pair=sentence2,label=label", "--batch": 8, "--max-length": 12}
    given |= {"--precision": "float32", **dict(zip(more[::2], more[1::2], strict=True))}
    return ["train-similar", *(part for option in given.items() for part in option)]


def vectors_and_losses(model, rows):
    """(generation, similarity) of rows [CLS] a [SEP] b [SEP], by the formulas in float64."""
    predicted, vectors = [], []
    with torch.no_grad():
        for ids, types in rows:
            out = model(torch.tensor([ids]), token_type_ids=torch.tensor([types]))
            logits = out["logits"][0].log_softmax(-1)
            predicted += [-logits[t - 1, ids[t]].item() for t in range(1, len(ids)) if types[t] == 1]
            vectors.append(out["pooled"][0].numpy())
    unit = np.stack(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = 20 * unit @ unit.T
    np.fill_diagonal(scores, -np.inf)
    partner = np.arange(len(rows)) ^ 1
    similarity = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(rows)), partner]
    return np.mean(predicted), similarity.mean()


def test_the_losses_of_the_first_step(house, tmp_path):
    """One step over all pairs, so that the order does not matter; the pooler of the start comes from the same seed."""
    more = ["--mask", 0, "--learning-rate", 1e-9, "--batch", 64]
    (report,) = results(*arguments(house, tmp_path / "out", *more))
    assert report["steps"] == 1 and report["pairs"] == 64
    model = roformer_cpp.load_model(tmp_path / "out", dtype="float64")  # as after a step of next to nothing
    ids = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    rows = []
    for a, b in sentences(64):
        for first, second in ((a, b), (b, a)):
            x, y = ([ids[word] for word in text.split()] for text in (first, second))
            rows.append(([2, *x, 3, *y, 3], [0] * (len(x) + 2) + [1] * (len(y) + 1)))
    generation, similarity = vectors_and_losses(model, rows)
    assert report["generation_loss"] == pytest.approx(generation, rel=1e-5)
    assert report["similarity_loss"] == pytest.approx(similarity, rel=1e-5)
    assert abs(generation - math.log(len(ids))) < 0.2


@pytest.fixture(scope="module")
def trained(house):
    valid = ["--valid", house / "valid.tsv", "--epochs", 80, "--learning-rate", 2e-3, "--mask", 0.2]
    (report,) = results(*arguments(house, house / "sim", *valid))
    return house / "sim", report


def test_the_losses_fall(trained, house):
    folder, report = trained
    lines = metrics(folder, "train")
    assert report["steps"] == 640 and lines[-1]["step"] == 640
    assert lines[-1]["generation_loss"] < 0.5 * lines[0]["generation_loss"]
    assert lines[-1]["similarity_loss"] < 0.5 * lines[0]["similarity_loss"]
    engine = roformer_cpp.Engine(folder)
    records = [line.split("\t") for line in (house / "valid.tsv").read_text().splitlines()[1:]]
    left, right = (engine.embed([record[i] for record in records]) for i in (0, 1))
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    expected = spearmanr(cosines, [float(record[2]) for record in records]).statistic
    assert report["spearman"] == pytest.approx(expected, abs=1e-3) and expected > 0.7
    assert metrics(folder, "evaluation")[-1]["spearman"] == pytest.approx(report["spearman"])


def test_what_the_model_writes_and_finds(trained, house, tmp_path):
    folder, _ = trained
    config = json.loads((folder / "config.json").read_text())
    assert config["prefix_lm"] is True and config["architectures"] == ["RfEncoderForCausalLM"]
    asked = list(sentences(64))[:16]
    lines = results("generate", "--model", folder, *(part for text, _ in asked for part in ("--prompt", text)))
    assert all(line["stopped"] for line in lines)
    assert sum(line["text"] == ordered for line, (_, ordered) in zip(lines, asked, strict=True)) >= 8
    made = list(sentences(8, seed=5))
    (tmp_path / "texts.txt").write_text("".join(f"{ordered}\n" for _, ordered in made))
    queries = [part for text, _ in made for part in ("--query", text)]
    best = results("similar", "--model", folder, *queries, "--input", tmp_path / "texts.txt", "--top-k", 1)
    assert sum(line["text"] == ordered for line, (_, ordered) in zip(best, made, strict=True)) >= 6


def test_held_out_text_is_refused(trained, tmp_path):
    """Without a prefix the model would see what it predicts."""
    folder, _ = trained
    (tmp_path / "text.txt").write_text("red cat\n\nblue dog runs\n\nbig house\n")
    options = ["--documents", "blank-line", "--valid-fraction", 0.5, "--model", folder, "--output", tmp_path / "data"]
    results("prepare", "--input", tmp_path / "text.txt", *options)
    message = refused("evaluate", "--model", folder, "--data", tmp_path / "data")
    rule = "prefix_lm must be false, because a text without a prefix has nothing to predict"
    assert message.splitlines()[-1] == f"[evaluate] {rule}, got true in {folder}"


def interrupt(command, output):
    assert stopped(signal.SIGINT, lambda: any(output.glob("checkpoint-*")), *command)[0] == 130


def test_a_killed_run_goes_on(house, tmp_path):
    options = ["--epochs", 30, "--learning-rate", 1e-3]
    whole, cut = (arguments(house, tmp_path / name, *options) for name in ("whole", "cut"))
    (report,) = results(*whole)
    interrupt(cut, tmp_path / "cut")
    results(*cut)
    assert same_model(tmp_path / "cut", tmp_path / "whole") and not any((tmp_path / "cut").glob("checkpoint-*"))
    written = (tmp_path / "whole" / "model.safetensors").stat().st_mtime_ns
    assert results(*whole) == [report]
    assert (tmp_path / "whole" / "model.safetensors").stat().st_mtime_ns == written
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


def test_another_model_is_refused(house, tmp_path):
    """What counts is what the directory holds, not its name."""
    start, moved = tmp_path / "start", tmp_path / "moved"
    shutil.copytree(house / "start", start)

    def of_model(folder):
        return arguments(house, tmp_path / "cut", "--epochs", 30, "--learning-rate", 1e-3, "--model", folder)

    interrupt(of_model(start), tmp_path / "cut")
    start.rename(moved)
    other = roformer_cpp.build_model(json.loads((moved / "config.json").read_text()), "RoFormerForMaskedLM", seed=2)
    shutil.copytree(moved, start)
    other.save(start)
    message = refused(*of_model(start))
    assert "the settings must be those of the run" in message and "/model" in message
    results(*of_model(moved))


def test_bad_options(house, tmp_path):
    for option, value, rule in (
        ("--batch", 65, "at least as many pairs as a batch has, 65, got 64 with the label 1"),
        ("--batch", 1, "batch must be from 2"),
        ("--columns", "text=nothing", "nothing"),
        ("--max-length", 2, "max-length must be from 3"),
        ("--mask", 2, "mask must be from 0 to 1, got 2"),
        ("--learning-rate", 0, "learning-rate must be a finite number above 0"),
    ):
        assert rule in refused(*arguments(house, tmp_path / "out", option, value)), option


def test_a_refused_run_may_be_corrected(house, tmp_path):
    learned = {"position_encoding": "learned", "model_type": "rf_encoder", "max_position_embeddings": 20}
    start = tmp_path / "start"
    shutil.copytree(house / "start", start)
    roformer_cpp.build_model(SIZES | learned, "RfEncoderForMaskedLM", seed=1).save(start)
    given = [house, tmp_path / "out", "--epochs", 1, "--model", start]
    assert "24" in refused(*arguments(*given))
    results(*arguments(*given, "--max-length", 10))


def test_texts_that_are_cut_are_named(house, tmp_path):
    """A pair of nine words fits into 12 tokens, with three special ones; a text of four into six."""
    words = " ".join(WORDS)
    pairs = ["red cat\told dog"] * 3 + [f"{words[:8]}\t{words}", f"{words}\t{words}"]
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tlabel\n" + "".join(f"{pair}\t1\n" for pair in pairs))
    (tmp_path / "valid.tsv").write_text(f"sentence1\tsentence2\tlabel\nred\tcat\t1\nred\t{words}\t2\n")
    given = ["--pairs", tmp_path / "pairs.tsv", "--valid", tmp_path / "valid.tsv", "--batch", 5, "--max-length", 6]
    done = run(*arguments(house, tmp_path / "out", *given))
    assert done.returncode == 0, done.stderr
    rule = "tokens are cut, the first in"
    assert f"2 pairs of more than 12 {rule} {tmp_path}/pairs.tsv line 5\n" in done.stderr
    assert f"1 texts of --valid of more than 6 {rule} {tmp_path}/valid.tsv line 3\n" in done.stderr


def test_a_finished_run_is_evaluated_on_other_pairs(house, tmp_path):
    """Other settings are refused."""
    valid = ["--valid", house / "valid.tsv"]
    (expected,) = results(*arguments(house, tmp_path / "with", *valid))
    results(*arguments(house, tmp_path / "without"))
    exchanged = ["--columns", "text=sentence2,pair=sentence1,label=label"]
    for more, difference in (
        (exchanged, '"sentence1" at /columns/pair where there was "sentence2"'),
        (["--epochs", 2], "the settings must be those of the run"),
    ):
        assert difference in refused(*arguments(house, tmp_path / "without", *more))
    for _ in range(2):
        (report,) = results(*arguments(house, tmp_path / "without", *valid))
        assert report["spearman"] == expected["spearman"]
        assert len(metrics(tmp_path / "without", "evaluation")) == 1
    assert same_model(tmp_path / "with", tmp_path / "without")


def test_bad_records(house, tmp_path):
    bad = tmp_path / "bad.tsv"
    bad.write_text("sentence1\tsentence2\tlabel\n" + "red\tblue\t1\n" * 9 + "red\t \t1\n")
    assert "bad.tsv line 11" in refused(*arguments(house, tmp_path / "out", "--pairs", bad))
    given = arguments(house, tmp_path / "out", "--columns", "score=x")
    assert "text, pair and label, got score" in refused(*given, code=2)
