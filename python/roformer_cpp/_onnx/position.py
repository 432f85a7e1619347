"""The numbers that the position encodings of a model add to a graph, for sequences up to a length.

Rotations, sinusoids and tables come from the C++ side, which the engine and training use too; terms that are constants
of the checkpoint come from its position_terms.safetensors (docs/formats.md).
"""

from dataclasses import dataclass, field

import numpy as np

from .._model_files import ModelFiles

TABLES = ("key_table", "query_table", "value_table", "bias", "gate")


@dataclass
class Term:
    """A term of attention (core/terms/rf/attention_terms.h); ``low``: the distance of a table's first row."""

    name: str  # in the graph
    array: np.ndarray
    low: int = 0

    @property
    def high(self) -> int:
        return self.low + self.array.shape[1] - 1


@dataclass
class Rotation:
    """float32 ``[tokens, pairs]``, cosines and sines."""

    interleaved: bool
    query: tuple[np.ndarray, np.ndarray]
    key: tuple[np.ndarray, np.ndarray]
    values: bool
    name: str = "rotation"  # of its rows in the graph

    @property
    def is_one(self) -> bool:
        return all(np.array_equal(a, b) for a, b in zip(self.query, self.key, strict=True))


@dataclass
class Position:
    """``tokens``: of the longest sequence. ``inputs``: rows [tokens, embedding_size] that are added to embeddings;
    ``word_scale``: what word embeddings are multiplied by before."""

    tokens: int
    inputs: list[np.ndarray] = field(default_factory=list)
    word_scale: float = 1
    rotation: Rotation | None = None
    scale: float | None = None
    terms: list[dict[str, Term]] = field(default_factory=list)  # of each layer
    rotations: list[Rotation] = field(default_factory=list)  # where layers differ
    layers: list[dict[str, int]] = field(default_factory=list)  # the window and the rotation of each layer

    def rotation_of(self, layer: int) -> Rotation | None:
        if not self.layers or not self.rotations:
            return self.rotation
        return self.rotations[self.layers[layer]["rotation"]]

    def window_of(self, layer: int) -> int:
        """0: all tokens."""
        return self.layers[layer]["window"] if self.layers else 0


def read_position(where: str, files: ModelFiles, length: int | None) -> Position:
    """Raises ValueError for a ``length`` that the encoding does not read, and for an encoding that changes with the
    length or cannot be exported."""
    if files.linear_attention and files.config["is_decoder"]:
        raise ValueError(f"[{where}] linear attention must be bidirectional, got a causal model (is_decoder)")
    return _Reader(where, files, length).read()


class _Reader:
    def __init__(self, where: str, files: ModelFiles, length: int | None):
        self.where, self.files = where, files
        self.layers = files.config["num_hidden_layers"]
        scale, longest, self.stored_terms = files.native.terms() or (None, None, None)
        self.scale = scale or files.blocks["attention_scale"] or None
        self.tokens = self._tokens(length, longest)

    def _tokens(self, length: int | None, longest: int | None) -> int:
        limits = [] if longest is None else [longest]
        table = self._stored_table()
        limits += [] if table is None else [len(table)]
        first = self.files.blocks["first_row"]
        limits += [len(self._learned(i)) - first for i, e in enumerate(self.files.encodings) if e["kind"] == "learned"]
        if length is None:
            return min([self.files.config["max_position_embeddings"], *limits])
        if limits and length > min(limits):
            raise ValueError(f"[{self.where}] length must be at most {min(limits)} for this model, got {length}")
        return length

    def read(self) -> Position:
        position = Position(self.tokens, scale=self.scale, word_scale=self.files.word_scale)
        position.layers = self.files.blocks["layers"]
        for i, encoding in enumerate(self.files.encodings):
            kind = encoding["kind"]
            if kind == "learned":
                position.inputs.append(self._learned(i)[: self.files.blocks["first_row"] + self.tokens])
            elif kind == "sinusoidal":
                position.inputs.append(self.files.native.sinusoids(i, self.tokens))
            elif kind == "rotary":
                position.rotation = self._rotation(i, encoding)
                position.rotation.name = f"rotation.{i}" if self.files.blocks["layers"] else "rotation"
                position.rotations.append(position.rotation)
        position.terms = self._terms()
        for name, term in (item for layer in position.terms for item in layer.items()):
            if name == "gate" and term.array.shape[-1] != 1:
                names = ", ".join(encoding["type"] for encoding in self.files.encodings)
                raise ValueError(
                    f"[{self.where}] the position encoding must not multiply queries by vectors of the distance, which "
                    f"would take memory for each pair of tokens, got {names}"
                )
        return position

    def _name(self, encoding: int, tensor: str) -> str:
        part = "" if len(self.files.encodings) == 1 else f"{encoding}."
        return f"position_encoding.{part}{tensor}"

    def _learned(self, encoding: int) -> np.ndarray:
        of_model = f"{self.files.prefix}embeddings.position_embeddings.weight"
        return self.files.weight(of_model if self.files.has(of_model) else self._name(encoding, "weight"))

    def _stored_table(self) -> np.ndarray | None:
        """A RoFormer's own table of sines and cosines, where that is not the computed one."""
        name = f"{self.files.prefix}encoder.embed_positions.weight"
        if not self.files.position_table or not self.files.has(name):
            return None
        table = self.files.weight(name)
        return table if self.files.uses_stored_table(table) else None

    def _rotation(self, i: int, encoding: dict) -> Rotation:
        values = encoding["rotates_values"] or self.files.config["rotary_value"]
        table = self._stored_table()
        if table is not None:
            sines, cosines = np.split(table[: self.tokens], 2, axis=1)
            return Rotation(True, (cosines, sines), (cosines, sines), values)
        frequencies: np.ndarray | list = []
        if encoding["trained"]:
            frequencies = self.files.weight(self._name(i, encoding["trained"]))
            if encoding["trained"] == "log_freqs":
                frequencies = np.exp(frequencies.astype(np.float64)).astype(np.float32)
        elif encoding["float32"]:
            frequencies = self.stored_terms[-1]["rotary_frequencies"][0][0]  # within the training length
        rows = self.files.native.rotation(i, self.tokens, [float(f) for f in frequencies])
        return Rotation(encoding["layout"] == "pairs", rows[:2], rows[2:], values)

    def _terms(self) -> list[dict[str, Term]]:
        if self.stored_terms is None:
            return [{} for _ in range(self.layers)]
        *layers, shared = self.stored_terms
        common = {name: self._term(f"position.{name}", name, *term) for name, term in shared.items()}
        common.pop("rotary_frequencies", None)
        return [
            common | {name: self._term(f"position.{i}.{name}", name, *term) for name, term in layer.items()}
            for i, layer in enumerate(layers)
        ]

    def _term(self, key: str, name: str, array: np.ndarray, low: int, high: int) -> Term:
        """A table loses the rows of distances that do not occur."""
        if name not in TABLES:
            return Term(key, array)
        far = self.tokens - 1
        first, last = max(low, min(-far, high)), min(high, max(far, low))
        return Term(key, array[:, first - low : last - low + 1], first)
