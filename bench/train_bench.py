#!/usr/bin/env python3
"""Compares pretraining tokens per second of `roformer`, of a loop in Python over the package's `Model`, and of
transformers' RoFormerForMaskedLM in such a loop, on this machine.

All sides start from the same weights and take the same batches: 15 % of the tokens masked, dropout 0.1, bfloat16
autocast with float32 master weights, clipping at norm 1, fused AdamW. They must have the same loss with dropout off,
then they take turns in windows. The data are random ids with a Zipf distribution, because the content of a row does not
change the work. "Memory kept": glibc keeps freed memory for the process, as `roformer` asks it to; a program in Python
does so with MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=2147483647 in its environment.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import harness
import numpy as np
import tables
import torch
import transformers
from harness import PROGRAM, Server, Windows

import roformer_cpp

TABLES = {"small": "train_bench small", "base": "train_bench base"}
LENGTHS = {"max_position_embeddings": 512}
MODELS = {
    "small": LENGTHS | dict(vocab_size=8000, hidden_size=256, embedding_size=256, num_hidden_layers=4,
                            num_attention_heads=4, intermediate_size=1024),
    "base": LENGTHS | dict(vocab_size=50000, hidden_size=768, embedding_size=768, num_hidden_layers=12,
                           num_attention_heads=12, intermediate_size=3072),
}  # fmt: skip
SHAPES = {"small": (32, 128), "base": (8, 128)}
STEPS = {"small": 6, "base": 2}  # of a window
BATCHES = 8
SPECIAL, MASK_ID = 5, 4
# bfloat16 keeps 8 bits: each side's mean loss over hundreds of tokens is good to about a thousandth.
LOSS_TOLERANCE = 5e-3


def save_batches(directory, vocab_size, shape):
    """Writes random batches [BATCHES, rows, tokens] next to a model; the ids and the labels."""
    rng = np.random.default_rng(1)
    rows = (BATCHES, *shape)
    ids = np.minimum(rng.zipf(1.2, rows), vocab_size - SPECIAL) + SPECIAL - 1
    labels = np.where(rng.random(rows) < 0.15, ids, -100)
    fate = rng.random(rows)
    masked = np.where(fate < 0.8, MASK_ID, np.where(fate < 0.9, rng.integers(SPECIAL, vocab_size, rows), ids))
    ids = np.where(labels == -100, ids, masked)
    np.save(Path(directory) / "ids.npy", ids)
    np.save(Path(directory) / "labels.npy", labels)
    return ids, labels


def bench_command(directory, threads):
    """`roformer bench`, which runs training steps on the model and the batches in the directory."""
    files = ["--model", directory, "--ids", f"{directory}/ids.npy", "--labels", f"{directory}/labels.npy"]
    return [PROGRAM, "bench", *files, "--threads", str(threads)]


def stepping(name, server, steps, tokens):
    """A side that takes training steps of `tokens` tokens each."""
    return Windows(name, lambda: server.ask(f"steps {steps}"), amount=steps * tokens)


class Loop:
    """Training in Python, with the commands of `roformer bench`."""

    def __init__(self, directory):
        self.ids, self.labels = (torch.from_numpy(np.load(f"{directory}/{name}.npy")) for name in ("ids", "labels"))
        self.model, self.step = self.load(directory), 0
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        rest = [p for p in self.model.parameters() if p.dim() <= 1]
        groups = [dict(params=decayed, weight_decay=0.01), dict(params=rest, weight_decay=0.0)]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)

    def load(self, directory):
        return transformers.RoFormerForMaskedLM.from_pretrained(directory)

    def loss_of(self, ids, labels):
        return self.model(ids, labels=labels).loss

    def forward(self, index):
        with torch.autocast("cpu", torch.bfloat16):
            return self.loss_of(self.ids[index], self.labels[index])

    def loss(self):
        self.model.eval()
        with torch.no_grad():
            return self.forward(0).item()

    def steps(self, count):
        self.model.train()
        for _ in range(count):
            loss = self.forward(self.step % BATCHES)
            self.step += 1
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            loss.item()

    def serve(self):
        for line in sys.stdin:
            command, *count = line.split()
            print(json.dumps({command: self.loss() if command == "loss" else self.steps(int(*count))}), flush=True)


class OurLoop(Loop):
    """Over the package's model, with the logits of masked tokens alone, as the program computes them."""

    def load(self, directory):
        return roformer_cpp.load_model(directory)

    def loss_of(self, ids, labels):
        masked = labels >= 0
        logits = self.model.masked_lm_logits(self.model.encode(ids)[masked])
        return torch.nn.functional.cross_entropy(logits.float(), labels[masked])


LOOPS = {"package": OurLoop, "transformers": Loop}
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}


def loop_server(loop, directory, threads, environment):
    command = [sys.executable, __file__, "--loop", loop, "--directory", directory, "--threads", str(threads)]
    return Server(command, os.environ | environment)


def compare(name, windows, steps, threads):
    """Tokens per second of the sides, and the ratios of the windows."""
    sizes, shape = MODELS[name], SHAPES[name]
    model = transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**sizes))
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        save_batches(directory, sizes["vocab_size"], shape)
        servers = {
            "the program": Server(bench_command(directory, threads)),
            "the package, memory kept": loop_server("package", directory, threads, KEPT),
            "transformers": loop_server("transformers", directory, threads, {}),
            "transformers, memory kept": loop_server("transformers", directory, threads, KEPT),
        }
        losses = [each.ask("loss")["loss"] for each in servers.values()]
    if not max(losses) - min(losses) <= LOSS_TOLERANCE * losses[-1]:
        sys.exit(f"all sides must agree before they are timed, got losses {losses}")
    tokens = shape[0] * shape[1]
    sides = {side: stepping(side, server, steps, tokens) for side, server in servers.items()}
    harness.take_turns(list(sides.values()), windows)

    def ratio(of, side="the program"):
        all_of = harness.ratios(sides[of], sides[side])
        return f"{harness.median_ratio(sides[of], sides[side]):.2f} ({min(all_of):.2f} - {max(all_of):.2f})"

    what = (
        f"{name}: hidden {sizes['hidden_size']}, {sizes['num_hidden_layers']} layers, "
        f"{sizes['num_attention_heads']} heads, vocabulary {sizes['vocab_size']}, batch {shape[0]} x {shape[1]}"
    )
    return {
        "model": what,
        **{side: f"{1 / timed.median:,.0f}" for side, timed in sides.items()},
        f"ratio, the program to transformers, median of {windows} windows (range)": ratio("transformers"),
        "to transformers, memory kept": ratio("transformers, memory kept"),
        "the package to the program": ratio("the program", "the package, memory kept"),
    }


def main():
    parser = harness.options(__doc__, TABLES)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--windows", type=int, default=9)
    parser.add_argument("--steps", type=int, help="steps per window")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--loop", choices=LOOPS, help=argparse.SUPPRESS)  # a side in a separate process
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    if given.loop:
        LOOPS[given.loop](given.directory).serve()
        return
    steps = given.steps or STEPS[given.model]
    results = harness.shown([compare(given.model, given.windows, steps, given.threads)])
    harness.finish(given, results, {TABLES[given.model]: tables.of_dicts(results)})


if __name__ == "__main__":
    main()
