"""TensorFlow checkpoints as model directories, against transformers, NumPy and TensorFlow."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file as load_tensors

import roformer_cpp
import roformer_v2_reference
from convert_case import OF_TRAINING, WORDS, Stand, check_outputs, original_name, original_tensors, write_original
from engine_case import assert_close, make_oracle, make_sequences
from rf_engine import Engine
from roformer_cpp._convert import tensorflow as of_tensorflow

SIZES_OF_TRAINING = {"attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1, "initializer_range": 0.02}


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """Makes the files beside a checkpoint, and TensorFlow's reader one of the oracle's tensors, or of others."""

    def use(oracle, tensors=None, words=WORDS, **changes):
        write_original(tmp_path / "source", oracle, words, **changes)
        tensors = original_tensors(oracle) if tensors is None else tensors
        monkeypatch.setattr(of_tensorflow, "open_reader", lambda prefix: Stand(tensors))

    return use


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 16}], ids=str)
def test_roformer(changes, checkpoint, tmp_path):
    oracle = make_oracle("RoFormer", "ForMaskedLM", **changes)
    tensors = original_tensors(oracle)
    checkpoint(oracle, tensors | OF_TRAINING)
    done = roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
    count = len(tensors) + 1  # the table of positions
    assert done == {"architecture": "RoFormerForMaskedLM", "tensors": count, "layout": "pairs", "left_out": []}
    check_outputs(tmp_path / "target", oracle)
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    assert config["model_type"] == "roformer" and config["embedding_size"] == changes.get("embedding_size", 24)
    files = ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == files
    assert not list(tmp_path.glob(".*"))


def test_roformer_v2(checkpoint, tmp_path):
    """A checkpoint without positions and without any bias, as bert4keras writes it."""
    config = roformer_v2_reference.config_of(layer_norm_eps=1e-12)
    weights = roformer_v2_reference.random_weights(config)
    named = [(*original_name(name), x.numpy()) for name, x in weights.items()]
    tensors = {name: x.T if turned else x for name, turned, x in named}
    checkpoint(SimpleNamespace(config=SimpleNamespace(**SIZES_OF_TRAINING | config)), tensors)
    done = roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
    assert done["architecture"] == "RoFormerForMaskedLM" and done["layout"] == "pairs"
    written = {"model_type": "roformer_v2", "use_bias": False, "norm_type": "rms_norm", "hidden_act": "relu"}
    assert json.loads((tmp_path / "target" / "config.json").read_text()).items() >= written.items()
    stored = load_tensors(tmp_path / "target" / "model.safetensors")
    assert all(torch.equal(stored[name], x) for name, x in weights.items())
    ids, types = make_sequences()
    exact = {name: x.double() for name, x in weights.items()}
    rows = [[torch.tensor(x)[None].long() for x in row] for row in zip(ids, types, strict=True)]
    theirs = [roformer_v2_reference.forward(exact, config, i, types=t)[1][0].numpy() for i, t in rows]
    assert_close(Engine(tmp_path / "target").logits(ids, types=types), np.concatenate(theirs))


def test_a_roformer_of_small_size_with_other_names_and_a_pooler(checkpoint, tmp_path):
    """The pooler is left out."""
    oracle = make_oracle("RoFormer", "ForMaskedLM", embedding_size=16)
    pooler = {"bert/pooler/dense/kernel": np.ones((24, 24), np.float32), "bert/pooler/dense/bias": np.ones(24)}
    other = "bert/encoder/embedding_hidden_mapping_in"
    tensors = {k.replace("bert/embeddings_project", other): v for k, v in original_tensors(oracle).items()}
    checkpoint(oracle, tensors | pooler)
    done = roformer_cpp.convert(tmp_path / "source" / "bert_model.ckpt.index", tmp_path / "target")
    assert done["left_out"] == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    check_outputs(tmp_path / "target", oracle)


@pytest.mark.parametrize("head", ("ForMaskedLM", "ForPreTraining", "Model"))
def test_wobert(head, checkpoint, tmp_path):
    """A BERT whose vocabulary has words."""
    oracle = make_oracle("Bert", head)
    prefix = "bert/" if head == "Model" else ""
    tensors = {f"{prefix}{name}": tensor for name, tensor in original_tensors(oracle).items()}
    checkpoint(oracle, tensors, [*WORDS[:-2], "天气", "北京"])
    done = roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
    assert done["architecture"] == ("BertModel" if head == "Model" else "BertForMaskedLM") and done["layout"] is None
    again = type(oracle).from_pretrained(tmp_path / "target").eval()
    theirs = oracle.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in again.state_dict().items())
    assert again.config.architectures == [f"Bert{head}"]
    tokenizer = roformer_cpp.Tokenizer.from_pretrained(tmp_path / "target")
    assert tokenizer.convert_ids_to_tokens(tokenizer("北京天气")["input_ids"]) == ["[CLS]", "北京", "天气", "[SEP]"]


def test_a_vocabulary_of_characters(checkpoint, tmp_path):
    checkpoint(make_oracle("RoFormer", "ForMaskedLM"))
    for kind, name in ((None, "BertTokenizer"), ("roformer", "RoFormerTokenizer"), ("wobert", "RoFormerTokenizer")):
        roformer_cpp.convert(tmp_path / "source", tmp_path / "target", tokenizer=kind, overwrite=True)
        settings = json.loads((tmp_path / "target" / "tokenizer_config.json").read_text())
        assert settings["tokenizer_class"] == name and ("roformer_pipeline" in settings) == (kind == "wobert")
        assert roformer_cpp.Tokenizer.from_pretrained(tmp_path / "target")("一丁")["input_ids"] == [2, 5, 6, 3]


def test_nezha(checkpoint, tmp_path):
    """A NEZHA's checkpoint has no positions, so it must be named; it is written with an encoding of its own."""
    oracle = make_oracle("Bert", "ForMaskedLM")
    tensors = original_tensors(oracle)
    del tensors["bert/embeddings/position_embeddings"]
    checkpoint(oracle, tensors, max_relative_position=4, use_relative_position=True)
    done = roformer_cpp.convert(tmp_path / "source", tmp_path / "target", model_type="nezha")
    assert done["architecture"] == "RfEncoderForMaskedLM"
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    assert config["model_type"] == "rf_encoder" and config["architectures"] == ["RfEncoderForMaskedLM"]
    assert config["position_encoding"] == {"type": "nezha", "max_relative_position": 4}
    stored = {original_name(name): x for name, x in load_tensors(tmp_path / "target" / "model.safetensors").items()}
    found = {name: (x.T if turned else x).numpy() for (name, turned), x in stored.items() if name in tensors}
    assert found.keys() == tensors.keys() and all(np.array_equal(found[name], x) for name, x in tensors.items())


