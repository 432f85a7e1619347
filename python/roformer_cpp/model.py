"""RoFormer models for Python: the C++ modules of nn/ behind a thin object, with autograd."""

import json
from collections.abc import Iterator
from os import PathLike, fspath
from typing import Literal

import torch
from torch import Tensor

HEADS = (
    "RoFormerModel",
    "RoFormerForMaskedLM",
    "RoFormerForCausalLM",
    "RoFormerForSequenceClassification",
    "RoFormerForMultipleChoice",
    "RoFormerForTokenClassification",
    "RoFormerForQuestionAnswering",
)


class Model:
    """A RoFormer with one head; made by :func:`load_model`. Starts in evaluation mode, with gradients enabled.

    Every method raises RuntimeError with a message ``[where] rule, got value`` for bad input.
    """

    def __init__(self, script_model: torch.ScriptObject):
        self._model = script_model

    def __call__(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        types: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        num_choices: int = 1,
    ) -> dict[str, Tensor]:
        """One forward pass.

        Args:
            ids: int64 ``[B, T]``, T > 0.
            mask: ``[B, T]``; a token may be attended to where it is not zero. Default: all.
            types: int64 ``[B, T]``, token types. Default: 0.
            segments: int32 ``[B, T]``, in place of ``mask``: tokens attend within equal values >= 0; -1 is padding.
            positions: int64 ``[T]`` or ``[B, T]``, >= 0. Default: 0..T-1.
            num_choices: for multiple choice, whose ``ids`` are ``[B * num_choices, T]``.

        Returns:
            ``hidden`` [B, T, C], and by head: ``logits`` (language models [B, T, V]; sequence classification
            [B, num_labels]; multiple choice [B, num_choices]; token classification [B, T, num_labels]), or
            ``start_logits`` and ``end_logits`` [B, T] for question answering.
        """
        return self._model.forward(ids, mask, types, segments, positions, num_choices)

    def encode(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        types: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The last hidden state [B, T, C] alone; arguments as above."""
        return self._model.encode(ids, mask, types, segments, positions)

    def masked_lm_logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[N, V]`` of a language model's head at chosen hidden states ``[N, C]``."""
        return self._model.masked_lm_logits(hidden)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Names as in the checkpoint, and the parameters themselves: their ``.grad`` is filled by a backward pass."""
        yield from self._model.named_parameters().items()

    def parameters(self) -> list[Tensor]:
        return [parameter for _, parameter in self.named_parameters()]

    def train(self, mode: bool = True) -> "Model":
        """Switches dropout on or off."""
        self._model.train(mode)
        return self

    def eval(self) -> "Model":
        return self.train(False)

    def set_dropout_key(self, seed: int, step: int) -> None:
        """The draws of the next forward pass in training mode are a function of these two numbers."""
        self._model.set_dropout_key(seed, step)

    def save(self, model_dir: str | PathLike) -> None:
        """Writes config.json and model.safetensors (float32), which ``transformers`` reads."""
        self._model.save(fspath(model_dir))

    @property
    def head(self) -> str:
        """The class of ``transformers`` that computes the same, one of ``HEADS``."""
        return self._model.head()

    @property
    def config(self) -> dict:
        """The configuration, with the keys of config.json."""
        return json.loads(self._model.config_json())


def load_model(
    model_dir: str | PathLike,
    head: str | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    *,
    allow_fresh_head: bool = False,
) -> Model:
    """Opens a directory with config.json and model.safetensors, as ``transformers`` and this library write it.

    Args:
        model_dir: the directory.
        head: one of ``HEADS``. Default: the one that config.json names.
        dtype: of the parameters in memory; files may hold F16, BF16, F32 or F64.
        allow_fresh_head: a head whose weights the file lacks is initialised at random instead of refused.

    Raises:
        RuntimeError: a missing or damaged file, a missing, unexpected or misshapen tensor, NaN or infinity in a weight,
            an unknown configuration key; the message says where and which.
    """
    script_class = torch.classes.roformer.Model
    return Model(script_class(fspath(model_dir), head or "", dtype, allow_fresh_head))
