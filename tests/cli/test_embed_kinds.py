"""roformer embed: sparse vectors, vectors of tokens and quantized vectors, and rerank by MaxSim."""

import json
import shutil

import numpy as np
import pytest

import tolerances
from cli_support import lines_of, refused, results
from roformer_cpp import MultiVectorEncoder, SentenceTransformer, SparseEncoder, quantize_embeddings
from sentence_model import TEXTS, WORDS, save_encoder, save_late, save_masked, write_json, write_modules

MANY = TEXTS * 40


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return save_masked(tmp_path_factory.mktemp("masked"))


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    folder = save_late(tmp_path_factory.mktemp("late"))
    expansion = {"strategy": "fixed", "length": 10}
    (folder / "sentence_bert_config.json").write_text(json.dumps({"query_expansion": expansion, "document_length": 9}))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("".join(text + "\n" for text in MANY))
    return path


def test_sparse(masked, texts, tmp_path):
    vectors = SparseEncoder(masked).encode(MANY)
    output = tmp_path / "sparse.jsonl"
    assert results("embed", "--model", masked, "--sparse", "--input", texts, "--output", output)[0]["rows"] == len(MANY)
    written = lines_of(output)
    assert written == results("embed", "--model", masked, "--sparse", "--input", texts)
    for i, line in enumerate(written):
        assert line["index"] == i and line["indices"] == vectors[i].indices.tolist()
        assert np.array_equal(np.array(line["values"], np.float32), vectors[i].values)
    options = ["--sparse", "--token-names", "--max-active", 3, "--text", *TEXTS]
    for i, line in enumerate(results("embed", "--model", masked, *options)):
        largest = dict(SparseEncoder(masked).decode(vectors[i], top_k=3)[0])
        assert line["text"] == TEXTS[i] and set(line["tokens"]) == set(largest)
        assert [WORDS.index(token) for token in line["tokens"]] == sorted(map(WORDS.index, line["tokens"]))


def test_tokens(late, texts, tmp_path):
    model = MultiVectorEncoder(late)
    output = tmp_path / "tokens.jsonl"
    options = ["--model", late, "--multi", "--input", texts]
    assert results("embed", *options, "--role", "document", "--output", output)[0]["rows"] == len(MANY)
    for line, array in zip(lines_of(output), model.encode_document(MANY), strict=True):
        assert np.array_equal(np.array(line["embeddings"], np.float32).reshape(-1, 24), array)
    for line, array in zip(results("embed", *options, "--role", "query"), model.encode_query(MANY), strict=True):
        assert np.array_equal(np.array(line["embeddings"], np.float32), array)
    for size in (1, 5):
        kept = results("embed", *options, "--role", "document", "--dimensions", size)
        for line, array in zip(kept, model.encode_document(MANY), strict=True):
            expected = array[:, :size] / np.linalg.norm(array[:, :size], axis=1, keepdims=True)
            np.testing.assert_allclose(line["embeddings"], expected, rtol=tolerances.SCORE_F32)


def test_rerank(late, texts):
    ranked = results("rerank", "--model", late, "--query", "the cat", "--input", texts, "--top-k", 5)
    model = MultiVectorEncoder(late)
    scores = model.similarity(model.encode_query("the cat"), model.encode_document(MANY))[0]
    assert [line["index"] for line in ranked] == np.argsort(-np.round(scores, 4), kind="stable")[:5].tolist()
    found, expected = [line["score"] for line in ranked], [scores[line["index"]] for line in ranked]
    np.testing.assert_allclose(found, expected, rtol=tolerances.SCORE_F32)
    refused("rerank", "--model", late, "--query", "a", "--text", "b", "--activation", "tanh", code=2)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_quantized(sentence_encoder, texts, tmp_path, precision):
    vectors = SentenceTransformer(sentence_encoder).encode(MANY)
    output = tmp_path / "out.npy"
    options = ["--model", sentence_encoder, "--quantize", precision]
    results("embed", *options, "--input", texts, "--output", output)
    written, expected = np.load(output), quantize_embeddings(vectors, precision)
    assert written.dtype == expected.dtype and np.array_equal(written, expected)
    low, high = vectors.min(0), vectors.max(0)
    ranges = np.stack([low + (high - low) / 4, high])
    np.save(tmp_path / "ranges.npy", ranges)
    with_ranges = ["--ranges", tmp_path / "ranges.npy"] if precision.endswith("int8") else []
    expected = quantize_embeddings(vectors, precision, ranges=ranges)
    results("embed", *options, *with_ranges, "--input", texts, "--output", output, "--overwrite")
    assert np.array_equal(np.load(output), expected)
    lines = results("embed", *options, *with_ranges, "--input", texts)
    assert [line["embedding"] for line in lines] == expected.tolist()


