"""A cross-encoder with the names of sentence-transformers, computed by the engine: one import changes.

from roformer_cpp import CrossEncoder
"""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from . import _checks, _native
from ._similarity import documents_to_rank, ranked

_engine = _native.load()
_WHERE = "predict"
ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")


class CrossEncoder:
    """A model that scores pairs of texts: a directory of a ``CrossEncoder`` of
    sentence-transformers, versions 3 to 6, or of any model with a head of sequence classification.

    Names and results follow sentence-transformers, but results are NumPy arrays unless tensors are requested.

    Args:
        model_name_or_path: the directory, or a model of the Hugging Face Hub.
        max_length: maximum tokens of a pair. Default: the directory's ``max_seq_length``, else the limit of the
            tokenizer and of the model's positions.
        activation_fn: ``"identity"``, ``"sigmoid"``, ``"tanh"`` or ``"relu"``, or the torch module. Default:
            the directory's, else sigmoid of one label and identity of several.
        prompts: texts before the first text of a pair, by name, in addition to the directory's.
        default_prompt_name, device: as for :class:`SentenceTransformer`.
        precision, threads, token_budget: as for :class:`Engine`.
        adapter: a folder with an adapter of PEFT (LoRA), which is added to the weights.

    Raises:
        FileNotFoundError, RuntimeError, ValueError, TypeError: as for :class:`Engine`.
    """

    def __init__(
        self,
        model_name_or_path: str | os.PathLike,
        *,
        max_length: int | None = None,
        activation_fn: Any = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        device: str | None = None,
        precision: Literal["float32", "bfloat16", "int8"] = "float32",
        threads: int | None = None,
        token_budget: int = 4096,
        adapter: str | os.PathLike | None = None,
    ):
        _checks.cpu(_WHERE, device)
        options = _checks.engine_options(_WHERE, precision, token_budget, threads)
        options |= _checks.given(_WHERE, _checks.integer, 1, max_length=max_length)
        options |= _checks.given(_WHERE, _checks.text, adapter=adapter and os.fspath(adapter))
        if activation_fn is not None:
            options["activation"] = _checks.choice(_WHERE, "activation_fn", _name_of(activation_fn), ACTIVATIONS)
        self._model_dir = _checks.model(_WHERE, model_name_or_path)
        self._engine = _engine.CrossEncoder(self._model_dir, json.dumps(options))
        _native.give_warnings(self._engine, stacklevel=2)
        self._info = json.loads(self._engine.info())
        self.prompts: dict[str, str] = self._info["prompts"] | (prompts or {})
        self.default_prompt_name: str | None = default_prompt_name or self._info["default_prompt_name"]
        _checks.prompt(_WHERE, self.prompts, None, self.default_prompt_name)

    def __repr__(self) -> str:
        return f"CrossEncoder({self._model_dir!r}, num_labels={self.num_labels})"

    @property
    def num_labels(self) -> int:
        """Scores of a pair."""
        return len(self._info["labels"])

    @property
    def max_seq_length(self) -> int:
        """The maximum number of tokens of a pair, with special tokens."""
        return self._info["max_length"]

    max_length = max_seq_length

    @property
    def activation_fn(self) -> str:
        """The name of the activation that is applied to the logits."""
        return self._info["activation"]

    def predict(
        self,
        inputs: Sequence[str] | Iterable[Sequence[str]],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: Any = None,
        apply_softmax: bool | None = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | None = None,
        *,
        num_workers: int | None = None,
    ) -> Any:
        """The scores of pairs.

        Args:
            inputs: a list of pairs of texts, or one pair.
            prompt_name: one of ``prompts``, the text before the first text of each pair.
            prompt: that text itself; takes precedence.
            batch_size, show_progress_bar, convert_to_numpy, convert_to_tensor, device: as for
                ``SentenceTransformer.encode``, with pairs in place of sentences.
            activation_fn: as for the class, or a function of the tensor ``[pairs, labels]`` of logits. Default: the
                model's.
            apply_softmax: of several labels, the softmax of the scores.
            num_workers: ignored, as in sentence-transformers.

        Returns:
            float32 ``[pairs]``, with several labels ``[pairs, labels]``; of one pair a number or ``[labels]``.

        Raises:
            ValueError: if a logit is NaN or infinite.
        """
        _checks.integer(_WHERE, "batch_size", batch_size, 1)
        _checks.cpu(_WHERE, device)
        softmax = _checks.boolean(_WHERE, "apply_softmax", apply_softmax or False)
        name = "" if activation_fn is None else _name_of(activation_fn)
        is_function = name not in ("", *ACTIVATIONS) and callable(activation_fn)
        if activation_fn is not None and not is_function:
            _checks.choice(_WHERE, "activation_fn", name, ACTIVATIONS)
        listed = list(inputs)
        is_one = len(listed) > 0 and isinstance(listed[0], str)
        pairs = [_pair(pair, index) for index, pair in enumerate([listed] if is_one else listed)]
        named = self.default_prompt_name if prompt_name is None else prompt_name
        text = _checks.prompt(_WHERE, self.prompts, prompt, named)
        blocks = []
        for part in _checks.blocks(len(pairs), "pairs", show_progress_bar):
            texts = [first for first, _ in pairs[part]], [second for _, second in pairs[part]]
            blocks.append(self._engine.scores(*texts, "identity" if is_function else name, part.start, text))
        scores = np.concatenate(blocks)
        if is_function and pairs:
            import torch

            scores = activation_fn(torch.from_numpy(scores)).detach().float().numpy().reshape(len(pairs), -1)
        if self.num_labels == 1:
            scores = scores[:, 0]
        elif softmax:
            powers = np.exp(scores - scores.max(1, keepdims=True))
            scores = powers / powers.sum(1, keepdims=True)
        if convert_to_numpy and not convert_to_tensor:
            return scores[0] if is_one else scores
        import torch

        tensor = torch.from_numpy(scores)
        return tensor[0] if is_one else tensor if convert_to_tensor else list(tensor)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: Any = None,
        device: str | None = None,
        **ignored: Any,
    ) -> list[dict[str, Any]]:
        """Documents in the order of their scores with a query.

        Args:
            query: the first text of each pair.
            documents: the second texts.
            top_k: how many are returned. Default: all.
            return_documents: adds the ``text`` of each.
            prompt_name, prompt, batch_size, show_progress_bar, activation_fn, device: as for ``predict``.
            ignored: ``num_workers``, ``apply_softmax``, ``convert_to_numpy`` and ``convert_to_tensor``, which
                sentence-transformers ignores.

        Returns:
            A dictionary for each document, the best first, with ``corpus_id``, its index, and ``score``. A model with
            several labels is a ValueError.
        """
        if unknown := set(ignored) - {"num_workers", "apply_softmax", "convert_to_numpy", "convert_to_tensor"}:
            raise TypeError(f"[rank] arguments must be those of rank, got {_checks.shown(min(unknown))}")
        if self.num_labels != 1:
            raise ValueError(f"[rank] a model that ranks must have one label, got {self.num_labels}")
        texts = documents_to_rank(query, documents, top_k)
        pairs = [(query, text) for text in texts]
        scores = self.predict(
            pairs, prompt_name, prompt, batch_size, show_progress_bar, activation_fn, device=device
        ).tolist()
        return ranked(texts, scores, top_k, return_documents)


def _name_of(activation: Any) -> str:
    """That of a module of torch in lower case."""
    return activation if isinstance(activation, str) else type(activation).__name__.lower()


def _pair(pair: Any, index: int) -> tuple[str, str]:
    if isinstance(pair, (str, bytes)) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise TypeError(f"[{_WHERE}] a pair must be two strings, got {_checks.kind(pair)} at {index}")
    return _checks.text(_WHERE, "the first text", pair[0]), _checks.text(_WHERE, "the second text", pair[1])
