"""What finetune, predict and evaluate refuse and warn of: file and line are named, and nothing is written. Numbers of
options are tests/train/finetune_data_test.cpp's, records of each task tests/tasks/tasks_test.cpp's."""

import json
import shutil

import pytest

import task_files
from cli_support import refused, results, run
from task_files import options

NAMES = ("train", "valid")


@pytest.fixture(scope="module")
def rows():
    return {name: task_files.records(task_files.classification, 12, seed) for seed, name in enumerate(NAMES)}


@pytest.fixture
def files(rows, tmp_path):
    return {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}


def refused_with(trained, tmp_path, rows, *more, task="classification", suffix=".jsonl", **changed):
    files = {name: task_files.write(tmp_path / f"{name}{suffix}", changed.get(name, rows[name])) for name in rows}
    message = refused(*options(trained, files, tmp_path / "out", task, *more))
    assert message.splitlines()[-1].startswith("[") and not (tmp_path / "out").exists()
    return message


def with_row(rows, place, **fields):
    """None removes a field."""
    changed = {name: value for name, value in (rows[place] | fields).items() if value is not None}
    return [*rows[:place], changed, *rows[place + 1 :]]


def test_bad_records(trained, tmp_path, rows):
    for name, place, fields, suffix, words in (
        ("valid", 3, dict(label="maybe"), ".jsonl", ["valid.jsonl line 4", '"no", "yes"', '"maybe"']),
        ("valid", 5, dict(label=None), ".jsonl", ["valid.jsonl line 6", '"label"']),
        ("train", 1, dict(pair="abba"), ".jsonl", ["train.jsonl line 1 must have a field pair", "train.jsonl line 2"]),
        ("train", 1, dict(label=""), ".tsv", ["train.tsv line 3 must have a label"]),
    ):
        changed = {name: with_row(rows[name], place, **fields)}
        message = refused_with(trained, tmp_path, rows, suffix=suffix, **changed)
        assert all(word in message for word in words), message
    for name in NAMES:
        message = refused_with(trained, tmp_path, rows, **{name: []})
        assert f"the {name} file" in message and f"{name}.jsonl" in message
    message = refused_with(trained, tmp_path, rows, train=[dict(row, label="yes") for row in rows["train"]])
    assert "train.jsonl must have at least two labels" in message and '"yes" alone' in message
    numbers = {name: task_files.records(task_files.regression, 6, 1) for name in NAMES}
    for value in ("nan", "high"):
        train = with_row(numbers["train"], 2, label=value)
        message = refused_with(trained, tmp_path, numbers, task="regression", suffix=".tsv", train=train)
        assert "train.tsv line 4" in message and "finite number" in message


def test_columns(trained, tmp_path, rows):
    message = refused_with(trained, tmp_path, rows, "--columns", "text=sentence")
    assert "train.jsonl line 1" in message and '"sentence"' in message and "id, label, text" in message
    assert "did you mean label?" in refused_with(trained, tmp_path, rows, "--columns", "lable=label")
    assert "train.jsonl line 1" in refused_with(trained, tmp_path, rows, "--columns", "id=key")


def test_tables(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.tsv", rows[name]) for name in rows}
    good = files["valid"].read_bytes()
    files["valid"].write_bytes(good + b"1\tabba\n")
    message = refused(*options(trained, files, tmp_path / "out", "classification"))
    assert "valid.tsv line 14" in message and "3 columns" in message
    lines = good.split(b"\n")
    for column in (b"text", b"label"):
        cells = lines[3].split(b"\t")
        cells[lines[0].split(b"\t").index(column)] += b"\xff"
        files["valid"].write_bytes(b"\n".join([*lines[:3], b"\t".join(cells), *lines[4:]]))
        assert "valid.tsv line 4 must be UTF-8" in refused(*options(trained, files, tmp_path / "out", "classification"))


def test_shared_texts_and_lonely_classes_are_warned_of(trained, tmp_path, rows):
    train = rows["train"] + rows["valid"][:3] + [dict(id="x", text="abba bad", label="perhaps")]
    train = [dict(row, id=str(i)) for i, row in enumerate(train)]
    splits = dict(train=train, valid=rows["valid"], test=rows["valid"][2:6])
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", split) for name, split in splits.items()}
    done = run(*options(trained, files, tmp_path / "out", "classification", "--epochs", 1))
    assert done.returncode == 0, done.stderr
    assert '"perhaps" has one training example' in done.stderr and "train.jsonl line 16" in done.stderr
    assert "warning: 3 of the 12 records of the valid file" in done.stderr
    assert "warning: 1 of the 4 records of the test file" in done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["shared_with_train"] == dict(valid=3, test=1) and len(report["warnings"]) == 3


def test_bad_options(trained, tmp_path, rows):
    long = {name: [dict(row, text=row["text"] * 9) for row in rows[name]] for name in rows}
    for more, words in (
        (["--task", "classificaton"], ["did you mean classification?"]),
        (["--metric", "spearman"], ["accuracy, f1, macro_f1, matthews", "spearman"]),
        (["--max-length", 0], ["max-length"]),
        (["--max-length", 1], ["max_length"]),
        (["--windows", 0], ["windows"]),
        (["--windows", 2, "--stride", 30], ["stride"]),
        (["--stride", 8], ["stride", "windows"]),
        (["--stride", -1], ["stride"]),
        (["--truncation", "only-second"], ["only_second"]),
        (["--format", "text"], ["jsonl, csv or tsv"]),
    ):
        message = refused_with(trained, tmp_path, long, *more)
        assert all(word in message for word in words), message
    pooling = "classifier-pooling goes with tasks that classify sequences, got mean with tokens"
    for task, more, rule in (
        ("regression", ["--label-smoothing", 0.5], "label-smoothing goes with tasks that choose among classes"),
        ("tokens", ["--windows", 2], "windows"),
        ("tokens", ["--classifier-pooling", "mean"], pooling),
    ):
        other = {name: task_files.records(task_files.KINDS[task], 6, 1) for name in rows}
        assert rule in refused_with(trained, tmp_path, other, *more, task=task)


def test_output_directory(trained, tmp_path, files):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    assert "full" in refused(*options(trained, files, tmp_path / "full", "classification"))
    assert "file" in refused(*options(trained, files, tmp_path / "full" / "file", "classification"))
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"beta1": 0.9}')
    assert "another kind of run" in refused(*options(trained, files, tmp_path / "run", "classification"))


