"""Encoder-decoders for translation: reading a model directory, logits, and beam search by the engine. ``roformer
train-translation`` trains them."""

import json
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from . import _checks, _native, _torch  # noqa: F401 - it loads the operators
from ._operator_call import check_tensors
from .model import _missing_files


class Translation(NamedTuple):
    """A result of :meth:`TranslationModel.translate`.

    Attributes:
        ids: without the end token.
        score: summed log-probability over ``tokens ** length_penalty``, end token included.
        ended: False if the greatest length cut it.
    """

    ids: list[int]
    score: float
    ended: bool


@dataclass(eq=False)
class _Held:
    script: torch.ScriptObject
    dtype: torch.dtype


class TranslationModel:
    """An encoder-decoder; made by :func:`load_translation_model`. It computes without gradients.

    Methods raise ValueError with a message ``[where] rule, got value`` for bad input.
    """

    def __init__(self, model_dir: str, script: torch.ScriptObject, dtype: torch.dtype, precision: str):
        self._script, self._held = script, _Held(script, dtype)
        self._model_dir, self._precision, self._translator = model_dir, precision, None
        self._name = str(id(self._held))
        _models[self._name] = self._held

    @property
    def config(self) -> dict:
        """The contents of ``config.json``, with every default written out."""
        return json.loads(self._script.config_json())

    def logits(self, input_ids: Tensor, attention_mask: Tensor | None, decoder_input_ids: Tensor) -> Tensor:
        """Logits over the vocabulary ``[B, T, V]`` of the target.

        Args:
            input_ids: int64 ``[B, S]``, the source, with its end, padded at the right.
            attention_mask: ``[B, S]``, bool or integers 0 and 1; 1: a token. None: all are.
            decoder_input_ids: int64 ``[B, T]``; each row begins with ``decoder_start_token_id``.
        """
        optional = {"attention_mask": attention_mask}
        check_tensors("input", optional, input_ids=input_ids, decoder_input_ids=decoder_input_ids)
        return _logits(input_ids, attention_mask, decoder_input_ids, self._name)

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        *,
        beams: int = 4,
        length_penalty: float = 0.6,
        max_ratio: float = 1.0,
        max_extra: int = 50,
        cache: bool = True,
    ) -> list[Translation]:
        """Translates token ids, each with ``eos_token_id`` at the end; one result for each, in order.

        The engine computes them, in the ``precision`` of the model. It opens the directory at the first call.

        Args:
            sources: ids of each source. One that is empty, or has padding alone, has the empty translation: no ids,
                score 0, ended.
            beams: of the search; 1: greedy.
            length_penalty: results are ranked by log-probability over ``tokens ** length_penalty``.
            max_ratio, max_extra: a translation has at most ``max_ratio`` times the tokens of its source, and
                ``max_extra`` more.
            cache: False: compute all tokens again at every step, for comparison.
        """
        given = [[_checks.integer("translate", "a token id", token) for token in source] for source in sources]
        if self._translator is None:
            self._translator = _native.load().Translator(self._model_dir, self._precision)
            _native.give_warnings(self._translator, stacklevel=2)
        where = "translate"
        options = {
            "beams": _checks.integer(where, "beams", beams),
            "length_penalty": _checks.number(where, "length_penalty", length_penalty),
            "max_ratio": _checks.number(where, "max_ratio", max_ratio),
            "max_extra": _checks.integer(where, "max_extra", max_extra),
            "cache": bool(cache),
        }
        ids, scores, ended = self._translator.translate(given, json.dumps(options))
        return [Translation(*each) for each in zip(ids, scores, ended, strict=True)]


_models: weakref.WeakValueDictionary[str, _Held] = weakref.WeakValueDictionary()


@torch.library.custom_op("roformer_python::translation_logits", mutates_args=())
def _logits(input_ids: Tensor, attention_mask: Tensor | None, decoder_input_ids: Tensor, model: str) -> Tensor:
    """An operator, so that compiled code keeps the call in its graph; ``model`` is that of this process."""
    return _models[model].script.logits(input_ids, attention_mask, decoder_input_ids)


@_logits.register_fake
def _(input_ids: Tensor, attention_mask: Tensor | None, decoder_input_ids: Tensor, model: str) -> Tensor:
    held = _models[model]
    shape = *decoder_input_ids.shape, json.loads(held.script.config_json())["vocab_size"]
    return decoder_input_ids.new_empty(shape, dtype=held.dtype)


def load_translation_model(
    model_dir: str | PathLike[str],
    *,
    dtype: Literal["float32", "float64"] = "float32",
    precision: Literal["float32", "bfloat16", "int8"] = "float32",
) -> TranslationModel:
    """Reads a directory of ``roformer train-translation`` or of ``transformers``' ``MarianMTModel``.

    Args:
        model_dir: the directory.
        dtype: of :meth:`TranslationModel.logits`.
        precision: of :meth:`TranslationModel.translate`.

    Raises:
        FileNotFoundError: without ``config.json`` or the weights.
        RuntimeError: for files that are damaged or belong to another kind of model.
    """
    dtype = _checks.choice("load_model", "dtype", dtype, ("float32", "float64"))
    precision = _checks.choice("load_model", "precision", precision, _checks.PRECISIONS)
    directory = _checks.directory("load_model", model_dir)
    with _missing_files():
        script = torch.classes.roformer.TranslationModel.load(directory, dtype == "float64")
    return TranslationModel(directory, script, getattr(torch, dtype), precision)
