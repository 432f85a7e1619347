"""The three outputs of bge-m3 with the names of FlagEmbedding, computed by the engine in one pass.

from roformer_cpp import BGEM3FlagModel
"""

import os
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from . import _checks
from ._text_encoder import VectorEncoder
from .multi_vector_encoder import token_vectors
from .sparse_encoder import sparse_vectors

_WHERE = "encode"


class BGEM3FlagModel(VectorEncoder):
    """A directory of bge-m3: an encoder with ``sparse_linear.safetensors`` and ``colbert_linear.safetensors``.

    Names and results follow FlagEmbedding, as NumPy arrays. :func:`convert` converts the published ``.pt`` and ``.bin``
    files. ``precision``, ``threads`` and ``token_budget`` are as in :class:`Engine`.

    Args:
        model_name_or_path: the directory. A model of the Hugging Face Hub is downloaded first.
        query_instruction_for_retrieval: text before each query.
        query_max_length, passage_max_length: tokens of a query and of another text, with special tokens, if they are
            fewer than the directory's.
        return_dense, return_sparse, return_colbert_vecs: the kinds of vectors that calls return.

    Raises:
        FileNotFoundError, RuntimeError, ValueError, TypeError: as for :class:`Engine`.
    """

    _VECTORS = "all"

    def __init__(
        self,
        model_name_or_path: str | os.PathLike,
        *,
        query_instruction_for_retrieval: str | None = None,
        query_max_length: int = 512,
        passage_max_length: int = 512,
        return_dense: bool = True,
        return_sparse: bool = False,
        return_colbert_vecs: bool = False,
        precision: Literal["float32", "bfloat16", "int8"] = "float32",
        threads: int | None = None,
        token_budget: int = 4096,
    ):
        self._query_length = _checks.integer(_WHERE, "query_max_length", query_max_length, 1)
        self._passage_length = _checks.integer(_WHERE, "passage_max_length", passage_max_length, 1)
        self._returned = return_dense, return_sparse, return_colbert_vecs
        self._instruction = query_instruction_for_retrieval or ""
        self._open_model(model_name_or_path, None, precision, token_budget, threads, None, None)

    def encode(
        self,
        sentences: str | Iterable[str],
        batch_size: int = 256,
        max_length: int | None = None,
        return_dense: bool | None = None,
        return_sparse: bool | None = None,
        return_colbert_vecs: bool | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The vectors of sentences; all kinds are computed, in one pass.

        Args:
            sentences: a list of strings, or one string.
            batch_size: ignored: sentences are not padded, and neither results nor speed depend on it.
            max_length: tokens of a sentence. Default: ``passage_max_length``.
            return_dense, return_sparse, return_colbert_vecs: the kinds of vectors to return. Default: the
                arguments of the class.
            options: ``prompt``, text before each sentence.

        Returns:
            A dictionary with ``dense_vecs``, float32 ``[sentences, dimension]``; ``lexical_weights``, a dictionary for
            each sentence of the ids of its tokens, as strings, and their weights; and ``colbert_vecs``, a list of
            float32 ``[tokens, dimension]``. Kinds that are not returned are None. For one string its result alone.
        """
        if unknown := set(options) - {"prompt"}:
            raise TypeError(f"[{_WHERE}] arguments must be those of encode, got {_checks.shown(min(unknown))}")
        given_length = self._passage_length if max_length is None else max_length
        length = _checks.integer(_WHERE, "max_length", given_length, 1)
        shared = (None, options.get("prompt", ""), batch_size, None, None, None)
        parts, is_one = self._encoded(sentences, shared, lambda engine, *given: engine.vectors(*given, "none", length))
        given = (return_dense, return_sparse, return_colbert_vecs)
        dense, sparse, tokens = (b if a is None else a for a, b in zip(given, self._returned, strict=True))
        results: dict[str, Any] = {"dense_vecs": None, "lexical_weights": None, "colbert_vecs": None}
        if dense:
            results["dense_vecs"] = np.concatenate([part[0].reshape(-1, self._info["dimensions"]) for part in parts])
        if sparse:
            results["lexical_weights"] = [
                dict(zip(map(str, vector.indices.tolist()), vector.values.tolist(), strict=True))
                for vector in sparse_vectors(parts, self._info["sparse_dimensions"])
            ]
        if tokens:
            results["colbert_vecs"] = token_vectors(parts)
        return {key: value[0] if is_one and value is not None else value for key, value in results.items()}

    def encode_corpus(self, corpus: str | Iterable[str], *arguments: Any, **options: Any) -> dict[str, Any]:
        """As ``encode``."""
        return self.encode(corpus, *arguments, **options)

    def encode_queries(
        self, queries: str | Iterable[str], batch_size: int = 256, max_length: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """As ``encode``, with ``query_instruction_for_retrieval`` and ``query_max_length``."""
        length = self._query_length if max_length is None else max_length
        return self.encode(queries, batch_size, length, prompt=self._instruction, **options)

    def encode_query(self, sentences: str | Iterable[str], *arguments: Any, **options: Any) -> dict[str, Any]:
        """As ``encode_queries``."""
        return self.encode_queries(sentences, *arguments, **options)

    def encode_document(self, sentences: str | Iterable[str], *arguments: Any, **options: Any) -> dict[str, Any]:
        """As ``encode``."""
        return self.encode(sentences, *arguments, **options)

    def compute_lexical_matching_score(self, lexical_weights_1: Any, lexical_weights_2: Any) -> Any:
        """The product of the weights of common tokens, summed: of two dictionaries a number, of lists ``[n, m]``."""
        if isinstance(lexical_weights_1, dict):
            return sum(weight * lexical_weights_2.get(token, 0) for token, weight in lexical_weights_1.items())
        score = self.compute_lexical_matching_score
        return np.array([[score(one, other) for other in lexical_weights_2] for one in lexical_weights_1])

    def colbert_score(self, q_reps: np.ndarray, p_reps: np.ndarray) -> float:
        """MaxSim of the token vectors of a query and of a passage, divided by the number of the query's vectors."""
        return float((q_reps @ p_reps.T).max(1).mean())

    def convert_id_to_token(self, lexical_weights: Any) -> Any:
        """Lexical weights by tokens in place of ids."""
        if isinstance(lexical_weights, dict):
            tokens = self._engines[None].tokens([int(token) for token in lexical_weights])
            return dict(zip(tokens, lexical_weights.values(), strict=True))
        return [self.convert_id_to_token(each) for each in lexical_weights]
