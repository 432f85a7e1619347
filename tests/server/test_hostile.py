"""roformer serve against clients that mean harm: bytes that are not HTTP, smuggled requests, bombs of JSON, endless
bodies, silence, thousands of connections, and weak TLS."""

import http.client
import json
import re
import resource
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from roformer_cpp import SentenceTransformer
from sentence_model import TEXTS
from server_case import make_certificate, serving

BODY = b'{"inputs":"a"}'
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def server(model):
    with serving("--model", model, "--quiet") as server:
        yield server


def talk(server, data, wait=10):
    """The statuses of the replies to these bytes; the server closes the connection, or has `wait` seconds to."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        got = b""
        while part := connection.recv(1 << 16):
            got += part
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", got)]


def post(*fields, body=BODY, path=b"/embed"):
    return b"\r\n".join([b"POST " + path + b" HTTP/1.1", b"Host: a", *fields, b"", body])


def chunked(*chunks, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (post(b"Content-Length: 14", b"Content-Length: 14", body=BODY + HIDDEN), 400),
        (post(b"Content-Length: 14, 14", body=BODY + HIDDEN), 400),
        (post(b"Content-Length: +14"), 400),
        (post(b"Content-Length: 0x0e"), 400),
        (post(b"Content-Length: 1 4"), 400),
        (post(b"Content-Length: 18446744073709551630"), 400),
        (post(b"Content-Length: 14", b"Transfer-Encoding: chunked", body=chunked(BODY) + HIDDEN), 400),
        (post(b"Transfer-Encoding: chunked", b"Content-Length: 14", body=chunked(BODY) + HIDDEN), 400),
        (post(b"Transfer-Encoding: identity", body=BODY + HIDDEN), 501),
        (post(b"Transfer-Encoding: chunked, identity", body=BODY + HIDDEN), 501),
        (post(b"Transfer-Encoding: gzip, chunked", body=chunked(BODY)), 501),
        (post(b"Transfer-Encoding: xchunked", body=chunked(BODY) + HIDDEN), 501),
        (post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=chunked(BODY) + HIDDEN), 400),
        (post(b"Transfer-Encoding: chunked", body=chunked(BODY) + HIDDEN).replace(b"HTTP/1.1", b"HTTP/1.0", 1), 501),
        (post(b"Transfer-Encoding : chunked", body=chunked(BODY)), 400),
        (post(b"Content-Length : 14"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"10000000000000002\r\n{}\r\n0\r\n\r\n" + HIDDEN), 400),
        (post(b"Transfer-Encoding: chunked", body=b"0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN), 400),
        (post(b"Transfer-Encoding: chunked", body=b"2 \n{}\r\n0\r\n\r\n" + HIDDEN), 400),
        (post(b"Transfer-Encoding: chunked", body=b"2\r\n{}0\r\n\r\n" + HIDDEN), 400),
        (post(b"Transfer-Encoding: chunked", body=b"2;" + b"a" * 70000 + b"\r\n{}\r\n0\r\n\r\n"), 431),
        (b"POST /embed HTTP/1.1\r\nHost: a\r\n\nContent-Length: 14\r\n\r\n" + BODY, 400),
        (b"POST /embed HTTP/1.1\r\nContent-Length: 14\r\n\r\n" + BODY, 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nA\rB: c\r\n\r\n", 400),
        (b"GET  /health HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /hea\x00lth HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\n\xffA: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
        (post(b"Content-Length: 14", b"Content-Encoding: gzip"), 415),
        (post(b"Content-Length: -1"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"-2\r\n{}\r\n0\r\n\r\n"), 400),
        (post(b"Content-Length: 14").replace(b"\r\n", b"\n"), 400),
        (b"POST /embed HTTP/1.1\r\nHost a\r\n\r\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
    ],
)
def test_smuggling(server, data, status):
    """One refusal, after which no byte is read as a request."""
    assert talk(server, data) == [status]


def test_bytes_after_a_body(server):
    assert talk(server, post(b"Content-Length: 14", body=BODY + b"garbage\r\n\r\n")) == [200, 400]
    assert talk(server, post(b"Content-Length: 14", body=BODY + HIDDEN)) == [200, 404]
    assert talk(server, post(b"Transfer-Encoding: chunked", body=chunked(BODY, end=b"0\r\nA: b\r\n\r\n"))) == [200]
    # A folded line is a space in the value, not a field.
    assert talk(server, post(b"A: b\r\n Content-Length: 99", b"Content-Length: 14", b"Connection: close")) == [200]
    assert talk(server, b"\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") in ([200], [400])
    # Bytes of a body that was refused unread are not a request.
    assert talk(server, post(b"Content-Length: 100", body=HIDDEN * 2, path=b"/none")) == [404]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"inputs":' + "[" * 2_000_000, "nested"),
        ('{"a":' * 400_000 + "1" + "}" * 400_000, "nested"),
        ("{" + ",".join(f'"{i}":0' for i in range(1_000_000)) + "}", "at most 1000000 values"),
        ('{"inputs":[' + "[]," * 4_000_000 + "[]]}", "at most 1000000 values"),
        ('{"inputs":"a","inputs":"b"}', 'given once, got "inputs" twice'),
        ('{"inputs":{"a":1,"\\u0061":1}}', "given once"),
        ('{"inputs":' + "9" * 1_000_000 + "}", "the body must be JSON"),
        ('{"inputs":1e999999999}', "the body must be JSON"),
        ('{"inputs":NaN}', "the body must be JSON"),
        (b'{"inputs":"\xed\xa0\x80"}', "the body must be JSON"),
        (b'{"inputs":"\xc0\xaf"}', "the body must be JSON"),
        (b'{"inputs":"' + b"a" * 1_000_000 + b'\xff"}', "the body must be JSON"),
        ('{"inputs":"\\ud800"}', "the body must be JSON"),
        ('{"inputs":"a\x00b"}', "the body must be JSON"),
        ('{"inputs":"a"}x', "the body must be JSON"),
        (json.dumps({"inputs": "a"}).encode("utf-16"), "the body must be JSON"),
        (b"", "the body must be JSON"),
    ],
    ids=range(17),  # not the bodies
)
def test_bombs(server, body, words):
    status, result = server.call("POST", "/embed", body)
    assert status == 400 and words in result["error"] and len(result["error"]) < 1000, result


def test_odd_texts(server, model):
    texts = ["a\x00b", "\x00", "\ufeffab", "a\u202eb", "\U0010ffff", "e" + "\u0301" * 3000, "\u200d" * 50]
    expected = SentenceTransformer(model).encode(texts)
    assert np.array_equal(np.array(server.post("/embed", {"inputs": texts}), np.float32), expected)
    assert talk(server, b"GET /health?a=%00%ff HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") == [200]


def resident(server):
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_bodies_of_100_mb(server):
    """Refused with a reply that the client reads, whether it says the size, and not held in memory."""
    before = resident(server)
    block = b"a" * 1_000_000
    for fields in ({"Content-Length": "100000000"}, {"Transfer-Encoding": "chunked"}):
        connection = server.connect()
        connection.putrequest("POST", "/embed")
        for name, value in fields.items():
            connection.putheader(name, value)
        connection.endheaders()
        for _ in range(100):
            connection.send(block if "Content-Length" in fields else chunked(block, end=b""))
        assert connection.getresponse().status == 413
        connection.close()
    assert resident(server) < before + 100


def test_slow_clients(model):
    """Each is closed after its time, and others are served meanwhile."""
    with serving("--model", model, "--quiet", "--receive-seconds", 1) as server:
        slow = [  # what is sent at once, and what follows ten times a second: a header, a body, and chunks of one
            (b"POST /embed HTTP/1.1\r\nHost: a\r\n", b"A: b\r\n"),
            (post(b"Content-Length: 100", body=b'{"inputs":'), b" "),
            (post(b"Transfer-Encoding: chunked", body=b""), b"1\r\n \r\n"),
        ]

        def seconds_of(begin, part):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
                connection.sendall(begin)
                started = time.monotonic()
                try:
                    while time.monotonic() - started < 15:
                        connection.sendall(part)
                        time.sleep(0.1)
                except OSError:
                    pass
                return time.monotonic() - started

        with ThreadPoolExecutor(len(slow)) as pool:
            open_for = pool.map(seconds_of, *zip(*slow, strict=True))
            # Meanwhile, a client that never reads its reply, which is larger than what sockets hold.
            body = json.dumps({"inputs": TEXTS * 10000}).encode()
            with socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", server.port))
                connection.sendall(post(b"Content-Length: %d" % len(body), body=body))
                end = time.monotonic() + 30
                while 'roformer_requests_total{route="/embed"' not in server.call("GET", "/metrics")[1]:
                    assert time.monotonic() < end
                    time.sleep(0.05)
            assert max(open_for) < 5
        assert server.post("/embed", {"inputs": "a"})


def test_thousands_of_connections(model):
    """More than the server may have: it closes those that wait longest, and answers whoever asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, max(soft, 10_500))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    count = min(most - 300, 10_000)
    with serving("--model", model, "--quiet", "--max-connections", count // 2) as server:
        before = resident(server)
        starts = [b"", b"G", b"POST /embed HTTP/1.1\r\nHost: a\r\n", post(b"Content-Length: 9", body=b"{")]
        kept, opened = server.connect(), []
        for i in range(count):
            opened.append(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            opened[-1].sendall(starts[i % len(starts)])
            if i % 500 == 0:
                kept.request("POST", "/embed", json.dumps({"inputs": "a"}))
                assert kept.getresponse().read()
        assert server.post("/embed", {"inputs": "a"})
        open_now = int(server.call("GET", "/metrics")[1].split("\nroformer_connections ")[1].split("\n")[0])
        assert count // 2 - 10 <= open_now <= count // 2 + 10
        assert opened[0].recv(1) == b""
        assert resident(server) - before < 100 + 0.05 * count
        for connection in opened:
            connection.close()


def test_few_descriptors(model):
    """The process may open fewer files than the server would have connections."""
    with serving("--model", model, "--quiet", before=["prlimit", "--nofile=128:128"]) as server:
        opened = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(300)]
        assert server.post("/embed", {"inputs": "a"})
        for connection in opened:
            connection.close()


def test_tls(model, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    with serving("--model", model, "--quiet", "--tls-cert", certificate, "--tls-key", key) as server:

        def client(*options, stdin=b""):
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", *options]
            done = subprocess.run(command, input=stdin, capture_output=True, timeout=30)
            return (done.stdout + done.stderr).decode(errors="replace")

        for version, ciphers, is_taken in (
            ("-tls1_2", "DEFAULT@SECLEVEL=0", True),
            ("-tls1_3", "DEFAULT@SECLEVEL=0", True),
            ("-tls1_1", "ALL@SECLEVEL=0", False),
            ("-tls1", "ALL@SECLEVEL=0", False),
            ("-tls1_2", "AES128-SHA:AES256-GCM-SHA384@SECLEVEL=0", False),  # no forward secrecy
            ("-tls1_2", "ECDHE-RSA-AES128-SHA:ECDHE-RSA-AES256-SHA384@SECLEVEL=0", False),  # CBC
            ("-tls1_2", "aNULL:eNULL@SECLEVEL=0", False),
        ):
            text = client(version, "-cipher", ciphers)
            assert ("Cipher is (NONE)" not in text and "Cipher is" in text) == is_taken, (version, ciphers, text)
        assert "Compression: NONE" in client("-tls1_2", "-comp")
        assert "renegotiat" in client("-tls1_2", "-legacy_renegotiation", stdin=b"R\n").lower()
        assert "HTTP/1.1 200" not in client("-tls1_2", stdin=b"R\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        # The end of a reply is said, so that nobody can cut it.
        context = ssl.create_default_context(cafile=certificate)
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        with context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            got = b""
            while part := connection.recv(4096):
                got += part
            assert got.startswith(b"HTTP/1.1 200")
        # A handshake that never ends holds nobody.
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
        fine = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=10)
        fine.request("POST", "/embed", json.dumps({"inputs": "a" * 100_000}))
        assert fine.getresponse().status == 200
        for connection in silent:
            connection.close()
