"""roformer serve: each route gives the results of the package, whose functions other tests compare with oracles."""

import itertools

import numpy as np
import pytest

import tolerances
from cli_support import results
from roformer_cpp import CrossEncoder, MultiVectorEncoder, SentenceTransformer
from sentence_model import TEXTS, WORDS
from server_case import serving


@pytest.fixture(scope="module")
def server(folders):
    with serving("--model", *(f"{name}={folder}" for name, folder in folders.items())) as server:
        yield server


def exact(values):
    return np.array(values, np.float32)


def test_tei_embed(server, folders):
    model = SentenceTransformer(folders["dense"])
    assert np.array_equal(exact(server.post("/embed", {"inputs": TEXTS})), model.encode(TEXTS))
    alias = server.post("/embeddings", {"input": TEXTS[0]})["data"][0]["embedding"]  # of /v1/embeddings
    assert np.array_equal(exact(alias), model.encode(TEXTS[0]))
    named = server.post("/embed", {"inputs": "the cat", "prompt_name": "query"})
    assert np.array_equal(exact(named), model.encode(["the cat"], prompt_name="query"))
    similarities = server.post("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[2:5]}})
    vectors = model.encode(TEXTS)
    np.testing.assert_allclose(similarities, vectors[2:5] @ vectors[0], atol=tolerances.SCORE_F32)
    long = " ".join(["word"] * 30)
    assert np.array_equal(exact(server.post("/embed", {"inputs": long})), model.encode([long]))
    status, result = server.call("POST", "/embed", {"inputs": long, "truncate": False})
    assert status == 413 and "at most 24 tokens" in result["error"]
    exactly = " ".join(["a"] * 22)
    server.post("/embed", {"inputs": exactly, "truncate": False})


def test_tokens_and_sparse(server, folders):
    arrays = MultiVectorEncoder(folders["late"]).encode_document(TEXTS)
    result = server.post("/embed_all", {"inputs": TEXTS, "model": "late"})
    for rows, array in zip(result, arrays, strict=True):
        assert np.array_equal(exact(rows).reshape(array.shape), array)
    with_sparse = server.call("POST", "/embed_sparse", {"inputs": "a", "model": "dense"})
    assert with_sparse[0] == 400 and "got the embedding model dense" in with_sparse[1]["error"]


def test_rerank(server, folders):
    query, documents = "the cat", ["dog", "the cat sat", "", "cat"]
    scores = CrossEncoder(folders["rerank"]).predict([(query, each) for each in documents])
    order = np.argsort(-scores, kind="stable").tolist()
    asked = {"query": query, "documents": [*documents[:3], {"text": documents[3]}], "model": "rerank"}
    result = server.post("/v1/rerank", asked | {"return_documents": True})
    assert [each["index"] for each in result["results"]] == order
    assert np.array_equal(exact([each["relevance_score"] for each in result["results"]]), scores[order])
    assert [each["document"]["text"] for each in result["results"]] == [documents[i] for i in order]
    two = server.post("/v2/rerank", {"query": query, "documents": documents, "model": "rerank", "top_n": 2})
    assert [each["index"] for each in two["results"]] == order[:2]
    tei = server.post("/rerank", {"query": query, "texts": documents, "model": "rerank", "return_text": True})
    assert [(each["index"], each["text"]) for each in tei] == [(i, documents[i]) for i in order]
    late = MultiVectorEncoder(folders["late"])
    scores = late.similarity(late.encode_query(query), late.encode_document(documents))[0]
    result = server.post("/v1/rerank", {"query": query, "documents": documents, "model": "late"})["results"]
    found, places = zip(*((each["relevance_score"], each["index"]) for each in result), strict=True)
    np.testing.assert_allclose(found, scores[list(places)], rtol=tolerances.SCORE_F32)


def test_rows_that_are_computed_in_parts(server, folders):
    """More numbers than the server holds at once."""
    letters = itertools.product("abcdefghijkl", "abcdefghijkl", "abcdefghij", "abcdefghijkl")
    documents = [f"{a}{b}{c}{d} cat {b}{a}" for a, b, c, d in letters]
    late = MultiVectorEncoder(folders["late"])
    vectors = late.encode_document(documents)
    assert sum(map(np.size, vectors)) > 4 << 20
    scores = late.similarity(late.encode_query("the cat"), vectors)[0]
    result = server.post("/v1/rerank", {"query": "the cat", "documents": documents, "model": "late"})["results"]
    got = np.empty(len(documents))
    got[[each["index"] for each in result]] = [each["relevance_score"] for each in result]
    np.testing.assert_allclose(got, scores, rtol=tolerances.SCORE_F32)


def test_predict(server, folders):
    model = CrossEncoder(folders["classes"])
    one = server.post("/predict", {"inputs": "abc de", "model": "classes"})
    assert sorted(each["label"] for each in one) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert sum(each["score"] for each in one) == pytest.approx(1, abs=tolerances.SCORE_F32)
    assert one == sorted(one, key=lambda each: -each["score"])
    raw = server.post("/predict", {"inputs": [["the cat", "sat"]], "raw_scores": True, "model": "classes"})[0]
    expected = model.predict([("the cat", "sat")], activation_fn="identity")[0]
    found = {each["label"]: np.float32(each["score"]) for each in raw}
    assert found == {f"LABEL_{i}": x for i, x in enumerate(expected)}


def test_texts_and_tokens(server, folders):
    tokens = server.post("/tokenize", {"inputs": "abc de", "model": "dense"})[0]
    assert [each["text"] for each in tokens] == ["[CLS]", "a", "##b", "##c", "d", "##e", "[SEP]"]
    assert tokens[4] == {"id": WORDS.index("d"), "text": "d", "special": False, "start": 4, "stop": 5}
    assert tokens[0]["special"] and tokens[0]["start"] is None
    ids = [each["id"] for each in tokens]
    assert server.post("/decode", {"ids": ids, "model": "dense"}) == ["abc de"]
    both = server.post("/decode", {"ids": [ids, ids[1:3]], "skip_special_tokens": False, "model": "dense"})
    assert both == ["[CLS] abc de [SEP]", "ab"]
    filled = server.post("/fill-mask", {"inputs": "a [MASK] b", "model": "masked", "top_k": 3})[0][0]
    (line,) = results("fill-mask", "--model", folders["masked"], "--text", "a [MASK] b", "--top-k", 3)
    expected = [(each["token"], each["probability"]) for each in line["predictions"]]
    assert [(each["token_str"], each["score"]) for each in filled] == expected


def test_operations(server):
    assert server.call("GET", "/health")[0] == 200 and server.call("HEAD", "/health") == (200, "")
    assert server.call("GET", "/ready") == (200, {"status": "ready"})
    models = server.call("GET", "/v1/models")[1]["data"]
    kinds = {"dense": "embedding", "masked": "embedding", "late": "multi-vector", "rerank": "reranker"}
    kinds |= {"classes": "classifier", "sparse": "sparse", "causal": "generator"}
    assert {each["id"]: each["kind"] for each in models} == kinds
    assert models[0]["similarity"] == "cosine" and models[0]["prompts"] == ["query"] and "mask_token" not in models[0]
    assert models[1]["mask_token"] == "[MASK]"
    status, result = server.call("GET", "/rotation?model=rerank")
    assert status == 400 and result["error"].startswith("the model must rotate queries and keys, got bert")
    info = server.call("GET", "/info")[1]
    assert info["model_id"] == "dense" and info["max_input_length"] == 24 and info["model_dtype"] == "float32"
    paths = server.call("GET", "/openapi.json")[1]["paths"]
    assert "post" in paths["/v1/embeddings"] and "get" in paths["/health"]
    counted = server.call("GET", "/metrics")[1]
    assert "# TYPE roformer_requests_total counter" in counted
    assert 'roformer_requests_total{route="/ready",status="200"} 1' in counted
    for path, wanted in (("/v1/embeddings", "POST"), ("/health", "GET, HEAD")):
        status, _ = server.call("PUT", path, "{}")
        assert status == 405 and server.headers["Allow"] == wanted
    assert server.call("GET", "/no")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/embeddings", "{", 400, "the body must be JSON"),
        ("/v1/embeddings", "[]", 400, "the body must be a JSON object, got array"),
        ("/v1/embeddings", {}, 400, "input must be given"),
        ("/v1/embeddings", {"input": []}, 400, "at least one text"),
        ("/v1/embeddings", {"input": ["a", 1]}, 400, "input[1] must be a text, got number"),
        ("/v1/embeddings", {"input": [[1], "a"]}, 400, "got both"),
        ("/v1/embeddings", {"input": [1, 99999999]}, 400, "below 61"),
        ("/v1/embeddings", {"input": "a", "dimensions": 10**30}, 400, "dimensions must be an integer"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, 400, "float or base64"),
        ("/v1/embeddings", {"input": "a", "model": "gpt"}, 404, "model must be one of dense"),
        ("/v1/embeddings", {"input": "a", "prompt_name": "no"}, 400, "no"),
        ("/v1/embeddings", '{"input": ' + "[" * 1000 + "]" * 1000 + "}", 400, "nested at most"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "model": "dense"}, 400, "sequence classification"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "model": "classes"}, 400, "one score, got 3 labels"),
        ("/v1/completions", {"prompt": "a"}, 400, "causal language model"),
        ("/fill-mask", {"inputs": "a [MASK]", "model": "dense"}, 400, "masked language model"),
        ("/predict", {"inputs": ["a", "b", "c"], "model": "classes"}, 400, "inputs must be"),
        ("/decode", {"ids": [-1]}, 400, "below 61"),
    ],
)
def test_bad_requests(server, path, body, status, words):
    got, result = server.call("POST", path, body)
    message = result["error"]["message"] if path.startswith("/v1") else result["error"]
    assert got == status and words in message and "\n" not in message, result
