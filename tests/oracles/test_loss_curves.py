"""Loss curves of pretraining by 1, 2 and 4 processes, beside those of transformers' RoFormer in float64.

The rows and masks are those that the program reads; everything else is written from the formulas, in double: the loss
over the tokens that all micro-batches of a step predict, its gradient by autograd, clipping by the norm of the whole
gradient, the schedule, and torch's AdamW.
"""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import cli_support
import tolerances as tol
from job_case import finish, job
from parity_case import AdamW, exact_table, perturbed
from shard_file import probe

STEPS, LENGTH, BATCH, ACCUMULATE = 20, 16, 16, 4
WARMUP, RATE, FINAL, DECAY, CLIP, BETA1, BETA2, EPSILON = 4, 3e-3, 1e-4, 0.1, 1.0, 0.9, 0.98, 1e-6
SEED = 7
# The first that matches counts: biases of the second layer are not in the second group.
GROUPS = [
    dict(parameters="*.layer.1.*.bias", learning_rate=3.0, weight_decay=0.5),
    dict(parameters="*.layer.?.*", learning_rate=0.25),
    dict(parameters="cls.*", weight_decay=0.0),
]
RUN = dict(stages=[dict(max_length=LENGTH, batch=BATCH, accumulate=ACCUMULATE, steps=STEPS)], weight_decay=DECAY)
RUN |= dict(schedule=dict(kind="linear", learning_rate=RATE, warmup_steps=WARMUP, final_rate=FINAL), clip_norm=CLIP)
RUN |= dict(beta1=BETA1, beta2=BETA2, epsilon=EPSILON, packing="padded", precision="float32", seed=SEED)
RUN |= dict(log_every_steps=1, checkpoint_every_steps=100)


@pytest.fixture(scope="module")
def start(prepared, tmp_path_factory):
    """A model of transformers' making without dropout, moved by N(0, 0.3), as the program and the oracle begin."""
    folder = tmp_path_factory.mktemp("curves")
    torch.manual_seed(3)
    sizes = dict(embedding_size=24, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40)
    sizes |= dict(max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    words = (prepared / "data" / "vocab.txt").read_text().splitlines()
    config = transformers.RoFormerConfig(vocab_size=len(words), **sizes)
    perturbed(transformers.RoFormerForMaskedLM(config)).save_pretrained(folder / "model")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / "model" / name).write_bytes((prepared / "data" / name).read_bytes())
    return folder / "model"


def micro_batches(data):
    """ids and attention mask [B, T], and flat places and labels [N], of every micro-batch in order."""
    asked = dict(max_length=LENGTH, batch=BATCH // ACCUMULATE, count=STEPS * ACCUMULATE, seed=SEED)
    for batch in probe("batches", data, **asked):
        shape = (-1, batch["length"])
        ids, segments, places, labels = (torch.tensor(batch[key]) for key in ("ids", "segments", "places", "labels"))
        yield ids.view(shape), segments.view(shape).ge(0).long(), places, labels


def rate_of(step):
    if step <= WARMUP:
        return RATE * step / WARMUP
    return RATE + (FINAL - RATE) * (step - WARMUP) / (STEPS - WARMUP)


@pytest.fixture(scope="module")
def expected(start, prepared):
    """Of a run without groups and of one with GROUPS: loss and gradient norm [STEPS, 2] of each step, and the trained
    model, in float64."""
    return [trained(start, prepared, groups) for groups in ([], GROUPS)]


def trained(start, prepared, groups):
    model = exact_table(transformers.RoFormerForMaskedLM.from_pretrained(start).double().train())
    optimizer = AdamW(model, DECAY, groups, betas=(BETA1, BETA2), eps=EPSILON)
    batches, found = micro_batches(prepared / "data"), []
    for step in range(1, STEPS + 1):
        own = [next(batches) for _ in range(ACCUMULATE)]
        predicted = sum(len(labels) for *_, labels in own)
        loss = 0.0
        for ids, mask, places, labels in own:
            logits = model(input_ids=ids, attention_mask=mask).logits.flatten(0, 1)[places]
            part = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / predicted
            part.backward()
            loss += part.item()
        found.append((loss, optimizer.update(rate_of(step), CLIP)))
    return np.array(found), model


# Other numbers of processes and shardings are compared with one in tests/python/test_distributed.py.
JOBS = [(1, "none", []), (1, "none", GROUPS), (2, "none", []), (4, "optimizer", GROUPS)]


@pytest.mark.parametrize(("processes", "sharding", "groups"), JOBS)
def test_losses_and_weights_are_those_of_float64(start, prepared, tmp_path, expected, processes, sharding, groups):
    config, (curve, model) = tmp_path / "run.json", expected[bool(groups)]
    config.write_text(json.dumps({**RUN, "init_from": str(start), "sharding": sharding, "groups": groups}))
    arguments = ("pretrain", "--config", config, "--data", prepared / "data", "--output", tmp_path / "run")
    if processes == 1:
        cli_support.results(*arguments, "--threads", "1")
    else:
        finish(job(processes, *arguments))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    got = np.array([(line["loss"], line["gradient_norm"]) for line in lines if line["type"] == "train"])
    assert len(got) == STEPS
    off = np.abs(got / curve - 1).max(axis=0)
    assert (off <= (tol.CURVE_LOSS, tol.CURVE_NORM)).all(), off
    weights = load_file(tmp_path / "run" / "model.safetensors")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.endswith("key.bias"):  # whose gradient is 0 but for rounding
            assert np.abs(weights[name] - parameter.detach().numpy()).max() <= tol.CURVE_WEIGHT, name
