"""Positions of the tokens of a graph, and rotary embedding of vectors [B, H, T, D].

Operator set 23 has the operator RotaryEmbedding; for operator set 17, and for features of an odd width, a rotation is
composed.
"""

from collections.abc import Callable

import numpy as np

from .graph import Graph
from .position import Position, Rotation


class Rotations:
    """The number of sequences and tokens, the positions, and what the layers share."""

    head_dim: int  # of layers that do not set it

    def __init__(self, graph: Graph, position: Position, ids: str):
        self.graph, self.position = graph, position
        self._shared: dict[tuple, str] = {}
        shape = graph.op("Shape", ids)
        self.batch = graph.op("Gather", shape, graph.integer(0))
        # A sequence that is too long is an error of the Gather below, whose table has one row. One of all positions
        # would not do: ONNX Runtime makes a slice of it, which ends with the table.
        length = graph.op("Gather", shape, graph.integer(1))
        last = graph.op("Sub", length, graph.integer(1))
        beyond = graph.op("Div", last, graph.integer(position.tokens))  # 0 within the limit
        self.length = graph.op("Add", length, graph.op("Gather", graph.ints(0), beyond))
        self.positions = graph.op("Range", graph.integer(0), self.length, graph.integer(1))

    def head_dim_of(self, layer: int) -> int:
        return self.position.layers[layer]["head_dim"] if self.position.layers else self.head_dim

    def once(self, key: tuple, compute: Callable[[], str]) -> str:
        """The value of `key`, computed by the first layer that needs it."""
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]

    def rotate(self, rotation: Rotation, side: str, x: str, dim: int) -> str:
        """x [B, H, T, dim] of queries or keys."""
        graph, interleaved = self.graph, rotation.interleaved
        cos, sin, width = self._cosines_and_sines(rotation, side)
        if graph.opset >= 23 and dim % 2 == 0:
            caches, partial = (self._of_batch(cos), self._of_batch(sin)), width if width < dim else 0
            return graph.op("RotaryEmbedding", x, *caches, interleaved=int(interleaved), rotary_embedding_dim=partial)
        if interleaved:
            a, b = graph.slice(x, 3, 0, width, 2), graph.slice(x, 3, 1, width, 2)
        else:
            a, b = graph.slice(x, 3, 0, width // 2), graph.slice(x, 3, width // 2, width)
        first = graph.op("Sub", graph.op("Mul", a, cos), graph.op("Mul", b, sin))
        second = graph.op("Add", graph.op("Mul", a, sin), graph.op("Mul", b, cos))
        if interleaved:
            pairs = graph.op("Concat", graph.unsqueeze(first, 4), graph.unsqueeze(second, 4), axis=4)
            parts = [graph.reshape(pairs, 0, 0, 0, width)]
        else:
            parts = [first, second]
        if width < dim:
            parts.append(graph.slice(x, 3, width, dim))
        return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=3)

    def _cosines_and_sines(self, rotation: Rotation, side: str) -> tuple[str, str, int]:
        """The rows of the tokens' positions, [T, pairs], and the number of elements that they rotate."""
        name = "query" if rotation.is_one else side
        rows = rotation.query if name == "query" else rotation.key
        cos, sin = (
            self._rows(f"{rotation.name}.{name}.{part}", row) for part, row in zip(("cos", "sin"), rows, strict=True)
        )
        return cos, sin, 2 * rows[0].shape[1]

    def _of_batch(self, rows: str) -> str:
        graph, one = self.graph, self.graph.ints(1)
        batch = graph.unsqueeze(self.batch, 0)
        shape = self.once(("row shape",), lambda: graph.op("Concat", batch, one, one, axis=0))
        return self.once(("batch", rows), lambda: graph.op("Expand", rows, shape))

    def _rows(self, name: str, rows: np.ndarray) -> str:
        graph = self.graph
        return self.once((name,), lambda: graph.op("Gather", graph.constant(name, rows), self.positions, axis=0))
