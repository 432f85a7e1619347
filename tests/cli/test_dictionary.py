"""The dictionary of a segmenting tokenizer travels with data and models: texts are cut as they were in training."""

import json
import os
import random
import shutil

import pytest

import task_files
from cli_support import pretrain, refused, results, run, run_file, started, wait_for

CHARACTERS = "今天气非常好我们在北京"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS, "非常", "今天", "天气", "北京", "京我", "好我们"]
DICTIONARY = "今天 500 t\n天气 400 n\n非常 300 d\n我们 200 r\n北京 100 ns\n"
OTHER = "今 500 t\n天 400 n\n非 300 d\n我 200 r\n京我 100 ns\n"
USER = "好我们 100000\n"
TEXT = "今天天气非常好我们在北京我们\n"


def ids(*arguments):
    (row,) = results("tokenize", *arguments, stdin=TEXT)
    return row["ids"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """vocabulary/ without a dictionary, own.txt, other.txt, user.txt, and data/ and run/ made with own.txt."""
    folder = tmp_path_factory.mktemp("dictionary")
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    config = {"tokenizer_class": "RoFormerTokenizer"}
    (folder / "vocabulary" / "tokenizer_config.json").write_text(json.dumps(config))
    for name, words in dict(own=DICTIONARY, other=OTHER, user=USER).items():
        (folder / f"{name}.txt").write_text(words, encoding="utf-8")
    rng = random.Random(1)
    lines = ["".join(rng.choices(CHARACTERS, k=30)) for _ in range(60)]
    (folder / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    source = ["--input", folder / "corpus.txt", "--documents", "line", "--model", folder / "vocabulary"]
    results("prepare", *source, "--dict", folder / "own.txt", "--output", folder / "data", "--valid-fraction", 0.2)
    config = run_file(folder / "run.json", evaluate_every_steps=4)
    results(*pretrain(folder, config, folder / "run"))
    return folder


@pytest.mark.parametrize("made", ["data", "run", "run/checkpoint-6"])
def test_data_and_model_cut_as_they_were_made(folder, made):
    vocabulary = ["--model", folder / "vocabulary", "--dict"]
    assert ids(*vocabulary, folder / "own.txt") != ids(*vocabulary, folder / "other.txt")
    assert ids("--model", folder / made) == ids(*vocabulary, folder / "own.txt")


def test_another_dictionary_is_an_error_unless_it_is_given(folder, tmp_path):
    """And so is one that is gone, also where the set-up has put a dictionary beside the program."""
    copy = shutil.copytree(folder / "run", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint-*"))
    (copy / "dict.txt").write_text(OTHER, encoding="utf-8")
    recorded = json.loads((copy / "tokenizer_config.json").read_text())["roformer_dictionary"]
    manifest = json.loads((folder / "data" / "data.json").read_text())
    assert manifest["dictionary"] == recorded
    message = refused("tokenize", "--model", copy, stdin=TEXT)
    assert recorded in message and str(copy / "dict.txt") in message and "--dict" in message
    given = ids("--model", copy, "--dict", folder / "other.txt")
    assert given == ids("--model", folder / "vocabulary", "--dict", folder / "other.txt")
    (copy / "dict.txt").unlink()
    assert "dictionary" in refused("tokenize", "--model", copy, stdin=TEXT)


def records(folder, count, more=""):
    """Files of train and valid with texts of the characters."""
    rng = random.Random(3)
    texts = ["".join(rng.choices(CHARACTERS, k=12)) + more for _ in range(count)]
    rows = [dict(id=str(i), text=text, label="ab"[i % 2]) for i, text in enumerate(texts)]
    return {name: task_files.write(folder / f"{name}.jsonl", rows) for name in ("train", "valid")}


def test_user_words_of_a_fine_tuning(folder, tmp_path):
    """The files keep the user dictionary, and predict and evaluate need no option."""
    files = records(tmp_path, 24, TEXT.strip())
    out = tmp_path / "out"
    users = ["--user-dict", folder / "user.txt"]
    done = run(*task_files.options(folder / "run", files, out, "classification", "--epochs", 1), *users)
    assert done.returncode == 0, done.stderr
    own = ids("--model", folder / "run", *users)
    assert own != ids("--model", folder / "run")
    assert ids("--model", out) == own == ids("--model", out, *users)
    assert ids("--model", out, "--dict", folder / "own.txt", *users) == own
    predict = ["predict", "--model", out, "--input", files["valid"]]
    assert results(*predict) == results(*predict, *users)


def test_a_dictionary_that_changes_while_data_are_prepared(folder, tmp_path):
    """The input is a pipe: what is read of it waits until the dictionary, read before, has changed."""
    given, corpus = tmp_path / "given.txt", tmp_path / "corpus.txt"
    given.write_text(DICTIONARY, encoding="utf-8")
    os.mkfifo(corpus)
    arguments = ["prepare", "--model", folder / "vocabulary", "--dict", given, "--input", corpus]
    child = started(*arguments, "--output", tmp_path / "data")
    with corpus.open("w", encoding="utf-8") as pipe:  # once the program opens it too
        given.write_text(OTHER, encoding="utf-8")
        pipe.write(TEXT)
    _, message = child.communicate(timeout=600)
    assert child.returncode == 0, message
    assert (tmp_path / "data" / "dict.txt").read_text(encoding="utf-8") == DICTIONARY
    assert ids("--model", tmp_path / "data") == ids("--model", folder / "vocabulary", "--dict", folder / "own.txt")


def test_dictionaries_that_change_while_a_fine_tuning_runs(folder, tmp_path):
    """One is written over and one deleted in the first of several runs; the finished model has them as they were."""
    files = records(tmp_path, 80)
    given, user, out = tmp_path / "given.txt", tmp_path / "user.txt", tmp_path / "out"
    given.write_text(OTHER, encoding="utf-8")
    user.write_text(USER, encoding="utf-8")
    more = ["--epochs", 3, "--seeds", 3, "--dict", given, "--user-dict", user]
    child = started(*task_files.options(folder / "run", files, out, "classification", *more))
    wait_for(lambda: list(out.glob("*/*/metrics.jsonl")), child)
    given.write_text(DICTIONARY, encoding="utf-8")
    user.unlink()
    assert child.poll() is None and not (out / "report.json").exists()
    _, message = child.communicate(timeout=600)
    assert child.returncode == 0, message
    assert (out / "task.json").exists()
    assert (out / "dict.txt").read_text(encoding="utf-8") == OTHER
    assert (out / "user_dict.txt").read_text(encoding="utf-8") == USER
    given = ["--dict", folder / "other.txt", "--user-dict", folder / "user.txt"]
    assert ids("--model", out) == ids("--model", folder / "run", *given)


def test_several_user_dictionaries_become_one(folder, tmp_path):
    (tmp_path / "second.txt").write_text("天天 90000\n好我们 0", encoding="utf-8")  # no line break at its end
    given = ["--model", folder / "vocabulary", "--dict", folder / "own.txt"]
    given += ["--user-dict", folder / "user.txt", tmp_path / "second.txt"]
    results("prepare", "--input", folder / "corpus.txt", *given, "--output", tmp_path / "data")
    assert ids("--model", tmp_path / "data") == ids(*given)
