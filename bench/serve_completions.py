#!/usr/bin/env python3
"""Completions of concurrent clients: new tokens per second of `roformer serve`, whose passes have a token of each
client, and of one call of the package for as many prompts. Greedy, with prompts of PROMPT words of TEXTS; both must
write equal texts. A GGUF file or a directory of a causal language model; the medians over the rounds count.
"""

import json
import os
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
import tables

from server_case import serving

TABLES = ["serve_completions"]


def main():
    parser = harness.options(__doc__, TABLES, rounds=3)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--prompt", type=int, default=32, help="words of a prompt (default: %(default)s)")
    parser.add_argument("--new", type=int, default=64, help="tokens of a completion (default: %(default)s)")
    given = parser.parse_args()
    words = given.texts.read_text(encoding="utf-8").split()
    from roformer_cpp import Engine

    engine, times = Engine(given.model), {}
    with serving("--model", given.model, "--quiet", threads=os.cpu_count()) as server:

        def complete(prompt):
            body = json.dumps({"prompt": prompt, "max_tokens": given.new, "temperature": 0}).encode()
            request = urllib.request.Request(f"{server.url}/v1/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as response:
                return json.load(response)

        for clients in given.clients * given.rounds:
            first = (len(times.setdefault(clients, [])) * 1009 + clients) * given.prompt
            prompts = [" ".join(words[first + i * given.prompt :][: given.prompt]) for i in range(clients)]
            start = time.perf_counter()
            own = engine.generate(prompts, max_new_tokens=given.new, batch=clients)
            middle = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                served = list(pool.map(complete, prompts))
            end = time.perf_counter()
            if [each["choices"][0]["text"] for each in served] != [each[0]["text"] for each in own]:
                raise SystemExit("the server and the package must give the same texts")
            tokens = sum(each["usage"]["completion_tokens"] for each in served)
            times[clients].append((tokens / (middle - start), tokens / (end - middle)))
    results, rows = [], []
    for clients, found in times.items():
        own, served = (statistics.median(pair[i] for pair in found) for i in (0, 1))
        results.append({"clients": clients, "package": own, "served": served, "share": served / own})
        rows.append({"clients": f"{clients}", "package": f"{own:.1f}", "server": f"{served:.1f}"})
        rows[-1]["share"] = f"{served / own:.2f}"
    harness.shown(results)
    harness.finish(given, results, {"serve_completions": tables.of_dicts(rows)})


if __name__ == "__main__":
    main()
