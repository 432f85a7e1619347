"""pytorch_model.bin, names of old, and what roformer_cpp.convert writes, against torch and transformers."""

import json
import os
import pickle
import sys

import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file

import roformer_cpp
from convert_case import check_outputs
from engine_case import make_oracle
from engine_modules import save


def save_pickles(folder, oracle, shards=1):
    oracle.config.architectures = [type(oracle).__name__]
    oracle.config.save_pretrained(folder)
    tensors = {name: tensor.clone() for name, tensor in oracle.state_dict().items()}
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin")
        return tensors
    files = {name: f"pytorch_model-{1 + i % shards:05}-of-{shards:05}.bin" for i, name in enumerate(tensors)}
    for file in set(files.values()):
        torch.save({name: tensor for name, tensor in tensors.items() if files[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return tensors


@pytest.mark.parametrize(("family", "shards"), [("RoFormer", 3), ("Bert", 1)])
def test_pickles(family, shards, tmp_path):
    oracle = make_oracle(family, "ForMaskedLM")
    tensors = save_pickles(tmp_path / "a", oracle, shards)
    done = roformer_cpp.convert(tmp_path / "a", tmp_path / "b")
    assert done["tensors"] == len(tensors) and done["left_out"] == []
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["config.json", "model.safetensors"]
    check_outputs(tmp_path / "b", oracle)


def test_to_a_pickle_and_back(tmp_path):
    make_oracle("RoFormer", "ForMaskedLM").bfloat16().save_pretrained(tmp_path / "a")
    with pytest.warns(UserWarning, match="the stored one is used"):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "b", weights="pytorch")
        roformer_cpp.convert(tmp_path / "b", tmp_path / "c")
    assert not (tmp_path / "b" / "model.safetensors").exists()
    tensors = load_tensors(tmp_path / "a" / "model.safetensors")
    pickled = torch.load(tmp_path / "b" / "pytorch_model.bin", weights_only=True)
    again = load_tensors(tmp_path / "c" / "model.safetensors")
    for found in (pickled, again):
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], tensor) and found[name].dtype == torch.bfloat16
                   for name, tensor in tensors.items())  # fmt: skip


def test_a_pickle_of_parameters(tmp_path):
    """As `torch.save(dict(model.named_parameters()), ..)` writes it: they require gradients."""
    oracle = make_oracle("Bert", "Model").to(torch.bfloat16)
    oracle.config.save_pretrained(tmp_path / "a")
    torch.save(dict(oracle.named_parameters()), tmp_path / "a" / "pytorch_model.bin")
    roformer_cpp.convert(tmp_path / "a", tmp_path / "b")
    found = load_tensors(tmp_path / "b" / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in oracle.named_parameters())


class Command:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


NO_CODE = "pytorch_model.bin must hold tensors alone and no code, got: "


@pytest.mark.parametrize(
    "content, message",
    [
        ("code", NO_CODE),
        ("code in the old format", NO_CODE),
        ("code by pickle", NO_CODE),
        (b"damaged", NO_CODE),
        ([torch.ones(2)], "pytorch_model.bin must hold tensors by name, got list"),
        ({"a": {"b": torch.ones(2)}}, "pytorch_model.bin must hold tensors by name, got dict for a"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "of a dtype of safetensors, got torch.complex64 for a"),
        ({"a": torch.ones(2).to_sparse()}, "tensors must be dense, .* got torch.float32 for a"),
    ],
)
def test_other_pickles(content, message, tmp_path):
    make_oracle("RoFormer", "Model").config.save_pretrained(tmp_path / "a")
    path = tmp_path / "a" / "pytorch_model.bin"
    code = {"embeddings.word_embeddings.weight": torch.ones(2), "other": Command(tmp_path / "made")}
    if content == "code by pickle" or isinstance(content, bytes):
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(code))
    else:
        given = code if isinstance(content, str) else content
        torch.save(given, path, _use_new_zipfile_serialization="old" not in content)
    with pytest.raises(ValueError, match=rf"^\[convert\] .*{message}") as raised:
        roformer_cpp.convert(tmp_path / "a", tmp_path / "b")
    assert "\n" not in str(raised.value)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a"]


def test_bad_indices_of_pickles(tmp_path):
    make_oracle("RoFormer", "Model").config.save_pretrained(tmp_path / "a")
    index = tmp_path / "a" / "pytorch_model.bin.index.json"
    for content, error, message in (
        ({}, ValueError, "must have an object weight_map, got NoneType"),
        ({"weight_map": {"a": "../b.bin"}}, ValueError, "a shard must be the name of a file next to .*'../b.bin'"),
        ({"weight_map": {"a": "b.bin"}}, FileNotFoundError, "the source must have b.bin, got none"),
    ):
        index.write_text(json.dumps(content))
        with pytest.raises(error, match=message):
            roformer_cpp.convert(tmp_path / "a", tmp_path / "b")


def test_old_names(tmp_path):
    """gamma and beta, and a NEZHA's prefix. Shards become one file."""
    oracle = make_oracle("Bert", "ForMaskedLM")
    oracle.save_pretrained(tmp_path / "s", max_shard_size="8KB")
    roformer_cpp.convert(tmp_path / "s", tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").glob("*.safetensors*")] == ["model.safetensors"]
    path = tmp_path / "a" / "model.safetensors"
    old = {name.replace("Norm.weight", "Norm.gamma"): tensor for name, tensor in load_tensors(path).items()}
    old = {name.replace("Norm.bias", "Norm.beta"): tensor for name, tensor in old.items()}
    save_file(old, path, metadata={"format": "pt"})
    roformer_cpp.convert(tmp_path / "a", tmp_path / "b")
    assert not any(".gamma" in name or ".beta" in name for name in load_file(tmp_path / "b" / "model.safetensors"))
    check_outputs(tmp_path / "b", oracle)
    save_file(old | {"bert.embeddings.LayerNorm.weight": torch.ones(24)}, path, metadata={"format": "pt"})
    with pytest.raises((ValueError, RuntimeError), match="tensor names must be unique, got "):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "c")


