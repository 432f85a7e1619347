"""roformer serve as programs call it that no one here wrote: clients of OpenAI, Cohere and Hugging Face, frameworks,
curl, Prometheus's checker of metrics, and Schemathesis, which calls what /openapi.json describes."""

import asyncio
import gzip
import itertools
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tolerances
from roformer_cpp import CrossEncoder, SentenceTransformer
from sentence_model import TEXTS, WORDS
from server_case import serving

openai = pytest.importorskip("openai", reason="NOT TESTED: openai is not installed")


@pytest.fixture(scope="module")
def server(folders):
    with serving("--model", *(f"{name}={folder}" for name, folder in folders.items()), "--quiet") as server:
        yield server


@pytest.fixture(scope="module")
def vectors(folders):
    return SentenceTransformer(folders["dense"]).encode(TEXTS)


def exact(rows):
    return np.array(rows, np.float32)


def openai_client(server, **options):
    return openai.OpenAI(base_url=server.url + "/v1", **({"api_key": "none", "max_retries": 0} | options))


def test_openai_embeddings(server, vectors):
    client = openai_client(server)
    result = client.embeddings.create(model="dense", input=TEXTS)  # in base64, which the client asks for
    assert np.array_equal(exact([each.embedding for each in result.data]), vectors)
    assert result.model == "dense" and result.usage.prompt_tokens == result.usage.total_tokens > 0
    floats = client.embeddings.create(model="dense", input=TEXTS, encoding_format="float")
    assert np.array_equal(exact([each.embedding for each in floats.data]), vectors)
    short = client.embeddings.create(model="dense", input=TEXTS[0], dimensions=5).data[0].embedding
    assert len(short) == 5 and np.allclose(np.linalg.norm(short), 1)
    ids = [WORDS.index(token) for token in ("a", "##b", "##c", "d", "##e")]
    for given in (ids, [ids, ids]):
        last = client.embeddings.create(model="dense", input=given).data[-1]
        assert np.array_equal(exact(last.embedding), vectors[0])

    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none") as client:
            many = [client.embeddings.create(model="dense", input=text) for text in TEXTS]
            return [each.data[0].embedding for each in await asyncio.gather(*many)]

    assert np.array_equal(exact(asyncio.run(ask())), vectors)


def test_openai_models_and_completions(server):
    client = openai_client(server)
    assert [each.id for each in client.models.list()][:2] == ["dense", "masked"]
    assert client.models.retrieve("causal").owned_by == "roformer"
    options = {"model": "causal", "prompt": "a b", "max_tokens": 6, "temperature": 0}
    whole = client.completions.create(**options)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 6
    parts = list(client.completions.create(**options, stream=True))
    assert len(parts) > 2 and "".join(each.choices[0].text for each in parts) == whole.choices[0].text
    assert parts[-1].choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError, match="echo must be false"):
        client.completions.create(**options, echo=True)


def test_openai_errors(server, folders, tmp_path):
    client = openai_client(server)
    for call, error, words in (
        (lambda: client.embeddings.create(model="gpt", input="a"), openai.NotFoundError, "model must be one of"),
        (lambda: client.models.retrieve("a/b c"), openai.NotFoundError, 'got "a/b c"'),
        (lambda: client.embeddings.create(model="dense", input=[]), openai.BadRequestError, "at least one text"),
        (lambda: client.post("/none", cast_to=object), openai.NotFoundError, "no route"),
    ):
        with pytest.raises(error, match=words):
            call()
    (tmp_path / "keys").write_text("second\n")
    with serving("--model", f"org/dense={folders['dense']}", "--api-key-file", tmp_path / "keys") as other:
        assert openai_client(other, api_key="second").models.retrieve("org/dense").id == "org/dense"
        with pytest.raises(openai.AuthenticationError, match="valid key"):
            openai_client(other).embeddings.create(model="", input="a")


def test_openai_retries(folders):
    """A full queue is a RateLimitError that says when to come again, and the client does."""
    texts = ["".join(letters) for letters in itertools.product("abcdefgh", repeat=5)]
    with serving("--model", folders["dense"], "--max-queued-tokens", 10, "--batch-tokens", 24) as server:
        body = {"model": "dense", "input": texts, "dimensions": 1}
        client, patient = openai_client(server), openai_client(server, max_retries=20)
        busy = threading.Thread(target=openai_client(server).embeddings.create, kwargs=body)
        busy.start()
        while "te_queue_size 1" not in server.call("GET", "/metrics")[1]:
            pass
        with pytest.raises(openai.RateLimitError) as info:
            client.embeddings.create(model="dense", input="a b c d e f")
        assert int(info.value.response.headers["Retry-After"]) >= 1
        assert patient.embeddings.create(model="dense", input="a").data
        busy.join()


