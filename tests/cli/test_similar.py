"""roformer similar against the functions of sentence-transformers: what ranks the lines, several queries, and vectors
that cannot be ranked. Numbers that are not finite in embed and predict too, since all of them name the text."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
import torch
from sentence_transformers import SimilarityFunction

from cli_support import refused, results, run
from rf_engine import Embedder
from roformer_cpp import Engine
from roformer_cpp.ray._embed import Embedder as RayEmbedder
from sentence_model import TEXTS, save_classifier, save_encoder, save_modules

FUNCTIONS = ["cosine", "dot", "euclidean", "manhattan"]
QUERIES = ["the cat", "abc"]
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A directory whose vectors have lengths of their own, its texts in a file and their vectors in another."""
    folder = tmp_path_factory.mktemp("similar")
    save_encoder(folder / "model", max_length=24)
    save_modules(folder / "model")
    (folder / "a.txt").write_text("".join(text + "\n" for text in TEXTS))
    embedder = Embedder(folder / "model")
    np.save(folder / "e.npy", embedder.embed(TEXTS))
    return folder, torch.from_numpy(embedder.embed(QUERIES)).double(), torch.from_numpy(embedder.embed(TEXTS)).double()


def by_query(rows):
    return [[row for row in rows if row["query"] == query] for query in QUERIES]


def test_functions(case):
    folder, queries, vectors = case
    asked = ["--query", QUERIES[0], "--query", QUERIES[1], "--top-k", len(TEXTS)]
    orders = set()
    for name in FUNCTIONS:
        scores = SimilarityFunction.to_similarity_fn(name)(queries, vectors).numpy()
        save_modules(folder / "model", similarity_fn_name=name)
        texts = results("similar", "--model", folder / "model", *asked, "--input", folder / "a.txt")
        stored = results("similar", "--model", folder / "model", *asked, "--embeddings", folder / "e.npy")
        save_modules(folder / "model", similarity_fn_name="dot" if name == "cosine" else "cosine")
        chosen = ["--similarity", name, "--input", folder / "a.txt", "--embeddings", folder / "e.npy"]
        assert results("similar", "--model", folder / "model", *asked, *chosen) == texts
        for ours, short, expected in zip(by_query(texts), by_query(stored), scores, strict=True):
            order = np.argsort(-expected, kind="stable")
            assert [row["line"] for row in ours] == [row["line"] for row in short] == [i + 1 for i in order]
            assert [row["text"] for row in ours] == [TEXTS[i] for i in order]
            assert [row["score"] for row in ours] == pytest.approx(expected[order].tolist(), rel=1e-5, abs=1e-5)
            orders.add(tuple(order))
    assert len(orders) > len(QUERIES)  # the functions rank differently


