"""The device, the sizes and the clock of bench/gpu_check.py."""

import functools
import os
import statistics
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import harness
import torch
import verified
from harness import Windows
from torch import Tensor
from verified import OURS

from roformer_cpp.gpu import library


def model_config(vocabulary: int, hidden: int, layers: int, tokens: int) -> dict:
    """Of a RoFormer with heads of 64, or one head."""
    sizes = dict(hidden_size=hidden, embedding_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers)
    heads = dict(num_attention_heads=max(1, hidden // 64), max_position_embeddings=tokens)
    return dict(model_type="roformer", vocab_size=vocabulary) | sizes | heads


SIZES = {  # on a GPU, and in a dry run
    "parity": (dict(batch=2, queries=301, keys=333, heads=4, key_heads=2, head_dim=64),
               dict(batch=1, queries=5, keys=8, heads=1, key_heads=1, head_dim=16)),
    # Triton's interpreter multiplies bfloat16 wrongly.
    "dtypes": ((torch.float32, torch.float16, torch.bfloat16), (torch.float32,)),
    "same_bits": (("bias", "Shaw", "DeBERTa", "Transformer-XL", "packed", "dropout", "all", "training"),
                  ("bias", "training")),
    "runs": (20, 2),  # of a call that must give the same bits
    "rounds": (7, 1),
    "window_s": (0.02, 0),
    "rope": (((32, 4096), (1, 131072)), ((2, 16),)),  # batch, positions
    "rope_heads": ((16, 128), (2, 16)),  # heads, head_dim
    "attention": (((4, 2048, 64), (4, 2048, 128), (1, 8192, 64), (1, 8192, 128)), ((1, 8, 16),)),
    "attention_heads": (16, 1),  # sizes above: batch, tokens, head_dim
    "linear": ((65536, 12), (8, 1)),  # tokens, heads
    "model": (model_config(50000, 768, 12, 512), model_config(64, 32, 1, 16)),
    "batch": ((64, 512), (2, 8)),  # rows, tokens
    "small_model": (model_config(256, 256, 4, 64), model_config(256, 32, 1, 16)),
    "small_batch": ((32, 64), (2, 8)),
    "pretraining_s": (120, 0.1),
    "workers": (min(12, os.cpu_count() or 1), 1),  # the one for training needs half of a GPU's memory
}  # fmt: skip


def sizes(dry: bool) -> SimpleNamespace:
    return SimpleNamespace(**{name: pair[dry] for name, pair in SIZES.items()})


RUN = SimpleNamespace(device="cuda", sizes=sizes(False), dry=False, warming=False)  # of this process


def start(dry: bool, warming: bool = False) -> None:
    """Chooses the device. warming: sides only run once, so that their kernels are compiled."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # of each process
    RUN.warming = warming
    if dry:
        RUN.device, RUN.sizes, RUN.dry, harness.PAUSE_S = "cpu", sizes(True), True, 0.0
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported
        use_kernels_for_cpu_tensors()
    elif missing := library.missing(torch.device("cuda" if torch.cuda.is_available() else "cpu")):
        raise SystemExit(f"[gpu_check] the kernels need {missing}. Hint: --dry-run")


@functools.cache
def use_kernels_for_cpu_tensors() -> None:
    """In this process."""
    library.compute_by_kernels("CPU", library.MODULES, allow_override=True)


def on_device(make: Callable) -> Callable:
    """The function with its new tensors on the run's device."""

    @functools.wraps(make)
    def call(*args, **kwargs):
        with torch.device(RUN.device):
            return make(*args, **kwargs)

    return call


def compiled(function: Callable) -> Callable:
    if RUN.dry:
        return function
    torch._dynamo.reset()  # there is a limit of versions of a function
    return torch.compile(function, dynamic=False)


def clock() -> float:
    """Seconds, when the device has done its work."""
    if not RUN.dry:
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(sides: dict[str, Callable]) -> list[dict]:
    """Milliseconds of a call of each side: the median of the rounds, the least and the most."""
    if RUN.warming:
        return []
    windows = [Windows(name, call) for name, call in sides.items()]
    harness.take_turns(windows, RUN.sizes.rounds, RUN.sizes.window_s, clock)
    figures = {"ms": statistics.median, "low_ms": min, "high_ms": max}
    return [{"side": side.name} | {name: 1e3 * of(side.seconds) for name, of in figures.items()} for side in windows]


def peak_mib(call: Callable) -> float:
    """The memory that a call takes on the GPU beyond what was there."""
    if RUN.dry or RUN.warming:
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def verified_sides(case: str, sides: dict[str, Callable], check: Callable[[object], None]) -> dict[str, Callable]:
    """The sides whose result `check` accepts; ours must be. Only sides that are compiled are run to warm up."""
    found = {}
    for name, call in sides.items():
        is_ours = name.startswith(OURS)
        if RUN.warming and not is_ours and "compiled" not in name:
            continue
        try:
            result = call()
            if not RUN.warming:
                check(result)
        except Exception as error:
            if is_ours:
                raise
            verified.left_out(name, case, error)
        else:
            found[name] = call
    return found


def require(rule: str, error: float, limit: float) -> None:
    if not error <= limit:  # also NaN
        raise ValueError(f"[gpu_check] {rule} must be within {limit} of what is expected, got {error:.3g}")


def norm_error(got: Tensor, want: Tensor) -> float:
    return ((got.double() - want.double()).norm() / want.double().norm()).item()