def test_models_that_are_not_fit(trained, tmp_path, files):
    bare, short = tmp_path / "bare", tmp_path / "short"
    shutil.copytree(trained, bare, ignore=shutil.ignore_patterns("vocab.txt", "tokenizer.json"))
    assert str(bare) in refused(*options(bare, files, tmp_path / "out", "classification"))
    shutil.copytree(trained, short)
    config = json.loads((short / "config.json").read_text())
    config.update(model_type="rf_encoder", position_encoding="learned", architectures=["RfEncoderForMaskedLM"])
    (short / "config.json").write_text(json.dumps(config))
    assert "position_encoding" in refused(*options(short, files, tmp_path / "out", "classification"))
    for command in ("predict", "evaluate"):
        assert "task.json" in refused(command, "--model", trained, "--input", files["valid"])


def test_a_loss_that_is_not_finite_ends_the_run(trained, tmp_path, files):
    """In a step, or in the evaluation after the last step."""
    message = refused(*options(trained, files, tmp_path / "out", "classification", "--learning-rates", 1e30))
    assert "finite" in message and "at step" in message
    more = ["--batch", 64, "--epochs", 1, "--warmup", 0, "--schedule", "constant", "--learning-rates"]
    message = refused(*options(trained, files, tmp_path / "last", "classification", *more, 1e38))
    assert "finite" in message and "learning rate 1e+38; try a lower one" in message
    # It may be corrected, and rates that differ in a late digit are two runs.
    rates = "3.0000001e-5,3.0000002e-5"
    *runs, _ = results(*options(trained, files, tmp_path / "last", "classification", *more, rates))
    assert [each["learning_rate"] for each in runs] == [3.0000001e-5, 3.0000002e-5]


def test_runs_of_another_tokenizer_are_not_kept(trained, tuned_copy, tmp_path):
    _, command = tuned_copy
    model = tmp_path / "model"
    shutil.copytree(trained, model)
    *tokens, last, one_more = (model / "vocab.txt").read_text().splitlines()
    (model / "vocab.txt").write_text("\n".join([*tokens, one_more, last]) + "\n")
    command[command.index("--model") + 1] = model
    assert "/model where there was" in refused(*command)


def test_damaged_task_file(tuned_copy, tuned_once):
    out, _ = tuned_copy
    good = json.loads((out / "task.json").read_text())
    for change, words in (
        (dict(kind="clasification"), ["did you mean classification?"]),
        (dict(labels="yes"), ["task.json", "labels", "list"]),
        (dict(labels=[1, 2]), ["task.json", "labels"]),
        (dict(labels=["yes", "yes"]), ["must differ"]),
        (dict(labels=["a", "b", "c"]), ["each output of the head, 2, got 3"]),
        (dict(columns=[]), ["task.json", "columns"]),
        (dict(columns=dict(text=1)), ["task.json", "columns.text"]),
        (dict(columns=dict(label="label")), ["task.json", "columns", "text"]),
        (dict(keep="middle"), ["task.json", "keep", "head, tail, head-tail"]),
        (dict(more=1), ["task.json", "more"]),
    ):
        (out / "task.json").write_text(json.dumps({**good, **change}))
        message = refused("predict", "--model", out, "--input", tuned_once[1]["valid"])
        assert all(word in message for word in words), message


def test_evaluate_has_two_forms(trained, prepared, files):
    records, data = ["--input", files["valid"]], ["--data", prepared / "data"]
    for given, word in (
        ([], "neither"),
        ([*data, *records], "both"),
        ([*records, "--padded"], "--padded"),
        ([*records, "--batch", 8], "--batch "),
        ([*data, "--no-quotes"], "--no-quotes"),
        ([*data, "--precision", "int8"], "--precision"),
    ):
        assert word in refused("evaluate", "--model", trained, *given, code=2)
    assert "batch" in refused("predict", "--model", trained, *records, "--batch-tokens", 0)
