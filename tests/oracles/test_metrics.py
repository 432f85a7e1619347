"""The metrics of tasks against scikit-learn, scipy, seqeval and SQuAD's script (spec R-MET-02..05)."""

import collections
import json
import random
import re
import string
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from cli_support import PROGRAM
from tolerances import T1_ATOL, T1_RTOL

PROBE = PROGRAM.parent / "tests" / "metrics_probe"


def ours(cases):
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([PROBE], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def close(got, expected):
    return got == pytest.approx(expected, rel=T1_RTOL, abs=T1_ATOL)


def class_cases():
    rng = np.random.default_rng(1)
    for classes in (2, 2, 2, 3, 7):
        for count in (1, 2, 5, 40, 500):
            gold, predicted = rng.integers(0, classes, (2, count))
            right = rng.random(count) < 0.6
            yield classes, gold, np.where(right, gold, predicted)
    for gold, predicted in (([0] * 6, [0] * 6), ([1] * 6, [0] * 6), ([0, 1, 0], [0] * 3), ([2] * 4, [2, 0, 2, 1])):
        yield 3, np.array(gold), np.array(predicted)
        if max(gold + predicted) < 2:
            yield 2, np.array(gold), np.array(predicted)


def test_classes_as_scikit_learn_has_them():
    cases = list(class_cases())
    results = ours({"of": "classes", "gold": g.tolist(), "predicted": p.tolist(), "classes": n} for n, g, p in cases)
    assert len(results) == len(cases) > 25
    for (classes, gold, predicted), got in zip(cases, results, strict=True):
        labels = list(range(classes))
        assert got["confusion"] == sklearn.metrics.confusion_matrix(gold, predicted, labels=labels).tolist()
        assert close(got["accuracy"], sklearn.metrics.accuracy_score(gold, predicted))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert close(got["matthews"], sklearn.metrics.matthews_corrcoef(gold, predicted))
        assert close(got["macro_f1"], sklearn.metrics.f1_score(gold, predicted, average="macro", zero_division=0))
        of_one = sklearn.metrics.f1_score(gold, predicted, labels=[1], average="macro", zero_division=0)
        assert close(got["f1"], of_one)


def number_cases():
    rng = np.random.default_rng(2)
    for count in (2, 3, 10, 300):
        gold = rng.normal(size=count)
        yield gold, gold + rng.normal(size=count)
        yield np.round(gold), np.round(rng.normal(size=count) * 2) / 2  # many ties
    yield np.array([0, 0, 1e9, 1e9 + 1]), np.array([1, 2, 3, 4.0])
    yield np.arange(5.0), -(np.arange(5.0) ** 3)


def test_numbers_as_scipy_has_them():
    cases = [(g, p) for g, p in number_cases() if len(set(g)) > 1 and len(set(p)) > 1]
    results = ours({"of": "numbers", "gold": g.tolist(), "predicted": p.tolist()} for g, p in cases)
    assert len(results) == len(cases) > 7
    for (gold, predicted), got in zip(cases, results, strict=True):
        assert close(got["pearson"], scipy.stats.pearsonr(gold, predicted).statistic)
        assert close(got["spearman"], scipy.stats.spearmanr(gold, predicted).statistic)
        assert close(got["mse"], sklearn.metrics.mean_squared_error(gold, predicted))


def test_what_is_not_defined_is_null():
    given = [("numbers", [1, 2, 3], [0.1, 0.1, 0.1]), ("numbers", [1], [2]), ("numbers", [], []), ("classes", [], [])]
    asked = [{"of": kind, "gold": gold, "predicted": predicted, "classes": 3} for kind, gold, predicted in given]
    constant, one, none, no_class = ours(asked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(scipy.stats.pearsonr([1, 2, 3], [0.1] * 3).statistic)
    assert constant["pearson"] is None and constant["spearman"] is None and constant["mse"] > 0
    assert one["pearson"] is None and one["mse"] == 1
    assert none == {"pearson": None, "spearman": None, "mse": None}
    assert [no_class[key] for key in ("accuracy", "f1", "macro_f1", "matthews")] == [None] * 4


def test_entities_as_seqeval_has_them():
    """entities.jsonl: label sequences, drawn, and what seqeval 1.2.2 makes of them with mode="strict", scheme=IOB2 and
    zero_division=0. Its source distribution can no longer be installed beside the newest setuptools_scm."""
    cases = [json.loads(line) for line in (Path(__file__).parent / "entities.jsonl").read_text().splitlines()]
    sides = [{side: [text.split() for text in case[side]] for side in ("gold", "predicted")} for case in cases]
    results = ours({"of": "entities"} | each for each in sides)
    for case, got in zip(cases, results, strict=True):
        assert all(close(got[name], case[name]) for name in ("precision", "recall", "f1")), case
    assert sum(case["f1"] not in (0, 1) for case in cases) > 15


# The normalisation and scores of SQuAD's evaluate-v2.0.py.
def squad_words(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def squad_f1(gold, predicted):
    gold, predicted = squad_words(gold), squad_words(predicted)
    same = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    if not gold or not predicted:
        return float(gold == predicted)
    if same == 0:
        return 0.0
    precision, recall = same / len(predicted), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def test_answers_as_squad_has_them():
    rng = random.Random(4)
    words = ["The", "the", "a", "an", "theory", "U.S.", "(1789)", "Washington,", "of", "OF", "--", "state's", "  "]
    cases = []
    for _ in range(200):
        gold = [" ".join(rng.choices(words, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 3))]
        cases.append((gold, " ".join(rng.choices(words, k=rng.randint(0, 4)))))
    cases += [([], ""), ([], "x"), (["x"], ""), (["The U.S."], "us")]
    results = ours({"of": "answer", "gold": g, "predicted": p} for g, p in cases)
    for (gold, predicted), got in zip(cases, results, strict=True):
        answers = gold or [""]
        assert close(got["f1"], max(squad_f1(g, predicted) for g in answers)), (gold, predicted)
        assert got["exact"] == max(float(squad_words(g) == squad_words(predicted)) for g in answers), (gold, predicted)
