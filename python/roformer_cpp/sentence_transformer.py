"""A sentence encoder with the names of sentence-transformers, computed by the engine: one import changes.

from roformer_cpp import SentenceTransformer
"""

import os
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from . import _checks
from ._similarity import SIMILARITIES, unit
from ._text_encoder import TextEncoder
from .engine import Engine
from .quantization import PRECISIONS, quantize_embeddings

_WHERE = "encode"


class SentenceTransformer(TextEncoder):
    """A directory of sentence-transformers (docs/embeddings.md says which), or any encoder.

    Names and results follow sentence-transformers, but ``encode`` returns NumPy arrays unless tensors are requested,
    and ``similarity`` always does. ``precision``, ``threads`` and ``token_budget`` are as in :class:`Engine`.

    Args:
        model_name_or_path: a model directory, or an id of the Hugging Face Hub, which is downloaded if
            ``huggingface_hub`` is installed.
        device: ``"cpu"`` or None.
        prompts: texts before each text, by name, in addition to the directory's.
        default_prompt_name: the prompt of calls that do not name one.
        similarity_fn_name: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``. Default: the directory's.
        truncate_dim: number of leading elements of each vector to keep.

    Raises:
        FileNotFoundError, RuntimeError, ValueError, TypeError: as for :class:`Engine`.
    """

    def __init__(
        self,
        model_name_or_path: str | os.PathLike,
        *,
        device: str | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: Literal["cosine", "dot", "euclidean", "manhattan"] | None = None,
        truncate_dim: int | None = None,
        precision: Literal["float32", "bfloat16", "int8"] = "float32",
        threads: int | None = None,
        token_budget: int = 4096,
    ):
        _checks.cpu(_WHERE, device)
        self._model_dir = model_name_or_path
        self._options: dict[str, Any] = dict(precision=precision, threads=threads, token_budget=token_budget)
        info = self._open()
        self._set_prompts(prompts, default_prompt_name)
        self.similarity_fn_name = _checks.choice(
            _WHERE, "similarity_fn_name", similarity_fn_name or info["similarity"], SIMILARITIES
        )
        short = info["dimensions"] if info["dimensions"] < info["width"] else None
        self.truncate_dim = short if truncate_dim is None else _checks.integer(_WHERE, "truncate_dim", truncate_dim, 1)
        if short is not None:
            self._open(dimensions=info["width"])  # the engine would normalise the first elements again

    def _open(self, **options: Any) -> dict[str, Any]:
        """Opens the directory with these options in addition."""
        self._options |= options
        self._info = self._open_first().embedding_info
        return self._info

    def _new_engine(self, role: Any) -> Engine:
        return Engine(self._model_dir, task="embed", **self._role_options(role), **self._options)

    def __repr__(self) -> str:
        directory = next(iter(self._engines.values())).model_dir
        return f"SentenceTransformer({directory!r}, {self.get_sentence_embedding_dimension()} dimensions)"

    # ---- vectors

    def encode(
        self,
        sentences: str | Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: Literal["sentence_embedding", "token_embeddings"] = "sentence_embedding",
        precision: Literal["float32", "int8", "uint8", "binary", "ubinary"] = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        *,
        task: str | None = None,
    ) -> Any:
        """The vectors of sentences.

        Args:
            sentences: a list of strings, or one string.
            prompt_name: one of ``prompts``, the text before each sentence.
            prompt: that text itself; takes precedence.
            batch_size: ignored: sentences are not padded, and neither results nor speed depend on it.
            show_progress_bar: writes to standard error how many sentences are done.
            output_value: ``"token_embeddings"``: instead of vectors, a list of the hidden states of each sentence's
                tokens, float32 arrays ``[tokens, hidden_size]``; the options below do not apply to them.
            precision: of the result, by :func:`quantize_embeddings` with the ranges of these sentences (int8 and uint8
                need at least two); the precision of computation is an argument of the class.
            convert_to_numpy: False: a list of tensors of torch.
            convert_to_tensor: one tensor of torch.
            device: ``"cpu"`` or None.
            normalize_embeddings: scale vectors to length 1, after ``truncate_dim``. False: as the model computes them,
                which may be normalized already.
            truncate_dim: number of leading elements of each vector to keep.
            task: ``"query"`` or ``"document"``: the modules of a Router and the lengths that the model has for them; or
                one that the model has an adapter for (jina-embeddings-v3). Its prompt is given by ``prompt_name``.

        Returns:
            float32, or as ``precision`` says, ``[sentences, dimension]``; of one string ``[dimension]``.
        """
        _checks.choice(_WHERE, "precision", precision, PRECISIONS)
        _checks.choice(_WHERE, "output_value", output_value, ("sentence_embedding", "token_embeddings"))
        name = "embed" if output_value == "sentence_embedding" else "encode"
        options = (prompt_name, prompt, batch_size, show_progress_bar, device, task)
        compute = lambda engine, texts, text: getattr(engine, name)(texts, prompt=text)  # noqa: E731
        blocks, is_one = self._encoded(sentences, options, compute)
        if output_value == "token_embeddings":
            states = [array for block in blocks for array in block]
            return states[0] if is_one else states
        vectors = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        if (size := self.truncate_dim if truncate_dim is None else truncate_dim) is not None:
            vectors = vectors[:, : _checks.integer(_WHERE, "truncate_dim", size, 1)]
        if normalize_embeddings:
            vectors = unit(vectors)
        if precision != "float32":
            vectors = quantize_embeddings(vectors, precision)
        result = np.ascontiguousarray(vectors[0] if is_one else vectors)
        if convert_to_numpy and not convert_to_tensor:
            return result
        import torch

        tensor = torch.from_numpy(result)
        return tensor if convert_to_tensor or is_one else list(tensor)

    # ---- similarity

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """The similarity of every pair, float32 ``[n, m]``; greater is more similar (distances are negated)."""
        return SIMILARITIES[self.similarity_fn_name](_rows(embeddings1), _rows(embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """The similarity of the vectors at equal indices, float32 ``[n]``."""
        a, b = _rows(embeddings1), _rows(embeddings2)
        if a.shape != b.shape:
            raise ValueError(f"[{_WHERE}] both must have as many vectors, got {list(a.shape)} and {list(b.shape)}")
        function = SIMILARITIES[self.similarity_fn_name]
        return np.array([function(x[None], y[None])[0, 0] for x, y in zip(a, b, strict=True)], np.float32)

    # ---- facts

    def get_sentence_embedding_dimension(self) -> int:
        """Elements of a vector."""
        width = self._info["dimensions"]
        return width if self.truncate_dim is None else min(width, self.truncate_dim)

    get_embedding_dimension = get_sentence_embedding_dimension

    @property
    def max_seq_length(self) -> int:
        """The maximum number of tokens of a sentence, with special tokens; setting it opens the directory again."""
        return super().max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self._open(max_length=_checks.integer(_WHERE, "max_seq_length", value, 1))

    def get_max_seq_length(self) -> int:
        return self.max_seq_length


def _rows(vectors: Any) -> np.ndarray:
    """``[n, dimension]`` of an array, a tensor, or a list of such."""
    if isinstance(vectors, (list, tuple)):
        vectors = np.stack([np.asarray(vector) for vector in vectors]) if len(vectors) else np.zeros((0, 0))
    array = np.asarray(vectors, dtype=np.float32)
    if array.ndim not in (1, 2):
        raise ValueError(f"[{_WHERE}] vectors must be [n, dimension] or [dimension], got {list(array.shape)}")
    return array if array.ndim == 2 else array[None]
