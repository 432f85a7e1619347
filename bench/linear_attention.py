"""Linear attention beside the einsum form in torch, and its time over the number of positions.

    python bench/linear_attention.py [--tokens T ..] [--heads H ..] [--threads N] [--json FILE] [--update-docs]

Features elu + 1, heads of 64, float32, RoPE in the numerator (arXiv 2104.09864 Eq. 19), forward, and forward with
backward. The einsum form takes bidirectional sums at once and causal ones in chunks of 128 tokens, where all pairs of a
chunk cost as much as the running sum. Both sides are held to float64 before they are timed, run in one process in turn,
with a pause in between; a ratio is the median of those within a round. Our side is called through the C interface.

Before that, on one thread, causal, 2^14 to 2^20 positions: the slope of log time over log positions, and what the calls
add to the peak of the process's memory.
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peak_memory import added_kib  # noqa: E402
from peer_timing import machine  # noqa: E402

TABLES = ["linear_attention"]
FEATURES, BASE, CHUNK = 64, 10000.0, 128
PAUSE_S = 0.02  # lets the other side's worker threads go to sleep
WORST_ERROR = 1e-5  # of the largest result: some tens of float32 eps, what either way to sum loses
SCALING = [2**14, 2**16, 2**18, 2**20]
F32, HALVES, BIDIRECTIONAL, CAUSAL, PLAIN, ELU = 1, 2, 1, 2, 1, 2  # rf/status.h, rope.h, linear_attention.h

Pointer, Int = ctypes.c_void_p, ctypes.c_int64


class Rotation(ctypes.Structure):
    _fields_ = [("cos", Pointer), ("sin", Pointer), ("batch", Int), ("pairs", Int)]


def rows(name: str) -> list[tuple[str, type]]:
    return [(name, Pointer)] + [(f"{name}_stride_{d}", Int) for d in "bth"]


class Args(ctypes.Structure):
    """rf_linear_attention_args."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *[(name, ctypes.c_int) for name in ("dtype", "layout", "direction", "denominator", "feature_map")],
        *[(name, Int) for name in ("batch", "queries", "keys", "heads", "key_heads", "features", "value_dim")],
        *(field for name in ("q", "k", "v", "out") for field in rows(name)),
        ("denominators", Pointer),
        ("rotation_q", Rotation),
        ("rotation_k", Rotation),
        ("eps", ctypes.c_double),
        ("key_mask", Pointer),
        ("key_mask_stride_b", Int),
        ("key_mask_stride_s", Int),
        ("state", Pointer),
    ]


class Grads(ctypes.Structure):
    """rf_linear_attention_grads."""

    _fields_ = [("struct_size", ctypes.c_size_t), *rows("out"), ("q", Pointer), ("k", Pointer), ("v", Pointer)]


def load_core() -> ctypes.CDLL:
    folder = Path(os.environ.get("ROFORMER_LIB_DIR", ROOT / "build" / "release" / "lib"))
    core = ctypes.CDLL(str(folder / "libroformer_core.so"))
    core.rf_last_error.restype = core.rf_target.restype = ctypes.c_char_p
    return core


@dataclass
class Case:
    """Arrays [1, T, H, 64]; cos and sin [1, T, 32]."""

    tokens: int
    heads: int
    causal: bool

    def __post_init__(self):
        generator = torch.Generator().manual_seed(0)
        shape = (1, self.tokens, self.heads, FEATURES)
        self.q, self.k, self.v, self.y = (torch.randn(shape, generator=generator) for _ in range(4))
        theta = BASE ** (-torch.arange(0, FEATURES, 2, dtype=torch.float64) / FEATURES)
        angles = (torch.arange(self.tokens)[:, None] * theta)[None]
        self.cos, self.sin = angles.cos().float(), angles.sin().float()


