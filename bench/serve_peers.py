#!/usr/bin/env python3
"""Times servers of embeddings under load: `roformer serve`, and others with the same model in float32.

Each request has one of the texts. The model has random weights and the shape of all-MiniLM-L6-v2 or of ModernBERT-base,
the mean of its tokens, and a unit norm. Sides: roformer; sentence-transformers and ONNX Runtime (with the tokenizers
library), each behind FastAPI and uvicorn (uvloop), where one thread computes the requests in turn; infinity, which
batches.

All servers run together, and one is asked at a time: first for the same texts, whose vectors must have a cosine of
0.9999 with the first side's, then by wrk with one thread and the given number of connections. Each connection sends
a request as soon as it has a reply. The medians over the rounds count. The CPU time of wrk is reported as a share of
all cores.
"""

import argparse
import concurrent.futures
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import harness
import numpy as np
import tables
from harness import PROGRAM

from job_case import free_port

OURS, MODEL = "roformer", "model"
TABLES = ["serve_peers minilm", "serve_peers modernbert"]
SMALLEST_COSINE = 0.9999
LONGEST = 512
# Each thread of wrk has its own Lua state; done() runs in the main thread's.
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local bodies, next_body = {}, os.time()
for line in io.lines("BODIES") do bodies[#bodies + 1] = line end
request = function()
  next_body = next_body + 1
  return wrk.format(nil, nil, nil, bodies[next_body % #bodies + 1])
end
done = function(summary, latency)
  local failed = summary.errors
  io.stderr:write(string.format('{"requests": %d, "seconds": %f, "failed": %d, "p50": %f, "p99": %f}',
    summary.requests, summary.duration / 1e6, failed.connect + failed.read + failed.write + failed.status +
    failed.timeout, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


def make_model(shape, vocab, folder):
    import torch
    import transformers

    from sentence_model import save_modules

    tokenizer = transformers.BertTokenizerFast(vocab=str(vocab), model_max_length=LONGEST)
    ids = {"pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)}
    ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    ends |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    minilm = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    configs = {
        "minilm": lambda: transformers.BertConfig(**ids, **minilm),
        "modernbert": lambda: transformers.ModernBertConfig(**ids, **ends),
    }
    torch.manual_seed(0)
    encoder = transformers.AutoModel.from_config(configs[shape]())
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # Also for the older packages that infinity needs.
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    pooling = {"word_embedding_dimension": encoder.config.hidden_size, "pooling_mode_mean_tokens": True}
    save_modules(folder, pooling, normalize=True)


def sentence_transformers(model):
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(model), device="cpu")
    return lambda texts: encoder.encode(texts)


def onnxruntime(model):
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count()
    session = onnxruntime.InferenceSession(model / "model.onnx", options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.no_padding()

    def encode(texts):
        ids, mask = harness.padded([row.ids for row in tokenizer.encode_batch(texts)])
        (hidden,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    return encode


BEHIND_FASTAPI = {"sentence-transformers": sentence_transformers, "ONNX Runtime": onnxruntime}


def serve(side, model, port):
    """A side behind FastAPI, until a signal."""
    import asyncio

    import fastapi
    import uvicorn

    encode = BEHIND_FASTAPI[side](model)
    thread = concurrent.futures.ThreadPoolExecutor(1)
    app = fastapi.FastAPI()

    @app.get("/health")
    def health():
        return {}

    @app.post("/v1/embeddings")
    async def embeddings(body: dict):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        rows = await asyncio.get_running_loop().run_in_executor(thread, encode, texts)
        data = [{"object": "embedding", "index": i, "embedding": row.tolist()} for i, row in enumerate(rows)]
        return fastapi.Response(json.dumps({"object": "list", "data": data}), media_type="application/json")

    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", log_level="error", access_log=False)


def command(side, model, port, infinity):
    if side == OURS:
        return [PROGRAM, "serve", "--model", model, "--port", port, "--quiet"]
    if side == "infinity":
        settings = "--device cpu --dtype float32 --engine torch --no-bettertransformer --no-model-warmup"
        settings += f" --url-prefix /v1 --host 127.0.0.1 --served-model-name {MODEL}"
        return [infinity, "v2", "--model-id", model, "--port", port, *settings.split()]
    return [sys.executable, __file__, "-", "--serve", side, model, port]


@contextmanager
def running(side, model, infinity):
    """The URL of a side's route; None if it does not start."""
    port = free_port()
    environment = os.environ | {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(os.cpu_count())}
    if side == "infinity":  # it has a separate environment
        environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryFile() as log:
        arguments = list(map(str, command(side, model, port, infinity)))
        process = subprocess.Popen(arguments, stdout=log, stderr=log, env=environment)
        try:
            url = f"http://127.0.0.1:{port}/v1/embeddings"
            end = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < end:
                try:
                    vectors_of(url, ["a"])
                    break
                except OSError:
                    time.sleep(0.2)
            else:
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines() or ["it says nothing"]
                print(f"{side} is left out: {lines[-1]}", file=sys.stderr)
                url = None
            yield url
        finally:
            process.terminate()
            process.wait()


def vectors_of(url, texts):
    body = json.dumps({"input": texts, "model": MODEL}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return np.array([each["embedding"] for each in json.load(response)["data"]], np.float64)


def check_vectors(urls, texts):
    """The seconds of a text by side."""
    exact, seconds = None, {}
    for side, url in urls.items():
        start = time.perf_counter()
        vectors = np.concatenate([vectors_of(url, [text]) for text in texts])
        seconds[side] = (time.perf_counter() - start) / len(texts)
        exact = vectors if exact is None else exact
        cosine = float((vectors * exact).sum(1).min())
        if cosine < SMALLEST_COSINE:
            sys.exit(f"{side}: a cosine of {cosine:.6f} to the vectors of {next(iter(urls))}")
    return seconds


def load(url, clients, seconds, script):
    """The measurements of wrk, with its share of the CPUs."""
    program = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "120s", "-s", script, url]
    process = subprocess.Popen(list(map(str, program)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    result = json.loads(process.stderr.read())
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    vectors_of(url, ["a"])  # after the requests that wrk has left behind
    if result["failed"]:
        sys.exit(f"{url}: {result['failed']} requests failed")
    share = (usage.ru_utime + usage.ru_stime) / result["seconds"] / os.cpu_count()
    return result | {"rate": result["requests"] / result["seconds"], "wrk": share}


def compare(urls, clients, given, text_s, script):
    """A row for each side. A window is long enough for two requests of each client."""
    found = {side: [] for side in urls}
    for _ in range(given.rounds):
        for side, url in urls.items():
            seconds = max(given.seconds, math.ceil(2 * clients * text_s[side]))
            found[side].append(load(url, clients, seconds, script))

    def median(side, key):
        return statistics.median(run[key] for run in found[side])

    rows = []
    for side in urls:
        ratio = statistics.median(a["rate"] / b["rate"] for a, b in zip(found[OURS], found[side], strict=True))
        tail = statistics.median(a["p99"] / b["p99"] for a, b in zip(found[OURS], found[side], strict=True))
        rows.append(
            {
                "clients": clients,
                "server": side,
                "texts/s": f"{median(side, 'rate'):.1f}",
                "p50, ms": f"{median(side, 'p50'):.1f}",
                "p99, ms": f"{median(side, 'p99'):.1f}",
                "our throughput / its": f"{ratio:.2f}",
                "our p99 / its": f"{tail:.2f}",
                "CPU of wrk": f"{median(side, 'wrk'):.1%}",
            }
        )
    return rows


def main():
    parser = harness.options(__doc__, TABLES, rounds=3)
    parser.add_argument("texts", help="one text per line")
    parser.add_argument("--vocab", type=Path, help="vocab.txt of a BERT")
    parser.add_argument("--shape", choices=["minilm", "modernbert"], default="minilm")
    parser.add_argument("--clients", nargs="*", type=int, default=[1, 32, 256])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument(
        "--infinity", default=shutil.which("infinity_emb"), metavar="PROGRAM", help="of any environment"
    )
    every = [OURS, *BEHIND_FASTAPI, "infinity"]
    parser.add_argument("--sides", nargs="*", default=every, choices=every)
    parser.add_argument("--serve", nargs=3, metavar=("SIDE", "MODEL", "PORT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve[0], Path(given.serve[1]), int(given.serve[2]))
        return
    if given.vocab is None or OURS not in given.sides:
        parser.error("needs --vocab, and roformer among --sides")
    lines = [line for line in Path(given.texts).read_text(encoding="utf-8").split("\n") if line.strip()]
    with tempfile.TemporaryDirectory(prefix="serve-peers-") as temporary, ExitStack() as servers:
        model, bodies, script = (Path(temporary) / name for name in (MODEL, "bodies", "load.lua"))
        make_model(given.shape, given.vocab, model)
        bodies.write_text("\n".join(json.dumps({"input": line, "model": MODEL}) for line in lines) + "\n")
        script.write_text(SCRIPT.replace("BODIES", str(bodies)))
        if "ONNX Runtime" in given.sides:
            import onnx_files

            onnx_files.export(model, model / "model.onnx", ["input_ids", "attention_mask"])
        sides = [side for side in given.sides if side != "infinity" or given.infinity]
        started = {side: servers.enter_context(running(side, model, given.infinity)) for side in sides}
        urls = {side: url for side, url in started.items() if url}
        text_s = check_vectors(urls, lines[:16])
        results = []
        for clients in given.clients:
            results += harness.shown(compare(urls, clients, given, text_s, script))
    counted = f"Texts with {statistics.mean(map(len, lines)):.0f} characters on average."
    harness.finish(given, results, {f"serve_peers {given.shape}": f"{counted}\n\n{tables.of_dicts(results)}"})


if __name__ == "__main__":
    main()
