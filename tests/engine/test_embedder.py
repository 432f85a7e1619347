"""Texts to vectors against transformers' tokenizer and model with torch's formulas: every pooling and module, prompts,
limits, and the files that are refused."""

import ctypes
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


def test_bare_directory(encoder):
    folder, model = encoder
    assert_close(Embedder(folder).embed(TEXTS), expected(folder, model, TEXTS))
    assert_close(Embedder(folder, normalize=True).embed(TEXTS), expected(folder, model, TEXTS, steps=[unit]))


@pytest.mark.parametrize("name", ["cls", "lasttoken", "max", "mean_sqrt_len_tokens"])
def test_poolings(encoder, tmp_path, name):
    folder, model = copy_of(encoder, tmp_path)
    theirs = expected(folder, model, TEXTS, poolings=[name])
    save_modules(folder, pooling={"embedding_dimension": 24, "pooling_mode": name})
    assert_close(Embedder(folder).embed(TEXTS), theirs)
    ours = {"lasttoken": "last", "mean_sqrt_len_tokens": "mean-sqrt-len"}.get(name, name)
    save_modules(folder)
    assert_close(Embedder(folder, pooling=ours).embed(TEXTS), theirs)


def test_concatenated_poolings(encoder, tmp_path):
    folder, model = copy_of(encoder, tmp_path)
    save_modules(folder, pooling={"pooling_mode": ["mean", "cls"], "include_prompt": True})
    assert_close(Embedder(folder).embed(TEXTS), expected(folder, model, TEXTS, poolings=["mean", "cls"]))
    old = {f"pooling_mode_{mode}_tokens": mode in ("mean", "max") for mode in ("mean", "max", "mean_sqrt_len")}
    old |= {"word_embedding_dimension": 24, "pooling_mode_cls_token": True}
    save_modules(folder, pooling=old)
    assert_close(Embedder(folder).embed(TEXTS), expected(folder, model, TEXTS, poolings=["cls", "max", "mean"]))


@pytest.mark.parametrize(
    "activation, function",
    [
        (TANH, torch.tanh),
        ("torch.nn.modules.linear.Identity", lambda x: x),
        ("torch.nn.modules.activation.GELU", torch.nn.functional.gelu),
        ("torch.nn.modules.activation.ReLU", torch.relu),
        ("torch.nn.modules.activation.SiLU", torch.nn.functional.silu),
    ],
)
def test_dense(encoder, tmp_path, activation, function):
    folder, model = copy_of(encoder, tmp_path)
    torch.manual_seed(1)
    first, second = torch.nn.Linear(24, 10), torch.nn.Linear(10, 12, bias=False)
    save_modules(folder, dense=[(first, activation), (second, TANH)], normalize=True)
    steps = [first, function, second, torch.tanh, unit]
    assert_close(Embedder(folder).embed(TEXTS), expected(folder, model, TEXTS, steps=steps))
    assert_close(Embedder(folder, normalize=False).embed(TEXTS), expected(folder, model, TEXTS, steps=steps[:-1]))


def test_dimensions(encoder, tmp_path):
    folder, model = copy_of(encoder, tmp_path)
    save_modules(folder, normalize=True, truncate_dim=7)
    for options, size in (({}, 7), ({"dimensions": 3}, 3)):
        theirs = expected(folder, model, TEXTS, steps=[unit, lambda x, size=size: x[:size], unit])
        assert_close(Embedder(folder, **options).embed(TEXTS), theirs)
    theirs = expected(folder, model, TEXTS, steps=[lambda x: x[:5]])
    assert_close(Embedder(folder, dimensions=5, normalize=False).embed(TEXTS), theirs)
    with pytest.raises(EngineError, match="at most the model's 24, got 25"):
        Embedder(folder, dimensions=25)


def test_prompts(encoder, tmp_path):
    folder, model = copy_of(encoder, tmp_path)
    save_modules(folder, prompts={"query": "find: ", "document": ""}, default_prompt_name="query")

    def prompted(prompt):
        return expected(folder, model, [prompt + t for t in TEXTS])

    assert_close(Embedder(folder).embed(TEXTS), prompted("find: "))
    assert_close(Embedder(folder, prompt_name="document").embed(TEXTS), prompted(""))
    assert_close(Embedder(folder, prompt="b ").embed(TEXTS), prompted("b "))
    with pytest.raises(EngineError, match=r"one of the model's \(document, query\), got \"other\""):
        Embedder(folder, prompt_name="other")
    # "find: " is [CLS] f ##i ##n ##d : and poolings leave all six out.
    for name in ("mean", "cls", "max"):
        save_modules(folder, pooling={"pooling_mode": name, "include_prompt": False}, prompts={"q": "find: "})
        texts = [t for t in TEXTS if t]
        theirs = expected(folder, model, ["find: " + t for t in texts], poolings=[name], skipped=6)
        assert_close(Embedder(folder, prompt_name="q").embed(texts), theirs)


