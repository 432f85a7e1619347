"""Calls of operators and of C++ classes of torch, with one sentence for an argument of another type.

torch's own message of it has the declaration of the operator and the values of the argument.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from . import _checks

_TYPE = re.compile(r"Expected a value of type '([^']*)' for argument '([^']*)' but instead found type '([^']*)'")
_BACKEND = re.compile(r"arguments from the '(\w+)' backend")
_TRANSFORM = re.compile(
    "functorch|Batching rule not implemented|support vmap over|doesn't have storage|BatchedTensorImpl|"
    "data-dependent control flow"
)
_KINDS = {
    "Tensor": "a tensor",
    "List[Tensor]": "tensors",
    "str": "a string",
    "float": "a number",
    "int": "an integer",
    "bool": "True or False",
    "List[int]": "integers",
}


def check_tensors(where: str, optional: Mapping[str, object] | None = None, **given: object) -> None:
    """Raises TypeError for a value that is not a tensor, and ValueError for a sparse tensor, with the argument's name.
    optional: arguments that may be None."""
    for name, x in (given | {name: x for name, x in (optional or {}).items() if x is not None}).items():
        if not isinstance(x, Tensor):
            raise TypeError(f"[{where}] {name} must be a tensor, got {type(x).__name__}")
        if x.layout != torch.strided:
            raise ValueError(f"[{where}] {name} must be a dense tensor, got {x.layout}")


def check_values(where: str, **given: Tensor | None) -> None:
    """Raises ValueError for a tensor of the device meta, because the caller reads its values."""
    for name, x in given.items():
        if x is not None and x.is_meta:
            raise ValueError(f"[{where}] {name} must have values, got a tensor of the device meta")


def check_devices(where: str, **given: Tensor | None) -> None:
    """Raises ValueError for a tensor on another device than the first has."""
    like, first = next(iter(given.items()))
    for name, x in given.items():
        if x is not None and x.device != first.device:
            raise ValueError(f"[{where}] {name} must be on the device of {like}, {first.device}, got {x.device}")


def is_transformed() -> bool:
    """Whether a transform of torch.func runs, which has rules for torch's own operators alone."""
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None


def bare(x: Any) -> Any:
    """Integers and booleans, also in lists and mappings, without what ``grad`` wraps every argument in."""
    if isinstance(x, Mapping):
        return {name: bare(each) for name, each in x.items()}
    if isinstance(x, (list, tuple)):
        return [bare(each) for each in x]
    if not isinstance(x, Tensor) or x.is_floating_point() or torch._C._functorch.is_batchedtensor(x):
        return x
    return bare(torch._C._functorch.get_unwrapped(x)) if torch._C._functorch.is_functorch_wrapped_tensor(x) else x


def is_followed(x: object) -> bool:
    """Whether a transform of torch.func follows a tensor, or one of a list or mapping."""
    if isinstance(x, Mapping):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return any(map(is_followed, x))
    return isinstance(x, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(x)


def apart(*given: object) -> AbstractContextManager:
    """A context that computes outside of the transforms of torch.func, if they follow none of the given values."""
    return torch._C._DisableFuncTorch() if is_transformed() and not is_followed(given) else nullcontext()


def operator_call(where: str, call: Callable, *arguments: Any, names: Sequence[str] = (), **options: Any) -> Any:
    """``call(*arguments, **options)``.

    Args:
        where: of messages.
        names: of the arguments of a C++ class, which torch knows by number, without the object itself.

    Raises:
        TypeError: an argument of another type; the message names it.
        ValueError: a tensor of a kind that the operator does not read.
        NotImplementedError: a transform of torch.func that the operator does not support.
    """
    if torch.compiler.is_compiling():
        return call(*arguments, **options)
    if is_transformed():
        arguments = bare(arguments)
    try:
        with apart(arguments, options):
            return call(*arguments, **options)
    except RuntimeError as error:
        made = _sentence(where, str(error), names)
        if made is None:
            raise
    except ValueError as error:
        text = str(error)
        made = ValueError(_checks.message(text))
        if str(made) == text:
            raise
    raise made


def _sentence(where: str, message: str, names: Sequence[str]) -> Exception | None:
    found = _TYPE.search(message)
    if found:
        expected, name, got = found.groups()
        expected = expected.removeprefix("Optional[").removesuffix("]") if expected.startswith("Opt") else expected
        kind = next((words for start, words in _KINDS.items() if expected == start), expected.rsplit(".", 1)[-1])
        number = name.removeprefix("_")
        if number.isdigit() and 0 < int(number) <= len(names):
            name = names[int(number) - 1]
        return TypeError(f"[{where}] {name} must be {kind}, got {got}")
    if _TRANSFORM.search(message):
        return NotImplementedError(
            f"[{where}] transforms of torch.func (grad, vmap and others) must not be applied to it, because it has no "
            "rule for them. Hint: torch.autograd.grad, and a dimension of the batch"
        )
    found = _BACKEND.search(message)
    if found:
        return ValueError(f"[{where}] tensors must be dense and on the CPU or a CUDA device, got {found.group(1)}")
    return None
