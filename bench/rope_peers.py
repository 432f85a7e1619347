"""Compares rotary position embedding with other libraries; every side is verified against float64 first.

    python bench/rope_peers.py [--quick] [--json FILE] [--update-docs]

12 heads of 64, at 4096 and 32768 positions, float32 and bfloat16. All sides run in one process, in interleaved windows
with a pause between them, on the same threads. Times are the median and the best of the windows; a ratio is the median
of the ratios within a round, followed by the ratio of the best windows, which is the one to read on a busy machine.
GB/s (of the median) counts the tensor once read and once written. Building tables is not timed: peers get exact tables.
Memory is [T, H, D] unless a name says [H, T, D].

The copy and ONNX Runtime write into existing memory; all other sides allocate their result. malloc is set to keep freed
memory, so that an allocation costs a pointer and not page faults (--system-malloc: default settings).
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from onnx_operator import LeftOut, operator  # noqa: E402
from peer_timing import Windows, keep_freed_memory, machine, median_ratio, take_turns  # noqa: E402

import roformer_cpp  # noqa: E402

HEADS, HEAD_DIM, BASE = 12, 64, 10000.0
ERROR_EPS = 4.0  # in eps(dtype) (|x_a| + |x_b|): tables, products and sum each rounded to the dtype
TABLES = ["rope_peers"]
COPY, OURS, OURS_HALVES = "copy into a given tensor", "ours, pairs", "ours, halves"


@dataclass
class Side(Windows):
    result: Callable[[], Tensor] | None = None  # a fresh [T, H, D] result, for the check
    layout: str = "pairs"
    ours: str | None = None  # the side of ours that does the same


@dataclass
class Case:
    """Input [1, T, H, D], and cos and sin [T, D/2] in float64 and in the dtype."""

    tokens: int
    dtype: torch.dtype

    def __post_init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(1, self.tokens, HEADS, HEAD_DIM, generator=generator).to(self.dtype)
        self.other = self.x.flip(1).contiguous()
        self.positions = torch.arange(self.tokens)
        theta = BASE ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        angles = self.positions.double()[:, None] * theta
        self.cos64, self.sin64 = angles.cos(), angles.sin()
        self.cos, self.sin = self.cos64.to(self.dtype), self.sin64.to(self.dtype)

    @property
    def bytes(self) -> int:
        return 2 * self.x.numel() * self.x.element_size()

    def worst_error(self, y: Tensor, layout: str) -> float:
        """Largest error in units of eps(dtype) (|x_a| + |x_b|)."""
        half = HEAD_DIM // 2
        a, b = (slice(0, None, 2), slice(1, None, 2)) if layout == "pairs" else (slice(0, half), slice(half, None))
        x, y = self.x[0].double(), y.reshape(self.x[0].shape).double()
        cos, sin = self.cos64[:, None], self.sin64[:, None]
        size = (x[..., a].abs() + x[..., b].abs()) * torch.finfo(self.dtype).eps
        errors = [
            ((y[..., a] - (x[..., a] * cos - x[..., b] * sin)).abs() / size).max(),
            ((y[..., b] - (x[..., a] * sin + x[..., b] * cos)).abs() / size).max(),
        ]
        return max(float(e) for e in errors)


def our_sides(case: Case) -> list[Side]:
    x_THD, x_HTD = case.x[0], case.x[0].transpose(0, 1).contiguous()
    scratch = x_THD.clone()
    positions = case.positions

    def rope(x, **options):
        return lambda: roformer_cpp.rope(x, positions, **options)

    sides = []
    for name, layout in ((OURS, "pairs"), (OURS_HALVES, "halves")):
        call = rope(x_THD, layout=layout)
        sides.append(Side(name, call, call, layout))
    for name, layout in (("ours, pairs, in place", "pairs"), ("ours, halves, in place", "halves")):
        check = lambda layout=layout: roformer_cpp.rope(x_THD.clone(), positions, layout=layout, inplace=True)  # noqa: E731
        sides.append(Side(name, rope(scratch, layout=layout, inplace=True), check, layout))
    for name, layout in (("ours, pairs, [H, T, D]", "pairs"), ("ours, halves, [H, T, D]", "halves")):
        call = rope(x_HTD, layout=layout, heads_first=True)
        sides.append(Side(name, call, lambda call=call: call().transpose(0, 1), layout))
    return sides


def plain_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The formula as one writes it down: x [1, T, H, D], cos and sin [T, 1, D/2]."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def complex_pairs(x: Tensor, factor: Tensor) -> Tensor:
    """The same as a complex product, as in Meta's Llama: factor [T, 1, D/2] complex64."""
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * factor).flatten(-2)


