#!/usr/bin/env python3
"""Compares rotary position embedding with other libraries: 12 heads of 64, float32 and bfloat16.

GB/s counts the tensor once read and once written. Building tables is not timed: peers get exact tables. Memory is
[T, H, D] unless a name says [H, T, D]. The copy and ONNX Runtime write into existing memory; all other sides allocate
their result. malloc is set to keep freed memory, so that an allocation costs a pointer and not page faults.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import harness
import tables
import torch
from harness import Windows, median_ratio
from kernels import HEAD_DIM, HEADS, angles, rotated
from onnx_files import LeftOut, operator
from torch import Tensor
from verified import left_out

import roformer_cpp

ERROR_EPS = 4.0  # in eps(dtype) (|x_a| + |x_b|): tables, products and sum each rounded to the dtype
TABLES = ["rope_peers"]
COPY = "copy into a given tensor"
OURS = {"pairs": "ours, pairs", "halves": "ours, halves"}


@dataclass
class Side(Windows):
    result: Callable[[], Tensor] | None = None  # a fresh [T, H, D] result, for the check
    layout: str = "pairs"
    is_peer: bool = False


class Case:
    """Input [1, T, H, D], and cos and sin [T, 1, D/2] in float64 and in the dtype."""

    def __init__(self, tokens: int, dtype: torch.dtype):
        self.tokens, self.dtype = tokens, dtype
        self.name = f"{tokens} positions, {dtype}"
        self.x = torch.randn(1, tokens, HEADS, HEAD_DIM).to(dtype)
        self.cos64, self.sin64 = angles(tokens)[:, None].cos(), angles(tokens)[:, None].sin()
        self.cos, self.sin = self.cos64.to(dtype), self.sin64.to(dtype)

    def worst_error(self, y: Tensor, layout: str) -> float:
        """Largest error in units of eps(dtype) (|x_a| + |x_b|)."""
        x, ones = self.x[0].double(), torch.ones_like(self.cos64)
        size = torch.maximum(rotated(x.abs(), ones, ones, layout), rotated(x.abs(), ones, -ones, layout))
        want = rotated(x, self.cos64, self.sin64, layout)
        return ((y.reshape(x.shape).double() - want).abs() / size).max().item() / torch.finfo(self.dtype).eps


def our_sides(case: Case) -> Iterator[Side]:
    x_THD, x_HTD = case.x[0], case.x[0].transpose(0, 1).contiguous()
    positions, scratch = torch.arange(case.tokens), x_THD.clone()
    for layout, name in OURS.items():
        rope = partial(roformer_cpp.rope, positions=positions, layout=layout)
        heads_first = partial(rope, x_HTD, heads_first=True)
        yield Side(name, partial(rope, x_THD), partial(rope, x_THD), layout)
        fresh = lambda rope=rope: rope(x_THD.clone(), inplace=True)  # noqa: E731
        yield Side(f"{name}, in place", partial(rope, scratch, inplace=True), fresh, layout)
        tokens_first = lambda call=heads_first: call().transpose(0, 1)  # noqa: E731
        yield Side(f"{name}, [H, T, D]", heads_first, tokens_first, layout)


def complex_pairs(x: Tensor, factor: Tensor) -> Tensor:
    """Pairs as a complex product, as in Meta's Llama: factor [T, 1, D/2] complex64."""
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * factor).flatten(-2)


