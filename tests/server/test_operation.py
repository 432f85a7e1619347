"""roformer serve as operators meet it: keys, limits, clients that leave, and the end at a signal. Bytes that are not
HTTP are in test_hostile.py."""

import http.client
import itertools
import json
import shutil
import signal
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cli_support import refused
from roformer_cpp import SentenceTransformer
from sentence_model import TEXTS, save_encoder, save_modules
from server_case import make_certificate, serving


@pytest.fixture(scope="module")
def server(model):
    with serving("--model", model, "--max-body", 5000) as server:
        yield server


def send(server, data, wait=5):
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as connection:
        connection.sendall(data)
        got = b""
        while part := connection.recv(65536):
            got += part
        return got.decode()


def request(body, *fields, path="/embed"):
    lines = [f"POST {path} HTTP/1.1", "Host: a", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def test_keys(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the first team\nfirst\r\n\nsecond key\n")
    with serving("--model", model, "--api-key-file", keys) as server:
        for sent in ("first", "second key", "first "):
            server.post("/embed", {"inputs": "a"}, headers={"Authorization": "Bearer " + sent})
        for sent in (None, "firs", "", "# of the first team", "firstsecond key"):
            headers = {} if sent is None else {"Authorization": "Bearer " + sent}
            assert server.call("POST", "/embed", {"inputs": "a" * 100_000}, headers=headers)[0] == 401, sent
            assert server.headers["WWW-Authenticate"] == "Bearer"
        assert server.call("GET", "/health")[0] == 200 and server.call("GET", "/v1/models")[0] == 401
    keys.write_text("\n")
    assert "must have a key" in refused("serve", "--model", model, "--api-key-file", keys)
    assert "no such file" in refused("serve", "--model", model, "--api-key-file", tmp_path / "none")


def test_refused_options(model, tmp_path, server):
    assert "IP address" in refused("serve", "--model", model, "--host", "example.org")
    assert "different names" in refused("serve", "--model", model, model)
    assert "must be able to listen" in refused("serve", "--model", model, "--port", server.port)
    (tmp_path / "file").write_text("")
    assert "must not exist" in refused("serve", "--model", model, "--unix-socket", tmp_path / "file")
    refused("serve", "--model", tmp_path / "none")


def test_unix_socket(model, tmp_path):
    path = tmp_path / "socket"
    for _ in range(2):  # the second finds the file that a killed server leaves
        with serving("--model", model, "--unix-socket", path) as server:
            assert server.url == f"unix:{path}"
            connection = http.client.HTTPConnection("a")
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(path))
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            assert "another server" in refused("serve", "--model", model, "--unix-socket", path)
            server.process.kill()
            server.process.wait()
            server.process.returncode = 0
    assert path.exists()


def test_limits(server):
    status, result = server.call("POST", "/embed", {"inputs": "a" * 5000})
    assert status == 413 and "at most 5000 bytes" in result["error"]["message"]
    assert server.post("/embed", {"inputs": "a"})


def test_cors_and_trace(model):
    with serving("--model", model, "--cors-origin", "https://a.example") as server:
        server.call("GET", "/health", headers={"Origin": "https://a.example", "traceparent": "00-ab-cd-01"})
        assert server.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert server.headers["traceparent"] == "00-ab-cd-01"
        server.call("GET", "/health", headers={"Origin": "https://b.example"})
        assert "Access-Control-Allow-Origin" not in server.headers
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert lines[0]["path"] == "/health" and lines[0]["status"] == 200 and lines[0]["traceparent"] == "00-ab-cd-01"


def test_refused_bytes_are_logged_and_counted(model):
    with serving("--model", model) as server:
        send(server, b"GET  /health HTTP/1.1\r\nHost: a\r\n\r\n")
        send(server, request(b"{}", "Content-Length: 2", "Content-Length: 3"))
        counted = server.call("GET", "/metrics")[1]
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert [line["status"] for line in lines][:2] == [400, 400] and lines[1]["path"] == "/embed"
    assert 'roformer_requests_total{route="/embed",status="400"} 1' in counted


def test_many_clients(server, model):
    """Each gets its own vectors, whatever others ask."""
    texts = [f"{a} {b}" for a in "abcdef" for b in ("cat", "dog", "word and word")]
    expected = SentenceTransformer(model).encode(texts)

    def client(start):
        connection = server.connect()
        for i in range(start, start + 40):
            k = i % len(texts)
            connection.request("POST", "/embed", json.dumps({"inputs": [texts[k]] * (1 + i % 3)}))
            for row in json.loads(connection.getresponse().read()):
                assert np.array_equal(np.array(row, np.float32), expected[k]), texts[k]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(client, range(0, 56, 7)))


