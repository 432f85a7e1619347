#!/usr/bin/env python3
"""Compares the kernels, called as operators, with torch eager.

    bench/kernels.py [--tables rope attention ..] [--rounds N] [--threads N] [--json FILE] [--update-docs]
    bench/kernels.py --filter 'attention/.*/1x2048'          cases whose name matches, without a table
    bench/kernels.py --list                                  the names

Every output and gradient is compared with the formula in float64 first (verified.py). Then the sides take turns in
short windows of one process; a ratio is the median of the ratios within a round. A backward includes its forward.
Rates count the operations of products (attention: 4 D per query and key forward, 14 D with backward; linear attention:
4 D^2 and 12 D^2 per token and head; linear layers: 2 and 6 per weight and row), or the bytes of arrays read and written
once. Cases that count bytes cycle through enough arrays to read them from memory; `rope-cached` uses one set.
"""

import argparse
import functools
import itertools
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peer_timing import Windows, keep_freed_memory, machine, median_ratio, take_turns  # noqa: E402
from verified import Function, Truth, results  # noqa: E402

import roformer_cpp  # noqa: E402
from roformer_cpp import DistanceTable, Rotation, Terms  # noqa: E402

TABLES = {
    "rope": "kernels rope",
    "rope-cached": "kernels rope-cached",
    "attention": "kernels attention",
    "linear-attention": "kernels linear-attention",
    "rows": "kernels rows",
    "linear": "kernels linear",
}
YARDSTICK = "linear/plain/1024x768x3072"  # the rate of matrix products in the run that times attention
FILTERS = {
    "rope": "^rope/",
    "rope-cached": "^rope/.*/4096/",
    "attention": f"^(attention|{YARDSTICK})/",
    "linear-attention": "^linear-attention/",
    "rows": "^(norm|gelu)/",
    "linear": "^linear/",
}
HEADS, HEAD_DIM, BASE = 12, 64, 10000.0
TRAFFIC, MAX_SETS = 2**28, 64  # bytes of all sets of arrays, so that data come from memory
NORM_EPS, DROPOUT, SEED, STREAM = 1e-5, 0.1, 2, 3
DTYPES = (torch.float32, torch.bfloat16)
PASSES = ("forward", "forward-backward")
operators = torch.ops.roformer


@dataclass
class Case:
    """A kernel at one size, dtype and variant.

    Functions take the tensors of `inputs` and return the output. Parameters of rows are float32 for ours.
    """

    name: str  # kernel/variant/size/dtype[/pass]
    amount: float  # of a call: operations, or bytes if `counts_bytes`
    counts_bytes: bool
    inputs: Callable[[], list[Tensor]]
    ours: Function
    torch: Function | None  # None: torch has no such call
    leaves: int = 0  # the first inputs, which get gradients; 0: forward only
    plain: Function | None = None  # the formula if `torch` is not one
    with_mask: Callable[[Tensor], Function] | None = None  # the formula for the factors of a dropout mask
    copies: bool = False  # also time a copy of the first input

    @property
    def formula(self) -> Function:
        return self.plain or self.torch

    def sides(self) -> dict[str, Function]:
        sides = {"ours": self.ours, "torch": self.torch}
        if self.copies:
            sides["copy"] = lambda x, *_: torch.empty_like(x).copy_(x)
        return {name: function for name, function in sides.items() if function}


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def angles(tokens: int) -> Tensor:
    theta = BASE ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
    return torch.arange(tokens)[:, None] * theta


