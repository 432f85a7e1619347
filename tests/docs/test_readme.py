"""README.md stays short, and its numbers equal docs/benchmarks, compared with the fastest peer of each row.

tests/docs/test_tutorials.py runs its code.
"""

import re

import pytest

from docs_pages import DOCS, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBERS = README[README.index("\n## Numbers\n") :].split("\n## ")[1]
PAGES = {"Zen 5": "amd-zen-5.md", "Zen 4": "amd-zen-4.md"}
# How README calls the sides of the tables, whose names may have a variant after a comma.
NAMES = {
    "torch complex product": "torch's complex product",
    "formula": "matmul, softmax, matmul in torch",
    "onnxruntime": "ONNX Runtime",
}


def rows(text):
    """The rows of the first table of a text, by column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def table(page, name):
    return rows(page[page.index(f"<!-- {name} -->") : page.index(f"<!-- end {name} -->")])


def rope(page, positions, dtype):
    wanted = [row for row in table(page, "rope_peers") if (row["positions"], row["dtype"]) == (positions, dtype)]
    return {row["side"]: row["ours faster by"] for row in wanted if row["ours faster by"]}


def attention(page, dtype, work):
    (row,) = (
        row
        for row in table(page, "attention_peers")
        if (row["batch x tokens"], row["dtype"], row["bias"], row[""]) == ("1 x 2048", dtype, "none", work)
    )
    return {name: row[name] for name in list(row)[5:] if row[name]}


def pretraining(page):
    (row,) = table(page, "train_bench base")
    return {"transformers": next(row[name] for name in row if name.startswith("ratio")).split()[0]}


def engine(page, precision):
    wanted = [row for row in table(page, "engine_peers") if row["sequences"] == "1x128"]
    peers = [row for row in wanted if row["side"].endswith(precision) and not row["side"].startswith("engine")]
    return {row["side"]: row["engine's speed over it"] for row in peers}


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


def test_readme_is_short():
    assert README.count("\n") <= 90 and len(README.split()) <= 900


def test_every_row_of_numbers_is_checked():
    assert [row[""] for row in rows(NUMBERS)] == list(MEASURED)


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
