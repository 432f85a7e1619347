"""Texts to vectors by the C interface against transformers' tokenizer and model with torch's formulas: every option and
activation, and the files that are refused. tests/oracles/test_saved_models.py reads those of sentence-transformers."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_case import assert_close
from rf_engine import Embedder, EngineError
from sentence_model import TEXTS, expected, save_encoder, save_modules, unit, write_json

TANH = "torch.nn.modules.activation.Tanh"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    return folder, save_encoder(folder)


def copy_of(encoder, tmp_path):
    folder, model = encoder
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path, model


@pytest.mark.parametrize(
    "options, theirs",
    [
        ({}, {}),
        ({"normalize": True}, {"steps": [unit]}),
        ({"pooling": "cls"}, {"poolings": ["cls"]}),
        ({"pooling": "last"}, {"poolings": ["lasttoken"]}),
        ({"pooling": "max"}, {"poolings": ["max"]}),
        ({"pooling": "mean-sqrt-len"}, {"poolings": ["mean_sqrt_len_tokens"]}),
        ({"dimensions": 5}, {"steps": [lambda x: x[:5]]}),
        ({"dimensions": 5, "normalize": True}, {"steps": [lambda x: x[:5], unit]}),
        ({"max_length": 5}, {"max_length": 5}),
        ({"prompt": "b "}, {"prompt": "b "}),
        ({"prompt_name": "query"}, {"prompt": "find: "}),
        ({"refuse_long_texts": 1, "max_length": 5}, "at most 5 tokens, got"),
        ({"max_length": 2}, "room beside 2 special tokens, got 2"),
        ({"dimensions": 25}, "at most the model's 24, got 25"),
        ({"prompt_name": "other"}, r"one of the model's \(query\), got \"other\""),
    ],
)
def test_options(encoder, tmp_path, options, theirs):
    folder, model = copy_of(encoder, tmp_path)
    save_modules(folder, prompts={"query": "find: "})
    if isinstance(theirs, str):
        with pytest.raises(EngineError, match=theirs):
            Embedder(folder, **options).embed(TEXTS)
        return
    prompt = theirs.get("prompt", "")
    texts, theirs = [prompt + text for text in TEXTS], {k: v for k, v in theirs.items() if k != "prompt"}
    assert_close(Embedder(folder, **options).embed(TEXTS), expected(folder, model, texts, **theirs))


@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.Identity, torch.nn.GELU, torch.nn.ReLU, torch.nn.SiLU])
def test_dense(encoder, tmp_path, activation):
    folder, model = copy_of(encoder, tmp_path)
    torch.manual_seed(1)
    first, second = torch.nn.Linear(24, 10), torch.nn.Linear(10, 12, bias=False)
    name = f"{activation.__module__}.{activation.__name__}"
    save_modules(folder, dense=[(first, name), (second, TANH)], normalize=True)
    steps = [first, activation(), second, torch.tanh, unit]
    assert_close(Embedder(folder).embed(TEXTS), expected(folder, model, TEXTS, steps=steps))
    assert_close(Embedder(folder, normalize=False).embed(TEXTS), expected(folder, model, TEXTS, steps=steps[:-1]))


def test_texts_of_any_bytes(encoder):
    folder, model = encoder
    embedder = Embedder(folder)
    assert_close(embedder.embed([b"ab\xff cd"]), expected(folder, model, ["ab� cd"]))
    assert embedder.embed([]).shape == (0, 24)
    long = "ab " * 1_000_000
    assert_close(embedder.embed([long, "a"]), expected(folder, model, [long[:200], "a"]))
    assert np.isfinite(embedder.embed([b"\0" * 50, b"a\0b"])).all()


def refused(folder, *words):
    with pytest.raises(EngineError) as error:
        Embedder(folder)
    for word in words:
        assert word in str(error.value), error.value


def test_refused_modules(encoder, tmp_path):
    folder, _ = copy_of(encoder, tmp_path)
    prefix = "sentence_transformers.models."
    for module, *words in (
        (("2_x", prefix + "CNN"), "modules.json", "CNN"),
        (("2_x", "my_code.Head"), "my_code.Head", "own code"),
        (("../x", prefix + "Dense"), "in the model directory", "../x"),
    ):
        save_modules(folder, extra=[module])
        refused(folder, *words)
    entries = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [entry | {"name": ""} for entry in entries])
    refused(folder, "[1].name must be that of no other module")
    save_modules(folder, pooling={"pooling_mode": "median"})
    refused(folder, "1_Pooling", "median")
    save_modules(folder, pooling={"pooling_mode": "mean", "unknown_key": 1})
    Embedder(folder)  # with a warning (tests/cli/test_model_files.py)
    save_modules(folder, model_type="SparseEncoder")
    refused(folder, "SparseEncoder")
    (folder / "config_sentence_transformers.json").unlink()
    (folder / "modules.json").write_text("{}")
    refused(folder, "modules.json", "list of modules")
    (folder / "modules.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    save_modules(folder)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": True})
    Embedder(folder)
    write_json(folder / "tokenizer_config.json", settings | {"do_lower_case": False})
    refused(folder, "do_lower_case", "keeps letter case")


def test_refused_dense_layers(encoder, tmp_path):
    folder, _ = copy_of(encoder, tmp_path)
    linear = torch.nn.Linear(24, 4)
    save_modules(folder, dense=[(linear, "torch.nn.modules.activation.Softmax")])
    refused(folder, "2_Dense", "Softmax")
    save_modules(folder, dense=[(torch.nn.Linear(23, 4), TANH)])
    refused(folder, "reads 23 features, got 24")
    save_modules(folder, dense=[(linear, TANH)])
    write_json(folder / "2_Dense/config.json", {"in_features": 24, "out_features": 5, "activation_function": TANH})
    refused(folder, "linear.weight", "(5, 24)", "(4, 24)")
    with torch.no_grad():
        linear.weight[1, 2] = float("nan")
    save_modules(folder, dense=[(linear, TANH)])
    refused(folder, "finite", "linear.weight")
    save_modules(folder, dense=[(torch.nn.Linear(24, 4), TANH)])
    path = folder / "2_Dense/model.safetensors"
    tensors = load_file(path)
    for name in tensors:
        save_file(tensors | {name: tensors[name].long()}, path)
        refused(folder, "F16, BF16, F32 or F64", "I64", name)
