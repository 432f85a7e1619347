"""Ray, loaded when a function needs it, and what the functions ask of a cluster, a dataset and an output."""

import builtins
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import _checks

# A line of a report that says what was raised: its class, and a message of this package.
_OWN_ERROR = re.compile(r"^(\w+): (\[[\w.]+\] .*)$", re.MULTILINE)


def load(where: str, part: str = "ray.data") -> ModuleType:
    """The package ray with a part of it."""
    rule, hint = "the packages of the extra ray must be installed", ". Hint: pip install 'roformer-cpp[ray]'"
    _checks.needed(part, f"[{where}] {rule}", hint)
    import ray

    return ray


def processes(where: str, ray: ModuleType, name: str, number: int | None, cpus: int, spare: int) -> int:
    """How many processes of ``cpus`` CPUs each to start: ``number``, or as many as leave ``spare`` CPUs. More than the
    present cluster can hold are a ValueError: Ray would wait for other machines forever."""
    if not ray.is_initialized():
        ray.init()  # the cluster that the environment names, or a new one on this machine, as ray.data does
    nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    total, slots = sum(nodes), sum(node // cpus for node in nodes)
    most = min(slots, (total - spare) // cpus)
    wanted = max(1, most) if number is None else number
    if wanted > most:
        others = f", and {spare} to read and write," if spare else ""
        raise ValueError(
            f"[{where}] {wanted} {name} of {cpus} CPU each{others} must fit into the cluster, "
            f"got machines with {', '.join(map(str, nodes)) or 'no'} CPU"
        )
    return wanted


def check_dataset(where: str, ray: ModuleType, dataset: Any) -> None:
    if not isinstance(dataset, ray.data.Dataset):
        raise TypeError(f"[{where}] the dataset must be a ray.data.Dataset, got {_checks.kind(dataset)}")


def column_types(dataset: Any) -> dict[str, Any] | None:
    """The type of each column by name; None for a dataset without rows. May compute the first row."""
    schema = dataset.schema()
    return None if schema is None else dict(zip(schema.names, schema.types, strict=True))


def check_text_column(where: str, column: str, types: dict[str, Any]) -> None:
    if column not in types:
        raise ValueError(f"[{where}] the dataset must have a column {_checks.shown(column)}, got {', '.join(types)}")
    if not is_text(types[column]):
        raise ValueError(f"[{where}] the column {_checks.shown(column)} must hold text, got {types[column]}")


def is_text(kind: Any) -> bool:
    """Whether values of this type of Arrow are text, or may be null. Of objects of Python only values tell it."""
    import pyarrow.types as types

    if isinstance(kind, type):
        return kind in (object, str)
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)


def check_new(where: str, output: Path) -> None:
    files = len(list(output.iterdir())) if output.is_dir() else None
    if files or (files is None and output.exists()):
        got = "a file" if files is None else f"{files} files"
        raise ValueError(f"[{where}] the output {output} must be new or an empty directory, got {got}")


@contextmanager
def working_directory(where: str, output: Path) -> Iterator[Path]:
    """``<output>.part``, a new one, to write into until ``output`` exists; it is removed at the end."""
    part = output.with_name(output.name + ".part")
    try:
        part.mkdir(parents=True)
    except FileExistsError:
        raise ValueError(
            f"[{where}] {part} must not exist, got what a call left that is at work or was killed; "
            "in the second case delete it"
        ) from None
    try:
        yield part
    finally:
        with suppress(OSError):
            shutil.rmtree(part)


def in_order(ray: ModuleType, dataset: Any) -> Any:
    """The same dataset with rows in order. It has separate options, because datasets of the caller share theirs."""
    ordered = ray.data.Dataset.copy(dataset, _deep_copy=True)
    ordered.context.execution_options.preserve_order = True
    return ordered


@contextmanager
def own_errors(report: type[Exception]) -> Iterator[None]:
    """Raises an error of this package that a worker had as itself, without Ray's ``report`` around it."""
    try:
        yield
    except report as error:
        found = _OWN_ERROR.findall(str(error))  # Ray passes on the text of what its own exception was raised from
        kind = getattr(builtins, found[-1][0], None) if found else None
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise
        raise kind(found[-1][1]) from None
