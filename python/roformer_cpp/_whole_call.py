"""Calls of C++ as operators that torch.compile and torch.export keep whole.

The terms of an encoding have sizes that depend on the values of positions, and a model is one C++ call. A graph cannot
contain either, but it can contain an operator around them whose result has a known shape. Parameters are arguments of
the operator, so that the graph sees them. The C++ module is named by its definition, a text. A process that does not
know the module yet makes it from this text, so exported programs can be loaded elsewhere.

The backward computes the forward once more, with gradients, as ``torch.utils.checkpoint`` does.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_FORM = "(str[] words, Tensor[] tensors, str[] names, int[] numbers, float[] reals"
_KEY = torch._C.DispatchKey
_INCLUDED = torch._C.DispatchKeySet(_KEY.BackendSelect) | torch._C.DispatchKeySet(_KEY.ADInplaceOrView)
_EXCLUDED = torch._C.DispatchKeySet(_KEY.AutocastCPU)


class Call(NamedTuple):
    """The arguments of an operator, its tensors by name."""

    words: Sequence[str]
    groups: dict[str, Sequence[Tensor] | Tensor | None]
    numbers: Sequence[int] = ()
    reals: Sequence[float] = ()

    @classmethod
    def of(cls, words, tensors, names, numbers, reals) -> "Call":
        """From what the operator gets: the tensors of each name, in their order."""
        groups: dict[str, list[Tensor]] = {}
        for name, tensor in zip(names, tensors, strict=True):
            groups.setdefault(name, []).append(tensor)
        return cls(words, groups, numbers, reals)

    def flat(self) -> tuple[list[str], list[Tensor], list[str], list[int], list[float]]:
        """The arguments of the operator, with tensors and their names, without None."""
        tensors: list[Tensor] = []
        names: list[str] = []
        for name, group in self.groups.items():
            members = [] if group is None else [group] if isinstance(group, Tensor) else list(group)
            tensors += members
            names += [name] * len(members)
        return list(self.words), tensors, names, list(self.numbers), list(self.reals)

    def with_part(self, part: "Call") -> "Call":
        """With the arguments of ``part`` at the ends."""
        numbers, reals = [*self.numbers, *part.numbers], [*self.reals, *part.reals]
        return Call([*self.words, *part.words], self.groups | part.groups, numbers, reals)

    def part(self, words: int, numbers: int, reals: int) -> "Call":
        """The part that `with_part` added after the given numbers of own arguments; it keeps all tensors."""
        return Call(self.words[words:], self.groups, self.numbers[numbers:], self.reals[reals:])

    def several(self, name: str) -> list[Tensor]:
        return self.groups.get(name, [])

    def one(self, name: str) -> Tensor | None:
        group = self.groups.get(name)
        return group[0] if isinstance(group, list) else group


Compute = Callable[[Call], list[Tensor]]


def _zeros(x: Tensor) -> Tensor:
    return torch.zeros_like(x, memory_format=torch.contiguous_format)


def _apart(results: Iterable[Tensor], given: Iterable[Tensor]) -> list[Tensor]:
    """The results, contiguous and in separate memory, as results of an operator must be."""
    taken = {x.untyped_storage().data_ptr() for x in given}
    apart = []
    for x in results:
        place = x.untyped_storage().data_ptr()
        apart.append(x.clone(memory_format=torch.contiguous_format) if place in taken else x.contiguous())
        taken.add(place)
    return apart


def _without_autocast(tensors: list[Tensor]) -> torch.autocast:
    """Switches autocast off on the tensors' device."""
    return torch.autocast(next((x.device.type for x in tensors), "cpu"), enabled=False)


def whole_call(name: str, compute: Compute, shapes: Compute) -> Callable[..., list[Tensor]]:
    """An operator ``roformer_python::<name>`` with gradients.

    Args:
        name: of the operator.
        compute: differentiable.
        shapes: the same call, to empty tensors of the shapes and dtypes that ``compute`` returns.

    Returns:
        The operator: words, tensors, names, numbers, reals (``Call.flat``) to tensors.
    """

    def forward(words, tensors, names, numbers, reals):
        with torch.no_grad(), _without_autocast(tensors):
            return _apart(compute(Call.of(words, tensors, names, numbers, reals)), tensors)

    def backward(words, tensors, names, numbers, reals, grads, needs):
        # A kernel of an operator runs below autograd; the pass that records starts with the keys of a plain call.
        keys = torch._C._ForceDispatchKeyGuard(_INCLUDED, _EXCLUDED)
        with keys, torch.enable_grad(), _without_autocast(tensors):
            leaves = [x.detach().requires_grad_(need) for x, need in zip(tensors, needs, strict=True)]
            before = torch.get_rng_state()
            found = compute(Call.of(words, leaves, names, numbers, reals))
            if not torch.equal(before, torch.get_rng_state()):
                raise NotImplementedError(
                    f"[{name}] an encoding that draws random numbers, as dropout does, must not be trained in compiled "
                    "code, because the backward would draw others. Hint: train it without torch.compile"
                )
            pairs = [(x, g) for x, g in zip(found, grads, strict=True) if x.requires_grad]
            wanted = [x for x in leaves if x.requires_grad]
            if not pairs:
                return [_zeros(x) for x in wanted]
            outputs, given = zip(*pairs, strict=True)
            made = torch.autograd.grad(outputs, wanted, given, allow_unused=True)
        given = [*tensors, *grads]
        return _apart([_zeros(x) if g is None else g for x, g in zip(wanted, made, strict=True)], given)

    op = torch.library.custom_op(f"roformer_python::{name}", forward, mutates_args=(), schema=f"{_FORM}) -> Tensor[]")
    schema = f"{_FORM}, Tensor[] grads, bool[] needs) -> Tensor[]"
    op_backward = torch.library.custom_op(f"roformer_python::{name}_backward", backward, mutates_args=(), schema=schema)
    op.register_fake(
        lambda words, tensors, names, numbers, reals: shapes(Call.of(words, tensors, names, numbers, reals))
    )

    @op_backward.register_fake
    def _(words, tensors, names, numbers, reals, grads, needs):
        needed = (x for x, need in zip(tensors, needs, strict=True) if need)
        return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in needed]

    def setup_context(ctx, inputs, output):
        words, tensors, names, numbers, reals = inputs
        ctx.constants = words, names, numbers, reals
        ctx.needs = [x.requires_grad for x in tensors]
        ctx.save_for_backward(*tensors)

    def gradients(ctx, grads):
        words, names, numbers, reals = ctx.constants
        tensors = list(ctx.saved_tensors)
        made = iter(op_backward(words, tensors, names, numbers, reals, list(grads), ctx.needs))
        # torch takes an empty list of numbers for one of tensors.
        of_words, *others = ([] if len(given) == 0 else None for given in (words, names, numbers, reals))
        return of_words, [next(made) if need else None for need in ctx.needs], *others

    op.register_autograd(gradients, setup_context=setup_context)
    return op