def torch_sides(case: Case, compiled: bool) -> Iterator[Side]:
    functions = {"torch formula": (rotated, (case.x, case.cos, case.sin, "pairs"), "pairs")}
    if case.dtype == torch.float32:
        factor = torch.complex(case.cos64, case.sin64).to(torch.complex64)
        functions["torch complex product"] = (complex_pairs, (case.x, factor), "pairs")
    try:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
        from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention
    except ImportError as error:
        print(f"transformers left out: {error}", file=sys.stderr)
    else:
        # As their models call them: heads-first views of [B, T, H, D] memory, query and key together.
        q, k = case.x.transpose(1, 2), case.x.flip(1).contiguous().transpose(1, 2)
        cos, sin = (part[:, 0] for part in (case.cos, case.sin))
        sinusoidal = torch.cat([sin, cos], -1)[None, None]
        roformer = RoFormerSelfAttention.apply_rotary_position_embeddings
        functions["transformers, RoFormer"] = (roformer, (sinusoidal, q, k), "pairs")
        cos2, sin2 = (torch.cat([part, part], -1)[None] for part in (cos, sin))
        functions["transformers, Llama"] = (apply_rotary_pos_emb, (q, k, cos2, sin2), "halves")
    for is_compiled in (False, True)[: 1 + compiled]:
        if is_compiled:
            torch._dynamo.reset()
        for name, (function, arguments, layout) in functions.items():
            call = partial(torch.compile(function, dynamic=False) if is_compiled else function, *arguments)
            name += ", torch.compile" * is_compiled
            if name.startswith("transformers"):
                first = lambda call=call: call()[0].transpose(1, 2)  # noqa: E731
                yield Side(name, call, first, layout, is_peer=True, amount=2)
            else:
                yield Side(name, call, call, layout, is_peer=True)


def onnxruntime_sides(case: Case) -> Iterator[Side]:
    """RotaryEmbedding of X [1, T, H*D]; the tables are inputs."""
    x, ids, cos, sin = case.x.flatten(2), torch.arange(case.tokens)[None], case.cos[:, 0], case.sin[:, 0]
    for domain, title in (("com.microsoft", "com.microsoft"), ("", "ai.onnx 23")):
        inputs = [x, ids, cos, sin] if domain else [x, cos, sin, ids]
        extra = {"rotary_embedding_dim": 0} if domain else {}
        for layout in OURS:
            name, y = f"ONNX Runtime, {title}, {layout}", torch.empty_like(x)
            interleaved = int(layout == "pairs")
            try:
                call = operator("RotaryEmbedding", domain, inputs, y, interleaved=interleaved, num_heads=HEADS, **extra)
            except LeftOut as error:
                left_out(name, case.name, error)
                continue
            yield Side(name, call, lambda call=call, y=y: (call(), y)[1], layout, is_peer=True)


def compare(case: Case, rounds: int, compiled: bool) -> Iterator[dict]:
    y = torch.empty_like(case.x)
    sides = [Side(COPY, lambda: y.copy_(case.x)), Side("copy into a new tensor", case.x.clone)]
    sides += [*our_sides(case), *torch_sides(case, compiled), *onnxruntime_sides(case)]
    for side in sides:
        error = case.worst_error(side.result(), side.layout) if side.result else 0.0
        if not error <= ERROR_EPS:
            raise SystemExit(f"[rope_peers] {side.name} must be within {ERROR_EPS} eps of float64, got {error:.3g}")
    harness.take_turns(sides, rounds, window_s=0.05)
    by_name = {side.name: side for side in sides}
    for side in sides:
        ours = by_name[OURS[side.layout]]
        yield {
            "positions": case.tokens,
            "dtype": str(case.dtype).removeprefix("torch."),
            "side": side.name,
            "ms": f"{1e3 * side.median:.3f}",
            "GB/s": f"{2 * case.x.nbytes / side.median / 1e9:.1f}",
            "of copy": f"{median_ratio(by_name[COPY], side):.2f}",
            "ours faster by": f"{median_ratio(side, ours):.2f}" if side.is_peer else "",
        }


def main() -> None:
    parser = harness.options(__doc__, TABLES, rounds=15)
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 32768], help="positions")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    given = harness.parsed(parser)
    results = []
    with torch.inference_mode():
        for tokens in given.tokens:
            for dtype in (torch.float32, torch.bfloat16):
                results += harness.shown(compare(Case(tokens, dtype), given.rounds, not given.no_compile))
    harness.finish(given, results, {TABLES[0]: tables.of_dicts(results)})


if __name__ == "__main__":
    main()
