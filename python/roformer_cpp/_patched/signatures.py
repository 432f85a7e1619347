"""The functions of transformers that are replaced or called, and their arguments in the versions that are known.

A replacement that gets an argument under a name that it does not know would compute something else: another version of
transformers whose functions have other arguments is refused when a model is patched.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping

import transformers

# Options of a call that tell it what to return or record, or that another layer reads.
_HARMLESS = {"output_hidden_states", "return_dict", "use_cache", "num_items_in_batch", "labels"}


def names_of(function: Callable) -> tuple[str, ...]:
    """The names of a function's arguments without ``self``, `**` before one that takes all others."""
    kinds = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    parameters = inspect.signature(function).parameters.values()
    return tuple(kinds.get(each.kind, "") + each.name for each in parameters if each.name != "self")


def check_signatures(known: Mapping[Callable, Iterable[tuple[str, ...]]]) -> None:
    """Raises ValueError for the first function with an unknown signature."""
    for function, forms in known.items():
        got = names_of(function)
        if got not in set(forms):
            name = function.__qualname__
            raise ValueError(
                f"[patch] transformers must be a version whose {name} is known, got {transformers.__version__} with "
                f"{name}({', '.join(got)}). Hint: docs/python.md has the versions"
            )


def unknown_argument(given: Mapping[str, object]) -> str | None:
    """The unknown argument that keeps `attend` from computing the call, or None."""
    unknown = [name for name, value in given.items() if value is not None and name not in _HARMLESS]
    return f"attention with the argument {unknown[0]}" if unknown else None
