#!/usr/bin/env python3
"""Compares attention with torch's, and each of our encodings with RoPE: 12 heads of 64, forward and with backward.

    bench/attention_peers.py [--rounds N] [--json FILE] [--no-compile] [--encodings] [--update-docs]

Sides: our fused kernel; torch's scaled_dot_product_attention; the formula in torch (matmul, softmax, matmul), and the
same compiled; flex_attention, compiled (forward only on the CPU); ONNX Runtime's operators for attention (forward and
float32 only). Unavailable sides are left out; stderr says why. The sizes are 8 x 128, 2 x 512 and 1 x 2048 (batch x
tokens), in float32 and bfloat16, without a bias and with a bias by distance, which the others get as a matrix,
flex_attention as a function. --encodings: our kernel at 2048 and 512 tokens in float32 with the terms of each encoding,
relative to RoPE's time.

Every output and gradient is compared with the formula in float64 first (verified.py). Then the sides take turns in
short windows of one process; a ratio is the median of the ratios within a round. A pause between sides lets the
previous side's threads go to sleep.
"""

import argparse
import functools
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from onnx_operator import LeftOut, operator  # noqa: E402
from peer_timing import Windows, keep_freed_memory, machine, median_ratio, take_turns  # noqa: E402
from verified import Truth, results  # noqa: E402

import roformer_cpp  # noqa: E402
from roformer_cpp import DistanceTable, Rotation, Terms  # noqa: E402

TABLES = {"peers": "attention_peers", "encodings": "attention_peers encodings"}
HEADS, HEAD_DIM = 12, 64
SHAPES = [(8, 128), (2, 512), (1, 2048)]
TRAINED_ROTATIONS = "rope, trained rows for each head"
RESULTS = ("output", "gradient of q", "gradient of k", "gradient of v")


def formula(q, k, v, bias=None):
    """Heads first."""
    scores = q @ k.transpose(-1, -2) * HEAD_DIM**-0.5
    return torch.softmax(scores if bias is None else scores + bias, -1) @ v


@dataclass
class Side:
    name: str
    function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # q, k, v and result: [B, T, H, D]
    backward: bool = True


class Case:
    def __init__(self, batch, tokens, dtype, bias):
        generator = torch.Generator().manual_seed(0)
        self.shape = (batch, tokens)
        self.dtype = dtype
        draw = lambda: torch.randn(batch, tokens, HEADS, HEAD_DIM, generator=generator).to(dtype)  # noqa: E731
        self.q, self.k, self.v, self.y = draw(), draw(), draw(), draw()
        self.rows = torch.randn(HEADS, 2 * tokens - 1, generator=generator) if bias else None
        self.bias = None
        if bias:
            positions = torch.arange(tokens)
            self.bias = self.rows[:, positions[:, None] - positions + tokens - 1].to(dtype)[None]

    def ours(self, q, k, v):
        tokens = self.shape[1]
        terms = Terms() if self.rows is None else Terms(bias=DistanceTable(self.rows, 1 - tokens, tokens - 1))
        return roformer_cpp.attention(q, k, v, terms, kernel="fused")

    def heads_first(self, function):
        def call(q, k, v):
            return function(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)

        return call

    def sides(self, compiled):
        sdpa = scaled_dot_product_attention
        explicit = lambda q, k, v: formula(q, k, v, self.bias)  # noqa: E731
        sides = [
            Side("ours", self.ours),
            Side("scaled_dot_product_attention", self.heads_first(lambda q, k, v: sdpa(q, k, v, self.bias))),
            Side("formula", self.heads_first(explicit)),
        ]
        if compiled:
            torch._dynamo.reset()
            sides.append(Side("formula, compiled", self.heads_first(torch.compile(explicit, dynamic=False))))
            sides.append(Side("flex_attention", self.heads_first(self.flex_attention()), backward=False))
        return sides + self.onnxruntime_sides()

    def flex_attention(self):
        from torch.nn.attention.flex_attention import flex_attention

        rows, tokens = self.rows, self.shape[1]
        change = None if rows is None else lambda score, b, h, i, j: score + rows[h, i - j + tokens - 1]
        return torch.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=change), dynamic=False)

    def onnxruntime_sides(self):
        """ONNX Runtime's operators, which take arrays [B, T, H*D]."""
        q, k, v = (x.flatten(2) for x in (self.q, self.k, self.v))
        bias = None if self.bias is None else self.bias.contiguous()
        sides = []
        for name, domain, inputs, attributes in (
            ("MultiHeadAttention", "com.microsoft", [q, k, v, None, None, bias], {"num_heads": HEADS}),
            ("Attention", "", [q, k, v, bias], {"q_num_heads": HEADS, "kv_num_heads": HEADS}),
        ):
            name, y = f"ONNX Runtime, {name}", torch.empty_like(q)
            while inputs[-1] is None:
                inputs.pop()
            try:
                call = operator(name.split()[-1], domain, inputs, y, **attributes)
            except LeftOut as error:
                left_out(name, self, error)
                continue
            function = lambda q, k, v, call=call, y=y: (call(), y.view(self.q.shape))[1]  # noqa: E731
            sides.append(Side(name, function, backward=False))
        return sides

    def results(self, function, backward=True):
        """The output, and the gradients of q, k and v."""
        return results(function, (self.q, self.k, self.v), 3 if backward else 0, self.y)

    @functools.cached_property
    def truth(self):
        def explicit(q, k, v):
            return self.heads_first(lambda *x: formula(*x, None if self.bias is None else self.bias.to(q.dtype)))(
                q, k, v
            )

        return Truth.of(explicit, (self.q, self.k, self.v), 3, self.y)

    def check(self, side):
        fault = self.truth.fault(self.results(side.function, side.backward), RESULTS)
        if fault:
            raise SystemExit(f"[attention_peers] {side.name}: {fault}")

    def products(self, backward):
        batch, tokens = self.shape
        return (14 if backward else 4) * batch * HEADS * tokens**2 * HEAD_DIM


