"""Token shards of the texts of a ray.data.Dataset: the program `roformer prepare` in tasks of Ray."""

import os
from pathlib import Path
from typing import Any

from .. import _checks, corpus
from . import _cluster

_WHERE = "prepare"
# Of a part, after the process of its task was killed.
_RETRIES = 20
# Options for files, which the dataset replaces.
_OF_FILES = ("documents", "field", "format", "input", "part", "quotes", "skip_bad_records", "test_input", "valid_input")


def prepare(
    dataset: Any,
    model: str | os.PathLike,
    output: str | os.PathLike,
    *,
    column: str = "text",
    parts: int | None = None,
    cpus_per_part: int = 1,
    **options: Any,
) -> dict[str, Any]:
    """Tokenizes the texts of a dataset into shards, a document per row, in the order of the rows.

    The texts are first written as JSON lines to ``<output>.part``, and removed at the end. Tasks of Ray run
    `roformer prepare`, each on some of these files, and their outputs are joined. Shards have the bytes that
    `roformer prepare` writes for these files in one process. A task whose process is killed is run again.

    Args:
        dataset: of any source, with a column of texts. A null, or white space alone, is left out.
        model: directory with a tokenizer's files, at a path that all machines have.
        output: the data directory to write, new or empty, at a path that all machines have.
        column: with the texts.
        parts: tasks, at most one for each block of the dataset. Default: as many as the cluster has CPUs for now.
        cpus_per_part: threads of each.
        **options: of :func:`roformer_cpp.prepare`: ``valid_fraction``, ``seed``, ``words``, ``shard_tokens`` and others
            that do not say how files are read.

    Returns:
        The result of the command: numbers of ``documents``, ``train_tokens``, ``valid_tokens`` and others.

    Raises:
        ValueError: as for :func:`embed`.
        TypeError, FileNotFoundError, RuntimeError: as for :func:`roformer_cpp.prepare`.
        ImportError: Ray, or the program, is not there.
    """
    ray = _cluster.load(_WHERE)
    _cluster.check_dataset(_WHERE, ray, dataset)
    if given := set(_OF_FILES) & options.keys():
        raise TypeError(f"[{_WHERE}] options must not say how files are read, got {min(given)}")
    column = _checks.text(_WHERE, "column", column)
    threads = _checks.integer(_WHERE, "cpus_per_part", cpus_per_part, 1, 1025)
    _checks.given(_WHERE, _checks.integer, 1, parts=parts)
    model = os.path.abspath(_checks.directory(_WHERE, model))  # noqa: PTH100 - a worker has another directory
    number = _cluster.processes(_WHERE, ray, "tasks", parts, threads, 0)
    if (types := _cluster.column_types(dataset)) is not None:
        _cluster.check_text_column(_WHERE, column, types)
    final = Path(_checks.path(_WHERE, "the output", output)).absolute()
    _cluster.check_new(_WHERE, final)
    from . import _files

    with _cluster.working_directory(_WHERE, final) as folder, _cluster.own_errors(ray.exceptions.RayTaskError):
        texts = folder / "texts"
        texts.mkdir()
        rows = _cluster.in_order(ray, dataset.select_columns([column]))
        files = _files.write(rows, texts, "{:08}.jsonl", _files.save_texts)
        if not files:
            raise ValueError(f"[{_WHERE}] the dataset must have rows, got none")
        result = _shards(ray, texts, model, folder, min(number, files), options | {"threads": threads})
        (folder / "data").replace(final)
    return result | {"output": str(final)}


def _shards(ray: Any, texts: Path, model: str, folder: Path, parts: int, options: dict[str, Any]) -> dict[str, Any]:
    """Writes ``folder/data``. Returns the result of the command."""
    task = ray.remote(num_cpus=options["threads"], max_retries=_RETRIES)(_prepare)
    if parts == 1:
        return ray.get(task.remote(texts, model, folder / "data", options))
    names = [folder / f"part-{i}" for i in range(1, parts + 1)]
    ray.get([task.remote(texts, model, name, options | {"part": f"{i}/{parts}"}) for i, name in enumerate(names, 1)])
    return corpus.merge(names, folder / "data")


def _prepare(texts: Path, model: str, output: Path, options: dict[str, Any]) -> dict[str, Any]:
    return corpus.prepare(texts, model, output, **options)
