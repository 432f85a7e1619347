"""A running `roformer serve` for tests."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from contextlib import contextmanager

import pytest

import sentence_model
from cli_support import PROGRAM
from engine_case import make_causal

CHAT = """{% for m in messages %}{{ 'a' if m.role == 'user' else 'b' }} {{ m.content }} {{ m.thinking }} {% endfor %}
{%- if refused %}{{ raise_exception('no more') }}{% endif -%}
{%- if tools %}{{ tools | map(attribute='type') | join(' ') }} {% endif -%}
{{ 'c' if add_generation_prompt }}{{ more }}"""


MAKERS = {
    "masked": sentence_model.save_masked,
    "sparse": sentence_model.save_sparse,
    "late": sentence_model.save_late,
    "rerank": lambda folder: sentence_model.save_classifier(folder, 1),
    "classes": lambda folder: sentence_model.save_classifier(folder, 3),
}


def make_folders(root, *more):
    """A model of each kind, and empty folders, "dense" the first; by names that say which."""
    folders = {name: root / name for name in ("dense", *MAKERS, *more)}
    for name, folder in folders.items():
        folder.mkdir()
        MAKERS.get(name, lambda _: None)(folder)
    return folders


def save_models(root):
    folders = make_folders(root, "causal")
    sentence_model.save_encoder(folders["dense"])
    sentence_model.save_modules(folders["dense"], normalize=True, prompts={"query": "q "})
    make_causal("Bert", folders["causal"])
    sentence_model.save_tokenizer(folders["causal"], do_lower_case=True, chat_template=CHAT)
    return folders


def make_certificate(certificate, key):
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: openssl is not installed")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*command, "-out", certificate, "-keyout", key], check=True, capture_output=True)


class Server:
    """A server that has said where it listens."""

    def __init__(self, process, address):
        self.process = process
        self.port = int(address.rpartition(":")[2]) if address.startswith("http") else None
        self.url = address

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def call(self, method, path, body=None, headers=()):
        """The status and the body, parsed where it is JSON; body: an object, or text as it is sent."""
        connection = self.connect()
        sent = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        self.headers = response.headers
        is_json = response.headers.get("Content-Type") == "application/json"
        return response.status, json.loads(text) if is_json and text else text.decode()

    def post(self, path, body, **options):
        """The result of a request that must succeed."""
        status, result = self.call("POST", path, body, **options)
        assert status == 200, result
        return result

    def stop(self, sent=signal.SIGTERM):
        self.process.send_signal(sent)
        return self.process.wait(timeout=60)


@contextmanager
def serving(*arguments, threads=1, before=(), environment=None, pass_fds=()):
    """Starts the program on a free port; ends it with SIGTERM, and checks that it ends without an error.
    before: a command that starts it."""
    where = [] if "--unix-socket" in arguments else ["--port", "0"]
    process = subprocess.Popen(
        [*before, PROGRAM, "serve", *map(str, arguments), *where],
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, OMP_NUM_THREADS=str(threads)) | (environment or {}),
        pass_fds=pass_fds,
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.match(r"listening on (\S+)", line):
            break
    else:
        raise AssertionError("".join(lines))
    server = Server(process, found[1])
    rest = []
    reader = threading.Thread(target=lambda: rest.extend(process.stderr))  # a full pipe would stop the server
    reader.start()
    try:
        yield server
    finally:
        if process.poll() is None:
            server.stop()
        reader.join()
        server.log = "".join(rest)
        process.stderr.close()
    assert process.returncode == 0, server.log
