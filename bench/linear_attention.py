"""How the time and memory of linear attention grow with the number of positions.

    python bench/linear_attention.py [--rounds N] [--json FILE] [--update-docs]

Features elu + 1, one head of 64, float32, causal, RoPE in the numerator (arXiv 2104.09864 Eq. 19), called through the C
interface on one thread. After a comparison with float64, 2^14 to 2^20 positions: the slope of log time over log
positions, and the increase of the process's peak memory by the calls. bench/kernels.py compares the speed of the
kernels with torch.
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
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peak_memory import added_kib  # noqa: E402
from peer_timing import machine  # noqa: E402

TABLES = ["linear_attention"]
FEATURES, BASE = 64, 10000.0
WORST_ERROR = 1e-5  # of the largest result: some tens of float32 eps, what either way to sum loses
SCALING = [2**14, 2**16, 2**18, 2**20]
F32, HALVES, CAUSAL, PLAIN, ELU = 1, 2, 2, 1, 2  # rf/status.h, rope.h, linear_attention.h

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
        ("query", Rotation),
        ("key", Rotation),
        ("eps", ctypes.c_double),
        ("key_mask", Pointer),
        ("key_mask_stride_b", Int),
        ("key_mask_stride_s", Int),
        ("state", Pointer),
    ]


def load_core() -> ctypes.CDLL:
    folder = Path(os.environ.get("ROFORMER_LIB_DIR", ROOT / "build" / "release" / "lib"))
    core = ctypes.CDLL(str(folder / "libroformer_core.so"))
    core.rf_last_error.restype = core.rf_target.restype = ctypes.c_char_p
    return core


class Call:
    """One head of `tokens` positions: arrays [1, T, 1, 64], cos and sin [1, T, 32]."""

    def __init__(self, core: ctypes.CDLL, tokens: int):
        self.core = core
        generator = torch.Generator().manual_seed(0)
        self.q, self.k, self.v = (torch.randn(1, tokens, 1, FEATURES, generator=generator) for _ in range(3))
        theta = BASE ** (-torch.arange(0, FEATURES, 2, dtype=torch.float64) / FEATURES)
        angles = (torch.arange(tokens)[:, None] * theta)[None]
        self.cos, self.sin = angles.cos().float(), angles.sin().float()
        self.out, self.denominators = torch.empty_like(self.v), torch.empty(tokens)
        self.out.zero_(), self.denominators.zero_()  # so that their pages are there
        self.args = Args(ctypes.sizeof(Args), F32, HALVES, CAUSAL, PLAIN, ELU)
        self.args.batch = self.args.heads = self.args.key_heads = 1
        self.args.queries = self.args.keys = tokens
        self.args.features = self.args.value_dim = FEATURES
        for name, x in (("q", self.q), ("k", self.k), ("v", self.v), ("out", self.out)):
            setattr(self.args, name, x.data_ptr())
            for d, stride in zip("bth", x.stride(), strict=False):
                setattr(self.args, f"{name}_stride_{d}", stride)
        self.args.denominators = self.denominators.data_ptr()
        rotation = Rotation(self.cos.data_ptr(), self.sin.data_ptr(), 1, FEATURES // 2)
        self.args.query = self.args.key = rotation

    def __call__(self) -> Tensor:
        if self.core.rf_linear_attention_forward(ctypes.byref(self.args)):
            raise RuntimeError(self.core.rf_last_error().decode())
        return self.out

    def truth(self) -> Tensor:
        """The equation in float64, with a row of weights for each query."""
        q, k, v, cos, sin = (x.double() for x in (self.q, self.k, self.v, self.cos, self.sin))
        f, g = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
        over = torch.einsum("bthf,bshf->bhts", rotated(f, cos, sin), rotated(g, cos, sin)).tril()
        under = torch.einsum("bthf,bshf->bhts", f, g).tril()
        return torch.einsum("bhts,bshd->bthd", over / under.sum(-1, keepdim=True), v)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, :, None], sin[:, :, None]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def verify(core: ctypes.CDLL) -> None:
    call = Call(core, 300)
    truth = call.truth()
    error = float((call() - truth).abs().max() / truth.abs().max())
    if not error <= WORST_ERROR:
        raise RuntimeError(f"the kernel must agree with float64 to {WORST_ERROR} of the largest, got {error}")


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def scaling(core: ctypes.CDLL, rounds: int) -> dict:
    """Best of `rounds` for each length, in a call of one head on one thread."""
    core.omp_set_num_threads(1)  # of the calling thread; OpenMP is one of the library's own libraries
    best, added = [], []
    for tokens in SCALING:
        call = Call(core, tokens)
        added.append(added_kib(call))
        best.append(min(seconds(call) for _ in range(rounds)))
    x, y = [math.log(t) for t in SCALING], [math.log(s) for s in best]
    slope = statistics.linear_regression(x, y).slope
    times = {str(t): 1e3 * s for t, s in zip(SCALING, best, strict=True)}
    return {"forward_ms": times, "slope": slope, "added_kib": max(added)}


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
    parser.add_argument("--rounds", type=int, default=7, help="calls of each length, of which the fastest counts")
    parser.add_argument("--json", metavar="FILE", help="write machine, commit and results as JSON")
    tables.add_option(parser)
    arguments = parser.parse_args()
    core = load_core()
    verify(core)
    with ThreadPoolExecutor(1) as fresh_thread:  # a thread without work space
        grown = fresh_thread.submit(scaling, core, arguments.rounds).result()
    print(growth(grown))
    if arguments.update_docs:
        tables.update_docs(TABLES[0], machine(), growth(grown))
    if arguments.json:
        document = {"machine": machine(), "rounds": arguments.rounds, "scaling": grown}
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
