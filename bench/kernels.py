#!/usr/bin/env python3
"""Compares the kernels, called as operators, with torch eager.

A backward includes its forward. Rates count the operations of products (attention: 4 D per query and key forward, 14 D
with backward; linear attention: 4 D^2 and 12 D^2 per token and head; linear layers: 2 and 6 per weight and row), or the
bytes of arrays read and written once. Cases that count bytes cycle through enough arrays to read them from memory;
`rope-cached` uses one set.
"""

import functools
import itertools
import re
from collections.abc import Iterator

import harness
import tables
import torch
import torch.nn.functional as F
from torch import Tensor
from verified import DROPOUT, OURS, SEED, Case, copy_of_first, time_case

import roformer_cpp
from roformer_cpp import DistanceTable, Rotation, Terms

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
NORM_EPS, STREAM = 1e-5, 3
DTYPES = (torch.float32, torch.bfloat16)
PASSES = ("forward", "forward-backward")
operators = torch.ops.roformer


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
    for tokens, dtype, order, place, layout in itertools.product(
        [5] if tiny else [4096, 32768], DTYPES, ("thd", "htd"), ("out-of-place", "in-place"), ("pairs", "halves")
    ):
        heads_first = order == "htd"
        rows = angles(tokens) if heads_first else angles(tokens)[:, None]
        shape = (1, HEADS, tokens, HEAD_DIM) if heads_first else (1, tokens, HEADS, HEAD_DIM)
        positions, inplace = torch.arange(tokens), place == "in-place"
        ours = functools.partial(
            roformer_cpp.rope, positions=positions, layout=layout, heads_first=heads_first, inplace=inplace
        )

        def formula(x, rows=rows, layout=layout):
            return rotated(x, rows.cos().to(x.dtype), rows.sin().to(x.dtype), layout)

        yield Case(
            f"rope/{order}-{layout}-{place}/{tokens}/{name_of(dtype)}",
            2 * tokens * HEADS * HEAD_DIM * dtype.itemsize,
            lambda shape=shape, dtype=dtype: [torch.randn(shape).to(dtype)],
            {OURS: ours, "copy": copy_of_first},
            formula,
            counts_bytes=True,
        )


def attention_formula(q, k, v, rows=None, matrix=None):
    """matrix: a bias [1, H, T, T]; rows: the same by distance, for our kernel."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(2, 3) * HEAD_DIM**-0.5
    return (torch.softmax(scores if matrix is None else scores + matrix, -1) @ v).transpose(1, 2)


def torch_attention(q, k, v, rows=None, matrix=None):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, matrix).transpose(1, 2)


def our_attention(q, k, v, rows=None, matrix=None):
    most = q.shape[1] - 1
    terms = Terms() if rows is None else Terms(bias=DistanceTable(rows, -most, most))
    return roformer_cpp.attention(q, k, v, terms, kernel="fused")


def attention_inputs(batch: int, tokens: int, dtype: torch.dtype, biased: bool) -> list[Tensor]:
    """q, k, v, and for a bias its rows by distance and the same bias as torch's matrix."""
    arrays = [torch.randn(batch, tokens, HEADS, HEAD_DIM).to(dtype) for _ in range(3)]
    if biased:
        rows = torch.randn(HEADS, 2 * tokens - 1).to(dtype).float()  # rounded: torch's matrix has the dtype of q
        distances = torch.arange(tokens)[:, None] - torch.arange(tokens) + tokens - 1
        arrays += [rows, rows[:, distances].to(dtype)[None]]
    return arrays


def attention_cases(tiny: bool) -> Iterator[Case]:
    shapes = [(2, 7)] if tiny else [(8, 128), (2, 512), (1, 2048)]
    for biased, (batch, tokens), dtype, which in itertools.product((False, True), shapes, DTYPES, PASSES):
        yield Case(
            f"attention/{'t5' if biased else 'plain'}/{batch}x{tokens}/{name_of(dtype)}/{which}",
            (4 if which == "forward" else 14) * batch * HEADS * tokens**2 * HEAD_DIM,
            functools.partial(attention_inputs, batch, tokens, dtype, biased),
            {OURS: our_attention, "torch": torch_attention},
            attention_formula,
            leaves=0 if which == "forward" else 3,
        )