def test_refused(case, tmp_path):
    folder, _, vectors = case
    arguments = ["similar", "--model", folder / "model", "--query", "a", "--embeddings"]
    rows = vectors.float().numpy()
    for kind, bad in ((np.float32, np.inf), (np.float16, np.inf), (np.float32, -np.inf), (np.float32, np.nan)):
        changed = rows.astype(kind)
        changed[2, 5] = bad
        np.save(tmp_path / "bad.npy", changed)
        message = refused(*arguments, tmp_path / "bad.npy")
        assert f"bad.npy] embeddings must be finite, got {bad} in row 2" in message
    for shape in ((8, 0), (0, 0)):
        np.save(tmp_path / "empty.npy", np.zeros(shape, np.float32))
        message = refused(*arguments, tmp_path / "empty.npy")
        assert f"embeddings must have at least one column, got ({shape[0]}, 0)" in message
    np.save(tmp_path / "none.npy", np.zeros((0, 24), np.float32))
    assert results(*arguments, tmp_path / "none.npy") == []
    message = refused(*arguments, tmp_path / "none.npy", "--similarity", "l2", code=2)
    assert '--similarity must be one of cosine, dot, euclidean, manhattan, got "l2"' in message
    message = refused("similar", "--query", "a", "--embeddings", tmp_path / "none.npy", code=2)
    assert "[usage] --model must be given, got none" in message  # which makes the query's vector


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory):
    """A sentence encoder whose dense layer is beyond float32 for some of the texts, and these."""
    folder = tmp_path_factory.mktemp("overflow")
    save_encoder(folder)
    save_modules(folder)
    first = np.abs(Embedder(folder).embed(TEXTS)[:, 0])
    linear = torch.nn.Linear(24, 3, bias=False)
    with torch.no_grad():
        linear.weight.zero_()
        linear.weight[1, 0] = float(np.finfo(np.float32).max / np.sort(first)[len(TEXTS) // 2])
    save_modules(folder, dense=[(linear, IDENTITY)])
    bad = torch.isinf(torch.from_numpy(first) * linear.weight[1, 0].detach()).numpy()
    assert 0 < bad.sum() < len(TEXTS) - 1
    return folder, [text for text, is_bad in zip(TEXTS, bad, strict=True) if not is_bad], TEXTS[bad.argmax()]


def test_vectors_that_are_not_finite(overflowing, tmp_path):
    folder, good, bad = overflowing
    (tmp_path / "a.txt").write_text("".join(text + "\n" for text in [*good, bad, *good]))
    rule = "must be finite, got -?inf: numbers in the model become too large"
    of_line = rf"a\.txt line {len(good) + 1}\] the vector {rule}"
    for more in ([], ["--output", tmp_path / "out.npy"], ["--output", tmp_path / "out.jsonl"]):
        done = run("embed", "--model", folder, "--input", tmp_path / "a.txt", *more)  # with the results before it
        assert done.returncode == 1 and re.search(of_line, done.stderr)
    assert not (tmp_path / "out.npy").exists() and not (tmp_path / "out.jsonl").exists()
    message = refused("similar", "--model", folder, "--query", good[0], "--input", tmp_path / "a.txt")
    assert re.search(of_line, message)
    named = rf'\[embed\] the vector of text 1, "{bad}", {rule}'
    assert re.search(named, refused("embed", "--model", folder, "--text", good[0], "--text", bad))
    (tmp_path / "good.txt").write_text("".join(text + "\n" for text in good))
    message = refused("similar", "--model", folder, "--query", bad, "--input", tmp_path / "good.txt")
    assert re.search(named.replace("text 1", "text 0"), message)
    half = ["--input", tmp_path / "good.txt", "--output", tmp_path / "h.npy", "--dtype", "fp16"]
    message = refused("embed", "--model", folder, *half)
    assert "good.txt line 1] the vector must have numbers within 65504, got " in message
    with pytest.raises(ValueError, match=r"\[embed\] vectors must be within float16, 65504, got more for"):
        RayEmbedder(folder, "text", "vector", "float16", 1, {})(pa.table({"text": good}))
    engine = Engine(folder)
    assert np.isfinite(engine.embed(good)).all()
    with pytest.raises(ValueError, match=named):
        engine.embed([good[0], bad, bad])


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier whose logits are beyond float32 for some of the texts."""
    folder = tmp_path_factory.mktemp("classifier")
    oracle, tokenizer = save_classifier(folder, 2)
    with torch.no_grad():
        first, second = [oracle.bert(**tokenizer(text, return_tensors="pt")).pooler_output[0] for text in ("abc", "b")]
        element = (first - second).abs().argmax()
        middle, largest = (first + second)[element] / 2, float(np.finfo(np.float32).max)
        oracle.classifier.weight.zero_()
        oracle.classifier.weight[1, element] = largest * middle.sign()
        oracle.classifier.bias[1] = largest * (1 - middle.abs())
    oracle.save_pretrained(folder)
    task = {"kind": "classification", "columns": {"text": "text", "label": "label"}, "labels": ["neg", "pos"]}
    (folder / "task.json").write_text(json.dumps(task | {"max_length": 24}))
    return folder, *(("abc", "b") if (first - second)[element] * middle < 0 else ("b", "abc"))


def test_predictions_that_are_not_finite(classifier, tmp_path):
    folder, good, bad = classifier
    rule = "logits must be finite, got -?(inf|nan): numbers in the model become"
    records = [{"text": text, "label": "neg"} for text in (good, good, bad, good)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for command in ("predict", "evaluate"):
        message = refused(command, "--model", folder, "--input", tmp_path / "r.jsonl")
        assert re.search(rf"r\.jsonl line 3\] {rule}", message)
    message = refused("predict", "--model", folder, "--text", good, "--text", bad)
    assert re.search(rf"\[--text line 2\] {rule}", message)
    engine = Engine(folder)
    assert engine.predict(good)["label"] in ("neg", "pos")
    with pytest.raises(ValueError, match=rf"\[records line 2\] {rule}"):
        engine.predict([good, bad])
