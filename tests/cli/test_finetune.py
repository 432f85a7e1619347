"""roformer finetune, predict and evaluate on records: every task learns, and results agree with each other."""

import json
import shutil
import signal

import pytest
import transformers

import task_files
from cli_support import MODEL, metrics, refused, results, stopped
from task_files import options
from tolerances import RANKS_OF_NEAR_TIES, T4_MAX

METRICS = dict.fromkeys(task_files.KINDS, "accuracy")
METRICS |= dict(multi_label="f1", regression="spearman", tokens="f1", answers="f1")


@pytest.fixture(scope="module", params=list(METRICS))
def tuned(request, trained, tmp_path_factory):
    """A model of each task, its files, and the lines that finetune gave."""
    folder = tmp_path_factory.mktemp(request.param)
    files = task_files.write_splits(folder, task_files.KINDS[request.param])
    epochs = dict(answers=8, multi_label=30, regression=6, classification=8).get(request.param, 4)
    pooling = ["--classifier-pooling", "mean"] if request.param == "multi_label" else []
    lines = results(*options(trained, files, folder / "out", request.param, "--epochs", epochs, *pooling))
    return request.param, folder / "out", files, lines


def test_every_task_learns(tuned):
    task, output, _, (one, chosen) = tuned
    report = json.loads((output / "report.json").read_text())
    metric = METRICS[task]
    assert report["metric"] == metric and report["records"] == dict(train=160, valid=40, test=40)
    test, baseline = report["chosen"]["test"][metric], report["baseline"]["test"][metric]
    assert report["train_sample"] == 160 and report["chosen"]["train"][metric] > 0.8
    assert test > 0.8 and (baseline is None or test > baseline + 0.1), report
    assert chosen["chosen"] == report["chosen"] and one["best_step"] <= one["steps"]
    page = (output / "report.md").read_text()
    assert f"| {metric} |" in page
    assert ("confusion" in report) == ("- confusion of" in page) == (task in ("classification", "tokens"))


@pytest.mark.parametrize("family", ["roformer", "bert"])
def test_mean_of_tokens(family, trained, tmp_path):
    """The tuned model keeps how it reads, also where it was a BERT; the engine measures what training measured."""
    model = trained
    if family == "bert":
        model = shutil.copytree(trained, tmp_path / "bert")
        (model / "model.safetensors").unlink()
        transformers.BertModel(transformers.BertConfig(**MODEL, vocab_size=150)).save_pretrained(model)
    files = task_files.write_splits(tmp_path, task_files.KINDS["classification"])
    command = options(model, files, tmp_path / "out", "classification", "--epochs", 2, "--classifier-pooling", "mean")
    _, chosen = results(*command)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["classifier_pooling"] == "mean" and config["model_type"] == "rf_encoder"
    (measured,) = results("evaluate", "--model", tmp_path / "out", "--input", files["test"])
    assert measured["accuracy"] == pytest.approx(chosen["chosen"]["test"]["accuracy"])
    assert results(*command)[-1]["chosen"] == chosen["chosen"]
    assert "classifier_pooling" in refused(*[word if word != "mean" else "cls" for word in command])
    first = ("--epochs", 1, "--classifier-pooling", "cls")
    results(*options(tmp_path / "out", files, tmp_path / "back", "classification", *first))
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert "classifier_pooling" not in config and config["model_type"] == family


def test_evaluate_gives_the_numbers_of_the_report(tuned):
    _, output, files, (_, chosen) = tuned
    (measured,) = results("evaluate", "--model", output, "--input", files["test"])
    assert measured.pop("records") == 40 and measured.pop("loss") > 0
    # The report's are those of the model in training, these those of the engine: equal but for float32's rounding.
    expected = dict(chosen["chosen"]["test"])
    if "spearman" in expected:
        assert measured.pop("spearman") == pytest.approx(expected.pop("spearman"), abs=RANKS_OF_NEAR_TIES)
    assert measured == pytest.approx(expected, rel=T4_MAX)


def test_predictions_come_in_order_and_need_no_label(tuned):
    task, output, files, _ = tuned
    rows = [json.loads(line) for line in files["test"].read_text().splitlines()]
    targets = dict(answers=("answers",), tokens=("labels",)).get(task, ("label",))
    blind = [{key: value for key, value in row.items() if key not in targets} for row in rows]
    text = "".join(json.dumps(row) + "\n" for row in blind)
    lines = results("predict", "--model", output, "--input", "-", "--batch-tokens", 3, stdin=text)
    assert [line["id"] for line in lines] == [row["id"] for row in rows]
    assert [line["line"] for line in lines] == list(range(1, 41))
    if task == "answers":
        for line, row in zip(lines, rows, strict=True):
            best = line["candidates"][0]
            assert (line["answer"], line["start"]) == (best["answer"], best["start"])
            assert row["context"][line["start"] :].startswith(line["answer"])


