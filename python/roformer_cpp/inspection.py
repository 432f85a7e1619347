"""Attention to look at: `inspect`, and its page."""

import base64
import copy
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import _checks
from ._attention_page import PAGE
from .attention import _observers, weights
from .graft import _FAMILIES, graft
from .model import Model
from .terms import Terms


@dataclass
class LayerAttention:
    """Attention of one layer, float64 ``[H, T, S]``.

    ``weights``: softmax of the scores; ``content``: s q.k; ``encoding``: what the position encoding adds to the score.
    Softmax ignores a number that is equal for all keys of a query, so ``encoding`` is given relative to its value at
    the last key, which is the query itself in causal attention, and at the query itself in other attention of as many
    keys. NaN: the key is masked.
    """

    weights: Tensor
    content: Tensor
    encoding: Tensor


@dataclass
class Inspection:
    """The attention of a model to one text."""

    tokens: list[str]
    layers: list[LayerAttention]

    def html(self, title: str = "Attention") -> str:
        """A self-contained HTML page with the weights and the parts of scores of every head."""
        data = {
            "title": title,
            "tokens": self.tokens,
            "heads": self.layers[0].weights.shape[0],
            "layers": [{name: _packed(part) for name, part in vars(layer).items()} for layer in self.layers],
        }
        return PAGE.replace("/*data*/", json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))

    def save(self, path: str | PathLike, title: str = "Attention") -> None:
        """Writes the page."""
        Path(path).write_text(self.html(title), encoding="utf-8")


def inspect(model: nn.Module, text: str | Sequence[int] | Tensor, tokenizer: Any = None) -> Inspection:
    """Attention weights of every layer and head for one text, and the parts that content and encoding have in scores.

    Args:
        model: a model of transformers that `graft` takes, grafted or not, or any module whose attention is
            ``roformer_cpp.attention``, such as ``Model``. It is called with ``input_ids`` alone, in evaluation mode.
        text: a text, or its token ids.
        tokenizer: of transformers, or ``roformer_cpp.Tokenizer``; for token ids, it names the tokens.

    Raises:
        TypeError: `model` is not a module, or a text came without a tokenizer.
        ValueError: no layer of the model computes attention by ``roformer_cpp.attention``.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"[inspect] model must be a torch.nn.Module, got {type(model).__name__}")
    ids, tokens = _tokens(text, tokenizer)
    kind = getattr(getattr(model, "config", None), "model_type", None)
    layers: list[LayerAttention] = []
    # A copy with the same parameters: the model keeps its modes and encoding, for other threads too.
    shared = {id(x): x for x in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, shared).eval()
    if kind in _FAMILIES and not isinstance(model, Model) and not hasattr(model, "position_encoding"):
        own: dict[str, Any] = {"encoding": "none", "keep": True} if kind == "bert" else {"encoding": "rope"}
        graft(model, **own)
    refused = ""
    with torch.no_grad(), _observed(layers):
        try:
            model(ids)
        except Exception as error:
            if layers or isinstance(model, Model) or kind in _FAMILIES:
                raise
            refused = f": {error}"
    if not layers:
        raise ValueError(
            "[inspect] model must compute attention by roformer_cpp.attention, or be one that graft takes, got "
            f"{type(model).__name__}{refused}"
        )
    return Inspection(tokens, layers)


def _tokens(text: str | Sequence[int] | Tensor, tokenizer: Any) -> tuple[Tensor, list[str]]:
    if isinstance(text, str):
        if tokenizer is None:
            raise TypeError("[inspect] tokenizer must be given for a text, got None")
        text = tokenizer(text)["input_ids"]
    try:
        ids = torch.as_tensor(text)
    except (RuntimeError, TypeError, ValueError):
        ids = torch.ones(1)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise TypeError(f"[inspect] text must be a text or its token ids, got {_checks.shown(text)}")
    if ids.numel() == 0 or ids.dim() not in (1, 2) or (ids.dim() == 2 and len(ids) != 1):
        raise ValueError(f"[inspect] text must be one text of at least one token, got {list(ids.shape)}")
    ids = ids.reshape(1, -1).long()
    rows = ids[0].tolist()
    return ids, [str(i) for i in rows] if tokenizer is None else tokenizer.convert_ids_to_tokens(rows)


@contextmanager
def _observed(layers: list[LayerAttention]) -> Iterator[None]:
    thread, is_busy = threading.get_ident(), False

    def observe(q: Tensor, k: Tensor, terms: Terms, where: tuple, prefix: Tensor | None) -> None:
        nonlocal is_busy
        if is_busy or threading.get_ident() != thread:
            return
        is_busy = True  # weights() attends too
        try:
            layers.append(_layer(q.double(), k.double(), terms, where, prefix))
        finally:
            is_busy = False

    _observers.append(observe)
    try:
        yield
    finally:
        _observers.remove(observe)


def _layer(q: Tensor, k: Tensor, terms: Terms, where: tuple, prefix: Tensor | None) -> LayerAttention:
    positions, key_positions, mask, *window, cu_seqlens, cu_seqlens_k = where
    options = dict(positions=positions, key_positions=key_positions, mask=mask, window=tuple(window), prefix=prefix)
    options |= dict(cu_seqlens=cu_seqlens, cu_seqlens_k=cu_seqlens_k)
    found = weights(q, k, replace(terms), **options)[0]  # without an origin, which would want float64
    scale = q.shape[-1] ** -0.5 if terms.scale is None else terms.scale
    k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    content = torch.einsum("thd,shd->hts", q[0], k[0]) * scale
    content = content.masked_fill(found == 0, torch.nan)
    encoding = found.log() - content
    itself = torch.arange(k.shape[1] - q.shape[1], k.shape[1], device=q.device).clamp_min(0)
    at_itself = encoding.gather(2, itself[None, :, None].expand(len(encoding), -1, 1))
    return LayerAttention(found.cpu(), content.cpu(), (encoding - at_itself).cpu())


def _packed(x: Tensor) -> dict[str, Any]:
    """16 bits for each number, from the lowest to the highest; 65535 is not a number."""
    known = x[x.isfinite()]
    low, high = (known.min().item(), known.max().item()) if known.numel() else (0.0, 0.0)
    steps = ((x - low) / max(high - low, 1e-30) * 65534).round().nan_to_num(65535).clamp(0, 65535)
    data = steps.to(torch.int32).numpy().astype("<u2").tobytes()
    return {"low": low, "high": high, "data": base64.b64encode(data).decode()}
