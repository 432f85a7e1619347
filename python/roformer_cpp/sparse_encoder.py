"""Sparse vectors over the vocabulary with the names of sentence-transformers, computed by the engine.

from roformer_cpp import SparseEncoder
"""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from . import _checks
from ._similarity import SIMILARITIES
from ._text_encoder import VectorEncoder

_WHERE = "encode"


class SparseVectors(Sequence):
    """Sparse vectors, one after another: ``indptr`` int64 ``[vectors + 1]``, ``indices`` int32 and ``values`` float32,
    by ascending index, and ``shape``. The fields are the arguments of ``scipy.sparse.csr_matrix((values, indices,
    indptr), shape)``. An index or a slice gives other SparseVectors."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, dimensions: int):
        self.indptr, self.indices, self.values = indptr, indices, values
        self.shape = (len(indptr) - 1, dimensions)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> "SparseVectors":
        if isinstance(rows, slice):
            if rows.step not in (None, 1):
                raise ValueError(f"[{_WHERE}] a slice of sparse vectors must have the step 1, got {rows.step}")
            begin, end, _ = rows.indices(len(self))
        else:
            begin = range(len(self))[rows]
            end = begin + 1
        end = max(begin, end)
        part = slice(int(self.indptr[begin]), int(self.indptr[end]))
        indptr = self.indptr[begin : end + 1] - self.indptr[begin]
        return SparseVectors(indptr, self.indices[part], self.values[part], self.shape[1])

    def __repr__(self) -> str:
        return f"SparseVectors(shape={self.shape}, {len(self.values)} values)"

    def toarray(self) -> np.ndarray:
        """float32 ``[vectors, dimensions]``."""
        dense = np.zeros(self.shape, np.float32)
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        dense[rows, self.indices] = self.values
        return dense

    def to_torch(self) -> Any:
        """A sparse tensor of torch, COO as sentence-transformers has it."""
        import torch

        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        places = torch.from_numpy(np.stack([rows, self.indices.astype(np.int64)]))
        return torch.sparse_coo_tensor(places, torch.from_numpy(self.values), self.shape).coalesce()


class SparseEncoder(VectorEncoder):
    """A directory of a ``SparseEncoder`` of sentence-transformers (SPLADE, or a Router whose queries are a table), or
    of any masked language model.

    Names follow sentence-transformers; results are :class:`SparseVectors`, without torch and SciPy. ``precision``,
    ``threads`` and ``token_budget`` are as in :class:`Engine`.

    Args:
        model_name_or_path, device, prompts, default_prompt_name: as for :class:`SentenceTransformer`.
        similarity_fn_name: ``"dot"``, ``"cosine"``, ``"euclidean"`` or ``"manhattan"``. Default: the directory's, else
            dot.
        max_active_dims: number of largest weights to keep in each vector. Default: the directory's, else all.

    Raises:
        FileNotFoundError, RuntimeError, ValueError, TypeError: as for :class:`Engine`.
    """

    _VECTORS = "sparse"

    def __init__(
        self,
        model_name_or_path: str | os.PathLike,
        *,
        device: str | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: Literal["dot", "cosine", "euclidean", "manhattan"] | None = None,
        max_active_dims: int | None = None,
        precision: Literal["float32", "bfloat16", "int8"] = "float32",
        threads: int | None = None,
        token_budget: int = 4096,
    ):
        common = (model_name_or_path, device, precision, token_budget, threads, prompts, default_prompt_name)
        self._open_model(*common, max_active_dims)
        self._kept = self._info["max_active"]  # weights of a vector by the engines; 0: all
        self.similarity_fn_name = _checks.choice(
            _WHERE, "similarity_fn_name", similarity_fn_name or self._info["similarity"], SIMILARITIES
        )

    def encode(
        self,
        sentences: str | Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        max_active_dims: int | None = None,
        device: str | None = None,
        *,
        task: Literal["query", "document"] | None = None,
    ) -> SparseVectors:
        """The sparse vectors of sentences.

        Args:
            sentences: a list of strings, or one string.
            prompt_name, prompt, batch_size, show_progress_bar, device: as for ``SentenceTransformer.encode``.
            max_active_dims: number of largest weights to keep in each vector; of equal ones those with the lowest
                index. Default: that of the class.
            task: the route of a Router.

        Returns:
            One vector for each sentence, also for one string.
        """
        _checks.given(_WHERE, _checks.integer, 1, max_active_dims=max_active_dims)
        count = max_active_dims or self._info["max_active"]
        if 0 < self._kept < count:  # engines keep fewer
            self._options["max_active"] = self._kept = count
            self._engines.clear()
        options = (prompt_name, prompt, batch_size, show_progress_bar, device, task)
        parts, _ = self._encoded(sentences, options, lambda engine, texts, text: engine.vectors(texts, text, "none"))
        vectors = sparse_vectors(parts, json.loads(self._engine_of(task).embedding_info())["dimensions"])
        return vectors if count == self._kept else _largest(vectors, count)

    def decode(self, embeddings: SparseVectors, top_k: int | None = None) -> list[list[tuple[str | None, float]]]:
        """For each vector its tokens and their weights, the greatest first, at most ``top_k``. A token is None if the
        model has more rows than its tokenizer has tokens."""
        if not isinstance(embeddings, SparseVectors):
            raise TypeError(f"[decode] embeddings must be SparseVectors, got {_checks.kind(embeddings)}")
        _checks.given("decode", _checks.integer, 1, top_k=top_k)
        results = []
        for begin, end in zip(embeddings.indptr[:-1], embeddings.indptr[1:], strict=True):
            values, indices = embeddings.values[begin:end], embeddings.indices[begin:end]
            order = np.argsort(-values, kind="stable")[:top_k]
            tokens = next(iter(self._engines.values())).tokens(indices[order].tolist())
            results.append(list(zip(tokens, values[order].tolist(), strict=True)))
        return results

    def similarity(self, embeddings1: SparseVectors, embeddings2: SparseVectors) -> np.ndarray:
        """The similarity of every pair, float32 ``[n, m]``; greater is more similar (distances are negated)."""
        return SIMILARITIES[self.similarity_fn_name](embeddings1.toarray(), embeddings2.toarray())

    def sparsity(self, embeddings: SparseVectors) -> dict[str, float]:
        """``active_dims``, the mean number of weights other than 0, and ``sparsity_ratio``, the share of the rest."""
        active = len(embeddings.values) / max(1, len(embeddings))
        return {"active_dims": active, "sparsity_ratio": 1 - active / embeddings.shape[1]}

    def get_embedding_dimension(self) -> int:
        """Entries of the vocabulary."""
        return self._info["dimensions"]


def sparse_vectors(parts: list[tuple], dimensions: int) -> SparseVectors:
    """Those of the native engine's results."""
    counts = np.concatenate([np.diff(part[1]) for part in parts])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices, values = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    return SparseVectors(indptr, indices, values, dimensions)


def _largest(vectors: SparseVectors, count: int) -> SparseVectors:
    rows = []
    for begin, end in zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True):
        order = np.argsort(-np.abs(vectors.values[begin:end]), kind="stable")[:count]
        rows.append(begin + np.sort(order))
    kept = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return SparseVectors(indptr, vectors.indices[kept], vectors.values[kept], vectors.shape[1])