def rotated(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    if layout == "pairs":
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def rope_cases(tiny: bool) -> Iterator[Case]:
    counts = [5] if tiny else [4096, 32768]
    places = ("out-of-place", "in-place")
    for tokens, dtype, order, layout, place in itertools.product(
        counts, DTYPES, ("thd", "htd"), ("pairs", "halves"), places
    ):
        heads_first = order == "htd"
        positions, rows = torch.arange(tokens), angles(tokens)
        rows = rows if heads_first else rows[:, None]
        shape = (1, HEADS, tokens, HEAD_DIM) if heads_first else (1, tokens, HEADS, HEAD_DIM)
        ours = functools.partial(
            roformer_cpp.rope, positions=positions, layout=layout, heads_first=heads_first, inplace=place == "in-place"
        )

        def formula(x, rows=rows, layout=layout):
            return rotated(x, rows.cos().to(x.dtype), rows.sin().to(x.dtype), layout)

        yield Case(
            f"rope/{order}-{layout}-{place}/{tokens}/{name_of(dtype)}",
            2 * tokens * HEADS * HEAD_DIM * dtype.itemsize,
            True,
            lambda shape=shape, dtype=dtype: [torch.randn(shape).to(dtype)],
            ours,
            None,
            plain=formula,
            copies=True,
        )


def attention_cases(tiny: bool) -> Iterator[Case]:
    shapes = [(2, 7)] if tiny else [(8, 128), (2, 512), (1, 2048)]
    for biased, (batch, tokens), dtype, which in itertools.product((False, True), shapes, DTYPES, PASSES):

        def inputs(biased=biased, batch=batch, tokens=tokens, dtype=dtype):
            """q, k, v, and for a bias its rows by distance and torch's matrix of them."""
            arrays = [torch.randn(batch, tokens, HEADS, HEAD_DIM).to(dtype) for _ in range(3)]
            if biased:
                rows = (
                    torch.randn(HEADS, 2 * tokens - 1).to(dtype).float()
                )  # rounded: torch's matrix has the dtype of q
                distances = torch.arange(tokens)[:, None] - torch.arange(tokens) + tokens - 1
                arrays += [rows, rows[:, distances].to(dtype)[None]]
            return arrays

        def ours(q, k, v, rows=None, matrix=None, tokens=tokens):
            terms = Terms() if rows is None else Terms(bias=DistanceTable(rows, 1 - tokens, tokens - 1))
            return roformer_cpp.attention(q, k, v, terms, kernel="fused")

        def plain(q, k, v, rows=None, matrix=None):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            scores = q @ k.transpose(2, 3) * HEAD_DIM**-0.5
            scores = scores if matrix is None else scores + matrix
            return (torch.softmax(scores, -1) @ v).transpose(1, 2)

        def fused(q, k, v, rows=None, matrix=None):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, matrix).transpose(1, 2)

        yield Case(
            f"attention/{'t5' if biased else 'plain'}/{batch}x{tokens}/{name_of(dtype)}/{which}",
            (4 if which == "forward" else 14) * batch * HEADS * tokens**2 * HEAD_DIM,
            False,
            inputs,
            ours,
            fused,
            leaves=0 if which == "forward" else 3,
            plain=plain,
        )


def causal_sums(f: Tensor, g: Tensor, v: Tensor, chunk: int = 128) -> Tensor:
    """sum over n <= m of (f_m . g_n) v_n, in chunks."""
    total, parts = f.new_zeros(f.shape[0], f.shape[2], f.shape[3], v.shape[3]), []
    for fs, gs, vs in zip(f.split(chunk, 1), g.split(chunk, 1), v.split(chunk, 1), strict=True):
        pairs = torch.einsum("bthf,bshf->bhts", fs, gs).tril()
        parts.append(torch.einsum("bhts,bshd->bthd", pairs, vs) + torch.einsum("bthf,bhfd->bthd", fs, total))
        total = total + torch.einsum("bshf,bshd->bhfd", gs, vs)
    return torch.cat(parts, 1)


