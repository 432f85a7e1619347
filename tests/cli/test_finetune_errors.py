"""What finetune, predict and evaluate refuse and warn of: file and line are named, and nothing is written."""

import json
import shutil

import pytest

import task_files
from cli_support import refused, results, run
from task_files import options


@pytest.fixture(scope="module")
def rows():
    return {
        name: task_files.records(task_files.classification, 12, seed) for seed, name in enumerate(("train", "valid"))
    }


def refused_with(trained, tmp_path, rows, *more, task="classification", suffix=".jsonl", **changed):
    files = {name: task_files.write(tmp_path / f"{name}{suffix}", changed.get(name, rows[name])) for name in rows}
    message = refused(*options(trained, files, tmp_path / "out", task, *more))
    assert message.startswith("[") and not (tmp_path / "out").exists()
    return message


def with_row(rows, place, **fields):
    return [{**row, **fields} if i == place else row for i, row in enumerate(rows)]


def test_label_that_the_training_file_lacks(trained, tmp_path, rows):
    message = refused_with(trained, tmp_path, rows, valid=with_row(rows["valid"], 3, label="maybe"))
    assert "valid.jsonl line 4" in message and '"no", "yes"' in message and '"maybe"' in message


def test_missing_column(trained, tmp_path, rows):
    message = refused_with(trained, tmp_path, rows, "--columns", "text=sentence")
    assert "train.jsonl line 1" in message and '"sentence"' in message and "id, label, text" in message
    broken = list(rows["valid"])
    broken[5] = dict(id="x", text="abba")
    message = refused_with(trained, tmp_path, rows, valid=broken)
    assert "valid.jsonl line 6" in message and '"label"' in message


def test_unknown_column_names(trained, tmp_path, rows):
    assert "did you mean label?" in refused_with(trained, tmp_path, rows, "--columns", "lable=label")
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    for wrong in ("text", "text=a,text=b"):
        message = refused(*options(trained, files, tmp_path / "out", "classification", "--columns", wrong), code=2)
        assert "once" in message and "name=field" in message


