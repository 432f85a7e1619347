#!/usr/bin/env python3
"""Compares roformer embed with sentence-transformers on STS-B: the cosine of both vectors of each sentence, and the
Spearman correlation of the scores of pairs with human scores."""

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import roformer_cpp


def cosines(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    return np.sum(x * y, 1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="directory of a sentence encoder")
    parser.add_argument("--data", type=Path, required=True, help="tab-separated: sentence1, sentence2 and score")
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    with given.data.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    sentences = [row[name] for name in ("sentence1", "sentence2") for row in rows]
    vectors = {
        "": roformer_cpp.Engine(given.model, precision=given.precision).embed(sentences),
        "_sentence_transformers": SentenceTransformer(given.model, device="cpu").encode(sentences),
    }
    same, pairs, scores = cosines(*vectors.values()), len(rows), [float(row["score"]) for row in rows]
    result = {"pairs": pairs, "precision": given.precision, "cosine_min": same.min(), "cosine_mean": same.mean()}
    for name, x in vectors.items():
        result[f"spearman{name}"] = spearmanr(cosines(x[:pairs], x[pairs:]), scores).statistic
    print(json.dumps(result))


if __name__ == "__main__":
    main()