def test_files_beside_the_weights(tmp_path):
    """Terms of a position encoding stay valid; a module of sentence-transformers is converted too."""
    save("t5", tmp_path / "a")
    (tmp_path / "a" / "2_Dense").mkdir()
    torch.save({"linear.weight": torch.ones(3, 24)}, tmp_path / "a" / "2_Dense" / "pytorch_model.bin")
    (tmp_path / "a" / "vocab.txt").write_text("x")
    for name in ("training_args.bin", "tf_model.h5", ".cached"):  # pickles and other weights
        (tmp_path / "a" / name).write_text("x")
    roformer_cpp.convert(tmp_path / "a", tmp_path / "b")
    files = sorted(str(path.relative_to(tmp_path / "b")) for path in (tmp_path / "b").rglob("*") if path.is_file())
    assert files == ["2_Dense/model.safetensors", "config.json", "model.safetensors", "position_terms.safetensors",
                     "vocab.txt"]  # fmt: skip


# ---- targets and arguments


def test_targets(tmp_path):
    save("rope", tmp_path / "a")
    target, full = tmp_path / "b", tmp_path / "full"
    target.mkdir()
    full.mkdir()
    (full / "letter.txt").write_text("dear")

    def refused(path, message, error=ValueError, overwrite=True):
        with pytest.raises(error, match=message):
            roformer_cpp.convert(tmp_path / "a", path, overwrite=overwrite)

    roformer_cpp.convert(tmp_path / "a", target)  # empty
    refused(target, r"^\[convert\] the target must be new or empty without overwrite, got ", overwrite=False)
    (target / "old").mkdir()
    for name in ("letter.txt", "notes.json", "old/config.json", "config.json.bak", ".hidden", "README.md"):
        (target / name).write_text("mine")
        refused(target, r"with nothing else in it, got .*\(move it, or choose another target\)")
        assert (target / name).read_text() == "mine" and (target / "model.safetensors").exists()
        (target / name).unlink()
    (target / "old").rmdir()
    (tmp_path / "a" / "README.md").write_text("a card")
    (target / "README.md").write_text("a card")  # a copy
    (target / "task.json").write_text("{}")
    roformer_cpp.convert(tmp_path / "a", target, overwrite=True)
    assert not (target / "task.json").exists() and (target / "model.safetensors").exists()
    refused(full, r"only a model directory is overwritten, got .* without config.json")
    for given in (tmp_path / "a", tmp_path / "a" / "inside", tmp_path):
        refused(given, "target and source must not be, or lie inside, each other")
    refused(full / "letter.txt", "the target must be a directory, got the file")
    refused(tmp_path / "no" / "where", "the folder of the target must exist, got ", FileNotFoundError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "full"]


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"layout": "thirds"}, ValueError, "layout must be one of pairs, halves, got 'thirds'"),
        ({"weights": "gguf"}, ValueError, "weights must be one of pytorch, safetensors, got 'gguf'"),
        ({"overwrite": "yes"}, TypeError, "overwrite must be True or False, got 'yes'"),
        ({"model_type": "gpt"}, ValueError, "model_type must be one of bert, nezha, roformer, roformer_v2, got 'gpt'"),
        ({"model_type": "bert"}, ValueError, "model_type must be left to config.json of a model directory, got 'bert'"),
        ({"tokenizer": "bert"}, ValueError, "tokenizer must be left to config.json of a model directory, got 'bert'"),
        ({"source": 3}, TypeError, "the source must be a path, got int"),
        ({"source": "nothing"}, FileNotFoundError, "the source must exist, got nothing"),
        ({"source": "empty"}, ValueError, "or a TensorFlow checkpoint, got empty"),
    ],
    ids=str,
)
def test_bad_arguments(given, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("rope", tmp_path / "a")
    (tmp_path / "empty").mkdir()
    arguments = {"source": "a", "target": "b"} | given
    with pytest.raises(error) as raised:
        roformer_cpp.convert(arguments.pop("source"), arguments.pop("target"), **arguments)
    assert str(raised.value).startswith("[convert] ") and message in str(raised.value)
    assert not (tmp_path / "b").exists()


def test_without_safetensors(tmp_path, monkeypatch):
    save("rope", tmp_path / "a")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"the package safetensors must be installed \(pip install safetensors\)"):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "b")


def test_the_command(tmp_path, capsys):
    main = sys.modules["roformer_cpp.convert"].main
    save("rope", tmp_path / "a")
    source, target = str(tmp_path / "a"), str(tmp_path / "b")
    assert main([source, target, "--layout", "halves"]) == 0
    assert json.loads(capsys.readouterr().out)["layout"] == "halves"
    assert main([source, target]) == 1
    assert capsys.readouterr().err.startswith("[convert] the target must be new or empty")
    assert main([source, target, "--overwrite"]) == 0
    (tmp_path / "a" / "config.json").write_text('{"model_type": "gpt2"}')
    assert main([source, str(tmp_path / "c")]) == 1 and len(capsys.readouterr().err.splitlines()) == 1
