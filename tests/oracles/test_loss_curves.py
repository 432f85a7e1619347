"""Loss curves of pretraining by 1, 2 and 4 processes beside those of transformers' RoFormer in float64.

The rows and masks are those that the program reads; everything else is written from the formulas, in double: the loss
over the tokens that all micro-batches of a step predict, its gradient by autograd, clipping by the norm of the whole
gradient, the schedule, and AdamW (Loshchilov and Hutter, algorithm 2).
"""

import json
import math
import subprocess

import numpy as np
import pytest
import torch
import transformers

import cli_support
import tolerances as tol
from cli_support import PROGRAM
from job_case import finish, job

STEPS, LENGTH, BATCH, ACCUMULATE = 20, 16, 16, 4
WARMUP, RATE, FINAL, DECAY, CLIP, BETA1, BETA2, EPSILON = 4, 3e-3, 1e-4, 0.1, 1.0, 0.9, 0.98, 1e-6
SEED = 7
RUN = dict(
    stages=[dict(max_length=LENGTH, batch=BATCH, accumulate=ACCUMULATE, steps=STEPS)],
    schedule=dict(kind="linear", learning_rate=RATE, warmup_steps=WARMUP, final_rate=FINAL),
    weight_decay=DECAY,
    clip_norm=CLIP,
    beta1=BETA1,
    beta2=BETA2,
    epsilon=EPSILON,
    packing="padded",
    precision="float32",
    seed=SEED,
    log_every_steps=1,
    checkpoint_every_steps=100,
)


@pytest.fixture(scope="module")
def start(prepared, tmp_path_factory):
    """A model of transformers' making without dropout, moved by N(0, 0.3), as the program and the oracle begin."""
    folder = tmp_path_factory.mktemp("curves")
    torch.manual_seed(3)
    config = transformers.RoFormerConfig(
        vocab_size=len((prepared / "data" / "vocab.txt").read_text().splitlines()),
        embedding_size=24,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.RoFormerForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=tol.PERTURBED)
    model.save_pretrained(folder / "model")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / "model" / name).write_bytes((prepared / "data" / name).read_bytes())
    return folder / "model"


def micro_batches(data):
    """ids and attention mask [B, T], and flat places and labels [N], of every micro-batch in order."""
    asked = dict(data=str(data), max_length=LENGTH, batch=BATCH // ACCUMULATE, count=STEPS * ACCUMULATE, seed=SEED)
    probe = PROGRAM.parent / "tests" / "data_probe"
    done = subprocess.run([probe, json.dumps(dict(batches=asked))], capture_output=True, check=True)
    for batch in json.loads(done.stdout)["batches"]:
        shape = (-1, batch["length"])
        yield (
            torch.tensor(batch["ids"]).view(shape),
            torch.tensor(batch["segments"]).view(shape).ge(0).long(),
            torch.tensor(batch["places"]),
            torch.tensor(batch["labels"]),
        )


def rate_of(step, peak):
    if step <= WARMUP:
        return peak * step / WARMUP
    return peak + (FINAL - peak) * (step - WARMUP) / (STEPS - WARMUP)


class DoubleAdamW:
    """Decay for embeddings and matrices; none for biases and norms, whose tensors have one dimension."""

    def __init__(self, parameters, decay, clip, beta2):
        self.all = [(w, torch.zeros_like(w), torch.zeros_like(w)) for w in parameters]
        self.decay, self.clip, self.beta2 = decay, clip, beta2
        self.updates = 0

    def step(self, rate):
        """The norm of the gradient before clipping."""
        self.updates += 1
        norm = math.sqrt(sum(w.grad.square().sum().item() for w, _, _ in self.all))
        scale = min(1.0, self.clip / (norm + 1e-6))
        for w, m, v in self.all:
            g = scale * w.grad
            w *= 1 - rate * (self.decay if w.ndim > 1 else 0.0)
            m.copy_(BETA1 * m + (1 - BETA1) * g)
            v.copy_(self.beta2 * v + (1 - self.beta2) * g * g)
            corrected = v / (1 - self.beta2**self.updates)
            w -= rate * (m / (1 - BETA1**self.updates)) / (corrected.sqrt() + EPSILON)
            w.grad = None
        return norm


def curve(start, data, *, rate=RATE, decay=DECAY, clip=CLIP, beta2=BETA2):
    """Loss and gradient norm [STEPS, 2] of each step, in float64."""
    model = transformers.RoFormerForMaskedLM.from_pretrained(start).double().train()
    table = model.roformer.encoder.embed_positions.weight  # transformers has it in float32
    rows, dim = table.shape
    angles = np.arange(rows)[:, None] * 10000.0 ** (-2.0 * np.arange(dim // 2) / dim)
    exact = torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
    model.roformer.encoder.embed_positions.weight = torch.nn.Parameter(exact, requires_grad=False)
    optimizer = DoubleAdamW([w for w in model.parameters() if w.requires_grad], decay, clip, beta2)
    batches, found = micro_batches(data), []
    for step in range(1, STEPS + 1):
        own = [next(batches) for _ in range(ACCUMULATE)]
        predicted = sum(len(labels) for *_, labels in own)
        loss = 0.0
        for ids, mask, places, labels in own:
            logits = model(input_ids=ids, attention_mask=mask).logits.flatten(0, 1)[places]
            part = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / predicted
            part.backward()
            loss += part.item()
        with torch.no_grad():
            found.append((loss, optimizer.step(rate_of(step, rate))))
    return np.array(found)


def off(one, other):
    """The largest relative difference of a loss and of a norm."""
    return np.abs(one / other - 1).max(axis=0)


@pytest.fixture(scope="module")
def expected(start, prepared):
    return curve(start, prepared / "data")


@pytest.mark.parametrize(
    ("processes", "sharding"), [(1, "none"), (2, "none"), (4, "none"), (2, "optimizer"), (4, "optimizer")]
)
def test_losses_are_those_of_float64(start, prepared, tmp_path, expected, processes, sharding):
    config = tmp_path / "run.json"
    config.write_text(json.dumps({**RUN, "init_from": str(start), "sharding": sharding}))
    arguments = ("pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run")
    if processes == 1:
        cli_support.results(*arguments, "--threads", "1")
    else:
        finish(job(processes, *arguments))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    got = np.array([(line["loss"], line["gradient_norm"]) for line in lines if line["type"] == "train"])
    assert len(got) == STEPS
    print(f"{processes} processes, sharding {sharding}: off by {off(got, expected)}")
    assert (off(got, expected) <= (tol.CURVE_LOSS, tol.CURVE_NORM)).all()


@pytest.mark.parametrize("wrong", [dict(rate=1.001 * RATE), dict(decay=0.0), dict(clip=2.0), dict(beta2=0.999)])
def test_the_bound_would_show_another_constant(start, prepared, expected, wrong):
    difference = off(curve(start, prepared / "data", **wrong), expected)
    assert (difference > (10 * tol.CURVE_LOSS, 10 * tol.CURVE_NORM)).all(), difference