def test_cohere(server, folders, vectors):
    cohere = pytest.importorskip("cohere", reason="NOT TESTED: cohere is not installed")
    query, documents = "the cat", ["dog", "the cat sat", "", "cat"]
    scores = CrossEncoder(folders["rerank"]).predict([(query, each) for each in documents])
    for kind in (cohere.ClientV2, cohere.Client):
        client = kind("none", base_url=server.url)
        ranking = client.rerank(model="rerank", query=query, documents=documents, top_n=3).results
        assert [each.index for each in ranking] == np.argsort(-scores, kind="stable").tolist()[:3]
        assert exact([each.relevance_score for each in ranking]).tolist() == sorted(scores.tolist(), reverse=True)[:3]
        options = {"model": "dense", "texts": TEXTS}
        result = client.embed(**options, input_type="search_document", embedding_types=["float", "base64"])
        assert np.array_equal(exact(result.embeddings.float_), vectors)
        assert len(result.embeddings.base64) == len(result.texts) == len(TEXTS)
        with pytest.raises(cohere.errors.BadRequestError):
            client.embed(**options, input_type="search_query", truncate="START")
        with pytest.raises(cohere.errors.NotFoundError):
            client.rerank(model="no", query=query, documents=documents)
    short = {"input_type": "search_query", "embedding_types": ["float"], "output_dimension": 6}
    asked = cohere.ClientV2("none", base_url=server.url).embed(model="dense", texts=["the cat"], **short)
    expected = SentenceTransformer(folders["dense"]).encode(["the cat"], prompt_name="query", truncate_dim=6)
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(asked.embeddings.float_, expected, rtol=tolerances.SCORE_F32)
    assert np.array_equal(exact(cohere.Client("none", base_url=server.url).embed(**options).embeddings), vectors)


def test_langchain(server, folders, vectors, monkeypatch):
    module = pytest.importorskip("langchain_openai", reason="NOT TESTED: langchain-openai is not installed")
    monkeypatch.chdir(folders["dense"].parent)  # the tokenizer is the one of the model's name
    for options in ({"check_embedding_ctx_length": False}, {"tiktoken_enabled": False}):
        model = module.OpenAIEmbeddings(model="dense", base_url=server.url + "/v1", api_key="none", **options)
        texts = [text for text in TEXTS if text.strip()] if "tiktoken_enabled" in options else TEXTS
        got = exact(model.embed_documents(texts))
        if texts is TEXTS:
            assert np.array_equal(got, vectors) and np.array_equal(exact(model.embed_query(TEXTS[0])), vectors[0])
        assert got.shape == (len(texts), vectors.shape[1])
    assert np.array_equal(exact(asyncio.run(model.aembed_query("abc de"))), vectors[0])


def test_llama_index(server, vectors):
    module = pytest.importorskip("llama_index.embeddings.openai", reason="NOT TESTED: needs its client of OpenAI")
    model = module.OpenAIEmbedding(model_name="dense", api_base=server.url + "/v1", api_key="none")
    texts = [text for text in TEXTS if text]
    assert np.array_equal(exact(model.get_text_embedding_batch(texts)), vectors[[bool(text) for text in TEXTS]])
    assert np.array_equal(exact(model.get_query_embedding(TEXTS[0])), vectors[0])


def test_hugging_face(server, folders, vectors):
    """Its client of text-embeddings-inference, which knows one address."""
    from huggingface_hub import InferenceClient
    from huggingface_hub.errors import HfHubHTTPError

    client = InferenceClient(server.url)
    assert np.array_equal(client.feature_extraction(TEXTS[0])[0], vectors[0])
    assert np.array_equal(client.feature_extraction(TEXTS, normalize=True, truncate=True), vectors)
    for wrong in ({"truncation_direction": "left"}, {"encoding_format": "base64"}, {"prompt_name": "no"}):
        with pytest.raises(HfHubHTTPError):
            client.feature_extraction("a", **wrong)
    similarities = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS[2:5])
    np.testing.assert_allclose(similarities, vectors[2:5] @ vectors[0], atol=tolerances.SCORE_F32)
    with serving("--model", folders["masked"], "--quiet") as other:
        filled = InferenceClient(other.url + "/fill-mask").fill_mask("a [MASK] b", top_k=3)
        assert [each.score for each in filled[0][0]] == sorted((each.score for each in filled[0][0]), reverse=True)
    with serving("--model", folders["classes"], "--quiet") as other:
        best = InferenceClient(other.url).text_classification("abc de")
        assert best.label == other.post("/predict", {"inputs": "abc de"})[0]["label"]
    with serving("--model", folders["rerank"], "--quiet") as other:
        body = {"query": "the cat", "texts": ["dog", "the cat sat"]}
        assert other.post("/", body) == other.post("/rerank", body)
    for model, route in (("late", "/embed_all"), ("sparse", "/embed_sparse")):
        body = {"inputs": "abc", "model": model}
        assert server.post("/", body) == server.post(route, body) != []


