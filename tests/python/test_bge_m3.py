"""The three outputs of bge-m3 from published files, against FlagEmbedding's formulas: Python, the command and C."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import roformer_cpp
import tolerances as tol
from bge_m3 import M3_TEXTS, WIDTH, formulas, save_m3
from cli_support import refused, results
from engine_case import assert_close
from rf_engine import Embedder
from roformer_cpp import BGEM3FlagModel, MultiVectorEncoder, SentenceTransformer, SparseEncoder


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    return folder, *save_m3(folder)


@pytest.fixture(scope="module")
def m3(published, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted") / "m3"
    roformer_cpp.convert(published[0], folder)
    return folder


@pytest.fixture(scope="module")
def theirs(published):
    return list(formulas(*published, M3_TEXTS))


def check(dense, sparse, tokens, theirs):
    """sparse: dictionaries of ids, which may be texts, and weights; one of 0 is left out."""
    assert_close(np.stack(dense), np.stack([each[0] for each in theirs]))
    largest = max(weight for each in theirs for weight in each[1].values())
    for given, (_, expected, _) in zip(sparse, theirs, strict=True):
        found = {int(i): weight for i, weight in given.items()}
        for i in found.keys() | expected.keys():
            assert abs(found.get(i, 0) - expected.get(i, 0)) <= tol.T4_MAX * largest
    for ours, (*_, vectors) in zip(tokens, theirs, strict=True):
        assert_close(ours, vectors)


def test_python(m3, theirs):
    assert sum(len(each[1]) for each in theirs) > 8 and sum(map(len, (each[2] for each in theirs))) > 30
    model = BGEM3FlagModel(m3)
    check(*model.encode(M3_TEXTS, return_sparse=True, return_colbert_vecs=True).values(), theirs)
    one = model.encode("the cat", return_sparse=True)
    assert one["dense_vecs"].shape == (WIDTH,) and one["colbert_vecs"] is None
    assert isinstance(one["lexical_weights"], dict)
    assert model.encode([])["dense_vecs"].shape == (0, WIDTH)


def test_each_kind_has_the_same_bits(m3):
    options = dict(return_sparse=True, return_colbert_vecs=True)
    whole = BGEM3FlagModel(m3).encode(M3_TEXTS, **options)
    small = BGEM3FlagModel(m3, token_budget=5).encode(M3_TEXTS, **options)
    sparse, tokens = SparseEncoder(m3).encode(M3_TEXTS), MultiVectorEncoder(m3).encode(M3_TEXTS)
    for i, weights in enumerate(whole["lexical_weights"]):
        assert weights == small["lexical_weights"][i]
        assert weights == dict(zip(map(str, sparse[i].indices.tolist()), sparse[i].values.tolist(), strict=True))
        assert np.array_equal(whole["colbert_vecs"][i], small["colbert_vecs"][i])
        assert np.array_equal(whole["colbert_vecs"][i], tokens[i])
    assert np.array_equal(whole["dense_vecs"], small["dense_vecs"])
    assert np.array_equal(whole["dense_vecs"], SentenceTransformer(m3).encode(M3_TEXTS))
    largest = SparseEncoder(m3, max_active_dims=2).encode(M3_TEXTS)
    assert np.array_equal(largest.toarray(), SparseEncoder(m3).encode(M3_TEXTS, max_active_dims=2).toarray())
    assert np.diff(largest.indptr).max() == 2


def test_lengths_instructions_and_scores(published, m3):
    model = BGEM3FlagModel(m3, query_instruction_for_retrieval="the ", query_max_length=6, return_sparse=True)
    texts = ["words and words and more", "a"]
    found = model.encode_queries(texts, return_colbert_vecs=True)
    check(*found.values(), list(formulas(*published, ["the " + text for text in texts], max_length=6)))
    one, other = found["lexical_weights"]
    score = sum(weight * other.get(token, 0) for token, weight in one.items())
    assert model.compute_lexical_matching_score(one, other) == pytest.approx(score)
    assert model.compute_lexical_matching_score([one], [other, one])[0, 0] == pytest.approx(score)
    query, passage = found["colbert_vecs"]
    mean = (torch.tensor(query) @ torch.tensor(passage).T).max(1).values.mean()
    assert model.colbert_score(query, passage) == pytest.approx(float(mean), rel=1e-5)
    assert all(isinstance(token, str) for token in model.convert_id_to_token(one))


def test_command(m3, theirs, tmp_path):
    embed = ["embed", "--model", m3, "--max-length", 16]
    lines = results(*embed, "--dense", "--sparse", "--multi", "--text", *M3_TEXTS)
    sparse = [dict(zip(line["indices"], line["values"], strict=True)) for line in lines]
    vectors = [np.array(line["embeddings"]).reshape(-1, WIDTH) for line in lines]
    check([np.array(line["embedding"]) for line in lines], sparse, vectors, theirs)
    (tmp_path / "texts.txt").write_text("".join(text + "\n" for text in M3_TEXTS))
    output = ["--input", tmp_path / "texts.txt", "--output", tmp_path / "out.jsonl"]
    results(*embed, "--sparse", "--multi", *output)
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for line, whole in zip(written, lines, strict=True):
        assert line.keys() == {"index", "indices", "values", "embeddings"}
        assert all(line[key] == whole[key] for key in ("indices", "values", "embeddings"))
    (alone,) = results(*embed, "--sparse", "--token-names", "--text", M3_TEXTS[2])
    assert alone["values"] == lines[2]["values"] and "▁the" in [*alone["tokens"], "▁the"]


def test_rerank(m3, theirs):
    ranked = results("rerank", "--model", m3, "--query", M3_TEXTS[2], "--text", *M3_TEXTS)
    scores = [(theirs[2][2] @ vectors.T).max(1).mean() for *_, vectors in theirs]
    found = {line["index"]: line["score"] for line in ranked}
    assert_close(np.array([found[i] for i in range(len(scores))]), np.array(scores))


def test_c(m3, theirs):
    found = Embedder(m3, vectors=3, max_length=16).vectors(M3_TEXTS)
    check(found["dense"], found["sparse"], found["tokens"], theirs)
    alone = Embedder(m3, vectors=1, max_length=16).vectors(M3_TEXTS)
    assert alone["dense"] is None and alone["tokens"] is None and alone["sparse"] == found["sparse"]


def test_another_width(tmp_path):
    """Vectors of tokens of fewer and of more dimensions than hidden states."""
    for dimension in (5, 40):
        folder = tmp_path / str(dimension)
        parts = save_m3(folder, dimension)
        roformer_cpp.convert(folder, tmp_path / f"{dimension}-converted")
        model = BGEM3FlagModel(tmp_path / f"{dimension}-converted", return_sparse=True, return_colbert_vecs=True)
        check(*model.encode(M3_TEXTS).values(), list(formulas(folder, *parts, M3_TEXTS)))


def test_without_files_of_sentence_transformers(m3, theirs, tmp_path):
    """As FlagEmbedding: the first token's state, normalised."""
    folder = tmp_path / "m3"
    shutil.copytree(m3, folder)
    (folder / "modules.json").unlink()
    assert_close(SentenceTransformer(folder).encode(M3_TEXTS), np.stack([each[0] for each in theirs]))
    found = BGEM3FlagModel(folder).encode(M3_TEXTS)["dense_vecs"]
    assert np.array_equal(found, SentenceTransformer(folder).encode(M3_TEXTS))


