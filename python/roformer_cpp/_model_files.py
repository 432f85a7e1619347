"""A model directory as data, for what writes it in another form. The engine opens it first: all its rules hold."""

import json
import os
import warnings
from typing import Any, NamedTuple

import numpy as np

from . import _checks, _native

_engine = _native.load()
# NumPy's name of each dtype of safetensors; NumPy lacks BF16, so its bits are read.
STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"} | {
    f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)
}


class Stored(NamedTuple):
    """A stored tensor: its dtype in safetensors, and its elements, BF16 as uint16."""

    dtype: str
    array: np.ndarray

    def floats(self) -> np.ndarray:
        """float32"""
        if self.dtype == "BF16":
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(self.array, np.float32, order="C")


class ModelFiles:
    """The configuration, weights and position encodings of a model directory.

    Args:
        model_dir: with config.json and model.safetensors.
        bare: leave the head out.

    Raises:
        FileNotFoundError, RuntimeError, ValueError: as for ``Engine``.
    """

    def __init__(self, where: str, model_dir: str | os.PathLike, *, bare: bool = False):
        self.path = _checks.directory(where, model_dir)
        self.native = _engine.ModelFiles(self.path, bare)
        for message in self.native.warnings():
            warnings.warn(message, stacklevel=4)
        described: dict[str, Any] = json.loads(self.native.description())
        self.written_config: dict[str, Any] = described["config"]  # as this library writes it
        self.config: dict[str, Any] = self.written_config | described["sizes"]
        self.architecture: str = described["architecture"]
        self.family: str = described["family"]
        self.position_table: bool = described["position_table"]  # a stored one would be used
        self.prefix: str = described["prefix"]  # of the encoder's names
        self.linear_attention: dict[str, Any] | None = described["linear_attention"]
        self.encodings: list[dict[str, Any]] = described["encodings"]
        self.blocks: dict[str, Any] = described["blocks"]  # how layers are built
        self.head: dict[str, Any] = described["head"]  # what it reads, its stages and outputs
        self.word_scale: float = described["word_scale"]  # what encodings multiply word embeddings by
        self._names: dict[str, str] = described["names"]

    @property
    def head_dim(self) -> int:
        return self.config["head_dim"]

    def has(self, name: str) -> bool:
        return self._own(name) in self._names or self._joined(name) in self._names

    def weight(self, name: str) -> np.ndarray:
        """float32, by the name of model/weights.h, or by the file's name for what an encoding adds."""
        joined = self._joined(name)
        if joined in self._names:
            return self._part(name, self.weight(joined))
        own = self._own(name)
        return self.stored(self._names.get(own, own)).floats()

    def _own(self, name: str) -> str:
        """Next to one matrix of all projections, biases of queries and values may have other names."""
        for part, other in ((".self.query.bias", ".self.q_bias"), (".self.value.bias", ".self.v_bias")):
            if name.endswith(part) and name not in self._names:
                return name.replace(part, other)
        return name

    @staticmethod
    def _joined(name: str) -> str:
        """The name of the joined tensor that a file may have instead: queries, keys and values, or gate and up."""
        for part in (".attention.self.query.", ".attention.self.key.", ".attention.self.value."):
            if part in name:
                return name.replace(part, ".attention.self.query_key_value.")
        for part in (".intermediate.gate.", ".intermediate.dense."):
            if part in name:
                return name.replace(part, ".intermediate.gate_up.")
        return ""

    def _part(self, name: str, joined: np.ndarray) -> np.ndarray:
        """The rows of `name`."""
        if ".intermediate." in name:
            is_second = (".intermediate.dense." in name) != self.blocks["up_first"]
            return np.split(joined, 2)[int(is_second)]
        third = next(i for i, side in enumerate(("query", "key", "value")) if f".self.{side}." in name)
        if not self.blocks["by_head"]:
            queries, keys = (
                count * self.head_dim for count in (self.config["num_attention_heads"], self.blocks["key_heads"])
            )
            return np.split(joined, (queries, queries + keys))[third]
        parts = joined.reshape(self.config["num_attention_heads"], 3, self.head_dim, *joined.shape[1:])
        return parts[:, third].reshape(-1, *joined.shape[1:])

    def file_name(self, name: str) -> str:
        return self._names[name]

    @property
    def file_prefix(self) -> str:
        """Of the encoder's names in the file."""
        name = "embeddings.word_embeddings.weight"
        return self.file_name(self.prefix + name).removesuffix(name)

    def uses_stored_table(self, table: np.ndarray) -> bool:
        """Whether a RoFormer's rotations are taken from the table [rows, head_dim] of its checkpoint."""
        return self.native.uses_stored_table(table.astype(np.float64).ravel().tolist())

    def stored(self, file_name: str) -> Stored:
        dtype, shape, data = self.native.tensor(file_name)
        return Stored(dtype, np.frombuffer(data, STORED[dtype]).reshape(shape))
