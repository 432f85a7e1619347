"""Every command on tiny data: results as JSON lines on stdout, exit codes, the same seed the same bytes."""

import json
import platform
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import roformer_cpp
import tolerances
from cli_support import MODEL, PROGRAM, metrics, prepare, pretrain, refused, results, run, run_file, started, stopped


@pytest.fixture(scope="module")
def info():
    return results("info")[0]


def test_info(info):
    assert info["libraries"]["torch"].startswith(torch.__version__.split("+")[0])
    assert info["instructions"]["kernels"] and info["version"]
    fused = dict.fromkeys(("float32", "bfloat16", "float16", "linear"), "fused")
    assert info["attention"] == fused | {"float64": "explicit"}
    assert {info["linear"][dtype] for dtype in ("float32", "bfloat16", "float16")} == {"plain"}
    assert (info["linear"]["float64"], info["linear"]["few_rows"]) == ("torch", "torch")


def test_info_of_plain_kernels(monkeypatch):
    monkeypatch.setenv("RF_KERNEL", "ref")
    (info,) = results("info")
    assert info["instructions"]["meaning"] == "plain loops in float64" and set(info["linear"].values()) == {"torch"}
    monkeypatch.setenv("RF_KERNEL", "reference")
    assert refused("info") == "[target] RF_KERNEL must be ref, empty or not set, got reference\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86's instruction sets")