def torch_sides(case: Case, compiled: bool) -> list[Side]:
    def side(name, function, arguments, pick=lambda y: y, **options):
        call = lambda: function(*arguments)  # noqa: E731
        return Side(name, call, lambda: pick(call()), **options)

    cos, sin = case.cos[:, None], case.sin[:, None]
    functions = [("torch formula", plain_pairs, (case.x, cos, sin), lambda y: y, {"ours": OURS})]
    if case.dtype == torch.float32:
        factor = torch.polar(torch.ones_like(case.cos64), torch.atan2(case.sin64, case.cos64)).to(torch.complex64)
        functions.append(
            ("torch complex product", complex_pairs, (case.x, factor[:, None]), lambda y: y, {"ours": OURS})
        )
    try:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
        from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention
    except ImportError as error:
        print(f"transformers left out: {error}", file=sys.stderr)
    else:
        # As their models call them: heads-first views of [B, T, H, D] memory, query and key together.
        q, k = case.x.transpose(1, 2), case.other.transpose(1, 2)
        first = lambda pair: pair[0].transpose(1, 2)  # noqa: E731
        sinusoidal = torch.cat([case.sin, case.cos], -1)[None, None]
        roformer = RoFormerSelfAttention.apply_rotary_position_embeddings
        options = {"tensors": 2, "ours": OURS}
        functions.append(("transformers, RoFormer", roformer, (sinusoidal, q, k), first, options))
        cos2, sin2 = (torch.cat([part, part], -1)[None] for part in (case.cos, case.sin))
        options = {"tensors": 2, "ours": OURS_HALVES, "layout": "halves"}
        functions.append(("transformers, Llama", apply_rotary_pos_emb, (q, k, cos2, sin2), first, options))
    sides = [side(name, function, arguments, pick, **options) for name, function, arguments, pick, options in functions]
    if compiled:
        torch._dynamo.reset()
        sides += [
            side(f"{name}, torch.compile", torch.compile(function, dynamic=False), arguments, pick, **options)
            for name, function, arguments, pick, options in functions
        ]
    return sides


def onnxruntime_sides(case: Case) -> list[Side]:
    """RotaryEmbedding of X [1, T, H*D]; the tables are inputs."""
    x, ids = case.x.flatten(2), case.positions[None]
    sides = []
    for domain, title in (("com.microsoft", "com.microsoft"), ("", "ai.onnx 23")):
        inputs = [x, ids, case.cos, case.sin] if domain else [x, case.cos, case.sin, ids]
        extra = {"rotary_embedding_dim": 0} if domain else {}
        for layout in ("pairs", "halves"):
            name, y = f"ONNX Runtime, {title}, {layout}", torch.empty_like(x)
            interleaved = int(layout == "pairs")
            try:
                call = operator("RotaryEmbedding", domain, inputs, y, interleaved=interleaved, num_heads=HEADS, **extra)
            except LeftOut as error:
                print(f"{name} left out at {case.dtype}: {error}", file=sys.stderr)
                continue
            result = lambda call=call, y=y: (call(), y)[1]  # noqa: E731
            sides.append(Side(name, call, result, layout, ours=OURS if interleaved else OURS_HALVES))
    return sides


def all_sides(case: Case, compiled: bool) -> list[Side]:
    y = torch.empty_like(case.x)
    return [
        Side(COPY, lambda: y.copy_(case.x)),
        Side("copy into a new tensor", case.x.clone),
        *our_sides(case),
        *torch_sides(case, compiled),
        *onnxruntime_sides(case),
    ]


def measure(case: Case, sides: list[Side], rounds: int, window_s: float) -> None:
    for side in sides:
        if side.result:
            error = case.worst_error(side.result(), side.layout)
            if not error <= ERROR_EPS:
                raise SystemExit(f"[rope_peers] {side.name} must be within {ERROR_EPS} eps of float64, got {error:.3g}")
    take_turns(sides, rounds, window_s)


