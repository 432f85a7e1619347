"""The experiment of translation from end to end, on pairs made here; its BLEU against sacreBLEU's."""

import json
import random

import numpy as np
import pytest
import sacrebleu

import tolerances as tol
from experiment_sets import check_rules, rows_of, values
from experiments import table1_translation as table1

WORDS = {"a": "ein", "dog": "Hund", "man": "Mann", "runs": "rennt", "sees": "sieht", "old": "alte", ".": "."}


def write_pairs(folder, name, count):
    rng = random.Random(name)
    lines = [rng.choices(list(WORDS), k=rng.randint(4, 12)) for _ in range(count)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in line) + "\n" for line in lines))


@pytest.fixture
def data(tmp_path):
    for name, count in (("train", 120), ("val", 8), ("test2016", 10)):
        write_pairs(tmp_path / "data" / "multi30k_en_de", name, count)
    return tmp_path / "data"


def test_test_files_of_different_lengths(data, tmp_path):
    """They are refused before training."""
    with (data / "multi30k_en_de" / "test2016.de").open("a") as file:
        file.write("a\n")
    with pytest.raises(ValueError, match=r"got 10 lines in \S+/test2016.en and 11 in \S+/test2016.de"):
        rows_of(table1, "translation", tmp_path / "out", data)
    assert not (tmp_path / "out").exists()


def smaller(settings):
    model = settings["run"]["model"] | {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    sizes = {"steps": 100, "max_tokens": 256, "checkpoint_every_steps": 20, "evaluate_every_steps": 100}
    schedule = settings["run"]["schedule"] | {"learning_rate": 2e-2, "warmup_steps": 20}
    search = {"rates": [2e-2], "steps": 8, "seed": 1000, "beyond": 0, "lower": 0}
    run = settings["run"] | sizes | {"model": model, "schedule": schedule}
    return {"run": run, "search": search, "vocabulary": 280}


def test_translation(data, tmp_path):
    rows = rows_of(table1, "translation", tmp_path / "out", data, smaller)
    check_rules("translation", rows)
    found = values(rows)
    references = (data / "multi30k_en_de" / "test2016.de").read_text().splitlines()
    for arm in ("sinusoidal", "rope"):
        directory = tmp_path / "out" / "runs" / "translation" / arm / "seed-1"
        translations = (directory / "test.txt").read_text().split("\n")[:-1]
        expected = sacrebleu.corpus_bleu(translations, [references]).score
        assert found["BLEU", arm, 1] == pytest.approx(expected, rel=tol.T1_RTOL)
        assert found["BLEU above the least of the scale", arm, 1] == pytest.approx(expected - 33, rel=tol.T1_RTOL)
        assert [row["step"] for row in rows if row["arm"] == arm and row["step"] is not None][-1] == 100
    written = json.loads((tmp_path / "out" / "runs" / "translation" / "rope" / "seed-1" / "run.json").read_text())
    assert written["translation"]["schedule"]["kind"] == "inverse_sqrt"
    assert max(found["BLEU", arm, 1] for arm in ("sinusoidal", "rope")) > 0
    ends = (f"BLEU, paired bootstrap over lines: {end}" for end in ("low", "high"))
    low, high = (found[end, "rope less sinusoidal", None] for end in ends)
    assert low <= found["BLEU", "rope", 1] - found["BLEU", "sinusoidal", 1] <= high
    # What is finished is not done again, also without the weights.
    for weights in (tmp_path / "out").rglob("model.safetensors"):
        weights.unlink()
    assert rows_of(table1, "translation", tmp_path / "out", data, smaller) == rows


def test_bootstrap():
    """Lines of which one system is right in all and the other in none: every draw has the same difference."""
    references = ["ein Hund rennt schnell .", "der alte Mann sieht ihn .", "ein Mann und ein Hund ."]
    right, wrong = (table1.bleu_counts(lines, references) for lines in (references, ["x y z"] * 3))
    assert table1.bootstrap([right, right], [right], 20, 1).tolist() == [0, 0]
    low, high = table1.bootstrap([right], [wrong], 20, 1)
    of_draws = sacrebleu.corpus_bleu(["x y z"] * 3, [references]).score
    assert 90 < low <= high < 100.01 and np.isclose(table1.bleu(wrong.sum(0)), of_draws)
    mixed = [references[0], "x y z", references[2]]
    expected = sacrebleu.corpus_bleu(mixed, [references]).score
    assert table1.bleu(table1.bleu_counts(mixed, references).sum(0)) == pytest.approx(expected, rel=1e-12)