def test_refused(masked, late, sentence_encoder, texts, tmp_path):
    ranges, files = tmp_path / "ranges.npy", ["--input", texts]
    np.save(ranges, np.zeros((2, 3), np.float32))
    npy = ["--output", tmp_path / "x.npy"]
    other = 'got a "MultiVectorEncoder" (roformer rerank and'
    for model, options, code, words in (
        (sentence_encoder, ["--sparse", *files], 1, "the modules must be Transformer and SpladePooling, or"),
        (sentence_encoder, ["--multi", *files], 1, "else Dense, MultiVectorMask or Normalize, got"),
        (late, ["--sparse", *files], 1, f"sparse vectors need a SparseEncoder, {other}"),
        (late, files, 1, f"vectors need a SentenceTransformer, {other}"),
        (masked, ["--sparse", *files, *npy], 2, "--sparse goes with an --output named .jsonl"),
        (late, ["--multi", *files, *npy], 2, "--multi goes with an --output named .jsonl"),
        (masked, ["--sparse", "--quantize", "int8", *files], 2, "--quantize goes with one vector for a text"),
        (masked, ["--sparse", "--dimensions", "3", *files], 2, "--dimensions goes without --sparse"),
        (masked, ["--sparse", "--pooling", "cls", *files], 1, "a pooling goes with one vector"),
        (masked, ["--sparse", "--multi", *files], 1, "vectors of all kinds need sparse_linear and colbert_linear"),
        (masked, ["--token-names", *files], 2, "--token-names goes with --sparse"),
        (masked, ["--quantize", "int8", *files], 2, "--quantize int8 or uint8 needs --ranges"),
        (masked, ["--quantize", "int8", "--ranges", ranges, *files], 1, "must be float32 of shape (2, 24)"),
        (masked, ["--quantize", "binary", "--ranges", "x.npy", *files], 2, "--ranges goes with --quantize int8"),
        (masked, ["--quantize", "int4", *files], 2, "must be one of binary, int8, ubinary, uint8, got"),
    ):
        assert words in refused("embed", "--model", model, *options, code=code), options


OF_MASK = "sentence_transformers.multi_vector_encoder.modules.MultiVectorMask"
MASKED = [("", "Transformer"), ("2_Normalize", "Normalize"), ("mask", OF_MASK)]


def test_documents_without_vectors_come_last(late, tmp_path):
    folder = shutil.copytree(late, tmp_path / "model")
    write_modules(folder, MASKED)
    write_json(folder / "mask/config.json", {"keep_only_token_ids": [WORDS.index("c")]})
    write_json(folder / "config_sentence_transformers.json", {"model_type": "MultiVectorEncoder"})
    options = ["--query", "a", "--text", "the", "c", "sat"]
    ranked = results("rerank", "--model", folder, *options)
    assert [line["index"] for line in ranked] == [1, 0, 2]
    assert ranked[0]["score"] > -100 and ranked[1]["score"] == ranked[2]["score"] == -1e9
    by_class = MultiVectorEncoder(folder).rank("a", ["the", "c", "sat"])
    assert [(line["corpus_id"], line["score"]) for line in by_class[1:]] == [(0, -1e9), (2, -1e9)]


