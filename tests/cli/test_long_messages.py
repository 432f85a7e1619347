"""Messages that quote what a user gave stay short, whatever its length."""

import json
import shutil
import warnings

import pytest
import torch

import roformer_cpp
from cli_support import refused, results, run
from roformer_cpp import Engine, SentenceTransformer
from sentence_model import save_encoder, save_modules, write_json

LONG, MANY = "x" * 1_000_000, [7] * 500_000
MOST = 5000


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(folder)
    return folder


def test_files(encoder, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("a\n")
    changes = {
        "config.json": lambda keys: {**keys, "hidden_act": LONG},
        "tokenizer_config.json": lambda keys: {**keys, "tokenizer_class": LONG},
        "modules.json": lambda _: [{"idx": 0, "name": "0", "path": "", "type": LONG}],
        "config_sentence_transformers.json": lambda _: {"similarity_fn_name": LONG},
    }
    for name, change in changes.items():
        folder = tmp_path / name
        shutil.copytree(encoder, folder)
        save_modules(folder, prompts={})
        write_json(folder / name, change(json.loads((folder / name).read_text())))
        message = refused("embed", "--model", folder, "--input", text)
        assert len(message) < MOST and "x" * 100 in message, name
    (tmp_path / "b.jsonl").write_text(json.dumps({LONG: 1}) + "\n")
    (tmp_path / "c.jsonl").write_text('{"text": ' + LONG + "}\n")
    (tmp_path / "d.csv").write_text(f"{LONG},b\n1,2\n")
    for name in ("b.jsonl", "c.jsonl", "d.csv"):
        assert len(refused("embed", "--model", encoder, "--input", tmp_path / name)) < MOST, name


def test_python(encoder):
    engine, q = Engine(encoder), torch.zeros(1, 4, 2, 8)
    calls = [
        lambda: Engine(LONG),
        lambda: Engine(encoder, prompt_name=LONG),
        lambda: Engine(encoder, precision=LONG),
        lambda: Engine(encoder, task="fill-mask").fill_mask(LONG),
        lambda: SentenceTransformer(encoder, default_prompt_name=LONG),
        lambda: engine.generate("a", stop=LONG),
        lambda: Engine(encoder, long_texts=LONG),
        lambda: roformer_cpp.encoding(LONG),
        lambda: roformer_cpp.encoding("rope", layout=LONG),
        lambda: roformer_cpp.register_encoding(MANY, roformer_cpp.CustomEncoding),
        lambda: roformer_cpp.rope(q, torch.arange(4), layout=LONG),
        lambda: roformer_cpp.attention(q, q, q, window=MANY),
        lambda: roformer_cpp.attention(q, q, q, kernel=LONG),
        lambda: roformer_cpp.linear_attention(q, q, q, LONG),
        lambda: roformer_cpp.linear_attention(q, q, q, cu_seqlens=torch.arange(500_000)),
    ]
    for call in calls:
        with pytest.raises((ValueError, FileNotFoundError, RuntimeError, TypeError)) as error:
            call()
        assert len(str(error.value)) < MOST


def test_model_directories_of_torch(encoder, tmp_path):
    """Arguments, and keys of config.json, of what opens a model in Python."""
    opens = [roformer_cpp.load_model, roformer_cpp.bake, roformer_cpp.load_translation_model]
    opens += [lambda path: roformer_cpp.convert(path, tmp_path / "target")]
    opens += [lambda path: roformer_cpp.export_onnx(path, tmp_path / "a.onnx")]
    writes = [lambda path: roformer_cpp.convert(encoder, path), lambda path: roformer_cpp.export_onnx(encoder, path)]
    for call in (*opens, *writes, lambda head: roformer_cpp.load_model(encoder, head=head)):
        with pytest.raises((ValueError, FileNotFoundError, RuntimeError)) as error:
            call(LONG)
        assert len(str(error.value)) < MOST
    config = json.loads((encoder / "config.json").read_text())
    changes = [{"architectures": [LONG]}, {"position_encoding": LONG}, {"attention": LONG}, {"family": LONG}]
    changes += [{"model_type": "rf_encoder", "position_encoding": LONG}, {"hidden_act": LONG}]
    changes += [{"model_type": "rf_encoder", "position_encoding": {"type": "rope", LONG: 1}}]
    changes += [{"model_type": LONG}, {"rope_scaling": {"type": LONG}}, {"id2label": {LONG: LONG}}]
    folder = tmp_path / "model"
    shutil.copytree(encoder, folder)
    for change in changes:
        write_json(folder / "config.json", config | change)
        for opened in opens:
            with pytest.raises((ValueError, RuntimeError, UserWarning)) as error, warnings.catch_warnings():
                warnings.simplefilter("error")
                opened(folder)
            assert len(str(error.value)) < MOST, (change.keys(), opened)


def test_arguments(encoder):
    long = "y" * 100_000  # the system has a limit for one
    options = [[option, long] for option in ("--pooling", "--prompt-name", "--max-length", "--format")]
    for more in (*options, [f"--{long}"]):
        done = run("embed", "--model", encoder, "--text", "a", *more)
        assert done.returncode in (1, 2) and 0 < len(done.stderr) < MOST, more[0]
    assert len(refused("tokenize", "--model", long)) < MOST
    assert results("embed", "--model", encoder, "--text", long)[0]["text"] == long