def linear_attention_cases(tiny: bool) -> Iterator[Case]:
    shapes = [(7, 2)] if tiny else [(8192, 1), (8192, 12), (65536, 1)]
    for direction, (tokens, heads), which in itertools.product(("bidirectional", "causal"), shapes, PASSES):
        rows = angles(tokens)
        cos, sin = rows.cos().float(), rows.sin().float()
        rotation = Rotation(cos[None], sin[None])
        terms, causal = Terms(query=rotation, key=rotation, layout="halves"), direction == "causal"

        def ours(q, k, v, cos, sin, terms=terms, causal=causal):
            return roformer_cpp.linear_attention(q, k, v, "elu", terms, is_causal=causal, kernel="fused")

        def einsum(q, k, v, cos, sin, causal=causal):
            f, g = F.elu(q) + 1, F.elu(k) + 1
            over_f, over_g = rotated(f, cos, sin, "halves"), rotated(g, cos, sin, "halves")
            if causal:
                under = torch.einsum("bthf,bthf->bth", f, g.cumsum(1))
                return causal_sums(over_f, over_g, v) / under[..., None]
            sums = torch.einsum("bshf,bshd->bhfd", over_g, v)
            return torch.einsum("bthf,bhfd->bthd", over_f, sums) / torch.einsum("bthf,bhf->bth", f, g.sum(1))[..., None]

        shape = (1, tokens, heads, HEAD_DIM)
        yield Case(
            f"linear-attention/{direction}/{tokens}x{heads}/float32/{which}",
            (4 if which == "forward" else 12) * tokens * heads * HEAD_DIM**2,
            False,
            lambda shape=shape, rows=(cos[:, None], sin[:, None]): [*(torch.randn(shape) for _ in range(3)), *rows],
            ours,
            einsum,
            leaves=0 if which == "forward" else 3,
        )


def row_case(
    name, rows, columns, dtype, which, arrays, ours, peer, parameters=0, residual=False, plain=None, with_mask=None
):
    """A case over arrays [rows, columns] with vectors of parameters after them."""

    def inputs():
        arrays = [torch.randn(rows, columns).to(dtype) for _ in range(1 + residual)]
        return arrays + [torch.randn(columns).to(dtype) for _ in range(parameters)]

    return Case(
        f"{name}/{rows}x{columns}/{name_of(dtype)}/{which}",
        arrays[which == "forward-backward"] * rows * columns * dtype.itemsize,
        True,
        inputs,
        ours,
        peer,
        leaves=0 if which == "forward" else 1 + residual + parameters,
        plain=plain,
        with_mask=with_mask,
    )


def norm_cases(tiny: bool) -> Iterator[Case]:
    rows, columns = (5, 24) if tiny else (4096, 768)
    # The mask that our dropout draws, for the formula of the block.
    kept = operators.dropout(torch.ones(rows, columns), DROPOUT, SEED, STREAM)

    def layer(x, gamma, beta):
        return operators.norm(x, None, None, gamma.float(), beta.float(), eps=NORM_EPS)

    def rms(x, gamma):
        return operators.norm(x, None, None, gamma.float(), None, kind="rms", eps=NORM_EPS)

    def block(x, residual, bias, gamma, beta):
        return operators.norm(
            x, bias.float(), residual, gamma.float(), beta.float(), eps=NORM_EPS, dropout=DROPOUT, seed=SEED,
            stream=STREAM,
        )  # fmt: skip

    def torch_layer(x, gamma, beta):
        return F.layer_norm(x, (columns,), gamma, beta, NORM_EPS)

    def torch_rms(x, gamma):
        return F.rms_norm(x, (columns,), gamma, NORM_EPS)

    def torch_block(x, residual, bias, gamma, beta):
        return torch_layer(residual + F.dropout(x + bias, DROPOUT), gamma, beta)

    def block_formula(factors):
        return lambda x, residual, bias, gamma, beta: torch_layer(
            residual + (x + bias) * factors.to(x.dtype), gamma, beta
        )

    for dtype, which in itertools.product(DTYPES, PASSES):
        size = (rows, columns, dtype, which)
        yield row_case("norm/layer", *size, (2, 5), layer, torch_layer, 2)
        yield row_case("norm/rms", *size, (2, 5), rms, torch_rms, 1)
        yield row_case(
            "norm/block",
            *size,
            (3, 8),
            block,
            torch_block,
            3,
            residual=True,
            plain=block_formula(kept),
            with_mask=block_formula,
        )


def gelu_cases(tiny: bool) -> Iterator[Case]:
    rows, columns = (5, 24) if tiny else (4096, 3072)
    for dtype, which in itertools.product(DTYPES, PASSES):
        size = (rows, columns, dtype, which, (2, 5))
        for form, approximate in (("erf", "none"), ("tanh", "tanh")):
            ours = functools.partial(operators.gelu, form=form)
            yield row_case(f"gelu/{form}", *size, ours, functools.partial(F.gelu, approximate=approximate))
        biased = lambda x, bias: operators.gelu(x, bias.float())  # noqa: E731
        yield row_case("gelu/bias-erf", *size, biased, lambda x, bias: F.gelu(x + bias), 1)