def test_row_with_another_number_of_columns(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.tsv", rows[name]) for name in rows}
    with files["valid"].open("a") as file:
        file.write("1\tabba\n")
    message = refused(*options(trained, files, tmp_path / "out", "classification"))
    assert "valid.tsv line 14" in message and "3 columns" in message


def test_ids_may_repeat(trained, tmp_path, rows):
    """Nothing is decided by them: they come back from predict."""
    files = dict(
        train=task_files.write(tmp_path / "train.jsonl", [dict(row, id="7") for row in rows["train"]]),
        valid=task_files.write(tmp_path / "valid.jsonl", with_row(rows["valid"], 7, id="2")),
    )
    results(*options(trained, files, tmp_path / "out", "classification", "--epochs", 1))
    (measured,) = results("evaluate", "--model", tmp_path / "out", "--input", files["valid"])
    assert measured["records"] == len(rows["valid"])
    lines = results("predict", "--model", tmp_path / "out", "--input", files["valid"])
    assert [line["id"] for line in lines] == [row["id"] for row in with_row(rows["valid"], 7, id="2")]


def test_a_named_id_that_is_not_there(trained, tmp_path, rows):
    assert "train.jsonl line 1" in refused_with(trained, tmp_path, rows, "--columns", "id=key")


def test_a_pair_in_some_records_alone(trained, tmp_path, rows):
    message = refused_with(trained, tmp_path, rows, train=with_row(rows["train"], 1, pair="abba"))
    assert "train.jsonl line 1 must have a field pair" in message and "train.jsonl line 2" in message


def test_an_empty_label(trained, tmp_path, rows):
    message = refused_with(trained, tmp_path, rows, suffix=".tsv", train=with_row(rows["train"], 1, label=""))
    assert "train.tsv line 3 must have a label" in message


@pytest.mark.parametrize("column", ["text", "label"])
def test_a_table_that_is_no_utf8(trained, tmp_path, rows, column):
    files = {name: task_files.write(tmp_path / f"{name}.tsv", rows[name]) for name in rows}
    lines = files["valid"].read_bytes().split(b"\n")
    place = lines[0].split(b"\t").index(column.encode())
    cells = lines[3].split(b"\t")
    cells[place] += b"\xff"
    files["valid"].write_bytes(b"\n".join([*lines[:3], b"\t".join(cells), *lines[4:]]))
    assert "valid.tsv line 4 must be UTF-8" in refused(*options(trained, files, tmp_path / "out", "classification"))


@pytest.mark.parametrize("name", ["train", "valid"])
def test_file_without_records(trained, tmp_path, rows, name):
    message = refused_with(trained, tmp_path, rows, **{name: []})
    assert f"the {name} file" in message and f"{name}.jsonl" in message


def test_one_class(trained, tmp_path, rows):
    one = [dict(row, label="yes") for row in rows["train"]]
    message = refused_with(trained, tmp_path, rows, train=one)
    assert "train.jsonl must have at least two labels" in message and '"yes" alone' in message


@pytest.mark.parametrize("value", ["nan", "inf", "high", ""])
def test_numbers_that_are_none(trained, tmp_path, value):
    numbers = {name: task_files.records(task_files.regression, 6, 1) for name in ("train", "valid")}
    message = refused_with(
        trained, tmp_path, numbers, task="regression", suffix=".tsv", train=with_row(numbers["train"], 2, label=value)
    )
    assert "train.tsv line 4" in message and "finite number" in message


def test_choices(trained, tmp_path):
    good = {name: task_files.records(task_files.choice, 6, 1) for name in ("train", "valid")}
    for fields, words in (
        (dict(label=9), ["whole number from 0 to", "9"]),
        (dict(label=0.5), ["whole number", "0.5"]),
        (dict(choices=["a"]), ["at least two choices"]),
        (dict(choices="a"), ["list of texts"]),
        (dict(choices=[1, 2]), ["texts in choices"]),
        (dict(choices=None), ['"choices0"']),
    ):
        train = with_row(good["train"], 1, **fields)
        message = refused_with(trained, tmp_path, good, task="choice", train=train)
        assert "train.jsonl line 2" in message and all(word in message for word in words), message


def test_tokens(trained, tmp_path):
    good = {name: task_files.records(task_files.tokens, 6, 1) for name in ("train", "valid")}
    for fields, words in (
        (dict(labels=["O"]), ["a label in labels for each"]),
        (dict(tokens="abba"), ["list of texts"]),
        (dict(tokens=[1], labels=["O"]), ["texts in tokens"]),
    ):
        train = with_row(good["train"], 1, **fields)
        message = refused_with(trained, tmp_path, good, task="tokens", train=train)
        assert "train.jsonl line 2" in message and all(word in message for word in words), message
    assert "windows" in refused_with(trained, tmp_path, good, "--windows", 2, task="tokens")


def test_answers(trained, tmp_path):
    good = {name: task_files.records(task_files.answers, 6, 1) for name in ("train", "valid")}
    for answers, words in (
        (dict(text=["abba"], answer_start=[999]), ["character 999", "its end"]),
        (dict(text=["abba"], answer_start=[]), ["one size"]),
        (dict(text=[1], answer_start=[0]), ["texts and whole numbers"]),
        (dict(text=["a"], answer_start=[3.7]), ["whole numbers", "3.7"]),
        (dict(text=["zzz"], answer_start=[0]), ["character 0", '"zzz"']),
    ):
        train = with_row(good["train"], 1, answers=answers)
        message = refused_with(trained, tmp_path, good, task="answers", train=train)
        assert "train.jsonl line 2" in message and all(word in message for word in words), message
    long = with_row(good["train"], 1, question="abba " * 60)
    assert "train.jsonl line 2" in refused_with(trained, tmp_path, good, task="answers", train=long)


def test_triples(trained, tmp_path):
    good = {name: task_files.records(task_files.triples, 6, 1) for name in ("train", "valid")}
    train = with_row(good["train"], 4, label="A")
    message = refused_with(trained, tmp_path, good, task="triples", train=train)
    assert "train.jsonl line 5" in message and '"B", "C"' in message


def test_shared_texts_and_lonely_classes_are_warned_of(trained, tmp_path, rows):
    train = rows["train"] + rows["valid"][:3] + [dict(id="x", text="abba bad", label="perhaps")]
    train = [dict(row, id=str(i)) for i, row in enumerate(train)]
    files = dict(
        train=task_files.write(tmp_path / "train.jsonl", train),
        valid=task_files.write(tmp_path / "valid.jsonl", rows["valid"]),
    )
    done = run(*options(trained, files, tmp_path / "out", "classification", "--epochs", 1))
    assert done.returncode == 0, done.stderr
    assert '"perhaps" has one training example' in done.stderr and "train.jsonl line 16" in done.stderr
    assert "warning: 3 of the 12 records of the valid file" in done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["shared_with_train"] == dict(valid=3) and len(report["warnings"]) == 2


@pytest.mark.parametrize(
    "more, words",
    [
        (["--task", "classificaton"], ["did you mean classification?"]),
        (["--metric", "spearman"], ["accuracy, f1, macro_f1, matthews", "spearman"]),
        (["--epochs", 0], ["epochs", "got 0"]),
        (["--batch", 0], ["batch", "got 0"]),
        (["--batch", 2 * 10**17], ["batch", "1073741824"]),
        (["--epochs", 2**63 - 1], ["epochs", "1073741824"]),
        (["--seeds", 0], ["seeds", "got 0"]),
        (["--patience", -1], ["patience"]),
        (["--evaluate-every-steps", -1], ["evaluate-every-steps"]),
        (["--weight-decay", -1], ["weight-decay"]),
        (["--clip-norm", "nan"], ["clip-norm"]),
        (["--warmup", 1], ["warmup"]),
        (["--label-smoothing", 1.5], ["label-smoothing"]),
        (["--learning-rates", 0], ["above 0"]),
        (["--learning-rates", "1e-3,1e-3"], ["must differ"]),
        (["--max-length", 0], ["max-length"]),
        (["--max-length", 1], ["max_length"]),
        (["--windows", 0], ["windows"]),
        (["--windows", 2, "--stride", 30], ["stride"]),
        (["--stride", 8], ["stride", "windows"]),
        (["--stride", -1], ["stride"]),
        (["--windows", 2, "--keep", "head-tail"], ["head-tail"]),
        (["--truncation", "only-second"], ["only_second"]),
        (["--format", "text"], ["jsonl, csv or tsv"]),
    ],
)
def test_bad_options(trained, tmp_path, rows, more, words):
    long = {name: [dict(row, text=row["text"] * 9) for row in rows[name]] for name in rows}
    message = refused_with(trained, tmp_path, long, *more)
    assert all(word in message for word in words), message


def test_usage(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    for option, value in {"--keep": "middle", "--schedule": "cosine", "--precision": "0"}.items():
        done = run(*options(trained, files, tmp_path / "out", "classification", option, value))
        assert done.returncode == 2 and "must be one of" in done.stderr and value in done.stderr
    assert run("finetune", "--task", "classification").returncode == 2
    assert run("predict", "--model", trained).returncode == 2


def test_output_directory(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    assert "full" in refused(*options(trained, files, tmp_path / "full", "classification"))
    assert "file" in refused(*options(trained, files, tmp_path / "full" / "file", "classification"))


def test_models_that_are_not_fit(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    assert "nowhere" in refused(*options(tmp_path / "nowhere", files, tmp_path / "out", "classification"))
    bare = tmp_path / "bare"
    shutil.copytree(trained, bare, ignore=shutil.ignore_patterns("vocab.txt", "tokenizer.json"))
    assert str(bare) in refused(*options(bare, files, tmp_path / "out", "classification"))
    short = tmp_path / "short"
    shutil.copytree(trained, short)
    config = json.loads((short / "config.json").read_text())
    config.update(model_type="rf_encoder", position_encoding="learned", architectures=["RfEncoderForMaskedLM"])
    (short / "config.json").write_text(json.dumps(config))
    assert "position_encoding" in refused(*options(short, files, tmp_path / "out", "classification"))
    assert "task.json" in refused("predict", "--model", trained, "--input", files["valid"])
    assert "task.json" in refused("evaluate", "--model", trained, "--input", files["valid"])


def test_a_loss_that_is_not_finite_ends_the_run(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    message = refused(*options(trained, files, tmp_path / "out", "classification", "--learning-rates", 1e30))
    assert "finite" in message and "at step" in message


def test_weights_that_a_last_step_spoils(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    more = ["--batch", 64, "--epochs", 1, "--warmup", 0, "--schedule", "constant"]
    message = refused(*options(trained, files, tmp_path / "out", "classification", *more, "--learning-rates", 1e38))
    assert "finite" in message and "learning rate 1e+38; try a lower one" in message
    assert results(*options(trained, files, tmp_path / "out", "classification", *more, "--learning-rates", 1e-3))


def test_rates_that_differ_in_a_late_digit_are_two_runs(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    more = ["--epochs", 1, "--learning-rates", "3.0000001e-5,3.0000002e-5"]
    first, second, _ = results(*options(trained, files, tmp_path / "out", "classification", *more))
    assert (first["learning_rate"], second["learning_rate"]) == (3.0000001e-5, 3.0000002e-5)
    assert len(list((tmp_path / "out").glob("lr-*"))) == 2


def test_label_smoothing_needs_classes(trained, tmp_path):
    numbers = {name: task_files.records(task_files.regression, 6, 1) for name in ("train", "valid")}
    message = refused_with(trained, tmp_path, numbers, "--label-smoothing", 0.5, task="regression")
    assert "label-smoothing" in message and "regression" in message


def test_classifier_pooling_is_of_sequences(trained, tmp_path, rows):
    words = {name: task_files.records(task_files.tokens, 6, seed) for seed, name in enumerate(rows)}
    message = refused_with(trained, tmp_path, words, "--classifier-pooling", "mean", task="tokens")
    assert "classifier-pooling goes with tasks that classify sequences, got mean with tokens" in message
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    given = options(trained, files, tmp_path / "out", "classification", "--classifier-pooling", "max")
    assert "--classifier-pooling" in refused(*given, code=2)


def test_a_number_too_large_for_its_square(trained, tmp_path):
    numbers = {name: task_files.records(task_files.regression, 6, 1) for name in ("train", "valid")}
    train = with_row(numbers["train"], 2, label=1e300)
    message = refused_with(trained, tmp_path, numbers, task="regression", train=train)
    assert "train.jsonl line 3" in message and "1e+300" in message


def test_runs_of_another_tokenizer_are_not_kept(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    model = tmp_path / "model"
    shutil.copytree(trained, model)
    arguments = options(model, files, tmp_path / "out", "classification", "--epochs", 1)
    results(*arguments)
    *tokens, last, one_more = (model / "vocab.txt").read_text().splitlines()
    (model / "vocab.txt").write_text("\n".join([*tokens, one_more, last]) + "\n")
    assert "/model where there was" in refused(*arguments)


def test_damaged_result_of_a_run(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    arguments = options(trained, files, tmp_path / "out", "classification", "--epochs", 1)
    results(*arguments)
    result = tmp_path / "out" / "lr-0.01" / "seed-1" / "result.json"
    result.write_text("{}")
    message = refused(*arguments)
    assert f"{result} must be undamaged" in message and "remove it" in message


def test_the_output_of_another_command(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"beta1": 0.9}')
    message = refused(*options(trained, files, tmp_path / "run", "classification"))
    assert "another kind of run" in message


def test_damaged_task_file(trained, tmp_path, rows):
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", rows[name]) for name in rows}
    out = tmp_path / "out"
    results(*options(trained, files, out, "classification", "--epochs", 1))
    good = json.loads((out / "task.json").read_text())
    for change, words in (
        (dict(kind="clasification"), ["did you mean classification?"]),
        (dict(labels="yes"), ["labels", "list"]),
        (dict(labels=[1, 2]), ["labels"]),
        (dict(columns=[]), ["columns"]),
        (dict(columns=dict(text=1)), ["columns.text"]),
        (dict(columns=dict(label="label")), ["columns", "text"]),
        (dict(keep="middle"), ["keep", "head, tail, head-tail"]),
        (dict(more=1), ["more"]),
    ):
        (out / "task.json").write_text(json.dumps({**good, **change}))
        message = refused("predict", "--model", out, "--input", files["valid"])
        assert "task.json" in message or change.get("kind"), message
        assert all(word in message for word in words), message
    for labels, words in ((["yes", "yes"], "must differ"), (["a", "b", "c"], "each output of the head, 2, got 3")):
        (out / "task.json").write_text(json.dumps({**good, "labels": labels}))
        assert words in refused("predict", "--model", out, "--input", files["valid"])


def test_evaluate_has_two_forms(trained, prepared, tmp_path, rows):
    records = task_files.write(tmp_path / "valid.jsonl", rows["valid"])
    data = prepared / "data"
    assert "neither" in refused("evaluate", "--model", trained, code=2)
    assert "both" in refused("evaluate", "--model", trained, "--data", data, "--input", records, code=2)
    assert "--padded" in refused("evaluate", "--model", trained, "--input", records, "--padded", code=2)
    assert "--batch " in refused("evaluate", "--model", trained, "--input", records, "--batch", 8, code=2)
    assert "--no-quotes" in refused("evaluate", "--model", trained, "--data", data, "--no-quotes", code=2)
    assert "--precision" in refused("evaluate", "--model", trained, "--data", data, "--precision", "int8", code=2)
    assert "batch" in refused("predict", "--model", trained, "--input", records, "--batch-tokens", 0)
