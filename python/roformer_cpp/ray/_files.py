"""Files whose names and rows are in the order of a dataset. Imported where Ray is.

Ray's own ``write_parquet`` writes by several threads of Arrow, which now and then exchange the parts that a block
consists of.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import ray.data
from ray.data.block import Block, BlockAccessor


def write(dataset: "ray.data.Dataset", folder: Path, name: str, save: Callable[[pyarrow.Table, Path], None]) -> int:
    """Writes the rows of a dataset whose tasks are in order, each with ``save``.

    Args:
        folder: empty.
        name: of a file, with its number.

    Returns:
        The number of files; a task without rows writes none.
    """
    dataset.write_datasink(_OrderedFiles(folder, name, save))
    for path in folder.glob(".*"):  # of tasks that were killed
        path.unlink()
    return sum(1 for _ in folder.iterdir())


def save_parquet(table: pyarrow.Table, path: Path) -> None:
    pyarrow.parquet.write_table(table, path)


def save_texts(table: pyarrow.Table, path: Path) -> None:
    """JSON lines with the only column as ``text``. The program reads them without Arrow."""
    with path.open("w", encoding="utf-8") as file:
        for text in table.column(0).to_pylist():
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


class _OrderedFiles(ray.data.Datasink):
    """A file for each task, which appears under its name when it is complete: a task that is run again replaces it."""

    def __init__(self, folder: Path, name: str, save: Callable[[pyarrow.Table, Path], None]):
        self._folder, self._name, self._save = folder, name, save

    def write(self, blocks: Iterable[Block], ctx: Any) -> None:
        tables = [BlockAccessor.for_block(block).to_arrow() for block in blocks]
        tables = [table for table in tables if table.num_rows]
        if tables:
            name = self._name.format(ctx.task_idx)
            part = self._folder / f".{name}.{os.getpid()}"
            self._save(pyarrow.concat_tables(tables, promote_options="default"), part)
            part.replace(self._folder / name)
