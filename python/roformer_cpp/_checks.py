"""Types of arguments, with messages `[where] rule, got value`. What values may be is checked in C++."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

_INT64 = 2**63


def needed(module: str, rule: str, hint: str = "") -> ModuleType:
    """Imports an optional package. Raises ImportError with the rule, the cause and the hint."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{rule}, got: {error}{hint}") from error


def kind(value: object) -> str:
    return type(value).__name__


def message(text: str) -> str:
    """A message of a length that can be read, as io/include/rf/io/shown_text.h cuts it: its beginning and its end."""
    return text if len(text) <= 4096 else f"{text[:1200]}... ({len(text) - 1600} characters) ...{text[-400:]}"


def short(text: str) -> str:
    """A text in a message, cut to a readable length."""
    return text if len(text) <= 120 else f"{text[:120]}... ({len(text)} characters)"


def shown(value: object) -> str:
    return short(repr(value))


def texts(where: str, name: str, value: str | Iterable[str]) -> tuple[list[str], bool]:
    """The texts as a list, and whether it was one text alone. C++ checks that each is a string."""
    if isinstance(value, str):
        return [value], True
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"[{where}] {name} must be a string or a list of strings, got {kind(value)}")
    return value if isinstance(value, list) else list(value), False


def integer(where: str, name: str, value: Any, least: int = -_INT64, end: int = _INT64) -> int:
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"[{where}] {name} must be an integer, got {kind(value)}") from None
    if isinstance(value, bool):
        raise TypeError(f"[{where}] {name} must be an integer, got {value}")
    if not least <= number < end:
        bounds = f"at least {least}" if number < least else f"below {end}"
        raise ValueError(f"[{where}] {name} must be {bounds}, got {shown(number)}")
    return number


def number(where: str, name: str, value: Any) -> float:
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"[{where}] {name} must be a number, got {kind(value)}")
    result = float(value)
    if result - result != 0:
        raise ValueError(f"[{where}] {name} must be finite, got {result}")
    return result


def boolean(where: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"[{where}] {name} must be True or False, got {shown(value)}")
    return value


def text(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"[{where}] {name} must be a string, got {kind(value)}")
    return value


_TYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def choice(where: str, name: str, value: Any, names: Iterable[str]) -> str:
    known = _TYPE_NAMES.get(text(where, name, value), value)
    if known not in names:
        raise ValueError(f"[{where}] {name} must be one of {', '.join(names)}, got {shown(value)}")
    return known


def given(where: str, check: Callable[..., Any], *rule: Any, **values: Any) -> dict[str, Any]:
    """The values that are not None, each checked: ``check(where, name, value, *rule)``."""
    return {name: check(where, name, value, *rule) for name, value in values.items() if value is not None}


PRECISIONS = ("float32", "bfloat16", "int8")
ROLES = ("query", "document")


def engine_options(where: str, precision: Any, token_budget: Any, threads: Any) -> dict[str, Any]:
    """The arguments that all models of the engine have."""
    budget = integer(where, "token_budget", token_budget, 1)
    options = {"precision": choice(where, "precision", precision, PRECISIONS), "token_budget": budget}
    return options | given(where, integer, 1, 1025, threads=threads)


def prompt(where: str, prompts: dict[str, str], text_given: str | None, name: str | None) -> str:
    """The prompt of a call: the given text, or the named prompt; empty without both."""
    if text_given is not None:
        return text(where, "prompt", text_given)
    if name is not None and name not in prompts:
        known = ", ".join(sorted(prompts)) or "none"
        raise ValueError(f"[{where}] the prompt must be one of the model's ({known}), got {shown(name)}")
    return "" if name is None else prompts[name]


_BLOCK = 1024  # texts or pairs per call of the engine


def blocks(total: int, what: str, show: bool | None) -> Iterator[slice]:
    """The parts of a list that the engine gets at a time, at least one. ``show``: progress on standard error."""
    for begin in range(0, max(1, total), _BLOCK):
        yield slice(begin, begin + _BLOCK)
        if show:
            done = min(begin + _BLOCK, total)
            sys.stderr.write(f"\r{done}/{total} {what}" + "\n" * (done == total))


def cpu(where: str, device: Any) -> None:
    if device is not None and str(device) != "cpu":
        raise ValueError(f"[{where}] device must be cpu, got {short(str(device))}")


_PATH_MAX = 4096  # bytes of a path, of Linux


def path(where: str, name: str, value: Any) -> str:
    try:
        given = os.fsdecode(value)
    except TypeError:
        raise TypeError(f"[{where}] {name} must be a path, got {kind(value)}") from None
    if len(given) > _PATH_MAX:
        raise FileNotFoundError(f"[{where}] {name} must exist, got {shown(given)}")
    return given


def model(where: str, value: str | os.PathLike) -> str:
    """A model directory, an id of the Hugging Face Hub, or a GGUF file."""
    given = path(where, "the model directory", value)
    if os.path.isfile(given):  # noqa: PTH113
        with open(given, "rb") as file:  # noqa: PTH123
            if given.endswith(".gguf") or file.read(4) == b"GGUF":
                return given
    return directory(where, given)


def directory(where: str, value: str | os.PathLike, what: str = "model") -> str:
    """A directory that exists; a model's may be an id of the Hugging Face Hub."""
    given = path(where, f"the {what} directory", value)
    if what == "model":
        from . import _hub

        given = _hub.located(given)
    if not os.path.exists(given):  # noqa: PTH110 - pathlib takes longer to import
        raise FileNotFoundError(f"[{where}] the {what} directory must exist, got {given}")
    if not os.path.isdir(given):  # noqa: PTH112
        raise NotADirectoryError(f"[{where}] the {what} must be a directory, got {given}")
    return given