def left_out(name, case, error):
    why = str(error).strip().splitlines() or [type(error).__name__]
    print(f"{name} left out at {case.shape} {case.dtype}: {why[0]}", file=sys.stderr)


def forward_windows(case, side):
    def call():
        with torch.inference_mode():
            side.function(case.q, case.k, case.v)

    return Windows(side.name, call)


def training_windows(case, side):
    q, k, v = (x.clone().requires_grad_() for x in (case.q, case.k, case.v))

    def call():
        torch.autograd.grad(side.function(q, k, v), (q, k, v), case.y)

    return Windows(side.name, call)


def verified(case, sides):
    """The sides that are available; torch reports at the first call what it cannot compile."""
    kept = []
    for side in sides:
        try:
            case.check(side)
        except (RuntimeError, NotImplementedError) as error:
            if side.name == "ours":
                raise
            left_out(side.name, case, error)
        else:
            kept.append(side)
    return kept


def compare(case, bias, rounds, compiled):
    verified_sides = verified(case, case.sides(compiled))
    for backward in (False, True):
        make = training_windows if backward else forward_windows
        sides = [make(case, side) for side in verified_sides if side.backward or not backward]
        take_turns(sides, rounds, window_s=0.15)
        for side in sides:
            yield {
                "batch": case.shape[0],
                "tokens": case.shape[1],
                "dtype": str(case.dtype).removeprefix("torch."),
                "bias": bias,
                "backward": backward,
                "side": side.name,
                "ms": round(1e3 * statistics.median(side.seconds), 3),
                "gflop_per_s": round(case.products(backward) / statistics.median(side.seconds) / 1e9, 1),
                "ours_times_as_fast": round(median_ratio(side, sides[0]), 2),
            }


