"""X-21 from end to end at scale tiny, on pairs made here; its correlations from vectors of the Python package."""

import json
import random
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from cli_support import results

TIES = 5e-3  # what a correlation changes where equal cosines are rounded apart
CHARACTERS = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"


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


def test_similar_texts(tmp_path):
    folder = tmp_path / "data" / "zh_pairs"
    folder.mkdir(parents=True)
    for name, count in (("afqmc_train", 400), ("stsb_zh_dev", 24), ("stsb_zh_test", 30)):
        write_pairs(folder / f"{name}.tsv", count)
    options = ["--scale", "tiny", "--data", tmp_path / "data", "--output", tmp_path / "out"]
    (line,) = results("reproduce", "similar-texts", *options)
    assert line["verdicts"] == {"X-21": "smoke run"}
    output = tmp_path / "out" / "tiny"
    result = json.loads((output / "similar-texts" / "result.json").read_text())
    assert "RoFormer-Sim" in [each["arm"] for each in result["rates"]]
    trained = output / "runs" / "similar-texts" / "seed-1"
    assert json.loads((trained / "report.json").read_text())["steps"] == 200 // 8
    rows = {row[0]: row for row in result["table"]["rows"]}
    assert list(rows) == ["RoFormer-Sim", "RoFormer", "counts of tokens"]
    assert rows["RoFormer"][1] in ("mean of tokens", "[CLS]")
    for column, name in ((3, "stsb_zh_dev"), (4, "stsb_zh_test")):
        pairs = [line.split("\t") for line in (folder / f"{name}.tsv").read_text().splitlines()[1:]]
        labels = [int(label) for _, _, label in pairs]
        symbols = sorted({symbol for a, b, _ in pairs for symbol in a + b})
        words = [cosine(counts(a, symbols), counts(b, symbols)) for a, b, _ in pairs]
        expected = stats.spearmanr(np.round(words, 12), labels)[0]
        assert rows["counts of tokens"][column] == pytest.approx(expected, abs=TIES)
        texts, vectors = tmp_path / f"{name}.txt", tmp_path / f"{name}.npy"
        texts.write_text("".join(f"{a}\n{b}\n" for a, b, _ in pairs))
        results("embed", "--model", trained, "--input", texts, "--output", vectors)
        ours = [cosine(a, b) for a, b in np.load(vectors).astype(float).reshape(len(pairs), 2, -1)]
        assert rows["RoFormer-Sim"][column] == pytest.approx(stats.spearmanr(ours, labels)[0], abs=TIES)
    assert {(each["arm"], each["value"]) for each in result["measures"]} == {(row[0], row[4]) for row in rows.values()}
    assert results("reproduce", "similar-texts", *options)[0]["kept"] is True
