#!/usr/bin/env python3
"""Compares pretraining tokens per second of `roformer` and transformers' RoFormerForMaskedLM on this machine.

Both sides start from the same weights and take the same batches: 15 % of the tokens masked, dropout 0.1, bfloat16
autocast with float32 master weights, clipping at norm 1, fused AdamW. They must have the same loss with dropout off,
then they take turns in windows. The data are random ids with a Zipf distribution, because the content of a row does not
change the work.
"""

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
    """A side that takes training steps, of so many tokens each."""
    return Windows(name, lambda: server.ask(f"steps {steps}"), amount=steps * tokens)


class Theirs:
    """transformers, with the commands of `roformer bench`."""

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

    def ask(self, command):
        self.model.train()
        for _ in range(int(command.split()[1])):
            loss = self.forward(self.step % BATCHES)
            self.step += 1
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            loss.item()


def compare(name, windows, steps, threads):
    """Tokens per second of both sides, and the ratios of the windows."""
    sizes, shape = MODELS[name], SHAPES[name]
    model = transformers.RoFormerForMaskedLM(transformers.RoFormerConfig(**sizes))
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        ids, labels = save_batches(directory, sizes["vocab_size"], shape)
        ours, theirs = Server(bench_command(directory, threads)), Theirs(model, ids, labels)
        losses = ours.ask("loss")["loss"], theirs.loss()
    if not abs(losses[0] - losses[1]) <= LOSS_TOLERANCE * losses[1]:
        sys.exit(f"the two sides must agree before they are timed, got losses {losses}")
    tokens = shape[0] * shape[1]
    sides = [stepping("ours", ours, steps, tokens), stepping("transformers", theirs, steps, tokens)]
    harness.take_turns(sides, windows)
    ratios = harness.ratios(sides[1], sides[0])
    what = (
        f"{name}: hidden {sizes['hidden_size']}, {sizes['num_hidden_layers']} layers, "
        f"{sizes['num_attention_heads']} heads, vocabulary {sizes['vocab_size']}, batch {shape[0]} x {shape[1]}"
    )
    return {
        "model": what,
        **{side.name: f"{1 / side.median:,.0f}" for side in sides},
        f"ratio, median of {windows} windows (range)": (
            f"{harness.median_ratio(sides[1], sides[0]):.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
        ),
    }


def main():
    parser = harness.options(__doc__, TABLES)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--windows", type=int, default=9)
    parser.add_argument("--steps", type=int, help="steps per window")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    steps = given.steps or STEPS[given.model]
    results = harness.shown([compare(given.model, given.windows, steps, given.threads)])
    harness.finish(given, results, {TABLES[given.model]: tables.of_dicts(results)})


if __name__ == "__main__":
    main()
