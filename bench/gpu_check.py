#!/usr/bin/env python3
"""Checks and times the package on one GPU, in at most eight minutes on an H100 with 16 cores.

It needs the package, built for the PyTorch at hand (docs/python.md has the commands), and nothing from outside. Peers
that are not installed are left out. Parts of an earlier file that --only does not name are kept.

compile      runs every unit of the other parts once, in a pool of processes, which fills the compilers' caches
parity       every term, forward and backward, against float64 on the same device; odd shapes, packed, grouped keys
determinism  20 calls give the same bits
rope         bandwidth as a share of a copy from device memory to device memory
attention    16 heads, bfloat16; peers: SDPA (flash), FlexAttention with a captured table, and SDPA with a matrix
linear       linear attention at 65,536 positions
training     RoFormer-base, 64 x 512 tokens, compared with transformers: tokens per second, peak memory
pretraining  two minutes on sentences of a small grammar, whose loss must follow float32 on the CPU

Sides are verified before they are timed, take turns in windows of one process, and are reported by medians. A unit that
fails is recorded with its message, the others continue, and the exit code is 1.
"""

import dataclasses
import datetime
import functools
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import gpu_page
import gpu_run
import gpu_training
import harness
import torch
import torch.nn.functional as F
import verified
from gpu_run import RUN, compiled, norm_error, on_device, peak_mib, require, timed, verified_sides
from kernels import linear_attention_case, rotated
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from verified import OURS

import roformer_cpp
from roformer_cpp import DistanceTable, Terms
from term_list import NUMBERS, PAIRS, ROTATIONS, SCORES, TABLES, scores_shape, shape

LIMIT_S = 480  # of a run, which pretraining observes
# Norm of errors relative to the norm of the result: a few roundings to the 8 bits of bfloat16.
NORM_TOLERANCE = 2e-2
Units = dict[str, Callable[[], list[dict]]]  # each gives its rows of results


# ---- parity and determinism ----

ALONE = [name for name in (*ROTATIONS, *TABLES, *NUMBERS, *SCORES) if name != "position_bias"]  # needs key_table
PARITY = {name: ((name,), {}) for name in ALONE} | {  # terms, then options of the call and sizes
    "plain": ((), {}),
    "a, c": (PAIRS, {}),
    "Shaw": (("key_table", "value_table"), {}),
    "DeBERTa": (("key_table", "query_table"), {"head_dim": 80}),
    "Transformer-XL": (("content_bias", "position_bias", "key_table"), {"head_dim": 128}),
    "causal": (("bias",), {"is_causal": True}),
    "window": (("key_table",), {"window": (5, 2)}),
    "mask": (("bias",), {"mask": True}),
    "packed": (("bias", "key_table"), {"cu_seqlens": True}),
    "dropout": (("bias",), {"dropout": 0.2}),
    "all": ((*ROTATIONS, *TABLES, *NUMBERS, *PAIRS, *SCORES), {}),
}
IN_TESTS = {*ALONE, "all"} - {"query", "key_score"}  # of tests/gpu, and not in a dry run