def test_by_tensorflow(tmp_path):
    """The files that TensorFlow writes, under the original names."""
    tf = pytest.importorskip("tensorflow", reason="needs TensorFlow (pip install tensorflow-cpu)")
    oracle = make_oracle("RoFormer", "ForMaskedLM")
    write_original(tmp_path / "source", oracle)
    tensors = original_tensors(oracle) | OF_TRAINING
    names = sorted(tensors)
    prefix = tmp_path / "source" / "bert_model.ckpt"
    values = [tf.constant(tensors[name]) for name in names]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    done = roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
    assert done["architecture"] == "RoFormerForMaskedLM"
    check_outputs(tmp_path / "target", oracle)
    prefix.with_name("bert_model.ckpt.index").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"^\[convert\] .*bert_model.ckpt must be a TensorFlow checkpoint, got: "):
        roformer_cpp.convert(tmp_path / "source", tmp_path / "other")


@pytest.mark.parametrize(
    "change, error, message",
    [
        (lambda t: t | {"bert/other/kernel": np.ones(3)}, ValueError,
         r"tensors must have a place in a roformer, got bert/other/kernel$"),
        (lambda t: t | {f"output_{i}": np.ones(3) for i in range(8)}, ValueError, r"output_4 and 3 more$"),
        (lambda t: {k: v for k, v in t.items() if "layer_1/intermediate/dense/bias" not in k}, RuntimeError,
         r"got 1 missing, the first \"roformer\.encoder\.layer\.1\.intermediate\.dense\.bias\" of shape \[37\]$"),
        (lambda t: t | {"bert/embeddings/word_embeddings": np.ones((60, 24))}, RuntimeError,
         r"must have the shape \[61, 24\] by the config, got \[60, 24\]$"),
        (lambda t: t | {"bert/embeddings/word_embeddings": np.full((61, 24), np.nan)}, RuntimeError,
         r"weights must be finite"),
        (lambda t: {"global_step": np.array(1)}, ValueError, r"must have tensors of a model, got none"),
        (lambda t: t | {"roformer/pooler/dense/bias": np.ones(24), "bert/embeddings_project/bias": np.ones(24),
                        "bert/encoder/embedding_hidden_mapping_in/bias": np.ones(24)}, ValueError,
         r"each place must have one tensor, got two for roformer\.embeddings_project\.bias$"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit(change, error, message, checkpoint, tmp_path):
    oracle = make_oracle("RoFormer", "ForMaskedLM")
    checkpoint(oracle, change(original_tensors(oracle)))
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text("{}")
    with pytest.raises(error, match=message) as raised:
        roformer_cpp.convert(tmp_path / "source", tmp_path / "target", overwrite=True)
    assert str(raised.value).startswith("[") and "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["config.json"]  # which was there


def test_files_that_are_missing(checkpoint, tmp_path):
    oracle = make_oracle("RoFormer", "ForMaskedLM")
    checkpoint(oracle)
    for name, message in (("vocab.txt", "must have vocab.txt"), ("bert_config.json", "must have config.json")):
        (tmp_path / "source" / name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"^\[convert\] the source {message}, got none in "):
            roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
        write_original(tmp_path / "source", oracle)
    write_original(tmp_path / "source", oracle, [*WORDS, "more"])
    with pytest.raises(ValueError, match=r"vocab\.txt must have at most the 61 tokens of the model, got 62$"):
        roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
    (tmp_path / "source" / "other.index").write_bytes(b"")
    rule = r"must have one checkpoint, or name one as the source, got bert_model\.ckpt, o"
    with pytest.raises(ValueError, match=rule):
        roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
    for text, message in (("[1]", "must be a JSON object, got list"), ("{", "must be JSON, got: ")):
        (tmp_path / "source" / "bert_config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            roformer_cpp.convert(tmp_path / "source" / "bert_model.ckpt", tmp_path / "target")


def test_without_tensorflow(tmp_path, monkeypatch):
    write_original(tmp_path / "source", make_oracle("RoFormer", "ForMaskedLM"))
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match=r"needs TensorFlow to read it \(pip install tensorflow-cpu\), got: "):
        roformer_cpp.convert(tmp_path / "source", tmp_path / "target")
