"""Fine-tuning from Python: the files and metrics of the command, which is tested in tests/cli."""

import json
import os

import pytest

import task_files
from cli_support import lines_of, metrics, results, untimed
from job_case import finish, job
from roformer_cpp import Engine, Finetuning, finetune
from roformer_cpp._metrics import NewLinesOfRuns
from training_case import same_model


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return task_files.write_splits(tmp_path_factory.mktemp("task"), task_files.KINDS["classification"])


OPTIONS = dict(task="classification", max_length=32, batch=8, epochs=1, learning_rates=[1e-2, 0.001], threads=1)


def tune(trained, task, output, **options):
    splits = {"valid": task["valid"], "test": [task["test"]]}
    return finetune(trained[0], task["train"], output, **splits, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def tuned(trained, task, tmp_path_factory):
    return tune(trained, task, tmp_path_factory.mktemp("tuned") / "out")


def command(trained, task, output):
    """The same by the command."""
    rates = ["--learning-rates", "1e-2,1e-3"]
    return task_files.options(trained[0], task, output, "classification", "--epochs", 1, *rates)


def test_fine_tuning_is_that_of_the_command(trained, task, tuned, tmp_path):
    *runs, last = results(*command(trained, task, tmp_path / "out"))
    assert isinstance(tuned, Finetuning) and tuned.is_finished
    assert tuned.chosen == last["chosen"] and untimed(tuned.runs) == untimed(runs) and len(runs) == 2
    for file in ("model.safetensors", "task.json", "config.json"):
        assert (tuned.directory / file).read_bytes() == (tmp_path / "out" / file).read_bytes()
    folders = ["lr-0.01/seed-1", "lr-0.001/seed-1"]
    assert list(dict.fromkeys(line["run"] for line in tuned.metrics)) == folders
    for folder in folders:
        lines = [{k: v for k, v in line.items() if k != "run"} for line in tuned.metrics if line["run"] == folder]
        assert lines == lines_of(tuned.directory / folder / "metrics.jsonl")
        assert untimed(lines) == metrics(tmp_path / "out" / folder)
    record = json.loads(task["test"].read_text().splitlines()[0])
    prediction = Engine(tuned.directory).predict({k: v for k, v in record.items() if k != "label"})
    (predicted,) = results("predict", "--model", tuned.directory, "--text", record["text"])
    assert prediction["label"] == predicted["label"]


def test_a_fine_tuning_that_was_stopped_continues(trained, task, tmp_path):
    def tuned(output, **options):
        return tune(trained, task, tmp_path / output, epochs=12, **options)  # long enough to be stopped

    whole = tuned("whole")
    first = tuned("out", callback=lambda line: "0.001" not in line["run"])
    assert not first.is_finished and first.chosen is None and len(first.runs) == 1
    second = tuned("out")
    assert second.is_finished and second.chosen == whole.chosen and same_model(second.directory, whole.directory)
    assert untimed(first.metrics + second.metrics) == untimed(whole.metrics)
    third = tuned("out")
    assert third.metrics == [] and third.chosen == whole.chosen


def write_lines(run_dir, steps, text=""):
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(dict(step=step)) + "\n" for step in steps) + text)


def test_lines_of_several_runs_come_in_order(tmp_path):
    """Of a finished run none, of a new one all, of one that continues those after its checkpoint."""
    finished, stopped, new, newer = (tmp_path / f"lr-{rate}/seed-1" for rate in ("0.3", "0.4", "0.2", "0.1"))
    write_lines(finished, [10, 20])
    (finished / "result.json").write_text("{}")
    write_lines(stopped, [10, 20])
    (stopped / "checkpoint-10").mkdir()
    lines = NewLinesOfRuns(tmp_path)
    assert lines.take() == []  # 20 is to be removed
    (stopped / "metrics.jsonl").rename(stopped / "old")
    write_lines(stopped, [10, 15])
    write_lines(new, [10, 20])
    (new / "checkpoint-20").mkdir()
    os.utime(new / "metrics.jsonl", ns=(1, 1))
    write_lines(newer, [10], text='{"step": 2')
    found = [(line["run"], line["step"]) for line in lines.take()]
    assert found == [("lr-0.4/seed-1", 15), ("lr-0.2/seed-1", 10), ("lr-0.2/seed-1", 20), ("lr-0.1/seed-1", 10)]
    write_lines(newer, [], text="0}\n")
    assert [line["step"] for line in lines.take()] == [20] and lines.take() == []


def test_names_of_fields_and_warnings(trained, task, tmp_path):
    rows = [json.loads(line) for line in task["train"].read_text().splitlines()]
    path = task_files.write(tmp_path / "renamed.jsonl", [dict(words=row["text"], kind=row["label"]) for row in rows])
    options = dict(epochs=1, learning_rates=1e-2, threads=1, columns={"text": "words", "label": "kind"})
    result = finetune(trained[0], [path], tmp_path / "out", task="classification", valid_fraction=0.25, **options)
    with pytest.warns(RuntimeWarning, match=r"\[finetune\] 160 of the 160 records of the valid file") as caught:
        finetune(trained[0], [path], tmp_path / "other", task="classification", valid=path, **options)
    assert caught[0].filename == __file__
    columns = json.loads((tmp_path / "out" / "task.json").read_text())["columns"]
    assert result.chosen["learning_rate"] == 1e-2 and result.metrics
    assert (columns["text"], columns["label"]) == ("words", "kind")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (dict(valid=None), ValueError, r"^\[finetune\] one of valid and valid_fraction must be given, got neither"),
        (dict(valid_fraction=0.1), ValueError, r"^\[finetune\] one of valid and valid_fraction must be .* got both"),
        (dict(valid=None, valid_fraction=1), ValueError, r"^\[finetune\] valid-fraction must be in \(0, 1\), got 1"),
        (dict(train="nothing.jsonl"), FileNotFoundError, r"nothing.jsonl must exist, got: No such file"),
        (dict(metric="bleu"), ValueError, r"^\[finetune\] the metric must be one of accuracy, .*, got \"bleu\""),
        (dict(metric=""), ValueError, r"^\[finetune\] metric must not be empty"),
        (dict(columns={"text": "words"}), ValueError, r"^\[input\] .* must have a field \"words\""),
        (dict(quotes="no"), TypeError, r"^\[finetune\] quotes must be True or False, got 'no'"),
    ],
)
def test_bad_arguments_of_fine_tuning(trained, task, tmp_path, monkeypatch, options, kind, message):
    monkeypatch.chdir(tmp_path)
    given = dict(model=trained[0], train=task["train"], output="out", valid=task["valid"], **OPTIONS)
    with pytest.raises(kind, match=message) as error:
        finetune(**{**given, **options})
    assert error.type is kind


def test_processes_share_the_runs(trained, task, tuned, tmp_path):
    """Two runs by two processes: the files and results of one process."""
    *runs, last = finish(job(2, *command(trained, task, tmp_path / "out")))
    assert last["chosen"] == tuned.chosen and untimed(runs) == untimed(tuned.runs)
    for file in ("model.safetensors", "task.json", "lr-0.01/seed-1/model.safetensors"):
        assert (tuned.directory / file).read_bytes() == (tmp_path / "out" / file).read_bytes()
    run = "lr-0.001/seed-1"
    assert metrics(tmp_path / "out" / run) == metrics(tuned.directory / run)
