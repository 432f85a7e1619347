#!/usr/bin/env python3
"""Checks `roformer serve` over a long time: load, kills, reloads and ends.

load: clients ask at 90 % of the rate that they reach without a pause; some leave before the reply. kills: the server is
killed under load and started again. reloads: SIGHUP under load, each after the end of the last. ends: SIGTERM while
each client waits for a reply. 0 leaves a part out.

Each reply must be whole and have the vectors that the package computes. Only kills may lose a request. The resident
memory must grow by at most 2 % during load, and during as many reloads again without clients: the smallest samples of
the second and of the last tenth are compared, because a reload needs memory for both models. --model: a
sentence-transformers model of one vector; by default a small random one.
"""

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("python", "tests")]
SHARE, MOST_GROWTH, LEAVERS = 0.9, 0.02, 0.01


class Server:
    def __init__(self, model):
        program = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "roformer"
        command = [program, "serve", "--model", model, "--port", "0", "--quiet"]
        self.process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        self.port = int(self.process.stderr.readline().rpartition(":")[2])

    def resident_kib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(status.partition("VmRSS:")[2].split()[0])

    def end(self, sent=signal.SIGTERM):
        self.process.send_signal(sent)
        return self.process.wait(timeout=120)


class Clients:
    """Threads that ask until stop(), together `rate` times per second, or each as soon as it has a reply."""

    def __init__(self, cases, count, port, rate=None):
        self.cases, self.port, self.pause = cases, port, count / rate if rate else 0
        self.asked, self.lost, self.faults, self.is_over = 0, 0, [], False
        self.threads = [threading.Thread(target=self.run, args=(random.Random(i),)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, choice):
        connection, due = None, time.monotonic()
        while not self.is_over:
            due = max(due + self.pause * choice.uniform(0.5, 1.5), time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
            texts, expected = choice.choice(self.cases)
            try:
                if connection is None or connection.port != self.port:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                connection.request("POST", "/embed", json.dumps({"inputs": texts}))
                if self.pause and choice.random() < LEAVERS:
                    connection.close()
                    continue
                response = connection.getresponse()
                body = response.read()
                if response.status != 200 or not np.array_equal(np.array(json.loads(body), np.float32), expected):
                    self.faults.append(f"status {response.status}: {body[:200]!r}")
                self.asked += 1
            except (OSError, http.client.HTTPException):
                connection = None
                self.lost += 1
                time.sleep(0.01)
            except ValueError as error:  # of JSON
                self.faults.append(repr(error))

    def stop(self, may_lose=False):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        if self.faults or (self.lost and not may_lose):
            sys.exit(f"{len(self.faults)} wrong replies, {self.lost} lost requests: {self.faults[:3]}")
        return self.asked


def check_memory(name, samples, asked):
    tenth = max(1, len(samples) // 10)
    before, after = min(samples[tenth : 2 * tenth]), min(samples[-tenth:])
    growth = after / before - 1
    print(f"{name}: {asked} replies, memory {before / 1024:.1f} MiB, at the end {growth:+.2%}", flush=True)
    if growth > MOST_GROWTH:
        sys.exit(f"{name}: the memory must grow by at most {MOST_GROWTH:.0%}, got {growth:.2%}")


def load(server, cases, minutes, count):
    full = Clients(cases, count, server.port)
    time.sleep(min(20, minutes * 6))
    rate = full.stop() / min(20, minutes * 6) * SHARE
    clients, samples, end = Clients(cases, count, server.port, rate), [], time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        time.sleep(0.5)
        samples.append(server.resident_kib())
    check_memory(f"load of {minutes} min at {rate:.0f} requests/s", samples, clients.stop())


def reloads(server, cases, number, count):
    def memory_after_reload():
        server.process.send_signal(signal.SIGHUP)
        event = json.loads(server.process.stderr.readline())
        assert event["outcome"] == "models were opened again", event
        return server.resident_kib()

    clients = Clients(cases, count, server.port)
    for _ in range(number):
        memory_after_reload()
    asked = clients.stop()
    check_memory(f"reloads: {number}", [memory_after_reload() for _ in range(number)], asked)


def kills(model, cases, number, count):
    server, choice = Server(model), random.Random(1)
    clients = Clients(cases, count, server.port)
    for _ in range(number):
        time.sleep(choice.uniform(0.05, 0.3))
        server.end(signal.SIGKILL)
        server = Server(model)
        clients.port = server.port
    asked = clients.stop(may_lose=True)
    print(f"kills: {number}, {asked} whole replies, {clients.lost} requests that ended", flush=True)
    assert server.end() == 0


def ends(model, cases, number, count):
    for _ in range(number):
        server, waiting = Server(model), []
        for i in range(count):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("POST", "/embed", json.dumps({"inputs": cases[i % len(cases)][0]}))
            waiting.append(connection)
        server.process.send_signal(signal.SIGTERM)
        for i, connection in enumerate(waiting):
            rows = np.array(json.loads(connection.getresponse().read()), np.float32)
            assert np.array_equal(rows, cases[i % len(cases)][1])
        assert server.process.wait(timeout=60) == 0
    print(f"ends: {number}, {number * count} replies", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120)
    for name, default in (("kills", 200), ("reloads", 1000), ("ends", 50), ("clients", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    from roformer_cpp import SentenceTransformer
    from sentence_model import save_encoder, save_modules

    with tempfile.TemporaryDirectory(prefix="serve-soak-") as folder:
        model = given.model or Path(folder)
        if given.model is None:
            save_encoder(model, max_length=512, max_position_embeddings=512)
            save_modules(model, normalize=True)
        choice, encoder, cases = random.Random(0), SentenceTransformer(model), []
        for size in (1, 1, 1, 2, 8, 40):
            for words in (1, 8, 60):
                texts = [" ".join(choice.choices(["cat", "dog", "house", "river"], k=words)) for _ in range(size)]
                cases.append((texts, encoder.encode(texts)))
        for part, amount in ((load, given.minutes), (reloads, given.reloads)):
            if amount:
                server = Server(model)
                try:
                    part(server, cases, amount, given.clients)
                    assert server.end() == 0
                finally:
                    server.process.kill()
        for part, number in ((kills, given.kills), (ends, given.ends)):
            if number:
                part(model, cases, number, given.clients)


if __name__ == "__main__":
    main()
