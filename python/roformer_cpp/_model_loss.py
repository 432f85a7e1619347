"""The losses of heads, as the models of ``transformers`` have them."""

from torch import Tensor
from torch.nn import functional


def _classes(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy; a label of -100 does not count."""
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1))


def loss_of(head: str, out: dict[str, Tensor], labels: Tensor | None, ends: tuple[Tensor, Tensor] | None, config: dict):
    """The loss of a head (the end of its class's name) with ``labels``, or ``ends``, the positions of an answer."""
    if head == "ForQuestionAnswering" and ends is not None:
        tokens = out["start_logits"].shape[1]  # a position beyond the text does not count
        pairs = zip((out["start_logits"], out["end_logits"]), ends, strict=True)
        losses = [functional.cross_entropy(x, y.clamp(0, tokens), ignore_index=tokens) for x, y in pairs]
        return sum(losses) / 2
    if labels is None or ends is not None or head in ("Model", "ForQuestionAnswering"):
        rule = "start_positions and end_positions" if head == "ForQuestionAnswering" else "labels"
        rule = "no labels" if head == "Model" else rule
        raise ValueError(f"[input] a loss of a head {head} must be asked for with {rule}, got others")
    logits = out["logits"]
    if head == "ForCausalLM":
        return _classes(logits[:, :-1], labels[:, 1:])
    if head != "ForSequenceClassification":
        return _classes(logits, labels)
    kind = config["problem_type"]
    if not kind:
        single = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        kind = "regression" if config["num_labels"] == 1 else single
    if kind == "regression":
        return functional.mse_loss(logits.squeeze(), labels.squeeze())
    if kind == "multi_label_classification":
        return functional.binary_cross_entropy_with_logits(logits, labels)
    return _classes(logits, labels)