def encoding_terms(tokens):
    """Random numbers in the terms of each encoding; time does not depend on them."""
    angles = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    rotation = Rotation(angles.cos()[None], angles.sin()[None])

    by_head = Rotation(*(rows[:, :, None].expand(-1, -1, HEADS, -1).contiguous() for rows in rotation))

    def table(lo, hi, heads=HEADS):
        return DistanceTable(torch.randn(heads, hi - lo + 1, HEAD_DIM) * 0.3, lo, hi)

    bias = DistanceTable(torch.randn(HEADS, 2 * tokens - 1), 1 - tokens, tokens - 1)
    per_head, per_position = torch.randn(HEADS, HEAD_DIM), torch.randn(HEADS, tokens, HEAD_DIM)
    return {
        "rope": Terms(query=rotation, key=rotation),
        "none": Terms(),
        "t5, alibi": Terms(bias=bias),
        "shaw, nezha, clip 64": Terms(key_table=table(-64, 64, 1), value_table=table(-64, 64, 1)),
        "tupe-r": Terms(
            position_query=per_position,
            position_key=torch.randn(HEADS, tokens, HEAD_DIM),
            reset_row=torch.randn(HEADS),
            reset_col=torch.randn(HEADS),
            bias=bias,
        ),
        "transformer-xl": Terms(
            content_bias=per_head, position_bias=-per_head, key_table=table(1 - tokens, tokens - 1)
        ),
        "deberta, 512": Terms(key_table=table(-512, 511), query_table=table(-512, 511)),
        "a number by key": Terms(key_score=torch.randn(2048 // tokens, HEADS, tokens)),
        "a dense pair bias": Terms(pair_bias=torch.randn(1, HEADS, tokens, tokens)),
        "a dense pair bias, one for all heads": Terms(pair_bias=torch.randn(1, 1, tokens, tokens)),
        "rope, rows for each head": Terms(query=by_head, key=by_head),
        TRAINED_ROTATIONS: Terms(query=by_head, key=by_head),
    }


def trainable(terms, rotations=False):
    """Every term; rotations only on request, because their rows are constants in most encodings."""
    leaves = []

    def leaf(tensor):
        leaves.append(tensor.clone().requires_grad_())
        return leaves[-1]

    fields = {}
    for name, value in vars(terms).items():
        if isinstance(value, DistanceTable):
            fields[name] = DistanceTable(leaf(value.rows), value.lo, value.hi)
        elif isinstance(value, Rotation) and rotations:
            fields[name] = Rotation(leaf(value.cos), leaf(value.sin))
        else:
            fields[name] = leaf(value) if isinstance(value, torch.Tensor) else value
    return Terms(**fields), leaves


def compare_encodings(tokens, rounds):
    case = Case(2048 // tokens, tokens, torch.float32, bias=False)
    for backward in (False, True):
        sides = []
        for name, terms in encoding_terms(tokens).items():
            inputs = [case.q, case.k, case.v]
            if backward:
                terms, leaves = trainable(terms, rotations=name == TRAINED_ROTATIONS)
                inputs = [x.clone().requires_grad_() for x in inputs]

                def call(terms=terms, inputs=inputs, leaves=leaves):
                    torch.autograd.grad(roformer_cpp.attention(*inputs, terms, kernel="fused"), inputs + leaves, case.y)

            else:

                def call(terms=terms, inputs=inputs):
                    with torch.inference_mode():
                        roformer_cpp.attention(*inputs, terms, kernel="fused")

            sides.append(Windows(name, call))
        take_turns(sides, rounds, window_s=0.15)
        for side in sides:
            yield {
                "tokens": tokens,
                "backward": backward,
                "encoding": side.name,
                "ms": round(1e3 * statistics.median(side.seconds), 3),
                "of_rope": round(median_ratio(side, sides[0]), 2),
            }


def peer_table(results):
    """A row per case: our GFLOP/s, and the speed relative to each other side."""
    cases = {}
    for r in results:
        key = (f"{r['batch']} x {r['tokens']}", r["dtype"], "by distance" if r["bias"] else "none", r["backward"])
        cases.setdefault(key, {})[r["side"]] = r
    others = [name for name in dict.fromkeys(r["side"] for r in results) if name != "ours"]
    rows = [["batch x tokens", "dtype", "bias", "", "ours, GFLOP/s", *others]]
    for (shape, dtype, bias, backward), sides in cases.items():
        ratios = [f"{sides[name]['ours_times_as_fast']:.2f}" if name in sides else "" for name in others]
        which = "forward and backward" if backward else "forward"
        rows.append([shape, dtype, bias, which, f"{sides['ours']['gflop_per_s']:.0f}", *ratios])
    return tables.markdown(rows)


def encoding_table(results):
    columns = sorted({(-r["tokens"], r["backward"]) for r in results})
    rows = [["terms of"] + [f"{-t}, {'forward and backward' if b else 'forward'}" for t, b in columns]]
    for name in dict.fromkeys(r["encoding"] for r in results):
        found = {(-r["tokens"], r["backward"]): r["of_rope"] for r in results if r["encoding"] == name}
        rows.append([name, *(f"{found[column]:.2f}" for column in columns)])
    return tables.markdown(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="write machine, commit and results as JSON too")
    parser.add_argument("--no-compile", action="store_true", help="leave out what torch.compile makes")
    parser.add_argument("--encodings", action="store_true", help="ours with each encoding's terms, relative to RoPE")
    parser.add_argument("--threads", type=int, help="threads of every side (default: PyTorch's)")
    tables.add_option(parser)
    arguments = parser.parse_args()
    keep_freed_memory()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    results = []

    def take(rows):
        for row in rows:
            results.append(row)
            print(json.dumps(row), flush=True)

    print(json.dumps(machine()), flush=True)
    if arguments.encodings:
        for tokens in (2048, 512):
            take(compare_encodings(tokens, arguments.rounds))
    else:
        for dtype in (torch.float32, torch.bfloat16):
            for batch, tokens in SHAPES:
                for bias in (False, True):
                    take(compare(Case(batch, tokens, dtype, bias), bias, arguments.rounds, not arguments.no_compile))
    if arguments.update_docs:
        which, table = ("encodings", encoding_table) if arguments.encodings else ("peers", peer_table)
        tables.update_docs(TABLES[which], machine(), table(results))
    if arguments.json:
        document = {"machine": machine(), "rounds": arguments.rounds, "results": results}
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
