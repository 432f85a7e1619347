"""What the comparisons of whole models with transformers share: batches, sinusoids in float64, bounds and gradients."""

import json
from fnmatch import fnmatchcase

import numpy as np
import torch
import transformers

import cli_support
import tolerances as tol
from engine_case import TYPES, VOCAB


def make_batch(padding="right", tokens=13):
    """Ids, mask and types of four sequences with 0, 1, 4 and 7 tokens of padding, on a side or on none."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, VOCAB, (4, tokens), generator=generator)
    types = torch.randint(0, TYPES, (4, tokens), generator=generator)
    mask = torch.ones(4, tokens, dtype=torch.int64)
    for row, count in enumerate((0, 1, 4, 7)):
        if padding == "right":
            mask[row, tokens - count :] = 0
        elif padding == "left":
            mask[row, :count] = 0
    return ids * mask, mask, types


def perturbed(model):
    """In evaluation mode, with parameters moved by N(0, 0.3): the usual N(0, 0.02) makes attention nearly uniform and
    hides errors."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # the table of rotations is not
                parameter.add_(torch.randn(parameter.shape), alpha=tol.PERTURBED)
    return model.eval()


def exact_table(model, rows=None):
    """Gives a RoFormer of transformers the sin|cos table of float64 (R-ABS-04); its own is computed in float32."""
    for name, table in model.named_parameters():
        if name.endswith("embed_positions.weight"):
            dim = table.shape[1]
            angles = np.arange(rows or len(table))[:, None] * 10000.0 ** (-2.0 * np.arange(dim // 2) / dim)
            table.requires_grad_(False).data = torch.from_numpy(
                np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
            ).to(table.dtype)
    return model


def assert_close(ours, theirs):
    """Relative to the largest reference value: T4 in float32."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    difference, scale = (ours - theirs).abs(), theirs.abs().max()
    if ours.dtype == torch.float64:
        assert difference.max() <= tol.MODEL_F64 * scale
    else:
        assert difference.max() <= tol.T4_MAX * scale
        assert difference.mean() <= tol.T4_MEAN * scale


def weighted_mean(outputs):
    """A number that depends on every element of these outputs, by which gradients are compared."""
    flat = torch.cat([x.flatten() for x in outputs])
    return (flat * torch.linspace(-1, 2, flat.numel(), dtype=flat.dtype)).mean()


def gradients_of(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_close_gradients(ours, theirs):
    """Dictionaries with the same names; of tensors that nearly vanish, relative to the largest of all."""
    assert ours.keys() == theirs.keys()
    largest = max(gradient.abs().max() for gradient in theirs.values())
    for name, gradient in theirs.items():
        rtol = tol.GRADIENT_F64 if gradient.dtype == torch.float64 else tol.GRADIENT_F32
        scale = max(gradient.abs().max(), tol.GRADIENT_FLOOR * largest)
        assert (ours[name] - gradient).abs().max() <= rtol * scale, name


class AdamW(torch.optim.AdamW):
    """torch's, with decay for embeddings and matrices; none for biases and norms, whose tensors have one dimension.
    groups: of the run file."""

    def __init__(self, model, decay, groups=(), **options):
        self.trained, own = [], []
        for name, w in model.named_parameters():
            if w.requires_grad:
                group = next((group for group in groups if fnmatchcase(name, group["parameters"])), {})
                usual = decay if w.ndim > 1 else 0.0
                factor = group.get("learning_rate", 1.0)
                own.append(dict(params=[w], weight_decay=group.get("weight_decay", usual), factor=factor))
                self.trained.append(w)
        super().__init__(own, **options)

    def update(self, rate, clip):
        """The norm of the gradient before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.trained, clip).item()
        for group in self.param_groups:
            group["lr"] = rate * group["factor"]
        self.step()
        self.zero_grad()
        return norm


def save_with_vocabulary(folder, auto_class, family, **config):
    """Saves a perturbed model of transformers in folder/model, with a vocabulary of ours; its directory."""
    cli_support.make_corpus(folder / "corpus")
    cli_support.results("vocab", "--input", folder / "corpus", "--size", 150, "--output", folder / "model/vocab.txt")
    words = (folder / "model" / "vocab.txt").read_text().splitlines()
    torch.manual_seed(2)
    made = getattr(transformers, f"{family}Config")(vocab_size=len(words), **config)
    perturbed(getattr(transformers, auto_class).from_config(made)).save_pretrained(folder / "model")
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="BertTokenizer")))
    return folder / "model"
