"""The encoder of a model as nodes of a graph: embeddings and layers. Dimensions: B batch, T tokens, C hidden_size."""

import numpy as np
from onnx import TensorProto

from .._model_files import ModelFiles
from .attention import Attention
from .graph import Graph
from .linear_attention import LinearAttention
from .position import Position

# Mechanisms of layers that the engine computes and graphs do not.
NOT_IN_GRAPHS = (
    "whole_query_key_norm", "attention_twice", "norms_of_results_alone", "shared_norm", "residual_scale", "score_cap",
    "transposed_matrices", "joined_groups", "scaled_logits", "layers_without_rotation", "experts", "sinks", "adapters",
    "norms_of_heads", "linear_positions", "convolution", "embedding_norm_last",
)  # fmt: skip


class Encoder:
    def __init__(self, graph: Graph, files: ModelFiles, position: Position, *, choices: bool = False):
        """choices: whether inputs are [batch, choices, tokens]; the encoder reads each choice as a row."""
        self.graph, self.files, self.position, self.choices = graph, files, position, choices
        self.config = files.config

    def build(self) -> str:
        """The last hidden state, float32 [B, T, C], of the inputs, which are added to the graph."""
        graph, config = self.graph, self.config
        if config.get("prefix_lm"):
            raise ValueError("[export_onnx] prefix_lm must be false, got true")
        for name in NOT_IN_GRAPHS:
            if self.files.blocks[name]:
                raise ValueError(f"[export_onnx] the model must be without {name}, which has no graph, got one with it")
        shape = ["batch", "choices", "tokens"] if self.choices else ["batch", "tokens"]
        names = ("input_ids", "attention_mask", *["token_type_ids"] * (config["type_vocab_size"] > 1))
        self.inputs = [graph.input(name, shape) for name in names]
        rows = [graph.op("Flatten", x, axis=2) for x in self.inputs] if self.choices else self.inputs
        self.ids, self.attention_mask, *self.types = rows
        heads = config["num_attention_heads"]
        with graph.scope("positions"):
            if self.files.linear_attention:
                self.attention = LinearAttention(graph, self.files, self.position, self.ids, self.attention_mask)
            else:
                self.attention = Attention(
                    graph, self.position, self.ids, self.attention_mask, heads=heads, head_dim=self.files.head_dim
                )
                self.attention.prepare(config["num_hidden_layers"], causal=config["is_decoder"])
        with graph.scope("embeddings"):
            x = self.embedded = self._embeddings()
        for number in range(config["num_hidden_layers"]):
            with graph.scope(f"layer.{number}"):
                x = self._layer(number, x)
        x = self.norm(x, f"{self.files.prefix}encoder.final_norm") if self.files.blocks["final_norm"] else x
        projection = f"{self.files.prefix}encoder.output_projection"
        return self.linear(x, projection) if self.files.has(f"{projection}.weight") else x

    def linear(self, x: str, name: str) -> str:
        bias = self.files.weight(f"{name}.bias") if self.files.has(f"{name}.bias") else None
        return self.graph.linear(x, name, self.files.weight(f"{name}.weight"), bias)

    def norm(self, x: str, name: str) -> str:
        graph, eps, blocks = self.graph, self.config["layer_norm_eps"], self.files.blocks
        parts = [self._constant(part) for part in (f"{name}.weight", f"{name}.bias") if self.files.has(part)]
        if blocks["norm_plus_one"]:
            parts[0] = graph.constant(f"{name}.gain", self.files.weight(f"{name}.weight") + 1)
        if blocks["rms_norm"]:  # by the root of the mean square
            mean = graph.reduce("ReduceMean", graph.op("Mul", x, x), -1, keep=True)
            x = graph.op("Div", x, graph.op("Sqrt", graph.op("Add", mean, graph.number(eps))))
            return graph.op("Mul", x, parts[0]) if parts else x
        parts = parts or [graph.constant(f"{name}.gain", np.ones(self.config["hidden_size"], np.float32))]
        return graph.op("LayerNormalization", x, *parts, axis=-1, epsilon=eps)

    def word_embeddings(self) -> str:
        return self._constant(f"{self.files.prefix}embeddings.word_embeddings.weight")

    def _constant(self, name: str) -> str:
        return self.graph.constant(name, self.files.weight(name))

    def _embeddings(self) -> str:
        graph, prefix = self.graph, self.files.prefix
        x = graph.op("Gather", self.word_embeddings(), self.ids)
        if self.position.word_scale != 1:
            x = graph.op("Mul", x, graph.number(self.position.word_scale))
        if self.files.blocks["dropped_id"] >= 0:
            x = self._with_dropped(x, self.files.blocks["dropped_id"])
        # Unless the caller chooses rows, every token gets the first row.
        for kind, rows in (("token", self.types), ("task", [])):
            if self.files.has(table := f"{prefix}embeddings.{kind}_type_embeddings.weight"):
                added = graph.op("Gather", self._constant(table), *(rows or [graph.integer(0)]))
                x = graph.op("Add", x, added)
        for i, rows in enumerate(self.position.inputs):
            added = graph.op("Gather", graph.constant(f"position.inputs.{i}", rows), self._rows_of_positions())
            x = graph.op("Add", x, added)
        if self.files.blocks["embedding_norm"]:
            x = self.norm(x, f"{prefix}embeddings.LayerNorm")
        if self.files.blocks["projects_embeddings"]:
            x = self.linear(x, f"{prefix}embeddings_project")
        return x

    def _with_dropped(self, x: str, dropped: int) -> str:
        """Embeddings of this token become 0, and others are divided by their share of a text."""
        graph = self.graph
        is_kept = graph.op("Not", graph.op("Equal", self.ids, graph.integer(dropped)))
        counts = graph.op("And", is_kept, graph.cast(self.attention_mask, TensorProto.BOOL))
        kept, tokens = (
            graph.reduce("ReduceSum", graph.cast(each, TensorProto.FLOAT), 1, keep=True)
            for each in (counts, self.attention_mask)
        )
        inverse_share = graph.op("Div", tokens, graph.op("Max", kept, graph.number(1)))
        scale = graph.op("Mul", graph.cast(is_kept, TensorProto.FLOAT), inverse_share)
        return graph.op("Mul", x, graph.unsqueeze(scale, 2))

    def _rows_of_positions(self) -> str:
        """In some models, tokens with the padding's id do not count as positions and read a separate row."""
        graph, first, padding = self.graph, self.files.blocks["first_row"], self.files.blocks["padding_id"]
        if padding < 0:
            return graph.op("Add", self.attention.positions, graph.integer(first))
        is_padding = graph.op("Equal", self.ids, graph.integer(padding))
        counts = graph.op("CumSum", graph.cast(graph.op("Not", is_padding), TensorProto.INT64), graph.integer(1))
        return graph.op("Where", is_padding, graph.integer(padding), graph.op("Add", counts, graph.integer(first - 1)))

    def _layer(self, number: int, x: str) -> str:
        graph, blocks = self.graph, self.files.blocks
        name = f"{self.files.prefix}encoder.layer.{0 if blocks['shared'] else number}"
        pre_norm = blocks["pre_norm"]
        attention_norm, feed_forward_norm = f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"
        with graph.scope("attention"):
            normed = pre_norm and (number > 0 or blocks["first_attention_norm"])
            read = self.norm(x, attention_norm) if normed else x
            q, k, v = (self._heads(number, read, f"{name}.attention.self", side) for side in ("query", "key", "value"))
            out = graph.op("Transpose", self.attention.layer(number, q, k, v), perm=[0, 2, 1, 3])
            width = self.config["num_attention_heads"] * self.attention.head_dim_of(number)
            out = self.linear(graph.reshape(out, 0, 0, width), f"{name}.attention.output.dense")
            given, x = x, graph.op("Add", self._post_norm(out, f"{name}.attention.output"), x)
            x = x if pre_norm else self.norm(x, attention_norm)
        with graph.scope("feed_forward"):
            gate, up = f"{name}.intermediate.gate", f"{name}.intermediate.dense"
            gated = self.files.has(f"{gate}.weight")
            read = self.norm(given if blocks["parallel"] else x, feed_forward_norm) if pre_norm else x
            wide = graph.activation(self.linear(read, gate if gated else up), self.config["hidden_act"])
            if gated:
                wide = graph.op("Mul", wide, self.linear(read, up))
            out = self.linear(wide, f"{name}.output.dense")
            x = graph.op("Add", self._post_norm(out, f"{name}.output"), x)
            x = x if pre_norm else self.norm(x, feed_forward_norm)
        if self.files.has(f"{name}.layer_input.gate.weight"):
            with graph.scope("layer_input"):
                x = graph.op("Add", self._layer_input(number, f"{name}.layer_input", x), x)
        return graph.op("Mul", x, self._constant(f"{name}.scale")) if self.files.has(f"{name}.scale") else x

    def _layer_input(self, number: int, name: str, x: str) -> str:
        matrix = self.files.weight(f"{self.files.prefix}encoder.layer_inputs.weight")
        width, hidden = len(matrix) // self.config["num_hidden_layers"], matrix.shape[1]
        rows = (matrix[number * width : (number + 1) * width] * hidden**-0.5).astype(np.float32)
        own = self.norm(
            self.graph.linear(self.embedded, name, rows, None), f"{self.files.prefix}encoder.layer_input_norm"
        )
        gate = self.graph.activation(self.linear(x, f"{name}.gate"), self.config["hidden_act"])
        return self.norm(self.linear(self.graph.op("Mul", gate, own), f"{name}.down"), f"{name}.norm")

    def _post_norm(self, x: str, name: str) -> str:
        return self.norm(x, f"{name}.post_norm") if self.files.has(f"{name}.post_norm.weight") else x

    def _heads(self, number: int, x: str, name: str, side: str) -> str:
        """Queries, keys or values [B, H, T, D] of x [B, T, C]; grouped keys and values are repeated."""
        graph, heads, layers = self.graph, self.config["num_attention_heads"], self.files.blocks["layers"]
        dim, key_heads = (
            self.attention.head_dim_of(number),
            (layers[number] if layers else self.files.blocks)["key_heads"],
        )
        count = heads if side == "query" else key_heads
        split = graph.reshape(self.linear(x, f"{name}.{side}"), 0, 0, count, dim)
        if self.files.has(f"{name}.{side}_norm.weight") or (side == "value" and self.files.blocks["value_norm"]):
            split = self.norm(split, f"{name}.{side}_norm")
        split = graph.op("Transpose", split, perm=[0, 2, 1, 3])
        if count == heads:
            return split
        repeated = graph.op("Expand", graph.unsqueeze(split, 2), graph.ints(1, 1, heads // count, 1, 1))
        shape = graph.op(
            "Concat", graph.ints(0, heads), graph.unsqueeze(self.attention.length, 0), graph.ints(dim), axis=0
        )
        return graph.op("Reshape", repeated, shape)
