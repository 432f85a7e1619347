"""Bidirectional linear attention (nn/include/rf/nn/linear_attention.h has the equation), as nodes of a graph: sums over
the keys of features, without anything for each pair of tokens. nn/src/linear_attention_paths.h has the feature maps."""

from onnx import TensorProto

from .._model_files import ModelFiles
from .graph import LARGEST_FLOAT, Graph
from .position import Position
from .rotations import Rotations

KEYS, FEATURES = 2, 3  # axes of features [B, H, S, F]
_LEAST_NORM = 1e-12


class LinearAttention(Rotations):
    """The nodes that all layers of a graph share, and :meth:`layer`."""

    def __init__(self, graph: Graph, files: ModelFiles, position: Position, ids: str, attention_mask: str):
        super().__init__(graph, position, ids)
        self.files, self.options, self.head_dim = files, files.linear_attention, files.head_dim
        self.scale = self.head_dim**-0.5 if position.scale is None else position.scale
        self.allowed = graph.unsqueeze(graph.cast(attention_mask, TensorProto.BOOL), 1, 3)  # [B, 1, S, 1]

    def layer(self, number: int, q: str, k: str, v: str) -> str:
        """q, k, v and the result: [B, H, T, D]"""
        graph, rotation, site = self.graph, self.position.rotation, self.options["rope_site"]
        if rotation is not None and site == "before_map":
            q, k = (self.rotate(rotation, side, x, self.head_dim) for side, x in (("query", q), ("key", k)))
        projection, width = self._projection(number)
        f = self._of_queries(q, projection, width)
        g = graph.op("Where", self.allowed, self._of_keys(k, projection, width), graph.number(0.0))
        over, under = (f, g), (f, g)
        if rotation is not None and site == "after_map":
            over = self.rotate(rotation, "query", f, width), self.rotate(rotation, "key", g, width)
            under = over if self.options["rotate_denominator"] else under
        sums = graph.op("MatMul", graph.op("Transpose", over[1], perm=[0, 1, 3, 2]), v)
        numerator = graph.op("MatMul", over[0], sums)
        total = graph.reduce("ReduceSum", under[1], KEYS, keep=True)  # [B, H, 1, F]
        denominator = graph.reduce("ReduceSum", graph.op("Mul", under[0], total), FEATURES, keep=True)
        if self.options["eps"] > 0:
            denominator = graph.op("Add", denominator, graph.number(self.options["eps"]))
        is_zero = graph.op("Equal", denominator, graph.number(0.0))
        divisor = graph.op("Where", is_zero, graph.number(1.0), denominator)
        return graph.op("Where", is_zero, graph.number(0.0), graph.op("Div", numerator, divisor))

    def _projection(self, number: int) -> tuple[str | None, int]:
        """The random vectors of a layer, [D, F], and F."""
        kind, name = self.options["feature_map"], f"linear_attention.{number}.projection"
        if kind not in ("favor", "relu"):
            return None, self.head_dim + (kind == "cosine")
        rows = self.files.weight(name)
        return self.graph.constant(f"{name}.transposed", rows.T), len(rows)

    def _of_queries(self, x: str, projection: str | None, width: int) -> str:
        graph, kind = self.graph, self.options["feature_map"]
        if kind == "elu":
            return graph.op("Add", graph.op("Elu", x), graph.number(1.0))
        if kind in ("shen", "shen_original"):
            return graph.op("Softmax", x, axis=FEATURES)
        if kind == "cosine":
            norm = graph.op("Max", graph.reduce("ReduceL2", x, FEATURES, keep=True), graph.number(_LEAST_NORM))
            ones = graph.op("Add", graph.op("Mul", norm, graph.number(0.0)), graph.number(1.0))
            return graph.op("Concat", graph.op("Div", x, norm), ones, axis=FEATURES)
        products, half_norm = self._projected(x, projection)
        if kind == "relu":
            return graph.op("Add", graph.op("Relu", products), graph.number(self.options["feature_eps"]))
        largest = graph.reduce("ReduceMax", products, FEATURES, keep=True)
        return self._exponentials(graph.op("Sub", products, half_norm), largest, width)

    def _of_keys(self, x: str, projection: str | None, width: int) -> str:
        graph, kind = self.graph, self.options["feature_map"]
        if kind in ("elu", "relu", "cosine"):
            return self._of_queries(x, projection, width)
        if kind == "shen_original":
            return graph.op("Softmax", self._kept(x), axis=KEYS)
        exponents = products = x
        if kind == "favor":
            products, half_norm = self._projected(x, projection)
            exponents = graph.op("Sub", products, half_norm)
        by_key = graph.reduce("ReduceMax", self._kept(products), KEYS, keep=True)
        return self._exponentials(exponents, graph.reduce("ReduceMax", by_key, FEATURES, keep=True), width)

    def _projected(self, x: str, projection: str) -> tuple[str, str]:
        """x' w_j and |x'|^2 / 2 for x' = sqrt(s) x"""
        graph = self.graph
        x = graph.op("Mul", x, graph.number(self.scale**0.5))
        squares = graph.reduce("ReduceSum", graph.op("Mul", x, x), FEATURES, keep=True)
        return graph.op("MatMul", x, projection), graph.op("Mul", squares, graph.number(0.5))

    def _exponentials(self, exponents: str, largest: str, width: int) -> str:
        graph = self.graph
        y = graph.op("Exp", graph.op("Sub", exponents, largest))
        if self.options["feature_map"] != "favor":
            return y
        return graph.op("Mul", graph.op("Add", y, graph.number(self.options["feature_eps"])), graph.number(width**-0.5))

    def _kept(self, x: str) -> str:
        """x where a key may be attended to, and elsewhere less than any number of such."""
        return self.graph.op("Where", self.allowed, x, self.graph.number(-LARGEST_FLOAT))
