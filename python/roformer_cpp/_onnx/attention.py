"""Softmax attention over the terms of core/terms/rf/attention_terms.h, as nodes of a graph.

Operator set 23 has the operators RotaryEmbedding and Attention. They compute what the model computes, except where
values or factors depend on the distance (the terms V and G); these, and operator set 17, are composed of products and
a softmax. Masks are finite numbers that are added to scores, because older runtimes give NaN for infinite ones in a
row without any key; causality is part of the mask, because the first description of Attention allowed either a mask or
``is_causal``. The output of a query without any key is 0, as everywhere in this library.
"""

from onnx import TensorProto

from .graph import LARGEST_FLOAT, Graph
from .position import Position, Term
from .rotations import Rotations

KEYS = 3  # the axis of scores


class Attention(Rotations):
    """The nodes that all layers of a graph share, and :meth:`layer`."""

    def __init__(self, graph: Graph, position: Position, ids: str, attention_mask: str, *, heads: int, head_dim: int):
        super().__init__(graph, position, ids)
        self.heads, self.head_dim = heads, head_dim
        self.scale = head_dim**-0.5 if position.scale is None else position.scale
        self._attention_mask = attention_mask

    def prepare(self, layers: int, *, causal: bool) -> None:
        graph = self.graph
        rows, columns = graph.unsqueeze(self.positions, 1), graph.unsqueeze(self.positions, 0)
        self.distances = graph.op("Sub", rows, columns)
        allowed = graph.unsqueeze(graph.cast(self._attention_mask, TensorProto.BOOL), 1, 2)
        if causal:
            earlier = graph.op("GreaterOrEqual", self.distances, graph.integer(0))
            allowed = graph.op("And", allowed, graph.unsqueeze(earlier, 0, 1))
        one, batch, length = graph.ints(1), *(graph.unsqueeze(x, 0) for x in (self.batch, self.length))
        rows_of_all = graph.op("Concat", one, one, length, one, axis=0)
        self._masks: dict[int, tuple[str, str, str]] = {}  # by window
        for window in sorted({self.position.window_of(number) for number in range(layers)}):
            inside = allowed
            if window > 0:
                reach = graph.integer(window - int(causal))
                near = graph.op("LessOrEqual", graph.op("Abs", self.distances), reach)
                inside = graph.op("And", allowed, graph.unsqueeze(near, 0, 1))
            has_key = graph.reduce("ReduceMax", graph.cast(inside, TensorProto.FLOAT), KEYS, keep=True)
            mask = graph.op("Where", inside, graph.number(0.0), graph.number(-LARGEST_FLOAT))
            self._masks[window] = has_key, mask, graph.op("Expand", mask, rows_of_all)
        self.pair_shape = graph.op("Concat", batch, graph.ints(self.heads), length, length, axis=0)

    def layer(self, number: int, q: str, k: str, v: str) -> str:
        """q, k, v and the result: [B, H, T, D]"""
        graph, terms, rotation = self.graph, self.position.terms[number], self.position.rotation_of(number)
        has_key, mask, full_mask = self._masks[self.position.window_of(number)]
        extra = self._added(terms, q, k)
        if rotation is not None:
            dim = self.head_dim_of(number)
            q, k = self.rotate(rotation, "query", q, dim), self.rotate(rotation, "key", k, dim)
            v = self.rotate(rotation, "key", v, dim) if rotation.values else v
        if bias := terms.get("content_bias"):
            q = graph.op("Add", q, self._of_heads(bias))
        if graph.opset >= 23 and "value_table" not in terms and "gate" not in terms:
            added = full_mask if extra is None else graph.op("Add", full_mask, extra)
            out = graph.op("Attention", q, k, v, added, scale=float(self.scale))
        else:
            out = self._composed(terms, q, k, v, extra, mask)
        return graph.op("Mul", out, has_key)

    def _composed(self, terms: dict[str, Term], q: str, k: str, v: str, extra: str | None, mask: str) -> str:
        graph = self.graph
        scores = graph.op("MatMul", q, graph.op("Transpose", k, perm=[0, 1, 3, 2]))
        if gate := terms.get("gate"):
            scores = graph.op("Mul", scores, self._by_distance(gate))
        scores = graph.op("Mul", scores, graph.number(self.scale))
        if extra is not None:
            scores = graph.op("Add", scores, extra)
        weights = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
        out = graph.op("MatMul", weights, v)
        if table := terms.get("value_table"):
            out = graph.op("Add", out, self._of_values(table, weights))
        return out

    # ---- what is added to scores

    def _added(self, terms: dict[str, Term], q: str, k: str) -> str | None:
        """s ((q + w) . K[r] + k . Q[r]) + pos(m, n), which broadcasts to [B, H, T, S]"""
        graph, parts = self.graph, []
        if table := terms.get("key_table"):
            moved = graph.op("Add", q, self._of_heads(terms["position_bias"])) if "position_bias" in terms else q
            parts.append(self._of_table(table, moved, self._index(table)))
        if table := terms.get("query_table"):
            by_key = self._of_table(table, k, graph.op("Transpose", self._index(table), perm=[1, 0]))
            parts.append(graph.op("Transpose", by_key, perm=[0, 1, 3, 2]))
        parts = [graph.op("Mul", part, graph.number(self.scale)) for part in parts]
        names = ("bias", "position_query", "position_key", "reset_row", "reset_col")
        if any(name in terms for name in names):
            key = tuple(terms[name].name for name in names if name in terms)
            parts.append(self.once(key, lambda: self._of_positions(terms)))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else graph.op("Sum", *parts)

    def _of_positions(self, terms: dict[str, Term]) -> str:
        """pos(m, n), [H or 1, T, T]"""
        graph, parts = self.graph, []
        if bias := terms.get("bias"):
            parts.append(self._by_distance(bias))
        if "position_query" in terms:
            a, c = (
                graph.op("Gather", graph.constant(terms[name].name, terms[name].array), self.positions, axis=1)
                for name in ("position_query", "position_key")
            )
            product = graph.op("MatMul", a, graph.op("Transpose", c, perm=[0, 2, 1]))
            parts.append(graph.op("Mul", product, graph.number(self.scale)))
        total = parts[0] if len(parts) == 1 else graph.op("Sum", *parts) if parts else graph.number(0.0)
        is_first = graph.op("Equal", self.positions, graph.integer(0))
        for name, axis in (("reset_col", 0), ("reset_row", 1)):  # the row's value takes precedence
            if term := terms.get(name):
                value = graph.constant(term.name, term.array.reshape(-1, 1, 1))
                total = graph.op("Where", graph.unsqueeze(is_first, axis), value, total)
        return total

    def _index(self, table: Term) -> str:
        """The rows of a table at each distance, int64 [T, T]"""
        graph = self.graph

        def compute() -> str:
            low, high = graph.integer(table.low), graph.integer(table.high)
            clamped = graph.op("Min", graph.op("Max", self.distances, low), high)
            return graph.op("Sub", clamped, low)

        return self.once(("index", table.low, table.high), compute)

    def _by_distance(self, term: Term) -> str:
        """A number for each distance, [H or 1, T, T]"""
        array = term.array.reshape(term.array.shape[:2])
        return self.graph.op("Gather", self.graph.constant(term.name, array), self._index(term), axis=1)

    def _of_table(self, table: Term, x: str, index: str) -> str:
        """x . table[index], [B, H, T, S]"""
        graph = self.graph
        rows = graph.op("Transpose", graph.constant(table.name, table.array), perm=[0, 2, 1])
        return graph.op("GatherElements", graph.op("MatMul", x, rows), self._everywhere(index), axis=3)

    def _of_values(self, table: Term, weights: str) -> str:
        """The sum over keys of weights times V[r]: the weights of each distance are summed, and multiplied by V."""
        graph, index = self.graph, self._everywhere(self._index(table))
        rows = table.array.shape[1]
        queries = graph.slice(self.pair_shape, 0, 0, KEYS)  # [B, H, T]
        zeros = graph.op("Expand", graph.number(0.0), graph.op("Concat", queries, graph.ints(rows), axis=0))
        sums = graph.op("ScatterElements", zeros, index, weights, axis=3, reduction="add")
        return graph.op("MatMul", sums, graph.constant(table.name, table.array))

    def _everywhere(self, index: str) -> str:
        return self.once(("everywhere", index), lambda: self.graph.op("Expand", index, self.pair_shape))

    def _of_heads(self, term: Term) -> str:
        """[H, D] as [H, 1, D]"""
        return self.graph.constant(term.name, term.array[:, None])
