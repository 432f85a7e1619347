"""The losses of heads, as the models of ``transformers`` have them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ._operator_call import check_devices, check_tensors, is_followed

_IGNORED = -100


def _checked(logits: Tensor, shape: Sequence[int], limits: tuple[int, float] | None = None, **named: Tensor) -> Tensor:
    """A tensor of labels in its shape; limits: of integers, the lowest and the end. Default: numbers."""
    ((name, labels),) = named.items()
    check_devices("input", **{"the logits": logits}, **named)
    rule = f"[input] {name} must be " + ("numbers" if limits is None else "int64") + f" {list(shape)}"
    is_kind = labels.dtype == torch.int64 if limits else not (labels.is_complex() or labels.dtype == torch.bool)
    if not is_kind or labels.shape not in (torch.Size(shape), torch.Size((*shape, 1))):
        raise ValueError(f"{rule}, got {labels.dtype} {list(labels.shape)}")
    if limits is not None and not torch.compiler.is_compiling() and not is_followed(labels):
        wrong = labels[(labels < limits[0]) | (labels >= limits[1])]
        wrong = wrong[wrong != _IGNORED] if name == "labels" else wrong
        if wrong.numel():
            end = "" if limits[1] == torch.inf else f" and below {limits[1]}, or {_IGNORED}"
            raise ValueError(f"{rule}, at least {limits[0]}{end}, got {int(wrong[0])}")
    return labels.reshape(shape)


def _average(loss: Callable[..., Tensor], logits: Tensor, labels: Tensor, items: Tensor | int | None, **options: int):
    """The mean, or the sum divided by the number of items in all parts of a batch."""
    if items is None:
        return loss(logits, labels, **options)
    return loss(logits, labels, reduction="sum", **options) / (
        items.to(logits.device) if isinstance(items, Tensor) else items
    )


def _classes(logits: Tensor, labels: Tensor, items: Tensor | int | None) -> Tensor:
    """Average cross-entropy; a label of -100 does not count."""
    rows = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    return _average(functional.cross_entropy, *rows, items, ignore_index=_IGNORED)


def loss_of(
    head: str,
    out: dict[str, Tensor],
    labels: Tensor | None,
    ends: tuple[Tensor, Tensor] | None,
    config: dict,
    items: Tensor | int | None = None,
) -> Tensor:
    """The loss of a head (the end of its class's name) with ``labels``, or ``ends``, the positions of an answer; in
    float64 for float64 logits, else in float32. items: the divisor of sums of losses; ``None``: the number of
    losses."""
    results = {name: x if x.dtype == torch.float64 else x.float() for name, x in out.items() if "logits" in name}
    starts, stops = ends or (None, None)
    check_tensors("input", {"labels": labels, "start_positions": starts, "end_positions": stops})
    if head == "ForQuestionAnswering" and ends is not None and all(x is not None for x in ends):
        (batch, tokens), sum_of_losses = out["start_logits"].shape, 0.0
        for name, positions in zip(("start", "end"), ends, strict=True):
            logits = results[f"{name}_logits"]
            where = _checked(logits, (batch,), (0, torch.inf), **{f"{name}_positions": positions})
            # A position beyond the text does not count.
            rows = logits, where.clamp_max(tokens)
            sum_of_losses += _average(functional.cross_entropy, *rows, items, ignore_index=tokens)
        return sum_of_losses / 2
    if labels is None or ends is not None or head in ("Model", "ForQuestionAnswering"):
        rule = "start_positions and end_positions" if head == "ForQuestionAnswering" else "labels"
        rule = "no labels" if head == "Model" else rule
        raise ValueError(f"[input] a loss of a head {head} must be asked for with {rule}, got others")
    logits = results["logits"]
    kind = config["problem_type"] if head == "ForSequenceClassification" else "single_label_classification"
    if not kind:
        single = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        kind = "regression" if config["num_labels"] == 1 else single
    if kind == "single_label_classification":
        labels = _checked(logits, logits.shape[:-1], (0, logits.shape[-1]), labels=labels)
        is_causal = head == "ForCausalLM"
        return _classes(*((logits[:, :-1], labels[:, 1:]) if is_causal else (logits, labels)), items)
    shape = logits.shape[:-1] if logits.shape[-1] == 1 else logits.shape
    labels = _checked(logits, shape, labels=labels).to(logits.dtype)
    loss = functional.mse_loss if kind == "regression" else functional.binary_cross_entropy_with_logits
    return _average(loss, logits.reshape(shape), labels, items)
