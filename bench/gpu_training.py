"""Training for bench/gpu_check.py: RoFormer-base and its peer in transformers, and sentences of a small grammar."""

import multiprocessing
import random
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
import verified
from gpu_run import RUN, compiled, peak_mib, require, sizes, timed
from torch import Tensor

import roformer_cpp

SPECIAL, MASK = 5, 4
LOSS_TOLERANCE = 5e-3  # as in bench/train_bench.py
# Limit for bfloat16 against float32 over some thousand steps, and the number of steps in each mean.
CURVE_TOLERANCE, CURVE_STEPS = 0.03, 20


class Batch(NamedTuple):
    ids: Tensor  # [rows, tokens]; 15 % are the mask
    at: Tensor  # places of the masked tokens in the flat batch
    labels: Tensor  # their ids

    def to(self, device: str) -> "Batch":
        return Batch(*(x.to(device) for x in self))


def masked(ids: Tensor, seed: int) -> Batch:
    flat = ids.flatten()
    order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(seed))
    at = order[: max(1, round(0.15 * len(flat)))]
    return Batch(flat.index_fill(0, at, MASK).view_as(ids), at, flat[at])


def sentence(draw: random.Random) -> list[int]:
    """ "The ADJECTIVE NOUN VERB the NOUN .": articles and verbs agree in number with a noun, which has two verbs."""
    (noun, plural), (other, others) = ((draw.randrange(40), draw.randrange(2)) for _ in range(2))
    verb = (7 * noun + draw.randrange(2)) % 20
    articles, adjectives, nouns, verbs, end = SPECIAL, 10, 30, 110, 150
    subject = [articles + plural, adjectives + draw.randrange(20), nouns + 2 * noun + plural]
    return [*subject, verbs + 2 * verb + plural, articles + others, nouns + 2 * other + others, end]


def sentences(seed: int) -> Batch:
    rows, tokens = RUN.sizes.small_batch
    draw, words = random.Random(seed), []
    while len(words) < rows * tokens:
        words += sentence(draw)
    return masked(torch.tensor(words[: rows * tokens]).view(rows, tokens), seed)


class Trained:
    """A model in training by AdamW: float32 weights, bfloat16 products on a GPU."""

    def __init__(self, model: torch.nn.Module, device: str):
        self.model, self.device, self.steps = model.to(device).train(), device, 0
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=3e-4, fused=True)

    def loss(self, batch: Batch) -> Tensor:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            return self.masked_loss(batch)

    def step(self, batch: Batch) -> float:
        loss = self.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        return loss.item()

    def evaluated(self, batch: Batch) -> float:
        """The loss without dropout."""
        self.model.eval()
        with torch.no_grad():
            loss = self.loss(batch).item()
        self.model.train()
        return loss


class Ours(Trained):
    def __init__(self, config: dict, device: str):
        super().__init__(roformer_cpp.build_model(config, "RoFormerForMaskedLM", seed=1), device)

    def masked_loss(self, batch: Batch) -> Tensor:
        hidden = self.model.encode(batch.ids, dropout_key=(1, self.steps))
        logits = self.model.masked_lm_logits(hidden.flatten(0, 1)[batch.at])
        return F.cross_entropy(logits.float(), batch.labels)

    def gradients(self, batch: Batch) -> list[Tensor]:
        """The loss, and the gradients of the parameters that have one."""
        loss = self.loss(batch)
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return [loss.detach(), *(gradient for gradient in found if gradient is not None)]


class Theirs(Trained):
    """The same weights in transformers, compiled; its attention for RoFormer does not use SDPA."""

    def __init__(self, ours: Ours):
        import transformers

        with tempfile.TemporaryDirectory() as folder:
            ours.model.save(folder)
            super().__init__(transformers.RoFormerForMaskedLM.from_pretrained(folder), ours.device)
        self.call = compiled(self.model)

    def masked_loss(self, batch: Batch) -> Tensor:
        labels = torch.full_like(batch.ids.flatten(), -100).index_put((batch.at,), batch.labels)
        return self.call(batch.ids, labels=labels.view_as(batch.ids)).loss


def training() -> list[dict]:
    """Steps on one batch of random ids, whose loss both sides compute alike."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(SPECIAL, RUN.sizes.model["vocab_size"], RUN.sizes.batch, generator=generator)
    batch, ours = masked(ids, 1).to(RUN.device), Ours(RUN.sizes.model, RUN.device)
    models, losses = {verified.OURS: ours}, {verified.OURS: ours.evaluated(batch)}
    try:
        models["transformers"] = Theirs(ours)
    except ImportError as error:
        verified.left_out("transformers", "training", error)
    else:
        losses["transformers"] = models["transformers"].evaluated(batch)
        difference = abs(losses["transformers"] / losses[verified.OURS] - 1)
        require("the loss of the same weights in transformers", difference, LOSS_TOLERANCE)
    steps = {name: partial(model.step, batch) for name, model in models.items()}
    for step in steps.values():
        step()  # it makes the optimizer's state
    peaks = {name: peak_mib(step) for name, step in steps.items()}
    return [
        row | {"tokens_per_s": 1e3 * ids.numel() / row["ms"], "peak_mib": peaks[name], "loss": losses[name]}
        for row in timed(steps)
        for name in [row["side"]]
    ]


def curve(device: str, seconds: float) -> list[float]:
    """The losses of the steps that fit into the time, at least two, the second of which follows an update."""
    trained, losses, end = Ours(RUN.sizes.small_model, device), [], time.monotonic() + seconds
    while len(losses) < 2 or time.monotonic() < end:
        losses.append(trained.step(sentences(trained.steps).to(device)))
    return losses


def curve_on_cpu(dry: bool, seconds: float) -> list[float]:
    """The losses of the CPU's kernels in float32; runs in a separate process."""
    RUN.sizes = sizes(dry)
    torch.set_num_threads(max(1, RUN.sizes.workers - 2))
    return curve("cpu", seconds)


def means(losses: list[float]) -> list[float]:
    """The means of groups of CURVE_STEPS. An incomplete group counts only if it is the only one."""
    groups = [losses[i : i + CURVE_STEPS] for i in range(0, len(losses), CURVE_STEPS)]
    return [sum(group) / len(group) for group in groups if len(group) == CURVE_STEPS or len(groups) == 1]


def pretraining(time_left_s: float) -> list[dict]:
    if RUN.warming:
        Ours(RUN.sizes.small_model, RUN.device).step(sentences(0).to(RUN.device))
        return []
    seconds = min(RUN.sizes.pretraining_s, time_left_s)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        expected = process.submit(curve_on_cpu, RUN.dry, seconds)
        losses = curve(RUN.device, seconds)
        want = expected.result()
    common = min(len(losses), len(want))
    pairs = zip(means(losses[:common]), means(want[:common]), strict=True)
    difference = max(abs(ours / theirs - 1) for ours, theirs in pairs)
    require("the loss on the GPU", difference, CURVE_TOLERANCE)
    row = {"steps": len(losses), "compared_steps": common, "difference": difference}
    return [row | {"losses": means(losses), "cpu_losses": means(want)}]
