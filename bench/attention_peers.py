#!/usr/bin/env python3
"""Compares attention with torch's and other programs': 12 heads of 64, forward and with backward.

Sides: our fused kernel; torch's scaled_dot_product_attention; the formula in torch (matmul, softmax, matmul), and the
same compiled; flex_attention, compiled (forward only on the CPU); ONNX Runtime's operators for attention (forward and
float32 only). The cases come from kernels.py. Peers get the bias by distance as a matrix, flex_attention as a
function.
"""

from collections.abc import Callable

import harness
import tables
import torch
from kernels import HEADS, attention_cases, attention_formula
from onnx_files import LeftOut, operator
from torch import Tensor
from verified import OURS, Case, Function, left_out, time_case

TABLES = ["attention_peers"]
ONNX_RUNTIME = {  # domain, and the attributes for the numbers of heads
    "MultiHeadAttention": ("com.microsoft", {"num_heads": HEADS}),
    "Attention": ("", {"q_num_heads": HEADS, "kv_num_heads": HEADS}),
}


def flex_attention(q, k, v, rows=None, matrix=None):
    from torch.nn.attention import flex_attention

    most = q.shape[1] - 1

    def add_bias(score, b, h, i, j):
        return score + rows[h, i - j + most]

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return flex_attention.flex_attention(q, k, v, score_mod=None if rows is None else add_bias).transpose(1, 2)


def onnxruntime(name: str, q: Tensor, k: Tensor, v: Tensor, rows=None, matrix=None) -> Callable[..., Tensor]:
    """One of its operators on these arrays, as [B, T, H*D]."""
    domain, attributes = ONNX_RUNTIME[name]
    y = torch.empty_like(q)
    inputs = [x.flatten(2) for x in (q, k, v)]
    if matrix is not None:
        inputs += [*[None] * (2 if domain else 0), matrix.contiguous()]
    call = operator(name, domain, inputs, y.flatten(2), **attributes)
    return lambda *_: (call(), y)[1]


def add_peers(case: Case, compiled: bool) -> None:
    """Other sides of a case; ONNX Runtime's always compute with the same arrays."""
    case.sides["scaled_dot_product_attention"] = case.sides.pop("torch")
    case.sides["formula"] = attention_formula
    if compiled:
        torch._dynamo.reset()
        case.sides["formula, compiled"] = torch.compile(attention_formula, dynamic=False)
    if case.leaves:
        return
    if compiled:
        case.sides["flex_attention"] = torch.compile(flex_attention, dynamic=False)
    arrays = case.inputs()
    case.inputs = lambda: arrays
    for name in ONNX_RUNTIME:
        try:
            case.sides[f"ONNX Runtime, {name}"] = onnxruntime(name, *arrays)
        except LeftOut as error:
            left_out(f"ONNX Runtime, {name}", case.name, error)


def compare(case: Case, rounds: int):
    optional: dict[str, Function] = {name: side for name, side in case.sides.items() if name != OURS}
    sides = time_case(case, rounds, window_s=0.15, optional=optional)
    _, bias, shape, dtype, which = case.name.split("/")
    for side in sides:
        yield {
            "shape": shape.replace("x", " x "),
            "dtype": dtype,
            "bias": {"plain": "none", "t5": "by distance"}[bias],
            "pass": which.replace("-", " and "),
            "side": side.name,
            "ms": round(1e3 * side.median, 3),
            "gflop_per_s": round(case.rate(side.median), 1),
            "ours_times_as_fast": round(harness.median_ratio(side, sides[0]), 2),
        }


def table(results):
    """A row per case: our GFLOP/s, and the speed relative to each other side."""

    def entries():
        for result in results:
            key = tuple(result[name] for name in ("shape", "dtype", "bias", "pass"))
            if result["side"] == OURS:
                yield key, "ours, GFLOP/s", f"{result['gflop_per_s']:.0f}"
            else:
                yield key, result["side"], f"{result['ours_times_as_fast']:.2f}"

    return tables.pivot(["batch x tokens", "dtype", "bias", ""], entries())


def main():
    parser = harness.options(__doc__, TABLES, rounds=9)
    parser.add_argument("--no-compile", action="store_true", help="leave out what torch.compile makes")
    given = harness.parsed(parser)
    results = []
    for case in attention_cases(tiny=False):
        add_peers(case, not given.no_compile)
        results += harness.shown(compare(case, given.rounds))
    harness.finish(given, results, {TABLES[0]: table(results)})


if __name__ == "__main__":
    main()
