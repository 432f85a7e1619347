"""roformer serve under a manager of services: what it tells systemd, sockets that it is given, and its memory."""

import ctypes
import http.client
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli_support import PROGRAM
from server_case import Server, serving

MIB = 2**20


class Manager:
    """The side of systemd: a socket that receives states."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(20)

    def states(self):
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def next_but_watchdog(self):
        while (states := self.states()) == {"WATCHDOG": "1"}:
            pass
        return states


@pytest.mark.parametrize("is_abstract", [False, True])
def test_states_of_the_server(model, tmp_path, is_abstract):
    name = f"roformer-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    manager = Manager("\0" + name if is_abstract else name)
    environment = {"NOTIFY_SOCKET": "@" + name if is_abstract else name, "WATCHDOG_USEC": "200000"}
    with serving("--model", model, environment=environment) as server:
        assert manager.next_but_watchdog() == {"READY": "1", "STATUS": "Listening on " + server.url}
        assert [manager.states() for _ in range(5)] == [{"WATCHDOG": "1"}] * 5
        before = time.monotonic_ns() // 1000
        server.process.send_signal(signal.SIGHUP)
        states = manager.next_but_watchdog()
        assert states["RELOADING"] == "1"
        assert before <= int(states["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert manager.next_but_watchdog() == {"READY": "1"}
        server.process.send_signal(signal.SIGTERM)
        assert manager.next_but_watchdog() == {"STOPPING": "1"}
        server.process.wait(timeout=20)


def test_a_watchdog_of_another_process(model, tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"}
    with serving("--model", model, environment=environment) as server:
        server.call("GET", "/health")
    assert manager.states()["READY"] == "1" and manager.states() == {"STOPPING": "1"}


def activated(listener, count=1, process="os.getpid()"):
    """How a command is started with a socket as its descriptor 3, and with the number of its process."""
    script = (
        f"import os, sys; os.dup2({listener.fileno()}, 3); "
        f"os.environ.update(LISTEN_FDS='{count}', LISTEN_PID=str({process})); os.execv(sys.argv[1], sys.argv[1:])"
    )
    return {"before": [sys.executable, "-c", script], "pass_fds": [listener.fileno()]}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
def test_a_socket_of_the_manager(model, tmp_path, family):
    """Clients that come before the server, or while it is exchanged, wait for their replies."""
    path = tmp_path / "socket"
    addresses = {socket.AF_INET: ("127.0.0.1", 0), socket.AF_INET6: ("::1", 0), socket.AF_UNIX: str(path)}
    with socket.socket(family) as listener:
        listener.bind(addresses[family])
        listener.listen()
        for _ in range(2):
            connection = http.client.HTTPConnection("localhost")
            connection.sock = socket.socket(family)
            connection.sock.connect(listener.getsockname())
            connection.request("POST", "/embed", json.dumps({"inputs": "a"}))
            with serving("--model", model, **activated(listener)) as server:
                assert connection.getresponse().status == 200
                place = f"unix:{path}" if family == socket.AF_UNIX else f":{listener.getsockname()[1]}"
                assert server.url.endswith(place)
        assert family != socket.AF_UNIX or path.exists()


def test_activation_by_a_program_of_systemd(model):
    program = shutil.which("systemd-socket-activate")
    if program is None:
        pytest.skip("NOT TESTED: systemd-socket-activate is not installed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
    process = subprocess.Popen([program, "-l", address, PROGRAM, "serve", "--model", model], stderr=subprocess.PIPE)
    assert b"Listening on" in process.stderr.readline()
    assert len(Server(process, "http://" + address).post("/embed", {"inputs": "a"})) == 1
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_sockets_that_are_refused_or_of_another_process(model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        for given, message in (
            (activated(listener, count=2), "[serve] LISTEN_FDS must be 1, got 2"),
            (activated(datagrams), "[serve] the socket of LISTEN_FDS must be a stream that listens"),
        ):
            command = [*given["before"], PROGRAM, "serve", "--model", model]
            done = subprocess.run(command, pass_fds=given["pass_fds"], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and message in done.stderr
        with serving("--model", model, **activated(listener, process=1)) as server:
            assert server.port != listener.getsockname()[1] and server.call("GET", "/health")[0] == 200


def test_without_memory_that_is_writable_and_executable(model):
    """MemoryDenyWriteExecute= of the unit, by the kernel's own rule."""
    pr_set_mdwe, pr_get_mdwe = 65, 66
    if ctypes.CDLL(None).prctl(pr_get_mdwe, 0, 0, 0, 0) < 0:
        pytest.skip(f"NOT TESTED: Linux {platform.release()} has no PR_SET_MDWE")
    denied = f"import ctypes, os, sys; assert ctypes.CDLL(None).prctl({pr_set_mdwe}, 1, 0, 0, 0) == 0"
    before = [sys.executable, "-c", denied + "; os.execv(sys.argv[1], sys.argv[1:])"]
    with serving("--model", model, before=before) as server:
        assert server.post("/embed", {"inputs": "a"})


def peak_bytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def test_memory_stays_within_its_bound(model):
    """Requests that would take gigabytes together: many short texts, equal or not, many small values, many tokens."""
    most = 200 * MIB
    bodies = [
        ("/embed", '{"inputs": [' + '"a",' * 300_000 + '"a"]}'),
        ("/embed", '{"inputs": [' + ",".join(f'"{i}"' for i in range(200_000)) + "]}"),
        ("/v1/embeddings", '{"input": [' + "[]," * 900_000 + "[]]}"),
        ("/tokenize", '{"inputs": "' + "a " * 900_000 + '"}'),
        ("/tokenize", '{"inputs": [' + '"a",' * 300_000 + '"a"]}'),
        ("/embed", '{"inputs": "' + "a" * 10_000_000 + '"}'),
    ]
    with serving("--model", model, "--max-memory", most, "--quiet") as server:
        assert server.post("/embed", {"inputs": ["a"] * 1000})
        before = peak_bytes(server.process)

        def send(path, body):
            try:
                return server.call("POST", path, body)[0]
            except OSError:  # the rest of a body that is refused is not read
                return None

        with ThreadPoolExecutor(3 * len(bodies)) as pool:
            statuses = set(pool.map(send, *zip(*bodies * 3, strict=True)))
        assert {413, 429} & statuses and statuses <= {200, 400, 413, 429, None}, statuses
        assert peak_bytes(server.process) - before < most
        assert server.post("/embed", {"inputs": ["a"] * 1000})  # what was refused gave its share back
