"""Short names of types, wherever one is given."""

import json

import numpy as np
import pytest

import cli_support
from cli_support import refused, results
from roformer_cpp import Engine, SentenceTransformer
from sentence_model import TEXTS, save_encoder


def test_engine(tmp_path):
    save_encoder(tmp_path / "model")
    (tmp_path / "a.txt").write_text("".join(text + "\n" for text in TEXTS))

    def embed(*options):
        cli_support.embed(tmp_path / "model", tmp_path / "out.npy", tmp_path / "a.txt", *options)
        return np.load(tmp_path / "out.npy")

    for short, full in (("bf16", "bfloat16"), ("fp32", "float32")):
        ours = embed("--precision", short)
        assert ours.dtype == np.float32 and np.array_equal(ours, embed("--precision", full))
        assert np.array_equal(Engine(tmp_path / "model", precision=short).embed(TEXTS), ours)
    assert embed("--dtype", "fp16").dtype == np.float16
    SentenceTransformer(tmp_path / "model", precision="bf16")
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16, int8, got 'fp16'"):
        Engine(tmp_path / "model", precision="fp16")


def test_training(prepared, tmp_path):
    """In a run file, and as an option of fine-tuning."""
    config = cli_support.run_file(tmp_path / "run.json", precision="bf16")
    results("pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["precision"] == "bfloat16"
    for command in ("finetune", "train-similar"):
        assert "--precision" not in refused(command, "--precision", "bf16", code=2)