def test_long_texts(encoder, tmp_path):
    folder, model = copy_of(encoder, tmp_path)
    save_modules(folder)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False})
    assert_close(Embedder(folder).embed(TEXTS), expected(folder, model, TEXTS, max_length=9))
    assert_close(Embedder(folder, max_length=5).embed(TEXTS), expected(folder, model, TEXTS, max_length=5))
    with pytest.raises(EngineError, match="at most 9 tokens, got"):
        Embedder(folder, refuse_long_texts=1).embed(TEXTS)
    Embedder(folder, refuse_long_texts=1).embed(["a b c"])
    with pytest.raises(EngineError, match="room beside 2 special tokens, got 2"):
        Embedder(folder, max_length=2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bits(encoder, precision):
    folder, _ = encoder
    alone = {t: Embedder(folder, precision).embed([t])[0] for t in set(TEXTS)}
    openmp = ctypes.CDLL("libgomp.so.1")
    for threads, budget in ((1, 1), (2, 20), (3, 4096)):
        openmp.omp_set_num_threads(threads)
        embedder = Embedder(folder, precision, token_budget=budget)
        for texts in (TEXTS, TEXTS[::-1], TEXTS[2:5]):
            assert np.array_equal(embedder.embed(texts), np.stack([alone[t] for t in texts]))


def test_encoder_in_a_folder(encoder, tmp_path):
    """An encoder in a folder of its own, which others write for models of several parts."""
    (tmp_path / "0_Transformer").mkdir()
    folder, model = copy_of(encoder, tmp_path / "0_Transformer")
    save_modules(tmp_path, encoder="0_Transformer", normalize=True)
    assert_close(Embedder(tmp_path).embed(TEXTS), expected(folder, model, TEXTS, steps=[unit]))


def test_texts_of_any_bytes(encoder):
    folder, model = encoder
    embedder = Embedder(folder)
    assert_close(embedder.embed([b"ab\xff cd"]), expected(folder, model, ["ab� cd"]))
    assert embedder.embed([]).shape == (0, 24)
    long = "ab " * 1_000_000
    assert_close(embedder.embed([long, "a"]), expected(folder, model, [long[:200], "a"]))
    assert np.isfinite(embedder.embed([b"\0" * 50, b"a\0b"])).all()


def refused(folder, *words, **options):
    with pytest.raises(EngineError) as error:
        Embedder(folder, **options)
    for word in words:
        assert word in str(error.value), error.value


def test_refused_modules(encoder, tmp_path):
    folder, _ = copy_of(encoder, tmp_path)
    prefix = "sentence_transformers.models."
    for kind in ("CNN", "LSTM", "WeightedLayerPooling", "LayerNorm"):
        save_modules(folder, extra=[("2_x", prefix + kind)])
        refused(folder, "modules.json", kind)
    save_modules(folder, extra=[("2_x", "my_code.Head")])
    refused(folder, "my_code.Head", "own code")
    save_modules(folder, extra=[("../x", prefix + "Dense")])
    refused(folder, "in the model directory", "../x")
    for pooling in ({"pooling_mode": "weightedmean"}, {"pooling_mode_weightedmean_tokens": True}):
        save_modules(folder, pooling=pooling)
        refused(folder, "1_Pooling", "weightedmean")
    save_modules(folder, pooling={"pooling_mode": "mean", "unknown_key": 1})
    Embedder(folder)  # with a warning (tests/cli/test_model_files.py)
    save_modules(folder, model_type="SparseEncoder")
    refused(folder, "SparseEncoder")
    (folder / "config_sentence_transformers.json").unlink()
    (folder / "modules.json").write_text("[{]")
    refused(folder, "modules.json")
    (folder / "modules.json").write_text("{}")
    refused(folder, "modules.json", "list of modules")
    (folder / "modules.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    save_modules(folder)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": True})
    Embedder(folder)
    write_json(folder / "tokenizer_config.json", settings | {"do_lower_case": False})
    refused(folder, "do_lower_case", "keeps letter case")


def test_refused_dense_weights(encoder, tmp_path):
    folder, _ = copy_of(encoder, tmp_path)
    save_modules(folder, dense=[(torch.nn.Linear(24, 4), TANH)])
    path = folder / "2_Dense/model.safetensors"
    tensors = load_file(path)
    for name in tensors:
        save_file(tensors | {name: tensors[name].long()}, path)
        refused(folder, "F16, BF16, F32 or F64", "I64", name)


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
    (folder / "2_Dense/model.safetensors").rename(folder / "2_Dense/pytorch_model.bin")
    refused(folder, "model.safetensors", "pytorch_model.bin")
