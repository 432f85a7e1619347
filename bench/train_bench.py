#!/usr/bin/env python3
"""Compares pretraining tokens per second of `roformer` and transformers' RoFormerForMaskedLM on this machine.

Both sides start from the same weights and take the same batches: 15 % of the tokens masked, dropout 0.1, bfloat16
autocast with float32 master weights, clipping at norm 1, fused AdamW. They are verified first (the same loss with
dropout off), then timed in windows that take turns; the result is the median over the windows of ours / theirs. The
data are random ids with a Zipf distribution, because the content of a row does not change the work.

    bench/train_bench.py --model small [--update-docs]      hidden 256, 4 layers, vocabulary 8000, batch 32 x 128
    bench/train_bench.py --model base [--update-docs]       hidden 768, 12 layers, vocabulary 50000, batch 8 x 128
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peer_timing import machine  # noqa: E402

TABLES = {"small": "train_bench small", "base": "train_bench base"}
MODELS = {
    "small": dict(
        vocab_size=8000,
        hidden_size=256,
        embedding_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=512,
    ),
    "base": dict(
        vocab_size=50000,
        hidden_size=768,
        embedding_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
    ),
}
SHAPES = {"small": (32, 128), "base": (8, 128)}
STEPS = {"small": 6, "base": 2}
TARGETS = {"small": 3.0, "base": 2.0}
BATCHES = 8
SPECIAL = 5
MASK_ID = 4
# bfloat16 keeps 8 bits: each side's mean loss over hundreds of tokens is good to about a thousandth.
LOSS_TOLERANCE = 5e-3


def make_batches(vocab_size, shape, rng):
    rows = (BATCHES, *shape)
    ids = np.minimum(rng.zipf(1.2, rows), vocab_size - SPECIAL) + SPECIAL - 1
    labels = np.where(rng.random(rows) < 0.15, ids, -100)
    fate = rng.random(rows)
    masked = np.where(fate < 0.8, MASK_ID, np.where(fate < 0.9, rng.integers(SPECIAL, vocab_size, rows), ids))
    return np.where(labels == -100, ids, masked).astype(np.int64), labels.astype(np.int64)


class Server:
    """A program that works on command: `steps N` in, `{"tokens": .., "seconds": ..}` out."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended with code {self.process.wait()}")
        return json.loads(line)

    def loss(self):
        return self.ask("loss")["loss"]

    def tokens_per_second(self, steps):
        answer = self.ask(f"steps {steps}")
        return answer["tokens"] / answer["seconds"]


def bench_command(binary, directory, threads):
    """`roformer bench`, which runs training steps on the model and the batches in the directory."""
    files = ["--model", directory, "--ids", f"{directory}/ids.npy", "--labels", f"{directory}/labels.npy"]
    return [binary, "bench", *files, "--threads", str(threads)]


class Theirs:
    def __init__(self, model, ids, labels):
        self.model, self.ids, self.labels, self.step = model, torch.from_numpy(ids), torch.from_numpy(labels), 0
        decayed = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() <= 1]
        groups = [dict(params=decayed, weight_decay=0.01), dict(params=rest, weight_decay=0.0)]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)

    def forward(self, index):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(self.ids[index], labels=self.labels[index]).loss

    def loss(self):
        self.model.eval()
        with torch.no_grad():
            return self.forward(0).item()

    def tokens_per_second(self, steps):
        self.model.train()
        start = time.perf_counter()
        for _ in range(steps):
            loss = self.forward(self.step % BATCHES)
            self.step += 1
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            loss.item()
        return steps * self.ids[0].numel() / (time.perf_counter() - start)


def docs_table(name, result):
    model, (rows, tokens) = MODELS[name], SHAPES[name]
    what = (
        f"{name}: hidden {model['hidden_size']}, {model['num_hidden_layers']} layers, "
        f"{model['num_attention_heads']} heads, vocabulary {model['vocab_size']}, batch {rows} x {tokens}"
    )
    speeds = [f"{result[side + '_tokens_per_second']:,.0f}" for side in ("ours", "transformers")]
    ratio = f"{result['ratio']:.2f} ({result['ratio_min']:.2f} - {result['ratio_max']:.2f})"
    titles = ["model", "ours", "transformers", f"ratio, median of {result['windows']} windows (range)"]
    return tables.markdown([titles, [what, *speeds, ratio]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--windows", type=int, default=9)
    parser.add_argument("--steps", type=int, help="steps per window")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    build = os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")
    parser.add_argument("--binary", default=str(pathlib.Path(build) / "roformer"))
    tables.add_option(parser)
    arguments = parser.parse_args()
    name, steps = arguments.model, arguments.steps or STEPS[arguments.model]

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    model = transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**MODELS[name]))
    ids, labels = make_batches(MODELS[name]["vocab_size"], SHAPES[name], np.random.default_rng(1))
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        np.save(f"{directory}/ids.npy", ids)
        np.save(f"{directory}/labels.npy", labels)
        ours = Server(bench_command(arguments.binary, directory, arguments.threads))
        theirs = Theirs(model, ids, labels)
        our_loss, their_loss = ours.loss(), theirs.loss()
    if not abs(our_loss - their_loss) <= LOSS_TOLERANCE * their_loss:
        sys.exit(f"the two sides must agree before they are timed, got losses {our_loss} and {their_loss}")
    sides = [ours, theirs]
    for side in sides:
        side.tokens_per_second(2)  # warm-up
    speeds = {ours: [], theirs: []}
    for window in range(arguments.windows):
        for side in sides if window % 2 == 0 else reversed(sides):
            speeds[side].append(side.tokens_per_second(steps))
    ratios = [a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True)]
    result = {
        "bench": "pretrain",
        "machine": machine(),
        "model": name,
        "batch": SHAPES[name],
        "threads": arguments.threads,
        "ours_tokens_per_second": round(statistics.median(speeds[ours]), 1),
        "transformers_tokens_per_second": round(statistics.median(speeds[theirs]), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "target": TARGETS[name],
        "windows": arguments.windows,
        "loss": [our_loss, their_loss],
    }
    print(json.dumps(result))
    if arguments.update_docs:
        tables.update_docs(TABLES[name], result["machine"], docs_table(name, result))


if __name__ == "__main__":
    main()