def test_a_client_that_leaves_frees_its_place(model):
    with serving("--model", model, "--max-queued-tokens", 1000000, "--batch-tokens", 24) as server:
        body = json.dumps({"inputs": list(map("".join, itertools.product("abcdefghij", repeat=4)))})
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(request(body.encode(), f"Content-Length: {len(body)}"))
            while "active_requests 2" not in server.call("GET", "/metrics")[1]:
                time.sleep(0.01)
        end = time.monotonic() + 20
        while 'route="/embed",status="499"} 1' not in server.call("GET", "/metrics")[1]:
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_the_end_loses_no_request(model, sent):
    """Requests that have arrived are answered; a connection that waits is closed."""
    texts = list(map("".join, itertools.product("abcdefghij", repeat=3)))
    with serving("--model", model) as server:
        idle = server.connect()
        idle.request("GET", "/health")
        idle.getresponse().read()
        busy = [server.connect() for _ in range(4)]
        for connection in busy:
            connection.request("POST", "/embed", json.dumps({"inputs": texts}))
        server.process.send_signal(sent)
        for connection in busy:
            response = connection.getresponse()
            assert response.status == 200 and len(json.loads(response.read())) == len(texts)
        assert server.process.wait(timeout=20) == 0


def test_tls(model, tmp_path):
    files = ["--tls-cert", certificate := tmp_path / "cert.pem", "--tls-key", key := tmp_path / "key.pem"]
    make_certificate(certificate, key)
    with serving("--model", model, *files) as server:
        assert server.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=60)
        for _ in range(3):
            connection.request("POST", "/embed", json.dumps({"inputs": TEXTS}))
            assert len(json.loads(connection.getresponse().read())) == len(TEXTS)
        assert send(server, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n") == ""
        make_certificate(certificate, key)  # of another key
        server.process.send_signal(signal.SIGHUP)
        renewed = ssl.create_default_context(cafile=certificate)
        end = time.monotonic() + 20
        while True:
            fresh = http.client.HTTPSConnection("localhost", server.port, context=renewed, timeout=60)
            try:
                fresh.request("GET", "/health")
                break
            except ssl.SSLError:
                assert time.monotonic() < end
        assert fresh.getresponse().status == 200
        connection.request("GET", "/health")  # goes on with the old one
        assert connection.getresponse().status == 200
    key.write_text("no key")
    assert f"[{key}] must be a PEM file" in refused("serve", "--model", model, *files)
    refused("serve", "--model", model, "--tls-cert", certificate, code=2)


def test_reload(model, tmp_path):
    """Models are exchanged while clients ask; a directory that cannot be opened changes nothing."""
    served, other = tmp_path / "served", tmp_path / "other"
    shutil.copytree(model, served)
    other.mkdir()
    save_encoder(other, initializer_range=0.5)
    save_modules(other, normalize=True)
    first, second = (SentenceTransformer(folder).encode("abc") for folder in (model, other))
    assert not np.array_equal(first, second)
    with serving("--model", served) as server:
        asked = []

        def ask():
            while len(asked) < 5000 and not stop.is_set():
                asked.append(np.array(server.post("/embed", {"inputs": "abc"})[0], np.float32))

        stop = threading.Event()
        client = threading.Thread(target=ask)
        client.start()
        served.rename(tmp_path / "old")
        other.rename(served)
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 30
        while not asked or not np.array_equal(asked[-1], second):
            assert time.monotonic() < end
            time.sleep(0.01)
        stop.set()
        client.join()
        assert all(np.array_equal(vector, first) or np.array_equal(vector, second) for vector in asked)
        (served / "config.json").write_text("{")
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert np.array_equal(np.array(server.post("/embed", {"inputs": "abc"})[0], np.float32), second)
    events = [json.loads(line) for line in server.log.splitlines() if "event" in line]
    assert events[0]["outcome"] == "models were opened again" and "config.json" in events[1]["outcome"]
