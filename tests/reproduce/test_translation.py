"""X-10 from end to end at scale tiny, on pairs made here; its BLEU against sacreBLEU's."""

import json
import random

import pytest
import sacrebleu

import tolerances as tol
from cli_support import refused, results

WORDS = {"a": "ein", "dog": "Hund", "man": "Mann", "runs": "rennt", "sees": "sieht", "old": "alte", ".": "."}


def write_pairs(folder, name, count):
    rng = random.Random(name)
    lines = [rng.choices(list(WORDS), k=rng.randint(4, 12)) for _ in range(count)]
    (folder / f"{name}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / f"{name}.de").write_text("".join(" ".join(WORDS[word] for word in line) + "\n" for line in lines))


def write_data(tmp_path):
    folder = tmp_path / "data" / "multi30k_en_de"
    folder.mkdir(parents=True)
    for name, count in (("train", 300), ("val", 20), ("test2016", 30)):
        write_pairs(folder, name, count)
    return folder, ["--scale", "tiny", "--data", tmp_path / "data", "--output", tmp_path / "out"]


@pytest.mark.parametrize("side", ("en", "de"))
def test_test_files_of_different_lengths(side, tmp_path):
    """They are refused before training."""
    folder, options = write_data(tmp_path)
    with (folder / f"test2016.{side}").open("a") as file:
        file.write("a\n")
    lines = {"en": 30, "de": 30} | {side: 31}
    message = refused("reproduce", "translation", *options)
    assert f"got {lines['en']} lines in {folder}/test2016.en and {lines['de']} in {folder}/test2016.de" in message
    assert not (tmp_path / "out" / "tiny" / "runs").exists()


def test_translation(tmp_path):
    folder, options = write_data(tmp_path)
    (line,) = results("reproduce", "translation", *options)
    assert line["verdicts"] == {"C-19": "smoke run", "X-10": "smoke run"}
    result = json.loads((tmp_path / "out" / "tiny" / "translation" / "result.json").read_text())
    references = (folder / "test2016.de").read_text().splitlines()
    rows, low, high = result["table"]["rows"][:-2], *(row[4] for row in result["table"]["rows"][-2:])
    assert [row[0] for row in rows] == ["sinusoidal", "rope"]
    for arm, _, seed, loss, bleu in rows:
        run = tmp_path / "out" / "tiny" / "runs" / "translation" / arm / f"seed-{seed}"
        translations = (run / "test.txt").read_text().split("\n")[:-1]
        expected = sacrebleu.corpus_bleu(translations, [references]).score
        assert bleu == pytest.approx(expected, rel=tol.T1_RTOL) and loss < 8
        config = json.loads((run / "averaged" / "config.json").read_text())
        assert config["model_type"] == ("marian" if arm == "sinusoidal" else "rf_translation")
    assert max(row[4] for row in rows) > 0
    assert low <= rows[1][4] - rows[0][4] <= high
    assert {(each["arm"], each["value"]) for each in result["measures"] if each["name"] == "BLEU"} == {
        (row[0], row[4]) for row in rows
    }
    assert results("reproduce", "translation", *options)[0]["kept"] is True
    # Records and metrics are enough to go on elsewhere.
    runs = tmp_path / "out" / "tiny" / "runs" / "translation"
    for path in [*runs.rglob("*.training.json"), *runs.rglob("seed-1/metrics.jsonl")]:
        copy = tmp_path / "elsewhere" / path.relative_to(tmp_path / "out")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    elsewhere = [*options[:-1], tmp_path / "elsewhere"]
    (line,) = results("reproduce", "translation", *elsewhere)
    assert line["kept"] is False
    again = json.loads((tmp_path / "elsewhere" / "tiny" / "translation" / "result.json").read_text())
    assert [again[key] for key in ("table", "measures", "series", "training")] == [
        result[key] for key in ("table", "measures", "series", "training")
    ]
    assert not list((tmp_path / "elsewhere").rglob("model.safetensors"))
    # Translations that are not those of the test set.
    for path in [*runs.rglob("*.training.json"), tmp_path / "out" / "tiny" / "translation" / "result.json"]:
        path.unlink()
    translated = runs / "sinusoidal" / "seed-1" / "test.txt"
    translated.write_text("ein Hund\n")
    message = refused("reproduce", "translation", *options)
    assert f"{translated} must have a line for each line of {folder}/test2016.de, got 1 and 30;" in message
