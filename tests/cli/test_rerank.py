"""roformer rerank: its order and scores are those of transformers' model on each pair, whatever the inputs."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import roformer_cpp
from cli_support import refused, results, run
from sentence_model import save_classifier, save_encoder
from tolerances import T4_MAX

QUERY = "the cat"
TEXTS = ["abc de", "the cat sat", "a", "words and words and more", "?!", "cat cat", "dog", "x y z"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cross-encoder")
    oracle, tokenizer = save_classifier(folder, 1)
    with torch.no_grad():
        logits = [oracle(**tokenizer(QUERY, text, return_tensors="pt")).logits.item() for text in TEXTS]
    return folder, np.array(logits)


def check(lines, expected):
    """expected: the score of each record by its index."""
    order = sorted(range(len(expected)), key=lambda i: -expected[i])
    assert [line["index"] for line in lines] == order[: len(lines)]
    assert np.abs([line["score"] - expected[line["index"]] for line in lines]).max() <= T4_MAX


def test_inputs(model, tmp_path):
    folder, logits = model
    rerank = ["rerank", "--model", folder, "--query", QUERY]
    scores = 1 / (1 + np.exp(-logits))
    records = [{"id": f"r{i}", "body": text} for i, text in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    lines = results(*rerank, "--input", tmp_path / "a.jsonl", "--field", "body", "--top-k", 3)
    check(lines, scores)
    assert len(lines) == 3 and [line["id"] for line in lines] == [f"r{line['index']}" for line in lines]
    given = ["--input", "-", "--format", "text", "--batch-tokens", 1]
    lines = results(*rerank, *given, stdin="".join(text + "\n" for text in TEXTS))
    check(lines, scores)
    assert [line["line"] for line in lines] == [line["index"] + 1 for line in lines]


def test_many_records(model, tmp_path):
    """More than are scored at once, of which the best few are kept; of equal scores the first record's comes first."""
    folder, logits = model
    rng = np.random.default_rng(3)
    chosen = rng.integers(len(TEXTS), size=1300)
    (tmp_path / "a.txt").write_text("".join(TEXTS[i] + "\n" for i in chosen))
    lines = results("rerank", "--model", folder, "--query", QUERY, "--input", tmp_path / "a.txt", "--top-k", 200)
    expected = sorted(range(len(chosen)), key=lambda i: (-logits[chosen[i]], i))[:200]
    assert [line["index"] for line in lines] == expected


def test_refusals(model, tmp_path):
    folder, _ = model
    rerank = ["rerank", "--model", folder, "--query", QUERY]
    assert "--top-k" in refused(*rerank, "--text", "a", "--top-k", 0, code=2)
    assert "one of the model's (none)" in refused(*rerank, "--text", "a", "--prompt-name", "query")
    assert "max-length must be a length that the model reads" in refused(*rerank, "--text", "a", "--max-length", 999)
    (tmp_path / "a.jsonl").write_text('{"other": "x"}\n')
    assert "a.jsonl line 1" in refused(*rerank, "--input", tmp_path / "a.jsonl")
    pair = ["--query", QUERY, "--text", "a"]
    save_classifier(tmp_path / "3", 3)
    message = refused("rerank", "--model", tmp_path / "3", *pair)
    assert "a model that ranks must have one score, got 3 labels" in message
    save_encoder(tmp_path / "encoder")
    message = refused("rerank", "--model", tmp_path / "encoder", *pair)
    assert "scores of pairs need BertForSequenceClassification, got BertModel" in message


def test_files_of_version_6_without_modules_are_warned_of(model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model[0], folder)
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder", "prompts": {"q": "x"}}')
    done = run("rerank", "--model", folder, "--query", "a", "--text", "b")
    assert "is ignored without modules.json" in done.stderr
    with pytest.warns(UserWarning, match="is ignored without modules.json"):
        assert roformer_cpp.CrossEncoder(folder).prompts == {}


def test_arguments_of_calls(model, capsys):
    ours = roformer_cpp.CrossEncoder(model[0])
    ours.predict([("a", "b")], show_progress_bar=True)
    assert "1/1 pairs" in capsys.readouterr().err
    for options in ({"activation_fn": "gelu"}, {"activation_fn": 3}, {"device": "cuda"}):
        for call, given in ((ours.predict, [[("a", "b")]]), (ours.rank, ["a", ["b"]])):
            with pytest.raises(ValueError, match=next(iter(options))):
                call(*given, **options)
    with pytest.raises(TypeError, match=r"\[rank\] arguments must be those of rank, got 'workers'"):
        ours.rank("a", ["b"], workers=3)


def test_scores_that_are_no_numbers(model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model[0], folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.embeddings.LayerNorm.weight"][:] = 3e38  # finite, as weights must be; products with it are not
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    rule = r"must be finite, got -?(inf|nan): numbers in the model become too large"
    message = refused("rerank", "--model", folder, "--query", "a", "--text", "b")
    assert re.match(rf"\[--text line 1\] logits {rule}", message)
    with pytest.raises(ValueError, match=rf"\[predict, pair 0\] logits {rule}"):
        roformer_cpp.CrossEncoder(folder).predict([("a", "b")])