def linear_cases(tiny: bool) -> Iterator[Case]:
    """The linear layers of the base model on 8 x 128 tokens."""
    base = [(768, 2304, "none"), (768, 768, "none"), (768, 3072, "none"), (768, 3072, "gelu"), (3072, 768, "none")]
    rows = 5 if tiny else 8 * 128
    for (wide, out, activation), dtype, which in itertools.product(
        [(24, 16, "none"), (24, 16, "gelu")] if tiny else base, DTYPES, PASSES
    ):
        if activation == "gelu" and which == "forward-backward":
            continue  # the layer fuses them in the forward pass only

        def inputs(wide=wide, out=out, dtype=dtype):
            weight = torch.randn(out, wide).to(dtype) / wide**0.5
            return [torch.randn(rows, wide).to(dtype), weight, torch.randn(out).to(dtype)]

        def ours(x, weight, bias, activation=activation):
            return operators.linear(x, weight, bias.float(), activation="gelu_erf" if activation == "gelu" else "none")

        def peer(x, weight, bias, activation=activation):
            y = F.linear(x, weight, bias)
            return F.gelu(y) if activation == "gelu" else y

        yield Case(
            f"linear/{'gelu' if activation == 'gelu' else 'plain'}/{rows}x{wide}x{out}/{name_of(dtype)}/{which}",
            (2 if which == "forward" else 6) * rows * wide * out,
            False,
            inputs,
            ours,
            peer,
            leaves=0 if which == "forward" else 3,
        )


CASES = (
    rope_cases, attention_cases, linear_attention_cases, norm_cases, gelu_cases, linear_cases,
)  # fmt: skip


def cases(pattern: str, tiny: bool) -> list[Case]:
    torch.manual_seed(0)
    try:
        matches = re.compile(pattern).search
    except re.error as error:
        raise SystemExit(f"[kernels] --filter must be a regular expression, got {error}") from None
    found = [case for make in CASES for case in make(tiny) if matches(case.name)]
    if not found:
        raise SystemExit("[kernels] --filter must match a case (--list prints them), got none")
    return found


def verify(case: Case) -> None:
    torch.manual_seed(1)
    inputs = case.inputs()
    with torch.no_grad():
        output = case.formula(*inputs)
    grad = torch.randn(output.shape).to(output.dtype)
    truth = Truth.of(case.formula, inputs, case.leaves, grad)
    for name, function in case.sides().items():
        if name == "copy":
            continue
        side_truth = truth
        if name == "torch" and case.with_mask:  # torch draws another mask
            torch.manual_seed(SEED)
            factors = F.dropout(torch.ones_like(inputs[0]), DROPOUT)
            side_truth = Truth.of(case.with_mask(factors), inputs, case.leaves, grad)
            torch.manual_seed(SEED)
        fresh = [x.clone() for x in inputs]  # a call may work in place
        fault = side_truth.fault(results(function, fresh, case.leaves, grad))
        if fault:
            raise SystemExit(f"[kernels] {name} of {case.name}: {fault}")


def windows(case: Case, name: str, function: Function, sets: list[list[Tensor]]) -> Windows:
    turn = itertools.cycle(sets)
    if not case.leaves:

        def call():
            with torch.inference_mode():
                function(*next(turn))

        return Windows(name, call)
    with torch.no_grad():
        output = case.formula(*sets[0])
    grad = torch.randn_like(output)
    ready = [[x.detach().requires_grad_(i < case.leaves) for i, x in enumerate(inputs)] for inputs in sets]
    turn = itertools.cycle(ready)

    def train():
        inputs = next(turn)
        torch.autograd.grad(function(*inputs), inputs[: case.leaves], grad)

    return Windows(name, train)


