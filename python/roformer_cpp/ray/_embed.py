"""Vectors of the texts of a ray.data.Dataset: an engine in each actor of a pool."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import _checks
from . import _cluster

if TYPE_CHECKING:
    import pyarrow
    import ray.data

_WHERE = "embed"
_DTYPES = ("float32", "float16")
_LARGEST_HALF = 65504
# Batches at an actor: one that is computed, one that waits.
_IN_FLIGHT = 2
# For tasks that read and write.
_SPARE_CPUS = 1


def embed(
    dataset: "ray.data.Dataset",
    model: str | os.PathLike,
    *,
    column: str = "text",
    into: str = "embedding",
    output: str | os.PathLike | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    actors: int | None = None,
    cpus_per_actor: int = 1,
    batch_size: int = 4096,
    **options: Any,
) -> "ray.data.Dataset":
    """Adds the vectors of texts to the rows of a dataset, which keep their order.

    The vector of a text has the bits that ``Engine(model, **options).embed`` gives, however many actors compute. An
    actor that is killed is started again, and its batches are computed again: no row is lost, and none comes twice.

    Args:
        dataset: of ``ray.data.read_parquet``, ``read_json`` or any other source, with a column of texts. A null is an
            empty text.
        model: the model directory, at a path that all machines have.
        column: with the texts.
        into: the column to add, a list of ``dimensions`` numbers in each row.
        output: a directory for Parquet files, new or empty, at a path that all machines have. The files in order of
            their names have the rows in order. The directory appears when it is complete.
        dtype: of the numbers.
        actors: processes that compute. Default: as many as the cluster has CPUs for now, less one CPU that reads and
            writes.
        cpus_per_actor: threads of each.
        batch_size: rows per call of an actor; they are computed again if the actor is killed.
        **options: of :class:`roformer_cpp.Engine`, except ``task`` and ``threads``.

    Returns:
        The dataset with the new column; computed when it is read, or with ``output`` the one that was written.

    Raises:
        ValueError: an argument breaks a rule; the column is missing or holds no text; the cluster has too few CPUs; the
            output is not empty.
        TypeError, FileNotFoundError, RuntimeError: as for :class:`roformer_cpp.Engine`.
        ImportError: Ray is not installed.
    """
    ray = _cluster.load(_WHERE)
    _cluster.check_dataset(_WHERE, ray, dataset)
    column, into = _checks.text(_WHERE, "column", column), _checks.text(_WHERE, "into", into)
    dtype = _checks.choice(_WHERE, "dtype", dtype, _DTYPES)
    threads = _checks.integer(_WHERE, "cpus_per_actor", cpus_per_actor, 1, 1025)
    rows = _checks.integer(_WHERE, "batch_size", batch_size, 1)
    _checks.given(_WHERE, _checks.integer, 1, actors=actors)
    if given := {"task", "threads"} & options.keys():
        raise TypeError(f"[{_WHERE}] options must be those of Engine except task and threads, got {min(given)}")
    model = os.path.abspath(_checks.directory(_WHERE, model))  # noqa: PTH100 - a worker has another directory
    Embedder(model, column, into, dtype, threads, options)  # refuses what is wrong before anything is started
    final = None if output is None else Path(_checks.path(_WHERE, "the output", output)).absolute()
    if final is not None:
        _cluster.check_new(_WHERE, final)
    size = _cluster.processes(_WHERE, ray, "actors", actors, threads, _SPARE_CPUS)
    if (types := _cluster.column_types(dataset)) is not None:
        _cluster.check_text_column(_WHERE, column, types)
        if into in types:
            raise ValueError(
                f"[{_WHERE}] the dataset must not have a column {_checks.shown(into)} yet, got {', '.join(types)}"
            )
    # Ray's defaults for such actors: an actor that ends is started again, and so are its tasks, any number of times.
    result = dataset.repartition(target_num_rows_per_block=rows).map_batches(
        Embedder,
        fn_constructor_args=(model, column, into, dtype, threads, options),
        batch_size=None,  # the whole block
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=_IN_FLIGHT),
        num_cpus=threads,
    )
    result = _cluster.in_order(ray, result)
    return result if final is None else _written(ray, result, final)


def _written(ray: Any, result: "ray.data.Dataset", final: Path) -> "ray.data.Dataset":
    from . import _files

    with _cluster.working_directory(_WHERE, final) as part, _cluster.own_errors(ray.exceptions.RayTaskError):
        rows = part / "rows"
        rows.mkdir()
        files = _files.write(result, rows, "{:08}.parquet", _files.save_parquet)
        rows.replace(final)
    return ray.data.read_parquet(str(final)) if files else result


class Embedder:
    """The state of an actor: the model, opened once."""

    def __init__(self, model: str, column: str, into: str, dtype: str, threads: int, options: dict[str, Any]):
        from ..engine import Engine

        self._engine = Engine(model, task="embed", threads=threads, **options)
        self._column, self._into, self._dtype = column, into, dtype

    def __call__(self, table: "pyarrow.Table") -> "pyarrow.Table":
        """The table with a column more."""
        import pyarrow

        types = dict(zip(table.schema.names, table.schema.types, strict=True))
        _cluster.check_text_column(_WHERE, self._column, types)
        texts = [text or "" for text in table.column(self._column).to_pylist()]
        vectors = self._engine.embed(texts)
        if self._dtype == "float16" and (beyond := np.abs(vectors).max(1, initial=0) > _LARGEST_HALF).any():
            text = _checks.shown(texts[beyond.argmax()])
            raise ValueError(f"[{_WHERE}] vectors must be within float16, {_LARGEST_HALF}, got more for {text}")
        vectors = vectors.astype(self._dtype, copy=False)
        return table.append_column(self._into, pyarrow.FixedShapeTensorArray.from_numpy_ndarray(vectors))