class Ours:
    def __init__(self, core: ctypes.CDLL, case: Case):
        self.core, self.case = core, case
        self.out = torch.empty_like(case.v)
        self.denominators = torch.empty(case.heads * case.tokens)
        self.args = Args(ctypes.sizeof(Args), F32, HALVES, CAUSAL if case.causal else BIDIRECTIONAL, PLAIN, ELU)
        self.args.batch, self.args.queries, self.args.keys = 1, case.tokens, case.tokens
        self.args.heads = self.args.key_heads = case.heads
        self.args.features = self.args.value_dim = FEATURES
        for name, x in (("q", case.q), ("k", case.k), ("v", case.v), ("out", self.out)):
            self._point(self.args, name, x)
        self.args.denominators = self.denominators.data_ptr()
        turn = Rotation(case.cos.data_ptr(), case.sin.data_ptr(), 1, FEATURES // 2)
        self.args.rotation_q = self.args.rotation_k = turn
        self.grads: Grads | None = None

    @staticmethod
    def _point(struct: ctypes.Structure, name: str, x: Tensor) -> None:
        setattr(struct, name, x.data_ptr())
        for d, stride in zip("bth", x.stride(), strict=False):
            setattr(struct, f"{name}_stride_{d}", stride)

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(self.core.rf_last_error().decode())

    def forward(self) -> list[Tensor]:
        self._check(self.core.rf_linear_attention_forward(ctypes.byref(self.args)))
        return [self.out]

    def backward(self) -> list[Tensor]:
        if self.grads is None:
            self.results = [torch.empty_like(x) for x in (self.case.q, self.case.k, self.case.v)]
            self.grads = Grads(ctypes.sizeof(Grads))
            self._point(self.grads, "out", self.case.y)
            self.grads.q, self.grads.k, self.grads.v = (x.data_ptr() for x in self.results)
        self.forward()
        self._check(self.core.rf_linear_attention_backward(ctypes.byref(self.args), ctypes.byref(self.grads)))
        return [self.out, *self.results]


def elu_plus_one(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.clamp_max(0).exp())


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, :, None], sin[:, :, None]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def einsum_causal(f: Tensor, g: Tensor, v: Tensor) -> Tensor:
    """sum_{n <= m} (f_m . g_n) v_n, all [1, T, H, .]."""
    out, total = [], torch.zeros(1, f.size(2), f.size(3), v.size(3), dtype=f.dtype)
    for f_c, g_c, v_c in zip(f.split(CHUNK, 1), g.split(CHUNK, 1), v.split(CHUNK, 1), strict=True):
        pairs = torch.einsum("bthf,bshf->bhts", f_c, g_c).tril()
        out.append(torch.einsum("bhts,bshd->bthd", pairs, v_c) + torch.einsum("bthf,bhfd->bthd", f_c, total))
        total = total + torch.einsum("bshf,bshd->bhfd", g_c, v_c)
    return torch.cat(out, 1)