def test_conversion_beside_safetensors(published, m3, tmp_path):
    shutil.copytree(m3, tmp_path / "a")
    for name in ("colbert", "sparse"):
        (tmp_path / "a" / f"{name}_linear.safetensors").unlink()
        shutil.copy(published[0] / f"{name}_linear.pt", tmp_path / "a")
    done = roformer_cpp.convert(tmp_path / "a", tmp_path / "b")
    assert done == {"architecture": "XLMRobertaModel", "tensors": 38, "layout": None, "left_out": []}
    for name in ("model", "colbert_linear", "sparse_linear"):
        ours, theirs = (load_file(folder / f"{name}.safetensors") for folder in (tmp_path / "b", m3))
        assert all(torch.equal(ours[key], theirs[key]) for key in ours.keys() | theirs.keys())
    with pytest.raises(ValueError, match="layout needs a model whose position encoding rotates, got learned"):
        roformer_cpp.convert(tmp_path / "a", tmp_path / "c", layout="pairs")


def test_refused(published, m3, tmp_path):
    all_kinds = ["--dense", "--sparse", "--multi", "--text", "a"]
    message = refused("embed", "--model", published[0], *all_kinds)
    assert "needs sparse_linear.safetensors, got sparse_linear.pt (python -m roformer_cpp.convert" in message
    folder = tmp_path / "m3"
    shutil.copytree(m3, folder)
    for name, tensors, words in (
        ("colbert", None, "needs colbert_linear.safetensors, got none"),
        ("colbert", {"weight": torch.ones(8, 9), "bias": torch.ones(8)}, "reads 9 features, got 24"),
        ("colbert", {"weight": torch.ones(8), "bias": torch.ones(8)}, "must have the matrix weight, got another shape"),
        ("colbert", {"weight": torch.ones(8, 24)}, "must have bias, got none"),
        ("sparse", {"weight": torch.ones(2, 24), "bias": torch.ones(2)}, "the shape (1, 24), got (2, 24)"),
        ("sparse", {"weight": torch.ones(1, 24), "bias": torch.full((1,), torch.nan)}, "finite"),
        ("sparse", {"weight": torch.ones(1, 24), "bias": torch.ones(1), "x": torch.ones(1)}, 'tensors, got "x"'),
    ):
        path = folder / f"{name}_linear.safetensors"
        shutil.copytree(m3, folder, dirs_exist_ok=True)
        path.unlink() if tensors is None else save_file(tensors, path)
        assert words in refused("embed", "--model", folder, *all_kinds), words
    for name in ("colbert", "sparse"):
        (folder / f"{name}_linear.safetensors").unlink()
    assert "need sparse_linear and colbert_linear (bge-m3), got none" in refused("embed", "--model", folder, *all_kinds)
    quantized = ["embed", "--model", m3, *all_kinds, "--quantize", "binary"]
    assert "--quantize goes with one vector" in refused(*quantized, code=2)
    with pytest.raises(ValueError, match="max_length must leave room beside 2 special tokens, got 2"):
        BGEM3FlagModel(m3).encode("a", max_length=2)
    with pytest.raises(TypeError, match=r"arguments must be those of encode, got 'normalize'"):
        BGEM3FlagModel(m3).encode("a", normalize=True)
