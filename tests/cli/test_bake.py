"""roformer bake: position_terms.safetensors for longer sequences (tests/nn/test_position_terms.py checks the terms)."""

import roformer_cpp
from cli_support import refused, results

CONFIG = {
    "position_encoding": "alibi",
    "vocab_size": 9,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 4,
}


def test_bake(tmp_path):
    roformer_cpp.build_model(CONFIG).save(tmp_path)
    (report,) = results("bake", "--model", tmp_path, "--length", 3000)
    bias_bytes = 2 * 5999 * 4
    expected = {"file": "position_terms.safetensors", "tokens": 3000, "longest": 2**23, "bytes": bias_bytes}
    assert report == {"model": str(tmp_path)} | expected
    assert (tmp_path / "position_terms.safetensors").stat().st_size > bias_bytes
    assert "got 0" in refused("bake", "--model", tmp_path, "--length", 0)


def test_a_model_that_needs_no_file(tmp_path):
    roformer_cpp.build_model(CONFIG | {"position_encoding": "xpos"}).save(tmp_path)
    assert results("bake", "--model", tmp_path) == [{"model": str(tmp_path), "file": None}]
