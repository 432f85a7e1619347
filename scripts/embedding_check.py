#!/usr/bin/env python3
"""Compares roformer embed with sentence-transformers on STS-B: the cosine of both vectors of each sentence, and the
Spearman correlation of the scores of pairs with human scores.

    python scripts/embedding_check.py --model DIR --data stsb_test.tsv
"""

import argparse
import csv
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

PROGRAM = Path(__file__).resolve().parents[1] / "build/release/roformer"


def ours(model, sentences, program, precision):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.txt"
        path.write_text("".join(s + "\n" for s in sentences), encoding="utf-8")
        output = Path(folder) / "vectors.npy"
        command = [
            program,
            "embed",
            "--model",
            model,
            "--input",
            path,
            "--output",
            output,
            "--overwrite",
            "--precision",
            precision,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return np.load(output)


def cosines(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    return np.sum(x * y, 1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="directory of a sentence encoder")
    parser.add_argument("--data", required=True, help="tab-separated file with sentence1, sentence2 and score")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--precision", default="float32")
    arguments = parser.parse_args()
    with Path(arguments.data).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    sentences = [row[name] for name in ("sentence1", "sentence2") for row in rows]
    scores = [float(row["score"]) for row in rows]

    from sentence_transformers import SentenceTransformer

    vectors = ours(arguments.model, sentences, arguments.program, arguments.precision)
    theirs = SentenceTransformer(arguments.model, device="cpu").encode(sentences, show_progress_bar=False)
    same = cosines(vectors, theirs)
    half = len(rows)
    result = {"pairs": half, "precision": arguments.precision, "cosine_min": same.min(), "cosine_mean": same.mean()}
    result["spearman"] = spearmanr(cosines(vectors[:half], vectors[half:]), scores).statistic
    result["spearman_sentence_transformers"] = spearmanr(cosines(theirs[:half], theirs[half:]), scores).statistic
    print(json.dumps(result))


if __name__ == "__main__":
    main()
