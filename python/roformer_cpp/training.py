"""Training by the program `roformer`, which Python starts and follows.

A separate process does the work, so checkpoints, exact resuming, locks and threads are as on the command line, and
Python does not need PyTorch. :func:`pretrain` and :func:`finetune` return when that process ends.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _checks, _child
from ._metrics import NewLines, NewLinesOfRuns
from ._options import options_json, yaml_options

Metrics = dict[str, Any]
Callback = Callable[[Metrics], bool | None]
File = str | os.PathLike


@dataclass(frozen=True)
class Pretraining:
    """The result of :func:`pretrain`.

    Args:
        directory: the output directory: metrics and checkpoints, and at the end the model.
        is_finished: whether the run is complete. If not, it was stopped after a checkpoint, and ``resume=True``
            continues it.
        steps: optimizer steps done, including steps before a resume.
        summary: the result of the command: ``train_loss`` (nats per predicted token, of the last line of metrics),
            ``tokens_per_second``, ``peak_rss_bytes``, and with held-out documents ``evaluation``, the last one.
        metrics: the lines of metrics that this call wrote, as callbacks get them.
        messages: the last 1000 lines on standard error.
    """

    directory: Path
    is_finished: bool
    steps: int
    summary: dict[str, Any] = field(repr=False)
    metrics: list[Metrics] = field(repr=False)
    messages: list[str] = field(repr=False)


@dataclass(frozen=True)
class Finetuning:
    """The result of :func:`finetune`.

    Args:
        directory: the output directory: each run, and at the end the tuned model.
        is_finished: whether all runs are complete. If not, work was stopped after a checkpoint, and the same call
            continues it.
        chosen: ``learning_rate``, ``seed`` and ``step`` of the chosen model, with its metrics as ``train`` (of 1,000
            training records), ``valid`` and, with a test file, ``test``; None where training was stopped.
        runs: a dictionary for each run that is complete: ``learning_rate``, ``seed``, ``steps``, ``best_step``,
            ``seconds``, and ``valid``, its metrics on the valid file.
        metrics, messages: as for :class:`Pretraining`.
    """

    directory: Path
    is_finished: bool
    chosen: dict[str, Any] | None
    runs: list[dict[str, Any]] = field(repr=False)
    metrics: list[Metrics] = field(repr=False)
    messages: list[str] = field(repr=False)


def pretrain(
    run: File | dict[str, Any] | None,
    data: File,
    output: File,
    *,
    resume: bool = False,
    callback: Callback | Sequence[Callback] | None = None,
    seed: int | None = None,
    threads: int | None = None,
    profile: str | None = None,
    device: str | None = None,
    verbose: bool = False,
) -> Pretraining:
    """Trains a language model on prepared data, as `roformer pretrain` does (docs/pretraining.md).

    Ctrl-C, or an exception in a callback, stops the run after a checkpoint and is raised then; Ctrl-C again stops it at
    once. If Python is killed, the run ends too, after a checkpoint.

    Args:
        run: the run file, in JSON or YAML, or its keys as a dictionary: ``{"model": {..}, "stages": [{..}], ..}``.
            With ``resume`` it may be None: the run's own.
        data: the directory that :func:`prepare` made.
        output: directory of the run, new or empty unless it is resumed. At the end it is a model directory.
        resume: continue from the newest checkpoint, or start without one. The result has the same bits as an
            uninterrupted run.
        callback: called with each line of the run's metrics (docs/formats.md), a dictionary, soon after it is written;
            on resume with the new ones. Returning False stops the run after a checkpoint; the lines until then still
            come. Or a list of such functions.
        seed: of all random numbers, in place of the run file's.
        threads: threads to compute with. Default: all, or ``OMP_NUM_THREADS``.
        profile: optimizer steps to profile, ``"20"`` or ``"20:25"``; the trace and a table are in the output directory.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"``: a GPU if PyTorch sees one, which is the default.
        verbose: show what the program says, and from time to time its progress, on ``sys.stderr``. Otherwise its
            warnings are Python's.

    Raises:
        ValueError: the run file, or another argument, breaks a rule: the output has other files in it, the loss is not
            finite.
        FileNotFoundError: the run file or the data do not exist.
        RuntimeError: files are damaged, or the program was killed; its checkpoints are kept.
        ImportError: the program, or its library for training, is not there.
    """
    where, arguments = "pretrain", dict(locals())
    data = _checks.directory(where, data, "data")
    output = _checks.path(where, "the output", output)
    if run is None and not resume:
        raise ValueError("[pretrain] a run file must be given unless the run is resumed, got None")
    with run_file(run) as config:
        options = _child.options(where, arguments | {"config": config, "data": data, "output": output})
        follower = _Follower(where, NewLines(Path(output)), callback)
        child, is_finished = _child.run(where, options, verbose=verbose, look=follower.look)
    summary = child.results[-1] if child.results else {}
    last = follower.metrics[-1]["step"] if follower.metrics else 0
    steps = summary.pop("steps", last)
    return Pretraining(Path(output), is_finished, steps, summary, follower.metrics, list(child.messages))


def finetune(
    model: File,
    train: File | Sequence[File],
    output: File,
    *,
    task: str,
    valid: File | Sequence[File] | None = None,
    valid_fraction: float | None = None,
    test: File | Sequence[File] | None = None,
    columns: dict[str, str] | None = None,
    metric: str | None = None,
    max_length: int | None = None,
    truncation: str | None = None,
    keep: str | None = None,
    windows: int | None = None,
    stride: int | None = None,
    pooling: str | None = None,
    learning_rates: float | Sequence[float] | None = None,
    seeds: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    schedule: str | None = None,
    warmup: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    label_smoothing: float | None = None,
    classifier_pooling: str | None = None,
    precision: str | None = None,
    evaluate_every_steps: int | None = None,
    patience: int | None = None,
    format: str | None = None,
    quotes: bool = True,
    dictionary: File | None = None,
    user_dictionaries: Sequence[File] = (),
    callback: Callback | Sequence[Callback] | None = None,
    seed: int | None = None,
    threads: int | None = None,
    device: str | None = None,
    verbose: bool = False,
) -> Finetuning:
    """Trains a model for a task, as `roformer finetune` does (docs/finetuning.md). The same call continues work that
    was stopped, and does not repeat finished runs; it is stopped as :func:`pretrain` is.

    Args:
        model: the model directory to start from.
        train, valid, test: files of records, one or several of each: ``.jsonl``, ``.csv``, ``.tsv``, also ``.gz`` and
            ``.zst``.
        output: directory of the tuned model, ``report.md`` and a folder for each run.
        task: ``"classification"``, ``"multi_label"``, ``"regression"``, ``"triples"``, ``"choice"``, ``"tokens"`` or
            ``"answers"``.
        valid_fraction: in place of ``valid``: this part of the training records.
        columns: names of the fields: ``{"text": "sentence1", "label": "score"}``.
        metric: what selects the best evaluation. Default: that of the task.
        max_length, truncation, keep, windows, stride, pooling: how records are read. ``truncation`` is
            ``"longest-first"``, ``"only-first"`` or ``"only-second"``; ``keep`` ``"head"``, ``"tail"`` or
            ``"head-tail"``; ``pooling`` (of windows) ``"mean"`` or ``"max"``.
        learning_rates, seeds: every rate is trained with this number of seeds, counted from ``seed``.
        epochs, batch, schedule, warmup, weight_decay, clip_norm, label_smoothing, precision, evaluate_every_steps,
            patience: of the training.
        classifier_pooling: pooling before the classification head: ``"cls"`` (first token) or ``"mean"``.
        format: ``"jsonl"``, ``"csv"`` or ``"tsv"``, for all files. Default: by file extension. ``quotes=False``:
            quotation marks are text.
        dictionary, user_dictionaries: of a tokenizer that segments.
        callback: as for :func:`pretrain`; each dictionary has its run as ``"run"``: ``"lr-3e-05/seed-1"``.
        seed: the first of ``seeds`` consecutive seeds. Default: 1.
        threads, device, verbose: as for :func:`pretrain`.

    Options and defaults are as in the command (docs/finetuning.md).

    Raises:
        ValueError: an argument or a record breaks a rule; the output has runs with other settings.
        FileNotFoundError, RuntimeError, ImportError: as for :func:`pretrain`.
    """
    where, arguments = "finetune", dict(locals())
    model = _checks.directory(where, model)
    output = _checks.path(where, "the output", output)
    if (valid is None) == (valid_fraction is None):
        given = "neither" if valid is None else "both"
        raise ValueError(f"[finetune] one of valid and valid_fraction must be given, got {given}")
    options = _child.options(where, arguments | {"model": model, "output": output})
    follower = _Follower(where, NewLinesOfRuns(Path(output)), callback)
    child, is_finished = _child.run(where, options, verbose=verbose, look=follower.look)
    runs = [line for line in child.results if "seed" in line]
    chosen = next((line["chosen"] for line in child.results if "chosen" in line), None)
    return Finetuning(Path(output), is_finished, chosen, runs, follower.metrics, list(child.messages))


class _Follower:
    """Gives the lines that a run writes to the callbacks."""

    def __init__(self, where: str, lines: NewLines | NewLinesOfRuns, callback: Any):
        given = [] if callback is None else callback if isinstance(callback, (list, tuple)) else [callback]
        for each in given:
            if not callable(each):
                raise TypeError(f"[{where}] callback must be a function or a list of such, got {_checks.kind(each)}")
        self.metrics: list[Metrics] = []
        self._lines, self._callbacks = lines, given

    def look(self) -> bool:
        goes_on = True
        for line in self._lines.take():
            self.metrics.append(line)
            for callback in self._callbacks:
                goes_on &= callback(dict(line)) is not False
        return goes_on


@contextmanager
def run_file(run: File | dict[str, Any] | None) -> Iterator[str | None]:
    """The path of the run file in JSON, which is written for a dictionary and for a YAML file."""
    if run is not None and not isinstance(run, dict):
        path = _checks.path("pretrain", "the run", run)
        run = yaml_options(path) if path.endswith((".yaml", ".yml")) else path
    if not isinstance(run, dict):
        yield run
        return
    text = options_json("run file", run)
    with tempfile.TemporaryDirectory(prefix="roformer-") as folder:
        path = Path(folder) / "run.json"
        path.write_text(text, encoding="utf-8")
        yield str(path)