def best_ratio(numerator: Side, denominator: Side) -> float:
    return min(numerator.seconds) / min(denominator.seconds)


def rows(case: Case, sides: list[Side]) -> list[dict]:
    by_name = {side.name: side for side in sides}
    return [
        {
            "tokens": case.tokens,
            "dtype": str(case.dtype).removeprefix("torch."),
            "name": side.name,
            "ms": 1e3 * statistics.median(side.seconds),
            "ms_best": 1e3 * min(side.seconds),
            "gb_per_s": case.bytes / statistics.median(side.seconds) / 1e9,
            "of_copy": median_ratio(by_name[COPY], side),
            "of_copy_best": best_ratio(by_name[COPY], side),
            "ours_times_as_fast": median_ratio(side, by_name[side.ours]) if side.ours else None,
            "ours_times_as_fast_best": best_ratio(side, by_name[side.ours]) if side.ours else None,
        }
        for side in sides
    ]


def print_table(results: list[dict]) -> None:
    lines = [["tokens", "dtype", "side", "ms", "best", "GB/s", "of copy", "best", "ours faster by", "best"]]
    for r in results:
        ratios = [r["ours_times_as_fast"], r["ours_times_as_fast_best"]]
        lines.append(
            [str(r["tokens"]), r["dtype"], r["name"], f"{r['ms']:.3f}", f"{r['ms_best']:.3f}", f"{r['gb_per_s']:.1f}"]
            + [f"{r['of_copy']:.2f}", f"{r['of_copy_best']:.2f}"]
            + [f"{ratio:.2f}" if ratio else "" for ratio in ratios]
        )
    print("\n".join("{:>6} {:8} {:38} {:>8} {:>8} {:>6} {:>7} {:>5} {:>14} {:>6}".format(*line) for line in lines))


def docs_table(results: list[dict]) -> str:
    lines = [["positions", "dtype", "side", "ms", "GB/s", "of copy", "ours faster by"]]
    for r in results:
        ratio = f"{r['ours_times_as_fast']:.2f}" if r["ours_times_as_fast"] else ""
        numbers = [f"{r['ms']:.3f}", f"{r['gb_per_s']:.1f}", f"{r['of_copy']:.2f}", ratio]
        lines.append([str(r["tokens"]), r["dtype"], r["name"], *numbers])
    return tables.markdown(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4096 positions, few short windows, no torch.compile")
    parser.add_argument("--rounds", type=int, help="windows of each side (default 15, quick 5)")
    parser.add_argument("--tokens", type=int, nargs="+", help="positions (default 4096 32768)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--system-malloc", action="store_true", help="leave malloc as it comes")
    parser.add_argument("--threads", type=int, help="threads of every side (default: PyTorch's)")
    parser.add_argument("--json", metavar="FILE", help="write machine, commit and results as JSON, - for stdout")
    tables.add_option(parser)
    arguments = parser.parse_args()

    if not arguments.system_malloc:
        keep_freed_memory()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    rounds = arguments.rounds or (5 if arguments.quick else 15)
    compiled = not (arguments.no_compile or arguments.quick)
    description = machine() | {"malloc": "system" if arguments.system_malloc else "keeps freed memory"}
    text = arguments.json != "-"
    if text:
        print(", ".join(f"{key} {value}" for key, value in description.items()), flush=True)
    results = []
    with torch.inference_mode():
        for tokens in arguments.tokens or ([4096] if arguments.quick else [4096, 32768]):
            for dtype in (torch.float32, torch.bfloat16):
                case = Case(tokens, dtype)
                sides = all_sides(case, compiled)
                measure(case, sides, rounds, window_s=0.02 if arguments.quick else 0.05)
                results += rows(case, sides)
                if text:
                    print_table(results[-len(sides) :])
    if arguments.update_docs:
        tables.update_docs(TABLES[0], description, docs_table(results))
    if arguments.json:
        document = json.dumps({"machine": description, "rounds": rounds, "results": results}, indent=1) + "\n"
        sys.stdout.write(document) if arguments.json == "-" else Path(arguments.json).write_text(document, "utf-8")


if __name__ == "__main__":
    main()