@on_device
def attention_call(name: str, dtype: torch.dtype) -> tuple[Callable, list[Tensor]]:
    """A function of a kernel's name, q, k, v and the tensors of terms; and random values for these tensors."""
    torch.manual_seed(1)
    terms, given = PARITY[name]
    sizes = {size: given.get(size, value) for size, value in RUN.sizes.parity.items()}
    options = {option: value for option, value in given.items() if option not in sizes}
    batch, queries, keys, heads, key_heads, head_dim = sizes.values()
    reach = keys // 3
    if "cu_seqlens" in options:
        batch = 1
        options["cu_seqlens"] = torch.tensor([0, 2, 2, queries - 1, queries])
        options["cu_seqlens_k"] = torch.tensor([0, 4, 5, keys - 2, keys])
    if "mask" in options:
        options["mask"] = torch.rand(batch, 1, queries, keys) < 0.7
    found = {}
    for term in terms:
        if term in ROTATIONS:
            angle = torch.randn(1, queries if term == "query" else keys, head_dim // 2)
            found |= {f"{term}_cos": angle.cos(), f"{term}_sin": angle.sin()}
        elif term in SCORES:
            found[term] = torch.randn(scores_shape(term, 1, heads, queries, keys))
        else:
            found[term] = torch.randn(shape(term, heads, keys, head_dim, 2 * reach + 1))
    ranges = [limit for term in found for limit in ((-reach, reach) if term in TABLES else (0, 0))]

    def call(kernel, q, k, v, *tensors):
        torch.manual_seed(2)  # of dropout
        made = Terms.from_arguments(list(tensors), list(found), ranges, "halves", None)
        return roformer_cpp.attention(q, k, v, made, kernel=kernel, **options)

    sides = ((queries, heads), (keys, key_heads), (keys, key_heads))
    vectors = [torch.randn(batch, tokens, of_heads, head_dim).to(dtype) for tokens, of_heads in sides]
    return call, [*vectors, *found.values()]


def parity_row(name: str, dtype: torch.dtype, ours: Callable, formula: Callable, inputs: list[Tensor]) -> dict:
    """Largest errors relative to the largest values, of all results and of the output, and as a share of the allowed
    error (bench/verified.py)."""
    with torch.no_grad():
        grad = torch.randn_like(formula(*inputs))
    truth = verified.Truth.of(formula, inputs, len(inputs), grad)
    got = verified.results(ours, inputs, len(inputs), grad)
    if fault := truth.fault(got):
        raise ValueError(f"[gpu_check] {fault}")
    errors = [verified.largest(x.double() - want) for x, want in zip(got, truth.want, strict=True)]
    relative = [e / (verified.largest(want) or 1) for e, want in zip(errors, truth.want, strict=True)]
    shares = [e / bound if e else 0.0 for e, bound in zip(errors, truth.bounds, strict=True)]
    row = {"case": name, "dtype": str(dtype).removeprefix("torch."), "error": max(relative)}
    return row | {"output_error": relative[0], "of_allowed": max(shares)}


def attention_parity(name: str, dtype: torch.dtype) -> list[dict]:
    call, inputs = attention_call(name, dtype)
    formula = functools.partial(call, "explicit")
    row = parity_row(f"attention, {name}", dtype, functools.partial(call, "fused"), formula, inputs)
    if name == "plain":
        out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in inputs), enable_gqa=True).transpose(1, 2)
        want = formula(*(x.double() for x in inputs))
        row["sdpa_output_error"] = verified.largest(out.double() - want) / verified.largest(want)
    return [row]


@on_device
def rope_parity(layout: str, dtype: torch.dtype) -> list[dict]:
    positions = torch.tensor([0, 1, 511, 4095, 131071, 2**31 - 1])
    angle = (positions[:, None] * 10000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64))[:, None]
    ours = functools.partial(roformer_cpp.rope, positions=positions, layout=layout)
    formula = lambda x: rotated(x, angle.cos().to(x.dtype), angle.sin().to(x.dtype), layout)  # noqa: E731
    return [parity_row(f"rope, {layout}", dtype, ours, formula, [torch.randn(2, 6, 3, 64).to(dtype)])]


@on_device
def linear_parity(feature_map: str, causal: bool, dtype: torch.dtype) -> list[dict]:
    batch, tokens, _, heads, key_heads, head_dim = RUN.sizes.parity.values()
    torch.manual_seed(1)
    inputs = [torch.randn(batch, tokens, of_heads, head_dim).to(dtype) for of_heads in (heads, key_heads, key_heads)]
    projection = None
    if feature_map in ("favor", "relu"):
        projection = roformer_cpp.orthogonal_features(2 * head_dim, head_dim, seed=0).to(RUN.device)
    call = functools.partial(
        roformer_cpp.linear_attention, feature_map=feature_map, is_causal=causal, projection=projection
    )
    sides = (functools.partial(call, kernel=kernel) for kernel in ("fused", "explicit"))
    return [parity_row(f"linear attention, {feature_map}{', causal' * causal}", dtype, *sides, inputs)]


def parity() -> Units:
    units = {}
    # tests/gpu has the other maps.
    maps = list(itertools.product(("elu", "favor") if RUN.dry else ("elu", "shen", "favor", "relu"), (False, True)))
    for dtype in RUN.sizes.dtypes:
        names = [name for name in PARITY if not RUN.dry or name not in IN_TESTS]
        units |= {f"{name}, {dtype}": functools.partial(attention_parity, name, dtype) for name in names}
        units |= {f"rope, {x}, {dtype}": functools.partial(rope_parity, x, dtype) for x in ("pairs", "halves")}
        units |= {f"linear attention, {x}, {dtype}": functools.partial(linear_parity, *x, dtype) for x in maps}
    return units


