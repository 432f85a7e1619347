"""Where predict and evaluate find what they read, and a held-out part of the training file."""

import json

import task_files
from cli_support import lines_of, refused, results


def without(line, *names):
    return {key: value for key, value in line.items() if key not in names}


def test_columns_of_other_names(tuned_once, tmp_path):
    model, files = tuned_once
    rows = [dict(review=row["text"], key=row["id"], stars=row["label"], label=0) for row in lines_of(files["test"])]
    renamed = task_files.write(tmp_path / "renamed.tsv", rows)
    expected = results("predict", "--model", model, "--input", files["test"])
    columns = ["--columns", "text=review,id=key"]
    lines = results("predict", "--model", model, "--input", renamed, *columns)
    assert [without(line, "line") for line in lines] == [without(line, "line") for line in expected]
    quoted = [{'re,"view"': row["review"], "key": row["key"]} for row in rows]
    quoted = task_files.write(tmp_path / "quoted.jsonl", quoted)
    for columns_of_quoted in ('text="re,""view""",id=key', 'id="key",text="re,""view"""'):
        lines = results("predict", "--model", model, "--input", quoted, "--columns", columns_of_quoted)
        assert [without(line, "line") for line in lines] == [without(line, "line") for line in expected]
    measured = results("evaluate", "--model", model, "--input", renamed, *columns, "--columns", "label=stars")
    assert measured == results("evaluate", "--model", model, "--input", files["test"])
    for command in ("predict", "evaluate"):
        message = refused(command, "--model", model, "--input", renamed, "--columns", "txt=review")
        assert "id, label, text" in message and '"txt"' in message and "did you mean text?" in message
    message = refused("evaluate", "--model", model, "--data", tmp_path, "--columns", "text=review", code=2)
    assert "--columns" in message


def test_plain_text_and_texts_of_the_command_line(tuned_once, tmp_path):
    model, files = tuned_once
    rows = lines_of(files["test"])
    some = task_files.write(tmp_path / "some.jsonl", rows)
    expected = [without(line, "id") for line in results("predict", "--model", model, "--input", some)]
    plain = tmp_path / "plain.txt"
    plain.write_text("".join(row["text"] + "\n" for row in rows))
    assert results("predict", "--model", model, "--input", plain) == expected
    text = plain.read_text()
    assert results("predict", "--model", model, "--input", "-", "--format", "text", stdin=text) == expected
    assert results("predict", "--model", model, "--text", *(row["text"] for row in rows)) == expected
    assert "--text" in refused("predict", "--model", model, code=2)
    assert "--text" in refused("predict", "--model", model, "--input", plain, "--text", "a", code=2)


def test_a_part_of_the_training_file_is_held_out(trained, tmp_path):
    files = task_files.write_splits(tmp_path, task_files.classification)
    files.pop("valid")

    def tune(output, *more):
        given = ["--valid-fraction", 0.25, "--epochs", 1, *more]
        results(*task_files.options(trained, files, tmp_path / output, "classification", *given))
        report = json.loads((tmp_path / output / "report.json").read_text())
        return report, json.loads((tmp_path / output / "run.json").read_text())["data"]

    report, data = tune("a")
    assert report["records"] == dict(train=120, valid=40, test=40)
    assert tune("b", "--seed", 2)[1] != data
    arguments = task_files.options(trained, files, tmp_path / "d", "classification")
    assert "--valid-fraction" in refused(*arguments, code=2)
    assert "--valid-fraction" in refused(*arguments, "--valid-fraction", 0.5, "--valid", files["test"], code=2)
    for fraction in (0, 1, -0.5, "nan"):
        assert "valid-fraction must be in (0, 1)" in refused(*arguments, f"--valid-fraction={fraction}")