def test_grid_of_rates_and_seeds(trained, tmp_path):
    files = task_files.write_splits(tmp_path, task_files.classification, train=48)
    out = tmp_path / "out"
    arguments = options(trained, files, out, "classification", "--learning-rates", "1e-2,1e-5", "--epochs", 1)
    first = results(*arguments, "--seeds", 1)
    kept = (out / "lr-0.01" / "seed-1" / "result.json").stat().st_mtime_ns
    lines = results(*arguments, "--seeds", 2)
    runs = [(rate, seed) for rate in (1e-2, 1e-5) for seed in (1, 2)]
    assert [(line["learning_rate"], line["seed"]) for line in lines[:-1]] == runs
    assert lines[0] == first[0], "a run that is done is not repeated"
    assert (out / "lr-0.01" / "seed-1" / "result.json").stat().st_mtime_ns == kept
    report = json.loads((out / "report.json").read_text())
    means = {rate["learning_rate"]: rate["mean"] for rate in report["rates"]}
    for rate, mean in means.items():
        of_rate = [line["valid"]["accuracy"] for line in lines[:-1] if line["learning_rate"] == rate]
        assert mean == pytest.approx(sum(of_rate) / 2)
    assert report["chosen"]["learning_rate"] == max(means, key=means.get)
    other = refused(*arguments[:-1], 2)
    assert "/epochs" in other and "--model of another --output" in other


def test_an_interrupted_grid_goes_on_to_the_same_bits(trained, tmp_path):
    """In the first epoch of the first seed, by a signal; then after the first evaluation of the second, by a kill."""
    files = task_files.write_splits(tmp_path, task_files.classification, train=400)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    more = ["--seeds", 2, "--epochs", 3, "--precision", "float32"]
    expected = results(*options(trained, files, whole, "classification", *more))
    given = options(trained, files, parts, "classification", *more)
    first, second = (parts / "lr-0.01" / f"seed-{seed}" for seed in (1, 2))
    log = first / "metrics.jsonl"
    code, _, said = stopped(signal.SIGTERM, lambda: log.exists() and metrics(first), *given)
    assert code == 128 + signal.SIGTERM and "same command continues" in said
    (checkpoint,) = first.glob("checkpoint-*")
    code, _, said = stopped(signal.SIGKILL, lambda: list(second.glob("checkpoint-*")), *given)
    assert code == -signal.SIGKILL and f"continuing at step {checkpoint.name[11:]} of" in said
    assert not list(first.glob("checkpoint-*")), "a run that is done needs none"
    assert not (parts / "report.json").exists()
    lines = results(*given)
    assert [line["valid"] for line in lines[:-1]] == [line["valid"] for line in expected[:-1]]
    assert lines[-1]["chosen"] == expected[-1]["chosen"]
    for run_dir in (first, second):
        other = whole / run_dir.relative_to(parts)
        assert metrics(run_dir) == metrics(other)
        assert (run_dir / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_a_broken_checkpoint_is_named(tuned_copy):
    out, command = tuned_copy
    done = out / "lr-0.01" / "seed-1"
    (done / "result.json").unlink()
    checkpoint = shutil.copytree(shutil.copytree(done, out.parent / "model"), done / "checkpoint-1")
    (checkpoint / "state.json").write_text('{"version": 2, "step": 1}')
    assert f"{checkpoint}/state.json must be undamaged" in refused(*command)


def test_what_a_kill_after_the_result_left_goes(tuned_copy):
    out, command = tuned_copy
    done = out / "lr-0.01" / "seed-1"
    (done / ".checkpoint-1.tmp").mkdir()
    (done / ".checkpoint-1.tmp" / "state.json").write_text("{")
    shutil.copytree(done / ".checkpoint-1.tmp", done / "checkpoint-2")
    results(*command)
    assert not list(done.glob("*checkpoint*"))


def test_a_result_with_a_wrong_value_is_named(tuned_copy):
    out, command = tuned_copy
    path = out / "lr-0.01" / "seed-1" / "result.json"
    good = json.loads(path.read_text())
    wrong = [("metrics", 5), ("metrics", {}), ("metrics", {"accuracy": "1"}), ("seed", -1), ("learning_rate", "x")]
    for key, result in (*((key, good | {key: value}) for key, value in wrong), ("learning_rate", {})):
        path.write_text(json.dumps(result))
        message = refused(*command)
        assert f"{path} must be undamaged" in message and key in message and "remove it" in message


def test_patience_ends_a_run(trained, tmp_path):
    """A great length is answered without a pass over it."""
    files = task_files.write_splits(tmp_path, task_files.classification, train=64)
    more = ["--epochs", 30, "--evaluate-every-steps", 2, "--patience", 3, "--max-length", 1 << 24]
    line = results(*options(trained, files, tmp_path / "out", "classification", *more))[0]
    assert line["steps"] == line["best_step"] + 6 < 240


def test_long_texts_are_read_in_windows(trained, tmp_path):
    """The word that decides is far beyond the first row."""

    def far(rng):
        record = task_files.classification(rng)
        return dict(text=" ".join(task_files.sentence(rng, 24)) + " " + record["text"], label=record["label"])

    files = task_files.write_splits(tmp_path, far)
    accuracy = {}
    parts = dict(head=[], tail=["--keep", "tail"], windows=["--windows", 8, "--stride", 4, "--epochs", 20])
    for name, more in parts.items():
        more = ["--max-length", 24, "--learning-rates", "5e-3", "--epochs", 8, *more]
        lines = results(*options(trained, files, tmp_path / name, "classification", *more))
        accuracy[name] = lines[-1]["chosen"]["test"]["accuracy"]
    assert accuracy["head"] < 0.7 < accuracy["tail"] and accuracy["windows"] > 0.7, accuracy
    # A longer row sees what the shorter one cut off.
    (longer,) = results("evaluate", "--model", tmp_path / "tail", "--input", files["test"], "--max-length", 32)
    assert longer["accuracy"] > 0.6