def same_bits(name: str) -> list[dict]:
    if name == "training":
        model = gpu_training.Ours(RUN.sizes.small_model, RUN.device)
        call = functools.partial(model.gradients, gpu_training.sentences(0).to(RUN.device))
    else:
        of_kernel, inputs = attention_call(name, RUN.sizes.dtypes[-1])
        ours, grad = functools.partial(of_kernel, "fused"), torch.ones_like(inputs[0])
        call = functools.partial(verified.results, ours, inputs, len(inputs), grad)
    first = call()
    same = sum(all(map(torch.equal, call(), first)) for _ in range(RUN.sizes.runs - 1))
    require(f"the number of calls of {RUN.sizes.runs - 1} with other bits", RUN.sizes.runs - 1 - same, 0)
    return [{"case": name, "calls": RUN.sizes.runs, "tensors": len(first)}]


def determinism() -> Units:
    return {name: functools.partial(same_bits, name) for name in RUN.sizes.same_bits}


# ---- rotation ----


def liger(q_BHTD: Tensor, k_BHTD: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """In place, so that only the first call gives the rotation of the given vectors."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    return tuple(y.transpose(1, 2) for y in liger_rotary_pos_emb(q_BHTD, k_BHTD, cos, sin))


def transformer_engine(x: Tensor, angle: Tensor) -> Tensor:
    from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb

    return apply_rotary_pos_emb(x, angle, tensor_format="bshd", fused=True)


@on_device
def rope_sides(batch: int, tokens: int) -> tuple[Tensor, dict[str, Callable], Callable]:
    """x [B, T, H, D], sides that rotate it by halves, and the check of a result."""
    heads, head_dim = RUN.sizes.rope_heads
    x = torch.randn(batch, tokens, heads, head_dim).bfloat16()
    q, k = x[:, :, : heads // 2], x[:, :, heads // 2 :]
    of_liger = [part.clone().transpose(1, 2) for part in (q, k)]
    positions = torch.arange(tokens)
    angle = positions[:, None] * 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]  # [T, 1, D/2]
    rows, low_rows = [part[None, :, 0].float() for part in (cos, sin)], [part.to(x.dtype) for part in (cos, sin)]
    wide_rows = [torch.cat([part, part], -1)[None, :, 0] for part in low_rows]
    wide_angle = torch.cat([angle, angle], -1).float()[:, None, None]
    formula, rotate_pair = compiled(rotated), import_module("roformer_cpp.gpu.rope").rotate_pair
    sides = {
        OURS: lambda: roformer_cpp.rotate(x, *rows, layout="halves"),
        f"{OURS}, q and k in one launch": lambda: rotate_pair(q, k, *rows, "halves"),
        f"{OURS}, from positions": lambda: roformer_cpp.rope(x, positions, layout="halves"),
        "formula, compiled": lambda: formula(x, *low_rows, "halves"),
        "Liger": lambda: liger(*of_liger, *wide_rows),
        "Transformer Engine": lambda: transformer_engine(x, wide_angle),
    }

    def check(result):
        got = torch.cat(result, 2) if isinstance(result, tuple) else result
        require("a rotation", norm_error(got, rotated(x.double(), cos, sin, "halves")), NORM_TOLERANCE)

    return x, sides, check


def rope_rows(batch: int, tokens: int) -> list[dict]:
    x, sides, check = rope_sides(batch, tokens)
    y = torch.empty_like(x)
    found = timed({"copy": lambda: y.copy_(x)} | verified_sides(f"rope, {tokens} positions", sides, check))
    size = {"batch": batch, "positions": tokens}
    return [
        size | row | {"gb_per_s": 2 * x.nbytes / row["ms"] / 1e6, "of_copy": found[0]["ms"] / row["ms"]}
        for row in found
    ]


def rope() -> Units:
    return {f"{batch} x {tokens}": functools.partial(rope_rows, batch, tokens) for batch, tokens in RUN.sizes.rope}


# ---- attention ----

KINDS = {  # terms, and how far their distances reach; None: as far as tokens are from each other
    "plain": ((), None),
    "b": (("bias",), None),
    "Shaw": (("key_table",), 128),
    "DeBERTa": (("key_table", "query_table"), 512),
    "Transformer-XL": (("content_bias", "position_bias", "key_table"), None),
}


class Attention:
    """Queries, keys and values, terms of a kind, and the sides that attend with them."""

    @on_device
    def __init__(self, kind: str, batch: int, tokens: int, head_dim: int):
        heads, (self.names, reach) = RUN.sizes.attention_heads, KINDS[kind]
        self.scale = (head_dim * (3 if kind == "DeBERTa" else 1)) ** -0.5
        self.reach = min(reach or tokens, tokens - 1)
        vectors = [torch.randn(batch, tokens, heads, head_dim).to(RUN.sizes.dtypes[-1]) for _ in range(3)]
        terms = [torch.randn(shape(name, heads, tokens, head_dim, 2 * self.reach + 1)) for name in self.names]
        self.leaves = [x.requires_grad_() for x in (*vectors, *terms)]
        self.grad = torch.randn_like(vectors[0])
        token = torch.arange(tokens)
        self.row = (token[:, None] - token).clamp(-self.reach, self.reach) + self.reach  # of each distance
        self.sides = {OURS: self.ours, f"SDPA, {'matrix' if self.names else 'flash'}": self.sdpa}
        if kind == "b":
            self.sides["FlexAttention, compiled"] = compiled(self.flex)

    def ours(self, q, k, v, *terms):
        tables = {name: DistanceTable(x, -self.reach, self.reach) for name, x in zip(self.names, terms, strict=True)}
        made = {name: table if name in TABLES else table.rows for name, table in tables.items()}
        return roformer_cpp.attention(q, k, v, Terms(scale=self.scale, **made), kernel="fused")

    def sdpa(self, q, k, v, *terms):
        """Terms by distance become a matrix for each head, gathered as in transformers."""
        of = dict(zip(self.names, (x.to(q.dtype) for x in terms), strict=True))
        content, position, k, v = (
            x.transpose(1, 2) for x in (q + of.get("content_bias", 0), q + of.get("position_bias", 0), k, v)
        )
        matrix = None
        if "bias" in of:
            matrix = F.embedding(self.row, of["bias"].t()).permute(2, 0, 1)[None]
        if "key_table" in of:
            by_row = position @ of["key_table"].transpose(1, 2)
            matrix = by_row.gather(3, self.row.expand(*by_row.shape[:3], -1)) * self.scale
        if "query_table" in of:
            by_row = k @ of["query_table"].transpose(1, 2)
            matrix = matrix + by_row.gather(3, self.row.t().expand(*by_row.shape[:3], -1)).mT * self.scale
        with nullcontext() if self.names else sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(content, k, v, matrix, scale=self.scale).transpose(1, 2)

    def flex(self, q, k, v, rows):
        from torch.nn.attention.flex_attention import flex_attention

        reach = self.reach

        def add_bias(score, b, h, i, j):
            return score + rows[h, i - j + reach]

        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return flex_attention(q, k, v, score_mod=add_bias, scale=self.scale).transpose(1, 2)

    def both_passes(self, side: Callable) -> list[Tensor]:
        out = side(*self.leaves)
        return [out, *torch.autograd.grad(out, self.leaves, self.grad)]

    def forward(self, side: Callable) -> Callable:
        return torch.no_grad()(lambda: side(*self.leaves))

    def backward(self, side: Callable) -> Callable:
        out = side(*self.leaves)
        return lambda: torch.autograd.grad(out, self.leaves, self.grad, retain_graph=True)


def attention_rows(kind: str, batch: int, tokens: int, head_dim: int) -> list[dict]:
    # Compiled code must keep what retain_graph needs.
    import_module("torch._functorch.config").donated_buffer = False
    problem = Attention(kind, batch, tokens, head_dim)
    want = [] if RUN.warming else problem.both_passes(problem.sdpa)

    def check(results):
        for got, expected in zip(results, want, strict=True):
            require("output and gradients of attention", norm_error(got, expected), NORM_TOLERANCE)

    calls = {name: functools.partial(problem.both_passes, side) for name, side in problem.sides.items()}
    calls = verified_sides(f"attention, {kind}, {tokens} tokens", calls, check)
    want.clear()
    for name in calls if RUN.warming else ():
        problem.forward(problem.sides[name])()
    peaks = {name: peak_mib(call) for name, call in calls.items()}
    size = {"kind": kind, "head_dim": head_dim, "batch": batch, "tokens": tokens}
    flop = 4 * batch * RUN.sizes.attention_heads * tokens**2 * head_dim
    rows = []
    for which, share in (("forward", 1), ("backward", 2.5)):
        times = timed({name: getattr(problem, which)(problem.sides[name]) for name in calls})
        rows += [
            size | {"pass": which} | row
            | {"tflop_per_s": share * flop / row["ms"] / 1e9, "peak_mib": peaks[row["side"]]} for row in times
        ]  # fmt: skip
    return rows


def attention() -> Units:
    sizes = itertools.product(RUN.sizes.attention, KINDS)
    return {f"{kind}, {size}": functools.partial(attention_rows, kind, *size) for size, kind in sizes}


@on_device
def linear_sides(causal: bool, which: str) -> dict[str, Callable]:
    """Heads of 64 in float32, the features elu + 1 and a rotation."""
    case = linear_attention_case(*RUN.sizes.linear, causal, which)
    calls = {name: verified.windows(case, name, [case.inputs()]).call for name in case.sides}
    if RUN.warming:
        calls[OURS]()
        return {}
    for name, side in list(case.sides.items()):
        try:
            verified.verify(dataclasses.replace(case, sides={name: side}))
        except SystemExit as wrong:
            if name == OURS:
                raise ValueError(str(wrong)) from None
            verified.left_out(name, case.name, wrong)
            del calls[name]
    return calls


def linear_rows(causal: bool, which: str) -> list[dict]:
    sides = linear_sides(causal, which)
    size = dict(zip(("tokens", "heads"), RUN.sizes.linear, strict=True)) | {"causal": causal, "pass": which}
    return [size | row | {"peak_mib": peak_mib(sides[row["side"]])} for row in timed(sides)]


def linear() -> Units:
    cases = itertools.product((False, True), ("forward", "forward-backward"))
    return {f"{which}{', causal' * causal}": functools.partial(linear_rows, causal, which) for causal, which in cases}


# ---- the run ----

STARTED = time.monotonic()


def pretraining() -> Units:
    return {"grammar": lambda: gpu_training.pretraining(max(20.0, LIMIT_S - (time.monotonic() - STARTED)))}


PARTS: dict[str, Callable[[], Units]] = {
    "parity": parity, "determinism": determinism, "rope": rope, "attention": attention, "linear": linear,
    "training": lambda: {"base": gpu_training.training}, "pretraining": pretraining,
}  # fmt: skip


def attempt(part: str, unit: str) -> tuple[list[dict], str | None]:
    """The rows of a unit, and the message if it failed."""
    try:
        return PARTS[part]()[unit](), None
    except Exception as error:
        return [], f"{type(error).__name__}: {str(error).strip()}"[:400]
    finally:
        if not RUN.dry:
            torch.cuda.empty_cache()


def run_part(part: str) -> dict:
    start, rows, failed = time.perf_counter(), [], {}
    for unit in PARTS[part]():
        found, message = attempt(part, unit)
        rows += found
        failed |= {unit: message} if message else {}
    return {"rows": rows, "failed": failed, "seconds": time.perf_counter() - start}


def compile_kernels(parts: list[str]) -> dict:
    """Runs every unit in a pool of processes; of a dry run the first of each part."""
    start = time.perf_counter()
    # The last parts have the longest units.
    jobs = [(part, unit) for part in reversed(parts) for unit in list(PARTS[part]())[: 1 if RUN.dry else None]]
    options = dict(mp_context=multiprocessing.get_context("spawn"), initializer=gpu_run.start, initargs=(RUN.dry, True))
    with ProcessPoolExecutor(RUN.sizes.workers, **options) as pool:
        futures = {job: pool.submit(attempt, *job) for job in jobs}
    # attempt() catches the errors of units, so f.exception() is set only if the process died.
    messages = {" ".join(job): f.exception() or f.result()[1] for job, f in futures.items()}
    failed = {job: str(message) for job, message in messages.items() if message}
    return {"rows": [{"units": len(jobs)}], "failed": failed, "seconds": time.perf_counter() - start}


def machine() -> dict:
    import triton

    facts = {"gpu": None, "triton": triton.__version__, "date": datetime.date.today().isoformat()}
    if not RUN.dry:
        facts["gpu"] = torch.cuda.get_device_name()
        facts["memory_gib"] = round(torch.cuda.get_device_properties(0).total_memory / 2**30)
    return harness.machine() | facts


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--only", nargs="+", choices=["compile", *PARTS], help="run these parts; default: all")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the CPU, in Triton's interpreter")
    parser.add_argument("--update-docs", action="store_true", help="run nothing: write the page from the file")
    parser.set_defaults(json=Path("gpu_check.json"))
    given = parser.parse_args()
    document = {"parts": {}}
    if given.json.exists() and (given.update_docs or given.only):
        document = json.loads(given.json.read_text(encoding="utf-8"))
    if given.update_docs:
        print(gpu_page.write(document))
        return
    gpu_run.start(given.dry_run)
    document["machine"] = machine()
    chosen = given.only or ["compile", *PARTS]
    parts = [part for part in chosen if part != "compile"]
    for part in chosen:
        known = compile_kernels(parts or list(PARTS)) if part == "compile" else run_part(part)
        document["parts"][part] = known
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        failed = "".join(f"\n  failed: {unit}: {message}" for unit, message in known["failed"].items())
        print(f"{part}: {len(known['rows'])} rows in {known['seconds']:.0f} s{failed}", flush=True)
    print(gpu_page.page(document))
    sys.exit(any(document["parts"][part]["failed"] for part in chosen))


if __name__ == "__main__":
    main()
