#!/usr/bin/env python3
"""The cost of HTTP in `roformer serve`, and how long a client waits during a bulk job; arguments as in serve_peers.py.

HTTP: texts per second of 32 clients of the server, and of one call of the package for all texts, with texts of 128
tokens. Wait: a client sends one short text after another, alone and while another client has sent 100,000 of TEXTS in
one request.
"""

import http.client
import json
import random
import select
import statistics
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
import serve_peers
import tables

TABLES = ["serve_own http", "serve_own wait"]
TOKENS, CLIENTS, BULK = 128, 32, 100_000


def of_length(tokenizer, texts, count):
    """Texts of 128 tokens with the special ones."""
    words = [word for text in texts for word in text.split() if len(tokenizer.encode(word)) == 3]
    draw = random.Random(0)
    return [" ".join(draw.choices(words, k=TOKENS - 2)) for _ in range(count)]


def waits(port, texts, seconds):
    """Milliseconds of each request."""
    connection, found, end = http.client.HTTPConnection("127.0.0.1", port), [], time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        body = json.dumps({"input": texts[len(found) % len(texts)]})
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        found.append(1000 * (time.perf_counter() - start))
    return found


def send_bulk(port, texts):
    """Sends the request; closing what is returned cancels it."""
    body = json.dumps({"input": [f"{texts[i % len(texts)][:120]} {i}" for i in range(BULK)]})
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    return connection


def main():
    parser = harness.options(__doc__, TABLES, rounds=3)
    parser.add_argument("texts")
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--shape", choices=["minilm", "modernbert"], default="minilm")
    parser.add_argument("--seconds", type=int, default=15)
    given = parser.parse_args()
    lines = [line for line in Path(given.texts).read_text(encoding="utf-8").split("\n") if line.strip()]
    short = [" ".join(line.split()[:8]) for line in lines]
    with tempfile.TemporaryDirectory(prefix="serve-own-") as temporary:
        model, bodies, script = (Path(temporary) / name for name in ("model", "bodies", "load.lua"))
        serve_peers.make_model(given.shape, given.vocab, model)
        from roformer_cpp import SentenceTransformer, Tokenizer

        encoder = SentenceTransformer(model)
        texts = of_length(Tokenizer(model), lines, 2048)
        bodies.write_text("\n".join(json.dumps({"input": text}) for text in texts) + "\n")
        script.write_text(serve_peers.SCRIPT.replace("BODIES", str(bodies)))
        http_rows, alone, beside = [], [], []
        with serve_peers.running(serve_peers.OURS, model, None) as url:
            port = int(url.split(":")[2].split("/")[0])
            own = encoder.encode(texts[:16])
            assert np.array_equal(own, serve_peers.vectors_of(url, texts[:16]).astype(np.float32))
            for _ in range(given.rounds):
                start, count = time.perf_counter(), 0
                while (spent := time.perf_counter() - start) < given.seconds:
                    encoder.encode(texts)
                    count += len(texts)
                served = serve_peers.load(url, CLIENTS, given.seconds, script)["rate"]
                http_rows.append((count / spent, served))
                alone.append(np.percentile(waits(port, short, given.seconds), [50, 99]))
                bulk = send_bulk(port, lines)
                beside.append(np.percentile(waits(port, short, given.seconds), [50, 99]))
                if select.select([bulk.sock], [], [], 0)[0]:
                    sys.exit(f"the bulk job ended too early: {bulk.getresponse().read(300)}")
                bulk.close()
                time.sleep(1)
        own, served = (statistics.median(row[i] for row in http_rows) for i in (0, 1))
        cost = statistics.median(1 - served / own for own, served in http_rows)
        results = [{"own": own, "served": served, "cost": cost}]
        http_table = [{"package, texts/s": f"{own:.1f}", "32 clients, texts/s": f"{served:.1f}", "lost": f"{cost:.1%}"}]
        wait_table = []
        for name, found in (("alone", alone), (f"beside {BULK:,} texts", beside)):
            p50, p99 = np.median(found, axis=0)
            results.append({"client": name, "p50_ms": p50, "p99_ms": p99})
            wait_table.append({"a client with short texts": name, "p50, ms": f"{p50:.1f}", "p99, ms": f"{p99:.1f}"})
    harness.shown(results)
    texts = {"serve_own http": tables.of_dicts(http_table), "serve_own wait": tables.of_dicts(wait_table)}
    harness.finish(given, results, texts)


if __name__ == "__main__":
    main()