def einsum_form(case: Case, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    f, g = elu_plus_one(q), elu_plus_one(k)
    turned_f, turned_g = turned(f, case.cos, case.sin), turned(g, case.cos, case.sin)
    if case.causal:
        return einsum_causal(turned_f, turned_g, v) / torch.einsum("bthf,bthf->bth", f, g.cumsum(1))[..., None]
    num = torch.einsum("bthf,bhfd->bthd", turned_f, torch.einsum("bshf,bshd->bhfd", turned_g, v))
    return num / torch.einsum("bthf,bhf->bth", f, g.sum(1))[..., None]


def all_pairs(case: Case, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The equation, with a row of weights for each query."""
    f, g = elu_plus_one(q), elu_plus_one(k)
    cos, sin = case.cos.double(), case.sin.double()
    over = torch.einsum("bthf,bshf->bhts", turned(f, cos, sin), turned(g, cos, sin))
    under = torch.einsum("bthf,bshf->bhts", f, g)
    if case.causal:
        over, under = over.tril(), under.tril()
    return torch.einsum("bhts,bshd->bthd", over / under.sum(-1, keepdim=True), v)


def with_gradients(form: Callable, case: Case, dtype: torch.dtype) -> list[Tensor]:
    q, k, v = (x.to(dtype).requires_grad_() for x in (case.q, case.k, case.v))
    out = form(case, q, k, v)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), case.y.to(dtype))]


def verify(core: ctypes.CDLL) -> None:
    for causal in (False, True):
        case = Case(300, 2, causal)
        truth = with_gradients(all_pairs, case, torch.float64)
        ours, peer = Ours(core, case).backward(), with_gradients(einsum_form, case, torch.float32)
        for name, got in (("ours", ours), ("einsum", peer)):
            error = max(float((g - t).abs().max() / t.abs().max()) for g, t in zip(got, truth, strict=True))
            if not error <= WORST_ERROR:
                raise RuntimeError(f"{name} must agree with float64 to {WORST_ERROR} of the largest, got {error}")


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def compare(core: ctypes.CDLL, case: Case, backward: bool, rounds: int) -> dict:
    ours = Ours(core, case)
    our_call = ours.backward if backward else ours.forward

    def peer_call() -> None:
        if backward:
            with_gradients(einsum_form, case, torch.float32)
        else:
            with torch.inference_mode():
                einsum_form(case, case.q, case.k, case.v)

    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):  # the first is for warming up
        pair = []
        for call in (our_call, peer_call):
            time.sleep(PAUSE_S)
            pair.append(seconds(call))
        times.append((pair[0], pair[1]))
    mine, peers = zip(*times[1:], strict=True)
    return {
        "tokens": case.tokens,
        "heads": case.heads,
        "direction": "causal" if case.causal else "bidirectional",
        "pass": "forward + backward" if backward else "forward",
        "ours_ms": 1e3 * statistics.median(mine),
        "einsum_ms": 1e3 * statistics.median(peers),
        "ratio": statistics.median(p / m for m, p in zip(mine, peers, strict=True)),
    }


def scaling(core: ctypes.CDLL, rounds: int) -> dict:
    """Best of `rounds` for each length, on the one thread that a single head is given."""
    best, added = [], []
    for tokens in SCALING:
        ours = Ours(core, Case(tokens, 1, causal=True))
        ours.out.zero_(), ours.denominators.zero_()  # pages there before
        added.append(added_kib(ours.forward))
        best.append(min(seconds(ours.forward) for _ in range(rounds)))
    x, y = [math.log(t) for t in SCALING], [math.log(s) for s in best]
    slope = statistics.linear_regression(x, y).slope
    times = {str(t): 1e3 * s for t, s in zip(SCALING, best, strict=True)}
    return {"forward_ms": times, "slope": slope, "added_kib": max(added)}


def table(results: list[dict]) -> list[list[str]]:
    lines = [["tokens", "heads", "direction", "pass", "ours ms", "einsum ms", "einsum / ours"]]
    for r in results:
        numbers = [f"{r['ours_ms']:.2f}", f"{r['einsum_ms']:.2f}", f"{r['ratio']:.1f}"]
        lines.append([str(r["tokens"]), str(r["heads"]), r["direction"], r["pass"], *numbers])
    return lines


def growth(grown: dict) -> str:
    positions = " / ".join(f"{int(tokens):,}" for tokens in grown["forward_ms"])
    times = " / ".join(f"{ms:.1f}" for ms in grown["forward_ms"].values())
    return (
        f"On one thread, causal, {positions} positions take {times} ms: time grows with the power\n"
        f"{grown['slope']:.3f} of their number. A call adds at most {grown['added_kib']} KiB to the peak of the "
        "process's memory, which\nthe system counts in steps of 256 KiB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 65536])
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 12])
    parser.add_argument("--rounds", type=int, default=7, help="windows of each side")
    parser.add_argument("--threads", type=int, help="threads of both sides (default: PyTorch's)")
    parser.add_argument("--json", metavar="FILE", help="write machine, commit and results as JSON")
    tables.add_option(parser)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # read where our OpenMP is loaded
    core = load_core()
    rounds = arguments.rounds
    verify(core)
    with ThreadPoolExecutor(1) as fresh_thread:  # one that has no work space yet
        grown = fresh_thread.submit(scaling, core, rounds).result()
    results = []
    for causal in (False, True):
        for tokens in arguments.tokens:
            for heads in arguments.heads:
                case = Case(tokens, heads, causal)
                results += [compare(core, case, backward, rounds) for backward in (False, True)]
    lines = table(results)
    print("\n".join("{:>7} {:>5} {:13} {:18} {:>9} {:>9} {:>13}".format(*line) for line in lines))
    print(f"\n{growth(grown)}")
    if arguments.update_docs:
        tables.update_docs(TABLES[0], machine(), f"{tables.markdown(lines)}\n\n{growth(grown)}")
    if arguments.json:
        document = {"machine": machine(), "rounds": rounds, "results": results, "scaling": grown}
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