def causal_sums(f: Tensor, g: Tensor, v: Tensor, chunk: int = 128) -> Tensor:
    """sum over n <= m of (f_m . g_n) v_n, in chunks."""
    total, parts = f.new_zeros(f.shape[0], f.shape[2], f.shape[3], v.shape[3]), []
    for fs, gs, vs in zip(f.split(chunk, 1), g.split(chunk, 1), v.split(chunk, 1), strict=True):
        pairs = torch.einsum("bthf,bshf->bhts", fs, gs).tril()
        parts.append(torch.einsum("bhts,bshd->bthd", pairs, vs) + torch.einsum("bthf,bhfd->bthd", fs, total))
        total = total + torch.einsum("bshf,bshd->bhfd", gs, vs)
    return torch.cat(parts, 1)


def linear_attention_case(tokens: int, heads: int, causal: bool, which: str) -> Case:
    """elu + 1 features of heads of 64, RoPE in the numerator (arXiv 2104.09864 Eq. 19)."""
    rows = angles(tokens)
    cos, sin = rows.cos().float(), rows.sin().float()
    rotation = Rotation(cos[None], sin[None])
    terms = Terms(query=rotation, key=rotation, layout="halves")

    def ours(q, k, v, *_):
        return roformer_cpp.linear_attention(q, k, v, "elu", terms, is_causal=causal, kernel="fused")

    def einsum(q, k, v, cos, sin):
        f, g = F.elu(q) + 1, F.elu(k) + 1
        over_f, over_g = rotated(f, cos, sin, "halves"), rotated(g, cos, sin, "halves")
        if causal:
            under = torch.einsum("bthf,bthf->bth", f, g.cumsum(1))
            return causal_sums(over_f, over_g, v) / under[..., None]
        sums = torch.einsum("bshf,bshd->bhfd", over_g, v)
        return torch.einsum("bthf,bhfd->bthd", over_f, sums) / torch.einsum("bthf,bhf->bth", f, g.sum(1))[..., None]

    return Case(
        f"linear-attention/{'causal' if causal else 'bidirectional'}/{tokens}x{heads}/float32/{which}",
        (4 if which == "forward" else 12) * tokens * heads * HEAD_DIM**2,
        lambda: [*torch.randn(3, 1, tokens, heads, HEAD_DIM).unbind(), cos[:, None], sin[:, None]],
        {OURS: ours, "torch": einsum},
        einsum,
        leaves=0 if which == "forward" else 3,
    )


def linear_attention_cases(tiny: bool) -> Iterator[Case]:
    shapes = [(7, 2)] if tiny else [(8192, 1), (8192, 12), (65536, 1)]
    for causal, (tokens, heads), which in itertools.product((False, True), shapes, PASSES):
        yield linear_attention_case(tokens, heads, causal, which)


