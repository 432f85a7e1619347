"""The page docs/benchmarks/<GPU>.md, from the results of bench/gpu_check.py. Importing it loads no torch."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import tables

NOT_MEASURED = "Not measured on this GPU."
Rows = list[dict]
SHOWN = {  # decimals of a column
    "error": "{:.1e}", "output_error": "{:.1e}", "sdpa_output_error": "{:.1e}", "difference": "{:.4f}",
    "loss": "{:.4f}", "ms": "{:.3f}", "low_ms": "{:.3f}", "high_ms": "{:.3f}", "peak_mib": "{:,.0f}",
    "tokens_per_s": "{:,.0f}", "gb_per_s": "{:,.0f}", "tflop_per_s": "{:.0f}",
}  # fmt: skip
SECTIONS = {  # title, and what the numbers mean
    "parity": (
        "Errors against float64",
        "The largest error of output and gradients, relative to the largest value. `of_allowed` is its share of the "
        "bound: 64 eps in float32; in float16 and bfloat16 twice the error of the formula in PyTorch.",
    ),
    "determinism": ("Determinism", "Calls with the same inputs, whose outputs and gradients have the same bits."),
    "rope": ("Rotary embedding", "16 heads of 128, bfloat16. Bytes are the tensor, read once and written once."),
    "attention": (
        "Attention",
        "16 heads, bfloat16, bidirectional. The backward is timed alone and counted as 2.5 times the operations of the "
        "forward; terms are not counted. SDPA's matrix and its gradient are part of its passes. `peak_mib` is the "
        "memory of a forward and a backward.",
    ),
    "linear": ("Linear attention", "Heads of 64, features elu + 1, a rotation, float32; the peer is PyTorch's einsum."),
    "training": (
        "Training RoFormer-base",
        "64 x 512 tokens, 15 % of them masked, AdamW, bfloat16 autocast. Ours computes logits of the masked tokens "
        "alone, transformers of all tokens; its attention for RoFormer has no SDPA.",
    ),
    "pretraining": (
        "Pretraining",
        "Sentences of a small grammar. `difference` is the largest relative difference between the loss on the GPU in "
        "bfloat16 and on the CPU in float32, in means of 20 steps.",
    ),
    "compile": ("Compilation", "Every part once, in as many processes as the machine has cores, before it is timed."),
}


def median_ms(rows: Rows, side: str, **where: object) -> dict[tuple, float]:
    """Milliseconds by size of the rows of a side."""
    return {
        tuple(row[name] for name in ("head_dim", "tokens")): row["ms"]
        for row in rows
        if row["side"].startswith(side) and all(row[name] == value for name, value in where.items())
    }


def ratios(above: dict[tuple, float], below: dict[tuple, float]) -> list[float]:
    return [above[size] / ms for size, ms in below.items() if size in above]


def attention_goals(rows: Rows) -> Iterator[tuple[str, list[float], Callable, float]]:
    def times(side, kind, which):
        return median_ms(rows, side, kind=kind, **{"pass": which})

    for which, share, slower in (("forward", 0.75, 1.1), ("backward", 0.7, 1.5)):
        ours = times("ours", "plain", which)
        yield (
            f"plain attention, {which}: speed of SDPA (flash)",
            ratios(times("SDPA", "plain", which), ours),
            min,
            share,
        )
        yield f"`b`, {which}: time of plain attention", ratios(times("ours", "b", which), ours), max, slower
    ours, flex = (times(side, "b", "backward") for side in ("ours", "FlexAttention"))
    yield "`b`, backward: speed of FlexAttention with a captured table", ratios(flex, ours), min, 3
    both = []
    for side in ("SDPA", "ours"):
        forward, backward = (times(side, "DeBERTa", which) for which in ("forward", "backward"))
        both.append({size: ms + backward[size] for size, ms in forward.items() if size[1] == 2048})
    yield "DeBERTa at 2048 tokens, both passes: speed of SDPA with a matrix", ratios(*both), min, 2


def goals(parts: dict[str, dict]) -> Iterator[tuple[str, list[float], Callable, float]]:
    """For each goal of the design: its name, the measured values, which value counts (min or max), and the limit."""
    rows = {part: found["rows"] for part, found in parts.items()}
    ours = [row["of_copy"] for row in rows.get("rope", []) if row["side"] == "ours"]
    yield "rotary embedding: bandwidth of a copy", ours, min, 0.9
    yield from attention_goals(rows.get("attention", []))
    plain = [r for r in rows.get("parity", []) if r["dtype"] == "bfloat16" and "sdpa_output_error" in r]
    yield "error of bfloat16: times SDPA's", [r["output_error"] / r["sdpa_output_error"] for r in plain], max, 2
    speed = {row["side"]: row["tokens_per_s"] for row in rows.get("training", [])}
    found = [speed["ours"] / speed["transformers"]] if len(speed) > 1 else []
    yield "training RoFormer-base: speed of transformers", found, min, 1.3


def goal_table(parts: dict[str, dict]) -> str:
    lines = [["goal", "limit", "measured", "met"]]
    for name, values, worst, limit in goals(parts):
        measured = f"{worst(values):.2f}" if values else "not measured"
        met = ("yes" if (worst(values) >= limit) == (worst is min) else "no") if values else ""
        lines.append([name, f"{'at least' if worst is min else 'at most'} {limit}", measured, met])
    return tables.markdown(lines)


def shown(name: str, value: object) -> str:
    if isinstance(value, list):
        return " ".join(f"{x:.2f}" for x in value[:: max(1, len(value) // 8)])
    return SHOWN.get(name, "{:.2f}").format(value) if isinstance(value, float) else str(value)


def table(rows: Rows) -> str:
    """A column for each name in the rows, which need not have all."""
    titles = list(dict.fromkeys(name for row in rows for name in row))
    return tables.markdown([titles, *([shown(name, row.get(name, "")) for name in titles] for row in rows)])


def page(document: dict) -> str:
    parts, machine = document["parts"], document.get("machine")
    gpu = "NVIDIA H100" if machine is None else machine["gpu"] or "a dry run"
    lines = [f"# Benchmarks: {gpu}", "", "`bench/gpu_check.py` writes this page ([how](../benchmarks.md#gpus)).", ""]
    if machine:
        memory = f"{machine['memory_gib']} GiB, " if machine["gpu"] else ""
        about = f"{gpu}, {memory}{machine['cores']} CPU cores, PyTorch {machine['torch']}, Triton {machine['triton']}, "
        lines += [about + f"commit {machine['commit']}, {machine['date']}.", ""]
    else:
        lines += ["No GPU was at hand yet: nothing on this page has been measured.", ""]
    lines += ["## Goals", "", goal_table(parts)]
    for part, (title, note) in SECTIONS.items():
        lines += ["", f"## {title}", "", note, ""]
        found = parts.get(part, {"rows": [], "failed": {}})
        lines += [table(found["rows"]) if found["rows"] else NOT_MEASURED]
        lines += [f"\nFailed: `{unit}`: {message}" for unit, message in found["failed"].items()]
    return "\n".join(lines) + "\n"


def write(document: dict) -> Path:
    """Writes nvidia-h100.md for an "NVIDIA H100 80GB HBM3", and for a document without results."""
    gpu = document["machine"]["gpu"] if "machine" in document else "NVIDIA H100"
    if gpu is None:
        raise SystemExit("[gpu_check] the results must be those of a GPU, got those of a dry run")
    path = tables.PAGES / ("-".join(re.findall(r"[a-z0-9]+", gpu.lower())[:2]) + ".md")
    path.write_text(page(document), encoding="utf-8")
    return path
