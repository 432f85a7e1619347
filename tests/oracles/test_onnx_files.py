"""ONNX files as files: weights beside them, what is refused, and the command."""

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

import roformer_cpp
import sentence_model
from cli_support import ROOT
from engine_case import LENGTHS, make_sequences
from engine_modules import save
from onnx_case import padded, run
from rotary_decoders import make_decoder


def test_weights_in_a_second_file(tmp_path):
    save("rope", tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    roformer_cpp.export_onnx(tmp_path, folder / "a.onnx")
    done = roformer_cpp.export_onnx(tmp_path, folder / "b.onnx", external_data=True)
    assert sorted(path.name for path in folder.iterdir()) == ["a.onnx", "b.onnx", "b.onnx.data"]
    assert done["bytes"] == sum((folder / name).stat().st_size for name in ("b.onnx", "b.onnx.data"))
    batch = padded(*make_sequences())
    one, two = (run(folder / name, *batch)["last_hidden_state"] for name in ("a.onnx", "b.onnx"))
    assert np.array_equal(one, two)


def test_what_is_replaced(tmp_path):
    """A regular file, also through a link; no pipe, no device and no file of the model."""
    save("rope", tmp_path / "m")
    os.mkfifo(tmp_path / "pipe.onnx")
    os.mkfifo(tmp_path / "weights.onnx.data")
    ends = os.pipe()
    (tmp_path / "stdout.onnx").symlink_to(f"/proc/self/fd/{ends[1]}")  # as /dev/stdout
    os.link(tmp_path / "m/model.safetensors", tmp_path / "hard.onnx")
    (tmp_path / "linked.onnx").symlink_to("m/config.json")
    before = (tmp_path / "m/config.json").read_bytes(), (tmp_path / "m/model.safetensors").read_bytes()
    for name, rule in (
        ("pipe.onnx", "only a regular file is replaced, got"),
        ("weights.onnx", "only a regular file is replaced, got"),
        ("stdout.onnx", "only a regular file is replaced, got"),
        ("hard.onnx", "must not replace one of the model, got"),
        ("linked.onnx", "must not replace one of the model, got"),
        ("m/model.safetensors", "must not replace one of the model, got"),
        ("m/../m/config.json", "must not replace one of the model, got"),
    ):
        with pytest.raises(ValueError, match=rf"^\[export_onnx\] .*{rule}"):
            roformer_cpp.export_onnx(tmp_path / "m", tmp_path / name)
    for end in ends:
        os.close(end)
    with pytest.raises(ValueError, match="only a regular file is replaced, got the device or pipe /dev/null"):
        roformer_cpp.export_onnx(tmp_path / "m", "/dev/null")
    assert before == ((tmp_path / "m/config.json").read_bytes(), (tmp_path / "m/model.safetensors").read_bytes())
    (tmp_path / "old.onnx").write_text("old")
    (tmp_path / "link.onnx").symlink_to("old.onnx")
    roformer_cpp.export_onnx(tmp_path / "m", tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink()
    assert run(tmp_path / "old.onnx", *padded(*make_sequences()))["last_hidden_state"].size


def test_two_gib_are_in_a_second_file_and_an_error_leaves_what_was_there(tmp_path, monkeypatch):
    import roformer_cpp.onnx_export as module

    save("rope", tmp_path)
    monkeypatch.setattr(sys.modules[module.__name__], "_LARGEST_FILE_BYTES", 1000)
    with pytest.raises(ValueError, match=r"^\[export_onnx\] external_data must be True for 2 GiB .* got \d+ bytes$"):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", external_data=False)
    assert not (tmp_path / "model.onnx").exists()
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert tmp_path / "model.onnx.data" in before

    def refuse(*_, **__):
        raise onnx.checker.ValidationError("not a graph")

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.raises(onnx.checker.ValidationError):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=17)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


# ---- bad input


DYNAMIC = {"type": "rope", "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}
CAUSAL = {"attention": {"type": "linear", "feature_map": "elu", "rope_site": "after_map"}, "is_decoder": True}


@pytest.mark.parametrize(
    "encoding, keys, message",
    [
        ("rope", CAUSAL, "linear attention must be bidirectional, got a"),
        (DYNAMIC, {}, r"\(rope_type dynamic\) must stay within 32 tokens here, got 33"),
        ("tupe-a", {}, "length must be at most 32 for this model, got 33"),
    ],
)
def test_models_that_have_no_graph(encoding, keys, message, tmp_path):
    """Of this length."""
    save(encoding, tmp_path, **keys)
    with pytest.raises(ValueError, match=rf"^\[\w+\] .*{message}"):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", length=33)
    assert not list(tmp_path.glob("*.onnx"))


# Decoders with a mechanism that the engine computes and graphs do not.
WITHOUT_GRAPH = {"olmo2": "whole_query_key_norm", "exaone4": "norms_of_results_alone", "cohere": "shared_norm"}
WITHOUT_GRAPH |= {"granite": "residual_scale", "gemma2": "score_cap", "gpt2": "transposed_matrices"}
WITHOUT_GRAPH |= {"phi3": "joined_groups", "smollm3": "layers_without_rotation", "mixtral": "experts"}
WITHOUT_GRAPH |= {"bloom": "linear_positions"}


@pytest.mark.parametrize("family", WITHOUT_GRAPH)
def test_decoders_that_have_no_graph(family, tmp_path):
    make_decoder(family, tmp_path)
    message = rf"^\[export_onnx\] the model must be without {WITHOUT_GRAPH[family]}, which has no graph"
    with pytest.raises(ValueError, match=message):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"opset": 20}, ValueError, "opset must be 17 or 23, got 20"),
        ({"task": "generate"}, ValueError, "task must be one of embed, hidden, logits, got 'generate'"),
        ({"task": "logits"}, ValueError, 'or task must be "hidden", got RoFormerModel'),
        ({"length": 0}, ValueError, "length must be at least 1, got 0"),
        ({"external_data": 1}, TypeError, "external_data must be True or False, got 1"),
        ({"path": 3}, TypeError, "the file must be a path, got int"),
        ({"path": "."}, ValueError, "the file must not be a directory, got ."),
        ({"path": "nowhere/model.onnx"}, FileNotFoundError, "the folder of the file must exist, got nowhere"),
        ({"model_dir": "nowhere"}, FileNotFoundError, "got nowhere, which does not exist"),
        ({"model_dir": 3}, TypeError, "the model directory must be a path, got int"),
    ],
    ids=str,
)
def test_bad_arguments(given, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("rope", tmp_path)
    arguments = {"model_dir": str(tmp_path), "path": "model.onnx"} | given
    with pytest.raises(error) as raised:
        roformer_cpp.export_onnx(arguments.pop("model_dir"), arguments.pop("path"), **arguments)
    where = "[model] " if error is FileNotFoundError and "model_dir" in given else "[export_onnx] "
    assert str(raised.value).startswith(where) and message in str(raised.value)
    assert not list(tmp_path.glob("*.onnx"))


def test_a_prompt_that_poolings_leave_out(tmp_path):
    sentence_model.save_encoder(tmp_path)
    sentence_model.save_modules(tmp_path, pooling={"pooling_mode": "mean", "include_prompt": False})
    with pytest.raises(ValueError, match="include_prompt must be true, because a graph sees no prompt"):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")


def test_without_onnx(tmp_path, monkeypatch):
    save("rope", tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"^\[export_onnx\] the package onnx must be installed \(pip install onnx\)"):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")


def test_torch_is_not_loaded(tmp_path):
    save("rope", tmp_path / "a")
    code = "import sys, roformer_cpp as r; r.export_onnx('a', 'a.onnx'); r.convert('a', 'b', layout='halves'); "
    code += "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_DYNAMIC", "OMP_THREAD_LIMIT")}
    lib = environment.pop("ROFORMER_LIB_DIR", None)  # with which the operators are loaded at once
    if lib is not None and not (ROOT / "build/release/lib").exists():
        pytest.skip("needs the build of this checkout")
    environment["PYTHONPATH"] = str(ROOT / "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False, timeout=120)
    assert done.returncode == 0 and (tmp_path / "b" / "config.json").exists()


def test_the_command(tmp_path, capsys):
    from roformer_cpp.onnx_export import main

    save("rope", tmp_path, "RoFormerForMaskedLM")
    model, output = str(tmp_path), str(tmp_path / "model.onnx")
    assert main([model, output, "--opset", "17", "--task", "hidden", "--length", "12"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = {"output": output, "outputs": ["last_hidden_state"], "length": 12, "opset": 17}
    assert result | expected == result
    assert run(tmp_path / "model.onnx", *padded(*make_sequences(LENGTHS[2:3])))
    assert main([model, output, "--external-data"]) == 0 and (tmp_path / "model.onnx.data").exists()
    capsys.readouterr()
    (tmp_path / "config.json").write_text("{}")
    assert main([model, str(tmp_path / "other.onnx")]) == 1 and len(capsys.readouterr().err.splitlines()) == 1
