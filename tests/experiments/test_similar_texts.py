"""The experiment of similar texts on pairs made here; its correlations from vectors of the package and from counts."""

import json
import random
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from cli_support import results
from experiment_sets import CHARACTERS, check_rules, rows_of, small_design, values
from experiments import sentence_vectors, similar_texts

TIES = 5e-3  # what a correlation changes where equal cosines are rounded apart


def write_pairs(path, count):
    """Two sentences that have more characters in common the higher the label is."""
    rng = random.Random(path.name)
    lines = ["sentence1\tsentence2\tlabel"]
    for i in range(count):
        own = rng.sample(CHARACTERS, 10)
        other = own[: 2 * (i % 6)] + rng.sample(CHARACTERS, 10 - 2 * (i % 6))
        lines.append(f'{"".join(own)}\t{"".join(other)}"\t{i % 6 if "stsb" in path.name else i % 2}')
    path.write_text("\n".join(lines) + "\n")


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def counts(text, symbols):
    found = Counter(text)
    return np.array([found[symbol] for symbol in symbols], dtype=float)


def smaller(settings):
    search = settings["search"] | {"rates": [1e-4, 1e-3, 1e-2], "beyond": 0}
    return {"designs": {"zh-sentences": small_design(settings["designs"]["zh-sentences"])}, "search": search}


def test_similar_texts(tmp_path):
    folder, output = tmp_path / "data" / "zh_pairs", tmp_path / "out"
    folder.mkdir(parents=True)
    for name, count in (("afqmc_train", 120), ("stsb_zh_dev", 24), ("stsb_zh_test", 30)):
        write_pairs(folder / f"{name}.tsv", count)
    rows = rows_of(similar_texts, "similar-texts", output, tmp_path / "data", smaller)
    check_rules("similar-texts", rows)
    trained = output / "runs" / "similar-texts" / "seed-1"
    assert json.loads((trained / "report.json").read_text())["steps"] == 60 // 8  # pairs with the label 1
    found = values(rows)
    for part, name in ((similar_texts.DEV, "stsb_zh_dev"), (similar_texts.TEST, "stsb_zh_test")):
        pairs = [line.split("\t") for line in (folder / f"{name}.tsv").read_text().splitlines()[1:]]
        labels = [int(label) for _, _, label in pairs]
        symbols = sorted({symbol for a, b, _ in pairs for symbol in a + b})
        words = [cosine(counts(a, symbols), counts(b, symbols)) for a, b, _ in pairs]
        expected = stats.spearmanr(np.round(words, 12), labels)[0]
        assert found[part, "counts of tokens", 1] == pytest.approx(expected, abs=TIES)
        texts, vectors = tmp_path / f"{name}.txt", tmp_path / f"{name}.npy"
        texts.write_text("".join(f"{a}\n{b}\n" for a, b, _ in pairs))
        results("embed", "--model", trained, "--input", texts, "--output", vectors)
        ours = [cosine(a, b) for a, b in np.load(vectors).astype(float).reshape(len(pairs), 2, -1)]
        assert found[part, "RoFormer-Sim", 1] == pytest.approx(stats.spearmanr(ours, labels)[0], abs=TIES)
    # Of the plain model the vector that is better on dev is read.
    (body,) = (output / "runs" / "zh-sentences").glob("rope/seed-1")
    dev = similar_texts.judged_pairs(folder / "stsb_zh_dev.tsv")
    both = {vector: sentence_vectors.correlation_of_cosines(body, vector, dev, 64) for vector in ("mean", "cls")}
    assert found[similar_texts.DEV, "RoFormer", 1] == max(both.values())
