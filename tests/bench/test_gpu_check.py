"""bench/gpu_check.py: its dry run, what it refuses, and the page that it writes."""

import json
import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import gpu_check  # noqa: E402
import gpu_page  # noqa: E402
import gpu_run  # noqa: E402
import gpu_training  # noqa: E402


@pytest.fixture
def small_on_cpu(monkeypatch):
    """The sizes of a dry run, with two heads to a key head, and the CPU's kernels."""
    sizes = gpu_run.sizes(True)
    sizes.parity = sizes.parity | {"heads": 2}
    for name, value in {"device": "cpu", "dry": True, "sizes": sizes}.items():
        monkeypatch.setattr(gpu_run.RUN, name, value)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_a_dry_run_has_results_of_every_part(tmp_path):
    path = tmp_path / "results.json"
    environment = os.environ | {"TRITON_INTERPRET": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, BENCH / "gpu_check.py", "--dry-run", "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["machine"]["gpu"] is None and document["machine"]["triton"]
    parts = document["parts"]
    assert list(parts) == ["compile", *gpu_check.PARTS]
    assert all(part["rows"] and not part["failed"] for part in parts.values())
    cases = {row["case"].split(", ", 1)[1] for row in parts["parity"]["rows"] if row["case"].startswith("attention")}
    assert cases == set(gpu_check.PARITY) - gpu_check.IN_TESTS
    sides = {part: {row["side"] for row in parts[part]["rows"]} for part in ("rope", "attention", "linear", "training")}
    assert sides["rope"] >= {"copy", "ours", "ours, q and k in one launch", "ours, from positions", "formula, compiled"}
    assert sides["attention"] == {"ours", "SDPA, flash", "SDPA, matrix"}  # FlexAttention has no backward on a CPU
    assert sides["linear"] == {"ours", "torch"} and sides["training"] == {"ours", "transformers"}
    assert {row["kind"] for row in parts["attention"]["rows"]} == set(gpu_check.KINDS)
    assert parts["pretraining"]["rows"][0]["compared_steps"] > 1
    assert "## Goals" in done.stdout and gpu_page.NOT_MEASURED not in done.stdout


@pytest.mark.parametrize("name", ["plain", "DeBERTa", "packed"])
def test_wrong_outputs_and_gradients_are_refused(name, small_on_cpu):
    call, inputs = gpu_check.attention_call(name, torch.float32)
    formula = partial(call, "explicit")

    def check(ours):
        return gpu_check.parity_row(name, torch.float32, ours, formula, inputs)

    row = check(partial(call, "fused"))
    assert ("sdpa_output_error" in gpu_check.attention_parity(name, torch.float32)[0]) == (name == "plain")
    assert 0 < row["output_error"] <= row["error"] and 0 < row["of_allowed"] <= 1

    def wrong_gradient(x, i):
        """x with a doubled gradient."""
        return 2 * x - x.detach() if i == len(inputs) - 1 else x

    for ours, what in (
        (lambda *x: 1.001 * call("fused", *x), "output"),
        (lambda *x: call("fused", *x) * torch.nan, "output"),
        (lambda *x: call("fused", *(wrong_gradient(y, i) for i, y in enumerate(x))), f"input {len(inputs) - 1}"),
    ):
        with pytest.raises(ValueError, match=rf"\[gpu_check\] the .*{what} must be within"):
            check(ours)


def test_other_bits_are_refused(small_on_cpu, monkeypatch):
    assert gpu_check.same_bits("bias") == [{"case": "bias", "calls": 2, "tensors": 5}]
    results = gpu_check.verified.results
    noise = iter((0.0, 0.0, 0.0, 1e-7))  # in the second tensor of the second call
    monkeypatch.setattr(gpu_check.verified, "results", lambda *x: [y + next(noise) for y in results(*x)[:2]])
    with pytest.raises(ValueError, match=r"of 1 with other bits must be within 0 of what is expected, got 1"):
        gpu_check.same_bits("bias")


@pytest.mark.parametrize("kind", gpu_check.KINDS)
def test_wrong_attention_is_not_timed(kind, small_on_cpu, monkeypatch):
    """The peer's matrix is that of the terms, and a unit that fails leaves its message."""
    unit = f"{kind}, {gpu_run.RUN.sizes.attention[0]}"
    monkeypatch.setattr(gpu_run.RUN.sizes, "dtypes", (torch.float32,))
    monkeypatch.setattr(gpu_check, "NORM_TOLERANCE", 1e-5)
    rows, message = gpu_check.attempt("attention", unit)
    assert message is None and rows[0]["side"] == "ours"
    right = gpu_check.Attention.ours
    for wrong in (lambda *x: 1.001 * right(*x), lambda *x: right(*x[:-1], 2 * x[-1] - x[-1].detach())):
        monkeypatch.setattr(gpu_check.Attention, "ours", wrong)
        rows, message = gpu_check.attempt("attention", unit)
        assert not rows and message.startswith("ValueError: [gpu_check] output and gradients of attention must be with")


def test_curves_are_compared_by_groups_of_steps(small_on_cpu, monkeypatch):
    assert gpu_training.means([1.0, 3.0]) == [2.0]
    assert gpu_training.means([1.0] * 20 + [2.0] * 20 + [9.0]) == [1.0, 2.0]
    first, other = (gpu_training.sentences(seed) for seed in (0, 1))
    assert torch.equal(first.ids, gpu_training.sentences(0).ids) and not torch.equal(first.ids, other.ids)
    assert (first.ids.flatten()[first.at] == gpu_training.MASK).all() and (first.labels >= gpu_training.SPECIAL).all()

    class Pool:
        def __init__(self, *_):
            self.result = lambda: [1.0] * 30

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731
        submit = lambda self, *_: self  # noqa: E731

    monkeypatch.setattr(gpu_training, "ProcessPoolExecutor", Pool)
    for loss, is_right in ((1.02, True), (1.05, False), (float("nan"), False)):
        monkeypatch.setattr(gpu_training, "curve", lambda *_, loss=loss: [loss] * 25)
        if is_right:
            (row,) = gpu_training.pretraining(60)
            assert row["compared_steps"] == 25 and row["difference"] == pytest.approx(0.02)
        else:
            with pytest.raises(ValueError, match=r"the loss on the GPU must be within 0\.03"):
                gpu_training.pretraining(60)


# Milliseconds of the passes of attention, forward and backward.
TIMES = [("plain", "ours", 64, 2048, 1.0, 4.0), ("plain", "SDPA, flash", 64, 2048, 0.8, 2.0)]
TIMES += [("plain", "ours", 128, 2048, 1.0, None), ("plain", "SDPA, flash", 128, 2048, 0.9, None)]
TIMES += [("b", "ours", 64, 2048, 1.05, 7.0), ("b", "FlexAttention, compiled", 64, 2048, None, 28.0)]
TIMES += [("DeBERTa", "ours", 64, 2048, 2.0, 8.0), ("DeBERTa", "SDPA, matrix", 64, 2048, 9.0, 16.0)]
TIMES += [("DeBERTa", "ours", 64, 8192, 9.0, 9.0), ("DeBERTa", "SDPA, matrix", 64, 8192, 9.0, 9.0)]


def results():
    """Of a GPU that meets some goals."""
    attention = [
        {"kind": kind, "head_dim": head_dim, "batch": 4, "tokens": tokens, "pass": which, "side": side}
        | {"ms": ms, "low_ms": ms, "high_ms": ms, "tflop_per_s": 300.0, "peak_mib": 1234.5}
        for kind, side, head_dim, tokens, *both in TIMES
        for which, ms in zip(("forward", "backward"), both, strict=True)
        if ms is not None
    ]
    plain = {"case": "attention, plain", "dtype": "bfloat16", "error": 0.01, "output_error": 0.004, "of_allowed": 0.5}
    rows = {
        "rope": [{"side": side, "of_copy": x} for side, x in (("copy", 1.0), ("ours", 0.95), ("ours, in place", 0.1))],
        "attention": attention,
        "parity": [plain | {"sdpa_output_error": 0.003}, plain | {"case": "attention, b", "error": 0.5}],
        "training": [{"side": "ours", "tokens_per_s": 120e3}, {"side": "transformers", "tokens_per_s": 100e3}],
    }
    machine = {"gpu": "NVIDIA H100 80GB HBM3", "memory_gib": 80, "cores": 16, "torch": "2.11.0", "triton": "3.6.0"}
    machine |= {"commit": "abc", "date": "2026-11-28"}
    parts = {part: {"rows": found, "failed": {}} for part, found in rows.items()}
    parts["linear"] = {"rows": [], "failed": {"forward": "ValueError: wrong"}}
    return {"machine": machine, "parts": parts}


def test_the_page_has_goals_and_every_row(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_page.tables, "PAGES", tmp_path)
    path = gpu_page.write(results())
    assert path == tmp_path / "nvidia-h100.md"
    page = path.read_text(encoding="utf-8")
    assert page.startswith("# Benchmarks: NVIDIA H100 80GB HBM3\n")
    assert "80 GiB, 16 CPU cores, PyTorch 2.11.0, Triton 3.6.0, commit abc, 2026-11-28." in page
    lines = [line.strip("| ").split(" | ") for line in page.split("## Errors")[0].splitlines() if "| at " in line]
    assert ["`b`, forward: time of plain attention", "at most 1.1", "1.05", "yes"] in lines
    found = "0.50 no, 0.80 yes, 0.95 yes, 1.05 yes, 1.20 no, 1.33 yes, 1.75 no, 2.50 yes, 4.00 yes"
    assert sorted(" ".join(line[2:]) for line in lines) == found.split(", ")
    assert "| attention, b | bfloat16 | 5.0e-01 | 4.0e-03 | 0.50 |  |" in page
    assert "| b | 64 | 4 | 2048 | backward | ours | 7.000 | 7.000 | 7.000 | 300 | 1,234 |" in page
    assert "Failed: `forward`: ValueError: wrong" in page
    assert page.count(gpu_page.NOT_MEASURED) == 4  # determinism, linear attention, pretraining, compilation


def test_results_of_a_dry_run_are_no_page(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"machine": {"gpu": None}, "parts": {}}), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["gpu_check.py", "--update-docs", "--json", str(path)])
    with pytest.raises(SystemExit, match="must be those of a GPU, got those of a dry run"):
        gpu_check.main()
