"""bench/linear_attention.py: it verifies the kernel, and measures how time and memory grow."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import linear_attention


def test_growth_is_measured_over_the_lengths(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(linear_attention, "SCALING", [64, 128, 256])
    monkeypatch.setattr(sys, "argv", ["linear_attention.py", "--rounds", "1", "--json", str(tmp_path / "out.json")])
    linear_attention.main()
    assert capsys.readouterr().out.startswith("On one thread, causal, 64 / 128 / 256 positions take ")
    document = json.loads((tmp_path / "out.json").read_text())
    assert list(document["scaling"]["forward_ms"]) == ["64", "128", "256"]
    assert min(document["scaling"]["forward_ms"].values()) > 0


def test_a_kernel_that_is_wrong_is_not_timed(monkeypatch):
    monkeypatch.setattr(linear_attention.Call, "__call__", lambda self: self.out)  # zeros
    with pytest.raises(RuntimeError, match="must agree with float64"):
        linear_attention.verify(linear_attention.load_core())
