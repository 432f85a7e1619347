"""Vectors of tokens and their late interaction with the names of sentence-transformers, computed by the engine.

from roformer_cpp import MultiVectorEncoder
"""

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from . import _checks, _native
from ._similarity import documents_to_rank, ranked, unit
from ._text_encoder import VectorEncoder

_WHERE = "encode"
_EMPTY_DOCUMENT = -1e9  # the score of a document without vectors, as in sentence-transformers


class MultiVectorEncoder(VectorEncoder):
    """A directory of a ``MultiVectorEncoder`` of sentence-transformers, of PyLate, or of Stanford's ColBERT.

    Names and results follow sentence-transformers, but results are NumPy arrays unless tensors are requested.
    ``precision``, ``threads`` and ``token_budget`` are as in :class:`Engine`.

    Args:
        model_name_or_path, device, prompts, default_prompt_name: as for :class:`SentenceTransformer`.
        similarity_fn_name: ``"maxsim"`` or ``"meanmaxsim"``, which divides by the number of the query's vectors.
            Default: the directory's.

    Raises:
        FileNotFoundError, RuntimeError, ValueError, TypeError: as for :class:`Engine`.
    """

    _VECTORS = "tokens"

    def __init__(
        self,
        model_name_or_path: str | os.PathLike,
        *,
        device: str | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: Literal["maxsim", "meanmaxsim"] | None = None,
        precision: Literal["float32", "bfloat16", "int8"] = "float32",
        threads: int | None = None,
        token_budget: int = 4096,
    ):
        self._open_model(model_name_or_path, device, precision, token_budget, threads, prompts, default_prompt_name)
        stated = "meanmaxsim" if self._info["mean_of_maxima"] else "maxsim"
        self.similarity_fn_name = _checks.choice(
            _WHERE, "similarity_fn_name", similarity_fn_name or stated, ("maxsim", "meanmaxsim")
        )

    def encode(
        self,
        sentences: str | Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | None = None,
        normalize_embeddings: bool = False,
        *,
        task: Literal["query", "document"] | None = None,
        token_pooling: Any = None,
    ) -> Any:
        """The vectors of the tokens of sentences.

        Args:
            sentences: a list of strings, or one string.
            prompt_name, prompt, batch_size, show_progress_bar, device: as for ``SentenceTransformer.encode``.
            convert_to_numpy: False: tensors of torch.
            convert_to_tensor: tensors of torch.
            normalize_embeddings: scale vectors to length 1. False: as the model computes them, which may be normalized
                already.
            task: ``"query"`` or ``"document"``: use the lengths, the added tokens and the masks of this kind of text.
                ``encode_query`` and ``encode_document`` also take the prompt of that name.
            token_pooling: merges similar vectors of documents: a factor, as 2 for half as many vectors, or a
                ``HierarchicalTokenPooling`` of sentence-transformers. A factor keeps the first vector, and results
                have length 1, as the defaults of that class say.

        Returns:
            A list of float32 ``[tokens, dimension]``, one for each sentence; for one string the array alone.
        """
        options = (prompt_name, prompt, batch_size, show_progress_bar, device, task)
        role = task or "none"
        pool = _pooling(token_pooling, role)
        parts, is_one = self._encoded(sentences, options, lambda engine, *given: engine.vectors(*given, role))
        arrays: list[Any] = token_vectors(parts)
        if normalize_embeddings:
            arrays = [unit(array) for array in arrays]
        if pool is not None:
            arrays = [_native.load().pool_tokens(np.ascontiguousarray(array), *pool) for array in arrays]
        if convert_to_tensor or not convert_to_numpy:
            import torch

            arrays = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        return arrays[0] if is_one else arrays

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Late-interaction scores of every pair of a query and a document, float32 ``[n, m]``.

        For each vector of a query, the largest product with a vector of the document is summed (``maxsim``) or averaged
        (``meanmaxsim``). A document without vectors scores -1e9, divided likewise. Queries and documents are lists of
        arrays, or one array ``[tokens, dimension]``.
        """
        queries, documents = _matrices(embeddings1), _matrices(embeddings2)
        scores = [self._score(query, document) for query in queries for document in documents]
        return np.array(scores, np.float32).reshape(len(queries), len(documents))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """The scores of the queries and documents at equal indices, float32 ``[n]``."""
        queries, documents = _matrices(embeddings1), _matrices(embeddings2)
        if len(queries) != len(documents):
            raise ValueError(f"[{_WHERE}] both must have as many texts, got {len(queries)} and {len(documents)}")
        return np.array([self._score(*pair) for pair in zip(queries, documents, strict=True)], np.float32)

    def _score(self, query: np.ndarray, document: np.ndarray) -> float:
        best = (query @ document.T).max(1).sum(dtype=np.float64) if len(document) else _EMPTY_DOCUMENT
        return float(best / max(1, len(query)) if self.similarity_fn_name == "meanmaxsim" else best)

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, return_documents: bool = False
    ) -> list[dict[str, Any]]:
        """Documents in the order of their MaxSim with a query.

        Args:
            query: a text, encoded as a query.
            documents: texts, encoded as documents.
            top_k, return_documents: as for ``CrossEncoder.rank``.

        Returns:
            A dictionary for each document, the best first, with ``corpus_id``, its index, and ``score``.
        """
        texts = documents_to_rank(query, documents, top_k)
        asked = self.encode_query(query)
        scores: list[float] = []
        for begin in range(0, len(texts), 256):
            scores += self.similarity(asked, self.encode_document(texts[begin : begin + 256]))[0].tolist()
        return ranked(texts, scores, top_k, return_documents)

    def get_embedding_dimension(self) -> int:
        """Elements of a token's vector."""
        return self._info["dimensions"]


def _pooling(given: Any, role: str) -> tuple[float, int, bool] | None:
    """The factor, the number of protected vectors, and whether results have length 1; None: nothing is merged."""
    if given is None:
        return None
    kept, normalizes, tasks = 1, True, ["document"]
    if type(given).__name__ == "HierarchicalTokenPooling":
        kept, normalizes, tasks = given.num_protected_tokens, given.normalize_embeddings, given.tasks
        given = given.pool_factor
    factor = _checks.number(_WHERE, "token_pooling", given)
    if factor < 1:
        raise ValueError(f"[{_WHERE}] token_pooling must be at least 1, got {factor}")
    return (factor, kept, normalizes) if role.replace("none", "document") in tasks else None


def token_vectors(parts: list[tuple]) -> list[np.ndarray]:
    """Those of each text, of the native engine's results."""
    return [rows[begin:end] for *_, begins, rows in parts for begin, end in pairwise(begins)]


def _matrices(embeddings: Any) -> list[np.ndarray]:
    """Of a list of ``[tokens, dimension]``, or of one."""
    listed = list(embeddings) if isinstance(embeddings, (list, tuple)) else [embeddings]
    arrays = [np.asarray(each, dtype=np.float32) for each in listed]
    for array in arrays:
        if array.ndim != 2:
            raise ValueError(f"[{_WHERE}] vectors of tokens must be [tokens, dimension], got {list(array.shape)}")
    return arrays
