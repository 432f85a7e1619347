"""The encoder of a model as nodes of a graph: embeddings and layers. Dimensions: B batch, T tokens, C hidden_size."""

from .._model_files import ModelFiles
from .attention import Attention
from .graph import Graph
from .linear_attention import LinearAttention
from .position import Position


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
        shape = ["batch", "choices", "tokens"] if self.choices else ["batch", "tokens"]
        names = ("input_ids", "attention_mask", "token_type_ids")
        self.inputs = [graph.input(name, shape) for name in names]
        rows = [graph.op("Flatten", x, axis=2) for x in self.inputs] if self.choices else self.inputs
        self.ids, self.attention_mask, types = rows
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
            x = self._embeddings(types)
        for number in range(config["num_hidden_layers"]):
            with graph.scope(f"layer.{number}"):
                x = self._layer(number, x)
        return self.norm(x, f"{self.files.prefix}encoder.final_norm") if self.files.blocks["final_norm"] else x

    def linear(self, x: str, name: str) -> str:
        bias = self.files.weight(f"{name}.bias") if self.files.has(f"{name}.bias") else None
        return self.graph.linear(x, name, self.files.weight(f"{name}.weight"), bias)

    def norm(self, x: str, name: str) -> str:
        graph, eps = self.graph, self.config["layer_norm_eps"]
        parts = [self._constant(part) for part in (f"{name}.weight", f"{name}.bias") if self.files.has(part)]
        if self.files.blocks["rms_norm"]:  # by the root of the mean square
            mean = graph.reduce("ReduceMean", graph.op("Mul", x, x), -1, keep=True)
            x = graph.op("Div", x, graph.op("Sqrt", graph.op("Add", mean, graph.number(eps))))
            return graph.op("Mul", x, parts[0]) if parts else x
        return graph.op("LayerNormalization", x, *parts, axis=-1, epsilon=eps)

    def word_embeddings(self) -> str:
        return self._constant(f"{self.files.prefix}embeddings.word_embeddings.weight")

    def _constant(self, name: str) -> str:
        return self.graph.constant(name, self.files.weight(name))

    def _embeddings(self, types: str) -> str:
        graph, prefix = self.graph, self.files.prefix
        x = graph.op("Gather", self.word_embeddings(), self.ids)
        if self.position.word_scale != 1:
            x = graph.op("Mul", x, graph.number(self.position.word_scale))
        if self.files.has(f"{prefix}embeddings.token_type_embeddings.weight"):
            type_rows = self._constant(f"{prefix}embeddings.token_type_embeddings.weight")
            x = graph.op("Add", x, graph.op("Gather", type_rows, types))
        for i, rows in enumerate(self.position.inputs):
            added = graph.op("Gather", graph.constant(f"position.inputs.{i}", rows), self.attention.positions)
            x = graph.op("Add", x, added)
        if self.files.blocks["embedding_norm"]:
            x = self.norm(x, f"{prefix}embeddings.LayerNorm")
        if self.config["embedding_size"] != self.config["hidden_size"]:
            x = self.linear(x, f"{prefix}embeddings_project")
        return x

    def _layer(self, number: int, x: str) -> str:
        graph, name = self.graph, f"{self.files.prefix}encoder.layer.{number}"
        blocks = self.files.blocks
        pre_norm = blocks["pre_norm"]
        attention_norm, feed_forward_norm = f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"
        with graph.scope("attention"):
            normed = pre_norm and (number > 0 or blocks["first_attention_norm"])
            read = self.norm(x, attention_norm) if normed else x
            sides = (self.linear(read, f"{name}.attention.self.{side}") for side in ("query", "key", "value"))
            q, k, v = map(self._heads, sides, (self.config["num_attention_heads"], *[blocks["key_heads"]] * 2))
            out = graph.op("Transpose", self.attention.layer(number, q, k, v), perm=[0, 2, 1, 3])
            width = self.config["num_attention_heads"] * self.files.head_dim
            out = self.linear(graph.reshape(out, 0, 0, width), f"{name}.attention.output.dense")
            x = graph.op("Add", out, x)
            x = x if pre_norm else self.norm(x, attention_norm)
        with graph.scope("feed_forward"):
            gate, up = f"{name}.intermediate.gate", f"{name}.intermediate.dense"
            gated = self.files.has(f"{gate}.weight")
            read = self.norm(x, feed_forward_norm) if pre_norm else x
            wide = graph.activation(self.linear(read, gate if gated else up), self.config["hidden_act"])
            if gated:
                wide = graph.op("Mul", wide, self.linear(read, up))
            x = graph.op("Add", self.linear(wide, f"{name}.output.dense"), x)
            return x if pre_norm else self.norm(x, feed_forward_norm)

    def _heads(self, x: str, count: int) -> str:
        """[B, T, count D] as [B, H, T, D]; grouped keys and values are repeated."""
        graph, heads, dim = self.graph, self.config["num_attention_heads"], self.files.head_dim
        split = graph.op("Transpose", graph.reshape(x, 0, 0, count, dim), perm=[0, 2, 1, 3])
        if count == heads:
            return split
        repeated = graph.op("Expand", graph.unsqueeze(split, 2), graph.ints(1, 1, heads // count, 1, 1))
        shape = graph.op(
            "Concat", graph.ints(0, heads), graph.unsqueeze(self.attention.length, 0), graph.ints(dim), axis=0
        )
        return graph.op("Reshape", repeated, shape)
