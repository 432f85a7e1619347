"""Cases of a benchmark: functions of tensors that are compared with a formula in float64 before they are timed."""

import itertools
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import torch
from harness import Windows, take_turns
from torch import Tensor

FLOAT32_EPS = 64  # bound of float32 results, in eps of the largest element
PLAIN_ERRORS, LAST_ROUNDING = 2.0, 0.5  # bound of bfloat16 results: in errors of the plain formula, plus in eps
OURS = "ours"

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

    def fault(self, got: Sequence[Tensor]) -> str | None:
        """Describes the error of the results, or returns None. `got` may be only the output."""
        for i, (x, want, bound) in enumerate(zip(got, self.want, self.bounds, strict=False)):
            error = largest(x.double() - want) if x.shape == want.shape else float("inf")
            if not error <= bound:  # also NaN
                name = f"gradient of input {i - 1}" if i else "output"
                return f"the {name} must be within {bound:.3g} of float64, got {error:.3g}"
        return None


@dataclass
class Case:
    """A computation at one size and dtype. Functions take the tensors of `inputs` and return the output."""

    name: str
    amount: float  # of a call: operations, or bytes if `counts_bytes`
    inputs: Callable[[], list[Tensor]]
    sides: dict[str, Function]  # the first is ours
    formula: Function
    leaves: int = 0  # the first inputs, which get gradients; 0: forward only
    counts_bytes: bool = False
    with_mask: Callable[[Tensor], Function] | None = None  # the formula for the factors of torch's dropout mask

    def rate(self, seconds: float) -> float:
        """10^9 operations or bytes per second."""
        return self.amount / seconds / 1e9


DROPOUT, SEED = 0.1, 2


def copy_of_first(x: Tensor, *_) -> Tensor:
    """A side that is timed but not compared."""
    return torch.empty_like(x).copy_(x)


def verify(case: Case, optional: Container[str] = ()) -> None:
    """Ends the program if a side is wrong; removes sides of `optional` that are not available."""
    torch.manual_seed(1)
    inputs = case.inputs()
    with torch.no_grad():
        output = case.formula(*inputs)
    grad = torch.randn(output.shape).to(output.dtype)
    truth = Truth.of(case.formula, inputs, case.leaves, grad)
    for name, function in list(case.sides.items()):
        if function is copy_of_first:
            continue
        side_truth = truth
        if name == "torch" and case.with_mask:  # torch draws another mask
            torch.manual_seed(SEED)
            factors = torch.nn.functional.dropout(torch.ones_like(inputs[0]), DROPOUT)
            side_truth = Truth.of(case.with_mask(factors), inputs, case.leaves, grad)
            torch.manual_seed(SEED)
        fresh = [x.clone() for x in inputs]  # a call may work in place
        try:
            fault = side_truth.fault(results(function, fresh, case.leaves, grad))
        except (RuntimeError, NotImplementedError) as error:  # torch says at the first call what it cannot compile
            if name not in optional:
                raise
            left_out(name, case.name, error)
            del case.sides[name]
            continue
        if fault:
            raise SystemExit(f"[bench] {name} of {case.name}: {fault}")


def left_out(name: str, case: str, error: Exception) -> None:
    why = str(error).strip().splitlines() or [type(error).__name__]
    print(f"{name} is left out of {case}: {why[0]}", file=sys.stderr)


def windows(case: Case, name: str, sets: list[list[Tensor]]) -> Windows:
    """The calls of a side, which cycle through sets of inputs."""
    function, leaves = case.sides[name], case.leaves
    if not leaves:
        turn = itertools.cycle(sets)

        def forward():
            with torch.inference_mode():
                function(*next(turn))

        return Windows(name, forward)
    with torch.no_grad():
        grad = torch.randn_like(case.formula(*sets[0]))
    ready = itertools.cycle([[x.detach().requires_grad_(i < leaves) for i, x in enumerate(s)] for s in sets])

    def train():
        inputs = next(ready)
        torch.autograd.grad(function(*inputs), inputs[:leaves], grad)

    return Windows(name, train)


def time_case(case: Case, rounds: int, window_s: float, sets: int = 1, optional: Container[str] = ()) -> list[Windows]:
    """The sides of a case, compared and timed."""
    verify(case, optional)
    arrays = [case.inputs() for _ in range(sets)]
    sides = [windows(case, name, arrays) for name in case.sides]
    take_turns(sides, rounds, window_s)
    return sides