def curl(server, path, *options, data=None):
    if shutil.which("curl") is None:
        pytest.skip("NOT TESTED: curl is not installed")
    command = ["curl", "-sS", "-i", "--max-time", "30", *options, *([] if data is None else ["--data-binary", "@-"])]
    sent = data.encode() if isinstance(data, str) else data
    done = subprocess.run([*command, server.url + path], input=sent, capture_output=True, check=True)
    header, _, body = done.stdout.rpartition(b"\r\n\r\n")
    return header.decode(), body.decode()


def test_curl(server, vectors):
    kind = ["-H", "Content-Type: application/json"]
    body = json.dumps({"inputs": TEXTS})
    for options in ([], ["--http1.0"], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"]):
        header, text = curl(server, "/embed", *kind, *options, data=body)
        assert np.array_equal(exact(json.loads(text)), vectors), options
        assert ("100 Continue" in header) == (options[-1:] == ["Expect: 100-continue"])
    header, text = curl(server, "/health", "-I")
    assert "200 OK" in header and "Content-Length: 15" in header and text == ""
    header, text = curl(server, "/embed", "-X", "OPTIONS")
    assert header.startswith("HTTP/1.1 204") and "Allow: POST" in header and "\nContent-" not in header
    assert "Allow: POST" in curl(server, "/", "-X", "OPTIONS")[0]
    assert "417 " in curl(server, "/embed", "-H", "Expect: more", data=body)[0]
    header, text = curl(server, "/embed", "-H", "Content-Encoding: gzip", data=gzip.compress(body.encode()))
    assert "415 " in header and "must not be encoded" in text
    header, text = curl(server, "/embed", "--compressed", data=body)
    assert "Content-Encoding" not in header and np.array_equal(exact(json.loads(text)), vectors)
    header, _ = curl(server, "/health", "-x", server.url)  # with the whole address in the first line
    assert "200 OK" in header
    # Several requests over one connection.
    command = ["curl", "-sSv", *[f"{server.url}/{path}" for path in ("health", "none", "info", "v1/models")]]
    assert subprocess.run(command, capture_output=True, text=True).stderr.count("Re-using existing connection") == 3
    events = {"model": "causal", "prompt": "a b", "max_tokens": 3, "stream": True}
    for options in ([], ["--http1.0"]):
        header, text = curl(server, "/v1/completions", *options, data=json.dumps(events))
        assert text.startswith("data: {") and text.endswith("data: [DONE]\n\n")
        assert ("chunked" in header) == (not options)


def test_cors_preflight(folders):
    """What browsers ask before a page of another origin may send JSON."""
    with serving("--model", folders["dense"], "--cors-origin", "https://a.example") as server:
        ask = ["-X", "OPTIONS", "-H", "Access-Control-Request-Method: POST", "-H", "Origin: https://"]
        header, _ = curl(server, "/v1/embeddings", *ask[:-1], "Origin: https://a.example")
        assert "204" in header and "Access-Control-Allow-Origin: https://a.example" in header
        assert "Access-Control-Allow-Headers: authorization, content-type" in header
        assert "Access-Control" not in curl(server, "/v1/embeddings", *ask[:-1], "Origin: https://b.example")[0]


def test_promtool(server):
    if shutil.which("promtool") is None:
        pytest.skip("NOT TESTED: promtool (Debian's prometheus) is not installed")
    server.post("/embed", {"inputs": TEXTS})
    text = server.call("GET", "/metrics")[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    # It would have units in the names of text-embeddings-inference.
    problems = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("te_")]
    assert done.returncode in (0, 3) and not problems, problems
    for name in ("te_request_count", "te_request_duration", "te_queue_size", "te_batch_next_size"):
        assert f"# TYPE {name} " in text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["te_batch_next_size_count"]) > 0
    assert lines['roformer_batch_sequences_bucket{le="+Inf"}'] == lines["roformer_batch_sequences_count"]


def test_schemathesis(server, tmp_path):
    """Valid bodies are answered as described, others refused."""
    pytest.importorskip("schemathesis", reason="NOT TESTED: schemathesis is not installed")
    hooks = Path(__file__).with_name("schemathesis_hooks.py")
    command = [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json"]
    options = ["--checks=all", "--seed=1", "--max-examples=8", "--phases=examples,coverage,fuzzing", "--no-color"]
    # What POST / takes depends on the model, and only models that rotate have a rotation.
    command += [*options, "--exclude-path-regex=^/(rotation)?$", "--continue-on-failure", "--warnings=off"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SCHEMATHESIS_HOOKS": str(hooks)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.post("/embed", {"inputs": "a"})