def test_similar_asks_with_the_modules_of_queries(sentence_encoder, texts, tmp_path):
    """The modules of a Router: queries are the first token's vector, documents are means."""
    for side, mode in (("q", "cls"), ("d", "mean")):
        (tmp_path / f"{side}_Transformer").mkdir()
        save_encoder(tmp_path / f"{side}_Transformer")
        write_json(tmp_path / f"{side}_Pooling/config.json", {"pooling_mode": mode})
    names = {"query": ["q_Transformer", "q_Pooling"], "document": ["d_Transformer", "d_Pooling"]}
    types = {name: f"sentence_transformers.base.modules.{name[2:]}" for both in names.values() for name in both}
    router = {"types": types, "structure": names, "parameters": {"default_route": "document"}}
    write_json(tmp_path / "router_config.json", router)
    write_modules(tmp_path, [("", "sentence_transformers.base.modules.Router")])
    model = SentenceTransformer(tmp_path)
    scores = model.similarity(model.encode_query("the cat"), model.encode_document(TEXTS))[0]
    assert abs(scores - model.similarity(model.encode("the cat"), model.encode(TEXTS))[0]).max() > tolerances.VISIBLE
    found = results("similar", "--model", tmp_path, "--query", "the cat", "--input", texts, "--top-k", 200)
    expected = [scores[line["index"] % len(TEXTS)] for line in found]
    np.testing.assert_allclose([line["score"] for line in found], expected, rtol=tolerances.SCORE_F32)
    assert "--role" in refused("similar", "--model", tmp_path, "--role", "query", "--query", "a", code=2)


def test_ranges_are_an_input(sentence_encoder, tmp_path):
    ranges, one, output = tmp_path / "ranges.npy", tmp_path / "one.txt", tmp_path / "out.npy"
    np.save(ranges, np.stack([np.full(24, -1), np.full(24, 1)]).astype(np.float32))
    one.write_text("the cat\n")
    options = ["embed", "--model", sentence_encoder, "--quantize", "int8", "--input", one]
    assert "must not replace" in refused(*options, "--ranges", ranges, "--output", ranges, "--overwrite", code=1)
    assert "at least two vectors, got 1 (--ranges" in refused(*options, "--output", output, code=1)
    results(*options, "--ranges", ranges, "--output", output)  # continues there
    vector = SentenceTransformer(sentence_encoder).encode(["the cat"])
    assert np.array_equal(np.load(output), quantize_embeddings(vector, "int8", ranges=np.load(ranges)))


def test_lines_are_continued_with_the_ranges_they_were_begun_with(sentence_encoder, tmp_path):
    ranges, texts, output = tmp_path / "ranges.npy", tmp_path / "texts.jsonl", tmp_path / "out.jsonl"
    options = ["embed", "--model", sentence_encoder, "--quantize", "int8", "--ranges", ranges, "--input", texts]
    texts.write_text((json.dumps({"text": "the cat"}) + "\n") * 5000 + "no JSON\n")
    np.save(ranges, np.stack([np.full(24, -1), np.full(24, 1)]).astype(np.float32))
    refused(*options, "--output", output, code=1)
    np.save(ranges, np.stack([np.full(24, -2), np.full(24, 2)]).astype(np.float32))
    assert "got others: ranges" in refused(*options, "--output", output, code=1)


def test_files_of_late_interaction(late, tmp_path):
    expansion = {"query_expansion": {"strategy": "min", "length": 9}, "query_length": 8}
    for file, content, words in (
        ("modules.json", [], "must be a list of modules, got an empty one"),
        ("sentence_bert_config.json", expansion, "must be at least the 9 tokens of query_expansion, got 8"),
        ("mask/config.json", {"keep_only_token_ids": [5000000000]}, "must be a list of ids, got [5000000000]"),
    ):
        shutil.copytree(late, tmp_path, dirs_exist_ok=True)
        write_modules(tmp_path, MASKED)
        write_json(tmp_path / "mask/config.json", {})
        write_json(tmp_path / file, content)
        assert words in refused("embed", "--model", tmp_path, "--multi", "--text", "a", code=1)