def time_case(case: Case, rounds: int, sets: int, window_s: float) -> Iterator[dict]:
    verify(case)
    if not sets:
        sets = min(MAX_SETS, -(-TRAFFIC // int(case.amount))) if case.counts_bytes else 1
    arrays = [case.inputs() for _ in range(sets)]
    sides = [windows(case, name, function, arrays) for name, function in case.sides().items()]
    take_turns(sides, rounds, window_s=window_s)
    for side in sides:
        rate = case.amount / statistics.median(side.seconds) / 1e9
        yield {
            "case": case.name,
            "side": side.name,
            "sets": sets,
            "median_us": round(1e6 * statistics.median(side.seconds), 1),
            "gigabytes_per_s" if case.counts_bytes else "gflop_per_s": float(f"{rate:.4g}"),
            "ours_times_as_fast": round(median_ratio(side, sides[0]), 3),
        }


def rope_rows(cases):
    """The speed relative to a copy of the same bytes."""
    kinds = [f"{layout}-{place}" for place in ("out-of-place", "in-place") for layout in ("pairs", "halves")]
    rows = {}
    for name, sides in cases.items():
        _, variant, positions, dtype = name.split("/")
        order, kind = variant.split("-", 1)
        key = (f"[{','.join(order.upper())}]", positions, dtype)
        rows.setdefault(key, {})[kind] = f"{sides['copy']['ours_times_as_fast']:.2f}"
    titles = [", ".join(kind.split("-", 1)).replace("-", " ") for kind in kinds]
    return [["data", "positions", "dtype", *titles], *([*key, *(row[k] for k in kinds)] for key, row in rows.items())]


def peer_rows(cases):
    """One row for both passes of a case: our rate, its ratio to torch's, and for attention its share of the rate of a
    linear layer of the same dtype in the same run."""
    any_attention = any(name.startswith("attention/") for name in cases)
    unit = "GFLOP/s" if "gflop_per_s" in next(iter(cases.values()))["ours"] else "GB/s"
    rows = {}
    for name, sides in cases.items():
        *what, dtype, which = name.split("/")
        rate = sides["ours"].get("gflop_per_s") or sides["ours"]["gigabytes_per_s"]
        cells = [f"{rate:.0f}", f"{sides['torch']['ours_times_as_fast']:.2f}"]
        if any_attention:
            cells.append(f"{rate / cases[f'{YARDSTICK}/{dtype}/{which}']['ours']['gflop_per_s']:.2f}")
        rows.setdefault(" ".join([*what, dtype]), {})[which] = cells
    columns = [unit, "of torch", *["of a linear layer"] * any_attention]
    titles = [f"{which}, {column}" for which in ("forward", "with backward") for column in columns]
    empty = [""] * len(columns)
    return [
        ["kernel", *titles],
        *([what, *(c for p in PASSES for c in row.get(p, empty))] for what, row in rows.items()),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--filter", metavar="REGEX", help="time the cases whose name matches; no tables")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to test that every case works")
    parser.add_argument("--rounds", type=int, default=15, help="windows of each side")
    parser.add_argument("--window-ms", type=float, default=4)
    parser.add_argument("--threads", type=int, help="threads of every side (default: PyTorch's)")
    parser.add_argument("--json", metavar="FILE", help="also write machine and results as JSON lines")
    tables.add_option(parser)
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(case.name for case in cases(arguments.filter or "", arguments.tiny)))
        return
    keep_freed_memory()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    lines = [{"machine": machine(), "rounds": arguments.rounds}]

    def timed(pattern, sets=0):
        found = {}
        for case in cases(pattern, arguments.tiny):
            for line in time_case(case, arguments.rounds, sets, arguments.window_ms / 1e3):
                print(json.dumps(line), flush=True)
                lines.append(line)
                found.setdefault(case.name, {})[line["side"]] = line
        return found

    if arguments.filter is not None:
        timed(arguments.filter)
    else:
        for name in arguments.tables:
            found = timed(FILTERS[name], sets=int(name == "rope-cached"))
            table = tables.markdown((rope_rows if name.startswith("rope") else peer_rows)(found))
            print(table, flush=True)
            if arguments.update_docs:
                tables.update_docs(TABLES[name], lines[0]["machine"], table)
    if arguments.json:
        Path(arguments.json).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
