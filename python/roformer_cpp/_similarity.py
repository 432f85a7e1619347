"""Similarities of vectors, and the documents of a query in the order of their scores."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from . import _checks


def unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors with length 1."""
    lengths = np.sqrt((vectors.astype(np.float64) ** 2).sum(-1, keepdims=True))
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)


def _nearness(norm: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The negative distances."""
    return -np.stack([np.linalg.norm(row - b, norm, 1) for row in a]) if len(a) else np.zeros((0, len(b)), a.dtype)


SIMILARITIES = {
    "cosine": lambda a, b: unit(a) @ unit(b).T,
    "dot": lambda a, b: a @ b.T,
    "euclidean": partial(_nearness, 2),
    "manhattan": partial(_nearness, 1),
}


def documents_to_rank(query: str, documents: Sequence[str], top_k: int | None) -> list[str]:
    """The documents of ``rank``, whose arguments are checked."""
    _checks.given("rank", _checks.integer, 1, top_k=top_k)
    _checks.text("rank", "query", query)
    texts, is_one = _checks.texts("rank", "documents", documents)
    if is_one:
        raise TypeError("[rank] documents must be a list of strings, got one string")
    return texts


def ranked(
    texts: Sequence[str], scores: Sequence[float], top_k: int | None, return_documents: bool
) -> list[dict[str, Any]]:
    """A dictionary for each text, the best first, as ``rank`` of sentence-transformers gives it."""
    order = sorted(range(len(texts)), key=lambda index: scores[index], reverse=True)[:top_k]
    results: list[dict[str, Any]] = [{"corpus_id": index, "score": scores[index]} for index in order]
    for result in results if return_documents else ():
        result["text"] = texts[result["corpus_id"]]
    return results
