"""What commands say while they work: evaluations, in a log and on a terminal; how far runs of a series are; the command
that draws curves. The line every 30 seconds is tests/io/progress_test.cpp's, with a clock of its own."""

import re
import shlex

import pytest

import task_files
from cli_support import metrics, on_terminal, run, run_file

STANDING = r"step (\d+)/6  loss (\d+\.\d{3})  lr [\d.e+-]+  \d+ tokens/s  \d+m\d\ds left  held-out loss (\d+\.\d{3})"


@pytest.fixture
def arguments(prepared, tmp_path):
    config = run_file(tmp_path / "run.json", evaluate_every_steps=2)
    return ["pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "a run's"]


def held_out(folder):
    return [(str(line["step"]), f"{line['loss']:.3f}") for line in metrics(folder, "evaluation")]


def test_a_log_has_every_evaluation(arguments):
    done = run(*arguments)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1
    shown = [match.groups() for match in map(re.compile(STANDING).fullmatch, done.stderr.splitlines()) if match]
    assert [(step, loss) for step, _, loss in shown] == held_out(arguments[-1])
    assert [step for step, _, _ in shown] == ["2", "4", "6"]
    assert "\x1b" not in done.stderr and "\r" not in done.stderr
    (hint,) = [line for line in done.stderr.splitlines() if "roformer_cpp.plot" in line]
    assert shlex.split(hint.split(": ", 1)[1]) == ["python", "-m", "roformer_cpp.plot", str(arguments[-1])]


def test_a_terminal_keeps_evaluations_above_the_progress_line(arguments):
    sent = on_terminal(*arguments)
    shown = re.findall(r"(?:^|\x1b\[K|\n)" + STANDING + r"\r\n", sent)
    assert [(step, loss) for step, _, loss in shown] == held_out(arguments[-1])
    assert re.search(r"\r\x1b\[Kstep 6/6  [^\n]* left\r\n$", sent), "the last state stays"


def test_finetune_names_its_runs(trained, tmp_path):
    files = task_files.write_splits(tmp_path, task_files.classification, train=24, valid=8)
    more = ["--learning-rates", "1e-2,1e-3", "--epochs", 2]
    done = run(*task_files.options(trained, files, tmp_path / "out", "classification", *more))
    assert done.returncode == 0, done.stderr
    for number, rate in ((1, "0.01"), (2, "0.001")):
        head = rf"learning rate {rate}, seed 1 \(run {number} of 2[^)]*\): "
        lines = [line for line in done.stderr.splitlines() if re.match(head, line)]
        assert any("roformer_cpp.plot" in line and f"lr-{rate}/seed-1" in line for line in lines)
        standing = r"step (\d+)/6  loss [\d.]+  [\d.]+ records/s, \d+m\d\ds left"
        whole = re.compile(head + standing + r"  held-out loss ([\d.]+)  accuracy [\d.]+")
        shown = [match.groups() for match in map(whole.fullmatch, lines) if match]
        assert shown == held_out(tmp_path / "out" / f"lr-{rate}" / "seed-1") and len(shown) == 2


def test_compare_names_its_runs(prepared, tmp_path):
    config = run_file(tmp_path / "run.json", stages=[dict(max_length=16, batch=4, steps=4)], evaluate_batches=2)
    arguments = ["compare", "--encodings", "none,rope", "--data", prepared / "data", "--config", config]
    done = run(*arguments, "--output", tmp_path / "out", "--seeds", 1, "--lengths", 1)
    assert done.returncode == 0, done.stderr
    for number, name in ((1, "none"), (2, "rope")):
        lines = [line for line in done.stderr.splitlines() if line.startswith(f"{name}, seed 1 (run {number} of 2")]
        assert sum("roformer_cpp.plot" in line and f"{name}/seed-1" in line for line in lines) == 1
        assert any(re.search(r"step 4/4 .* held-out loss", line) for line in lines)


def test_commands_that_read_say_how_much_is_left(prepared, trained, tuned_once, sentence_encoder, tmp_path):
    tuned, corpus = tuned_once[0], ["--input", prepared / "corpus"]
    test = ["--input", tuned_once[1]["test"]]
    of_bytes = r"[\d.]+ of [\d.]+ MB, [\d.]+ MB/s(, \d+m\d\ds left)?"
    for command, *shown in (
        (["vocab", *corpus, "--size", 150, "--output", tmp_path / "vocab.txt"], "counting words: " + of_bytes,
         r"merging: \d+ of 150 tokens"),
        (["prepare", *corpus, "--model", trained, "--output", tmp_path / "data"], "tokenizing: " + of_bytes),
        (["predict", "--model", tuned, *test], "predicting: " + of_bytes),
        (["embed", "--model", sentence_encoder, *test, "--output", tmp_path / "out.npy"],
         r"embedding: 9 texts, 100%, \d+ texts/s, \d+ tokens/s, 0m00s left"),
        (["evaluate", "--model", tuned, *test], r"evaluating: 9 of 9, 0m00s left"),
        (["evaluate", "--model", trained, "--data", prepared / "data"],
         r"evaluating batches: \d+ of \d+, \d+m\d\ds left"),
    ):  # fmt: skip
        sent = on_terminal(*command)
        for what in shown:
            assert re.search(r"\r\x1b\[K" + what, sent), what
