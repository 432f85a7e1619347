"""The numbers of README.md equal docs/benchmarks, compared with the fastest peer of each row."""

import re

import pytest

from docs_pages import DOCS, ROOT

NUMBERS = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Numbers\n")[2].split("\n## ")[0]
PAGES = {"Zen 5": "amd-zen-5.md", "Zen 4": "amd-zen-4.md"}
# How README calls the sides of the tables, whose names may have a variant after a comma.
NAMES = {"torch complex product": "torch's complex product", "onnxruntime": "ONNX Runtime"}
NAMES |= {"formula": "matmul, softmax, matmul in torch"}


def rows(text):
    """The rows of the first table of a text, by column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def table(page, name, **cells):
    found = rows(page[page.index(f"<!-- {name} -->") : page.index(f"<!-- end {name} -->")])
    return [row for row in found if cells.items() <= row.items()]


def rope(page, positions, dtype):
    found = table(page, "rope_peers", positions=positions, dtype=dtype)
    return {row["side"]: row["ours faster by"] for row in found if row["ours faster by"]}


def attention(page, dtype, work):
    wanted = {"batch x tokens": "1 x 2048", "dtype": dtype, "bias": "none", "": work}
    (row,) = table(page, "attention_peers", **wanted)
    return {name: row[name] for name in list(row)[5:] if row[name]}


def pretraining(page):
    (row,) = table(page, "train_bench base")
    return {"transformers": next(row[name] for name in row if name.startswith("ratio")).split()[0]}


def engine(page, precision):
    found = {row["side"]: row["engine's speed over it"] for row in table(page, "engine_peers", sequences="1x128")}
    return {side: ratio for side, ratio in found.items() if side.endswith(precision) and not side.startswith("engine")}


MEASURED = {
    "RoPE, float32, 4096 positions": lambda page: rope(page, "4096", "float32"),
    "RoPE, float32, 32768 positions": lambda page: rope(page, "32768", "float32"),
    "Attention, float32, 2048 tokens": lambda page: attention(page, "float32", "forward"),
    "Attention, float32, 2048 tokens, with backward": lambda page: attention(page, "float32", "forward and backward"),
    "Attention, bfloat16, 2048 tokens": lambda page: attention(page, "bfloat16", "forward"),
    "Attention, bfloat16, 2048 tokens, with backward": lambda page: attention(page, "bfloat16", "forward and backward"),
    "Pretraining, RoFormer-base, bfloat16": pretraining,
    "Engine, RoFormer-base, 128 tokens, float32": lambda page: engine(page, "float32"),
    "Engine, RoFormer-base, 128 tokens, int8": lambda page: engine(page, "int8"),
}


@pytest.mark.parametrize("cpu", PAGES)
def test_numbers_are_those_of_the_fastest_peer(cpu):
    page = (DOCS / "benchmarks" / PAGES[cpu]).read_text(encoding="utf-8")
    for row in rows(NUMBERS):
        ratios = {side: float(ratio) for side, ratio in MEASURED[row[""]](page).items()}
        fastest = min(ratios.values())
        assert float(row[cpu]) == fastest, (row, ratios)
        sides = {side.split(",")[0] for side, ratio in ratios.items() if ratio == fastest}
        names = {NAMES.get(side, side) for side in sides}
        assert any(name in row["fastest peer"] for name in names), (row, ratios)