def test_instruction_sets_are_named_by_what_they_do(info):
    flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    named = info["instructions"]["meaning"]
    assert ("AVX-512" in named) == ({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"} <= flags)
    assert ("bf16 products" in named) == ("avx512_bf16" in flags)


def test_the_table_of_encodings(info):
    lines = results("info", "--encodings")
    assert lines == roformer_cpp.encodings() and [line["name"] for line in lines] == info["encodings"]


def test_version_and_help():
    """The pages of docs/reference have the help of every command."""
    assert run("--version").stdout.startswith("roformer 0.")
    for command, draws in (("pretrain", True), ("forward", False)):
        assert command in run("--help").stdout
        text = run(command, "--help").stdout
        assert f"Example:\n  roformer {command}" in text and "--threads" in text and ("--seed" in text) == draws


def test_a_value_may_begin_with_two_dashes(trained):
    (line,) = results("fill-mask", "--model", trained, "--text", "--- [MASK] abc", "--top-k", 1)
    assert len(line["predictions"]) == 1
    assert "did you mean --text?" in refused("fill-mask", "--model", trained, "--txet", "--- [MASK]", code=2)


@pytest.mark.parametrize("cased", [False, True])
def test_vocab(cased, prepared, tmp_path):
    texts = [path.read_text() for path in (prepared / "corpus").iterdir()]
    (tmp_path / "text.txt").write_text("\n".join([*texts, "Abc Abc"]))
    given = ["vocab", "--input", tmp_path / "text.txt", "--size", 100, *["--cased"] * cased, "--output"]
    (report,) = results(*given, tmp_path / "v" / "vocab.txt")
    tokens = (tmp_path / "v" / "vocab.txt").read_text().splitlines()
    assert report["size"] == len(tokens) == 100 and ("A" in tokens) == cased
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert json.loads((tmp_path / "v" / "tokenizer_config.json").read_text())["do_lower_case"] is not cased
    for name in ("v.txt", "my_vocab.txt") if cased else ():
        assert "named vocab.txt" in refused(*given, tmp_path / name)


def test_pretrain_leaves_a_run_and_a_model(prepared, trained):
    lines = metrics(trained)
    steps = [("train", 2), ("train", 4), ("evaluation", 4), ("train", 6), ("evaluation", 6)]
    assert [(m["type"], m["step"]) for m in lines] == steps
    assert lines[0]["learning_rate"] == pytest.approx(1e-3)
    # Six small steps from the start: near a guess among the 150 tokens.
    assert all(m["loss"] == pytest.approx(np.log(150), rel=tolerances.UNTRAINED_LOSS) for m in lines)
    assert sorted(p.name for p in trained.glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-6"]
    written = json.loads((trained / "run.json").read_text())
    assert written["mask"]["probability"] == 0.15 and written["model"]["vocab_size"] == 150
    for folder in (trained, trained / "checkpoint-4"):
        model, report = transformers.RoFormerForMaskedLM.from_pretrained(folder, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"]
        assert model.config.vocab_size == 150


def test_lines_count_the_tokens_without_padding(prepared, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(40 * ["a b c d e f g h a"]))
    prepare(prepared, tmp_path / "data", "--documents", "line", inputs=[tmp_path / "text.txt"], held_out=0)
    results(*pretrain(tmp_path, prepared / "run.json", tmp_path / "run"))
    lines = metrics(tmp_path / "run", "train")
    assert [line["tokens"] for line in lines] == 3 * [2 * 4 * (1 + 9 + 1)]  # steps, rows, [CLS], letters, [SEP]
    assert all(0 < line["predicted_tokens"] <= 2 * 4 * 9 for line in lines)


def test_the_seed_decides(prepared, trained, tmp_path):
    for seed in (1, 2):
        results(*pretrain(prepared, prepared / "run.json", tmp_path / str(seed), "--seed", seed))
    weights = [(folder / "model.safetensors").read_bytes() for folder in (trained, tmp_path / "1", tmp_path / "2")]
    assert weights[0] == weights[1] != weights[2]


def test_fill_mask(trained):
    lines = results("fill-mask", "--model", trained, "--text", "abc [MASK] bad [MASK]", "--top-k", 3)
    assert len(lines) == 2
    model = transformers.RoFormerForMaskedLM.from_pretrained(trained).eval()
    (tokens,) = results("tokenize", "--model", trained, stdin="abc [MASK] bad [MASK]\n")
    with torch.no_grad():
        expected = model(torch.tensor([tokens["ids"]])).logits[0].softmax(-1)
    names = transformers.AutoTokenizer.from_pretrained(trained).convert_ids_to_tokens(range(expected.shape[1]))
    for line in lines:
        best = expected[line["token_index"]].topk(3)
        found = {key: [each[key] for each in line["predictions"]] for key in ("id", "token", "probability")}
        assert found["id"] == best.indices.tolist()
        assert found["token"] == [names[token] for token in found["id"]]
        assert found["probability"] == pytest.approx(best.values.tolist(), rel=tolerances.T4_MAX)


def test_a_reader_that_goes_away_is_no_error(trained):
    child = started("tokenize", "--model", trained, stdin="")
    child.stdout.close()
    with pytest.raises(BrokenPipeError):
        for _ in range(100000):
            child.stdin.write("abc\n")
    assert child.stderr.read() == ""
    assert child.wait() == 0


def test_results_that_cannot_be_written():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "No space left" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_a_checkpoint(prepared, tmp_path, number):
    stages = [dict(max_length=16, batch=4, steps=100000)]
    config = run_file(tmp_path / "run.json", stages=stages, checkpoint_every_steps=100000)
    log = tmp_path / "run" / "metrics.jsonl"
    given = pretrain(prepared, config, tmp_path / "run")
    code, out, said = stopped(number, lambda: log.exists() and log.read_text(), *given)
    assert code == 128 + number and json.loads(out)["interrupted_by_signal"] == number
    (checkpoint,) = (tmp_path / "run").glob("checkpoint-*")
    assert f"after step {checkpoint.name.removeprefix('checkpoint-')};" in said
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_bench_of_steps_verifies_and_answers(trained, tmp_path):
    ids = np.full((2, 3, 8), 7)
    labels = np.where(np.arange(8) % 4 == 0, 9, -100) * np.ones_like(ids)
    np.save(tmp_path / "ids.npy", ids)
    np.save(tmp_path / "labels.npy", labels)
    given = ["--model", trained, "--ids", tmp_path / "ids.npy", "--labels", tmp_path / "labels.npy", "--float32"]
    lines = results("bench", *given, stdin="loss\nsteps 3\n")
    model = transformers.RoFormerForMaskedLM.from_pretrained(trained).eval()
    with torch.no_grad():
        expected = model(torch.tensor(ids[0]), labels=torch.tensor(labels[0])).loss.item()
    assert lines[0]["loss"] == pytest.approx(expected, rel=tolerances.T4_MAX)
    assert lines[1]["steps"] == 3 and lines[1]["tokens"] == 3 * 24
    assert "got no --model. Hint: bench/kernels.py" in refused("bench", code=2)
    assert "got no --ids or no --labels" in refused("bench", "--model", "model", code=2)


def test_bake(tmp_path):
    """Terms for longer sequences, which tests/nn/test_position_terms.py checks; xpos needs no file."""
    roformer_cpp.build_model(MODEL | {"position_encoding": "xpos", "vocab_size": 9}).save(tmp_path)
    assert results("bake", "--model", tmp_path) == [{"model": str(tmp_path), "file": None}]
    roformer_cpp.build_model(MODEL | {"position_encoding": "alibi", "vocab_size": 9}).save(tmp_path)
    (report,) = results("bake", "--model", tmp_path, "--length", 3000)
    bias_bytes = 2 * 5999 * 4
    expected = {"file": "position_terms.safetensors", "tokens": 3000, "longest": 2**23, "bytes": bias_bytes}
    assert report == {"model": str(tmp_path)} | expected
    assert (tmp_path / "position_terms.safetensors").stat().st_size > bias_bytes
    assert "got 0" in refused("bake", "--model", tmp_path, "--length", 0)
