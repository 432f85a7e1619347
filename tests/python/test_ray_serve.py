"""roformer_cpp.ray.serve on a local cluster: replies of the server, more replicas under load, and killed servers."""

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import cli_support
import ray_case
import roformer_cpp
import sentence_model
from engine_case import make_causal
from training_case import wait_until

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None or find_spec("starlette") is None,
    reason="NOT TESTED: roformer_cpp.ray needs pip install 'roformer-cpp[ray]'",
)
PORT = 18234


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return sentence_model.save_sentences(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def handle(model):
    """Of an application with one replica, and up to two."""
    with ray_case.cluster() as ray:
        import ray.serve

        ray.serve.start(http_options={"port": PORT})
        application = roformer_cpp.ray.serve(model, max_replicas=2, requests_per_replica=2)
        yield ray.serve.run(application, route_prefix="/models")
        ray.serve.shutdown()
        until(lambda: not servers())


def post(path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"http://127.0.0.1:{PORT}/models{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def servers():
    """The numbers of the programs that run for the replicas."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if words[1:2] == ["serve"] and "/roformer-" in words[-2]:
            found.append(int(path.parent.name))
    return found


def until(condition):
    wait_until(condition, seconds=120)


def test_replies_are_those_of_the_server(handle, model):
    texts = sentence_model.TEXTS
    expected = roformer_cpp.SentenceTransformer(model).encode(texts)
    status, rows = post("/embed", {"inputs": texts})
    assert status == 200 and np.array_equal(np.array(rows, np.float32), expected)
    assert np.array_equal(handle.embed.remote(texts).result(), expected)
    status, result = post("/v1/embeddings", {"input": texts})
    assert status == 200 and len(result["data"]) == len(texts)
    assert post("/embed", b"{")[0] == 400 and post("/none", {})[0] == 404
    with pytest.raises(Exception, match=r"\[serve\] input must have at least one text"):
        handle.embed.remote([]).result()


def test_streamed_completions(handle, tmp_path):
    """Come as the server sends them."""
    import ray.serve

    cli_support.results("vocab", "--bytes", "--output", tmp_path / "model")
    make_causal("RoFormer", tmp_path / "model", vocab_size=261, max_position_embeddings=128)
    ray.serve.run(roformer_cpp.ray.serve(tmp_path / "model"), name="generator", route_prefix="/generator")
    asked = {"prompt": "abc", "max_tokens": 12, "temperature": 0}
    url = f"http://127.0.0.1:{PORT}/generator/v1/completions"
    with urllib.request.urlopen(url, json.dumps(asked | {"stream": True}).encode()) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in reply.read().decode().split("\n\n") if line]
    with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
        whole = json.loads(reply.read())["choices"][0]["text"]
    assert events.pop() == "[DONE]" and len(events) > 2
    assert "".join(json.loads(event)["choices"][0]["text"] for event in events) == whole
    ray.serve.delete("generator")
    until(lambda: len(servers()) == 1)


def test_load_starts_replicas_and_killed_servers_are_replaced(handle):
    texts = [f"{a} {b}" for a in range(100) for b in range(100)]
    stop, wrong = threading.Event(), []

    def ask():
        while not stop.is_set():
            status, rows = post("/embed", {"inputs": texts})
            if (status, len(rows)) != (200, len(texts)):
                wrong.append(rows)

    assert len(servers()) == 1
    clients = [threading.Thread(target=ask) for _ in range(12)]
    for client in clients:
        client.start()
    until(lambda: len(servers()) == 2)
    stop.set()
    for client in clients:
        client.join()
    assert not wrong
    killed = servers()
    for process in killed:
        os.kill(process, signal.SIGKILL)
    statuses = []
    until(lambda: statuses.append(post("/embed", {"inputs": "a"})[0]) or statuses[-1] == 200)
    assert set(statuses) <= {200, 503} and not set(killed) & set(servers())


def test_bad_arguments(model):
    for arguments, message in (
        ({"min_replicas": 3, "max_replicas": 2}, r"\[serve\] max_replicas must be"),
        ({"port": 8080}, r"\[serve\] options must not say where the server listens or what it runs, got port"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            roformer_cpp.ray.serve(model, **arguments)
    with pytest.raises(FileNotFoundError):
        roformer_cpp.ray.serve(model / "none")
