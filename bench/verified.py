"""Compares the results of a benchmark's sides with a formula in float64 before they are timed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FLOAT32_EPS = 64  # bound of float32 results, in eps of the largest element
PLAIN_ERRORS, LAST_ROUNDING = 2.0, 0.5  # bound of bfloat16 results: in errors of the plain formula, plus in eps

Function = Callable[..., Tensor]


def largest(x: Tensor) -> float:
    return x.abs().max().item()


def results(function: Function, inputs: Sequence[Tensor], leaves: int = 0, grad: Tensor | None = None) -> list[Tensor]:
    """The output of `function`, and the gradients of its first `leaves` inputs for the output gradient `grad`."""
    if not leaves:
        with torch.no_grad():
            return [function(*inputs)]
    inputs = [x.detach().clone().requires_grad_(i < leaves) for i, x in enumerate(inputs)]
    out = function(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs[:leaves], grad.to(out.dtype))]


@dataclass
class Truth:
    """Results of a formula in float64, and the allowed error of each."""

    want: list[Tensor]
    bounds: list[float]

    @classmethod
    def of(cls, formula: Function, inputs: Sequence[Tensor], leaves: int = 0, grad: Tensor | None = None) -> "Truth":
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        want = results(formula, wide, leaves, None if grad is None else grad.double())
        dtype = inputs[0].dtype
        eps = torch.finfo(dtype).eps
        if dtype == torch.float32:
            return cls(want, [FLOAT32_EPS * eps * largest(x) for x in want])
        plain = [x.double() for x in results(formula, inputs, leaves, grad)]
        errors = [largest(x - y) for x, y in zip(plain, want, strict=True)]
        sizes = [largest(x) for x in want]
        return cls(want, [PLAIN_ERRORS * e + LAST_ROUNDING * eps * s for e, s in zip(errors, sizes, strict=True)])

    def fault(self, got: Sequence[Tensor], names: Sequence[str] = ()) -> str | None:
        """Describes the error of the results, or returns None. `got` may be only the output; `names` are the names of
        the results."""
        for i, (x, want, bound) in enumerate(zip(got, self.want, self.bounds, strict=False)):
            error = largest(x.double() - want) if x.shape == want.shape else float("inf")
            if not error <= bound:  # also NaN
                name = names[i] if names else "output" if i == 0 else f"gradient of input {i - 1}"
                return f"the {name} must be within {bound:.3g} of float64, got {error:.3g}"
        return None