def row_cases(name, rows, columns, arrays, ours, peer, parameters=0, residual=False, **more) -> Iterator[Case]:
    """Cases over arrays [rows, columns] with vectors of parameters after them, which ours takes in float32.

    arrays: how many a call reads and writes, forward and with backward."""
    for dtype, (which, count) in itertools.product(DTYPES, zip(PASSES, arrays, strict=True)):

        def inputs(dtype=dtype):
            large = [torch.randn(rows, columns).to(dtype) for _ in range(1 + residual)]
            return large + [torch.randn(columns).to(dtype) for _ in range(parameters)]

        yield Case(
            f"{name}/{rows}x{columns}/{name_of(dtype)}/{which}",
            count * rows * columns * dtype.itemsize,
            inputs,
            {OURS: ours, "torch": peer},
            **({"formula": peer} | more),
            leaves=0 if which == "forward" else 1 + residual + parameters,
            counts_bytes=True,
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
        options = dict(eps=NORM_EPS, dropout=DROPOUT, seed=SEED, stream=STREAM)
        return operators.norm(x, bias.float(), residual, gamma.float(), beta.float(), **options)

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

    yield from row_cases("norm/layer", rows, columns, (2, 5), layer, torch_layer, 2)
    yield from row_cases("norm/rms", rows, columns, (2, 5), rms, torch_rms, 1)
    more = {"formula": block_formula(kept), "with_mask": block_formula}
    yield from row_cases("norm/block", rows, columns, (3, 8), block, torch_block, 3, residual=True, **more)


def gelu_cases(tiny: bool) -> Iterator[Case]:
    size = (5, 24, (2, 5)) if tiny else (4096, 3072, (2, 5))
    for form, approximate in (("erf", "none"), ("tanh", "tanh")):
        ours, peer = functools.partial(operators.gelu, form=form), functools.partial(F.gelu, approximate=approximate)
        yield from row_cases(f"gelu/{form}", *size, ours, peer)
    biased = lambda x, bias: operators.gelu(x, bias.float())  # noqa: E731
    yield from row_cases("gelu/bias-erf", *size, biased, lambda x, bias: F.gelu(x + bias), 1)


def linear_cases(tiny: bool) -> Iterator[Case]:
    """The linear layers of the base model on 8 x 128 tokens."""
    base = [(768, 2304, False), (768, 768, False), (768, 3072, False), (768, 3072, True), (3072, 768, False)]
    rows = 5 if tiny else 8 * 128
    for (wide, out, gelu), dtype, which in itertools.product(
        [(24, 16, False), (24, 16, True)] if tiny else base, DTYPES, PASSES
    ):
        if gelu and which == "forward-backward":
            continue  # the layer fuses them in the forward pass only

        def inputs(wide=wide, out=out, dtype=dtype):
            weight = torch.randn(out, wide).to(dtype) / wide**0.5
            return [torch.randn(rows, wide).to(dtype), weight, torch.randn(out).to(dtype)]

        def ours(x, weight, bias, activation="gelu_erf" if gelu else "none"):
            return operators.linear(x, weight, bias.float(), activation=activation)

        def peer(x, weight, bias, activation=F.gelu if gelu else lambda y: y):
            return activation(F.linear(x, weight, bias))

        yield Case(
            f"linear/{'gelu' if gelu else 'plain'}/{rows}x{wide}x{out}/{name_of(dtype)}/{which}",
            (2 if which == "forward" else 6) * rows * wide * out,
            inputs,
            {OURS: ours, "torch": peer},
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


def timed(case: Case, rounds: int, sets: int, window_s: float) -> Iterator[dict]:
    """A result for each side. sets: of arrays; 0: enough to read them from memory."""
    if not sets:
        sets = min(MAX_SETS, -(-TRAFFIC // int(case.amount))) if case.counts_bytes else 1
    sides = time_case(case, rounds, window_s, sets)
    for side in sides:
        yield {
            "case": case.name,
            "side": side.name,
            "sets": sets,
            "median_us": round(1e6 * side.median, 1),
            "rate": float(f"{case.rate(side.median):.4g}"),
            "unit": "GB/s" if case.counts_bytes else "GFLOP/s",
            "ours_times_as_fast": round(harness.median_ratio(side, sides[0]), 3),
        }


def rope_table(results: list[dict]) -> str:
    """The speed relative to a copy of the same bytes."""

    def entries():
        for result in results:
            if result["side"] == "copy":
                _, variant, positions, dtype = result["case"].split("/")
                order, kind = variant.split("-", 1)
                key = (f"[{','.join(order.upper())}]", positions, dtype)
                yield key, kind.replace("-", ", ", 1).replace("-", " "), f"{result['ours_times_as_fast']:.2f}"

    return tables.pivot(["data", "positions", "dtype"], entries())


def peer_table(results: list[dict]) -> str:
    """One row for both passes of a case: our rate, its ratio to torch's, and for attention its share of the rate of a
    linear layer of the same dtype in the same run."""
    rates = {result["case"]: result["rate"] for result in results if result["side"] == OURS}
    any_attention = any(case.startswith("attention/") for case in rates)

    def entries():
        for result in results:
            *what, dtype, which = result["case"].split("/")
            key, title = (" ".join([*what, dtype]),), which.replace("forward-backward", "with backward")
            if result["side"] == OURS:
                yield key, f"{title}, {result['unit']}", f"{result['rate']:.0f}"
                continue
            yield key, f"{title}, of torch", f"{result['ours_times_as_fast']:.2f}"
            if any_attention:
                rate = rates[result["case"]] / rates[f"{YARDSTICK}/{dtype}/{which}"]
                yield key, f"{title}, of a linear layer", f"{rate:.2f}"

    return tables.pivot(["kernel"], entries())


def main():
    parser = harness.options(__doc__, TABLES, rounds=15)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--filter", metavar="REGEX", help="time the cases whose name matches; no tables")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to test that every case works")
    parser.add_argument("--window-ms", type=float, default=4)
    given = harness.parsed(parser)
    if given.list:
        print("\n".join(case.name for case in cases(given.filter or "", given.tiny)))
        return
    results, texts = [], {}
    patterns = FILTERS if given.filter is None else {"": given.filter}
    for name in given.tables if given.filter is None else [""]:
        found = []
        for case in cases(patterns[name], given.tiny):
            sets = int(name == "rope-cached")
            found += harness.shown(timed(case, given.rounds, sets, given.window_ms / 1e3))
        results += found
        if name:
            texts[TABLES[name]] = (rope_table if name.startswith("rope") else peer_table)(found)
    harness.finish(given, results, texts)


if __name__ == "__main__":
    main()
