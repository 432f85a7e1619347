"""roformer info: the table of encodings, and the page made of it."""

import subprocess
import sys

import roformer_cpp
from cli_support import PROGRAM, ROOT, results


def test_lists_the_table():
    lines = results("info", "--encodings")
    assert lines == roformer_cpp.encodings()
    assert [line["name"] for line in lines] == results("info")[0]["encodings"]


def test_names_the_kernels_of_attention():
    fused = dict.fromkeys(("float32", "bfloat16", "float16", "linear"), "fused")
    assert results("info")[0]["attention"] == fused | {"float64": "explicit"}


def test_names_the_product_of_linear_layers(monkeypatch):
    linear = results("info")[0]["linear"]
    assert {linear[dtype] for dtype in ("float32", "bfloat16", "float16")} == {"plain"}
    assert (linear["float64"], linear["few_rows"]) == ("torch", "torch")
    monkeypatch.setenv("RF_KERNEL", "ref")
    assert set(results("info")[0]["linear"].values()) == {"torch"}


def test_page_of_encodings_is_up_to_date():
    command = [sys.executable, ROOT / "scripts" / "encodings_page.py", "--check", "--program", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
