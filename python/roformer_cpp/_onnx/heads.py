"""The part of a graph after the encoder: the head of a model, or the modules of sentence-transformers.

Names and formulas follow engine/src/heads.cpp.
"""

import json
from pathlib import Path

import numpy as np
from onnx import TensorProto

from .encoder import Encoder
from .graph import LARGEST_FLOAT, Graph


def add_hidden(graph: Graph, encoder: Encoder, hidden: str) -> None:
    """The last hidden state, and of a BERT with a pooler its output."""
    width = encoder.config["hidden_size"]
    graph.output("last_hidden_state", hidden, ["batch", "tokens", width])
    if encoder.files.has(f"{encoder.files.prefix}pooler.dense.weight"):
        with graph.scope("pooler"):
            graph.output("pooler_output", _pooler(encoder, hidden), ["batch", width])


def add_logits(graph: Graph, encoder: Encoder, hidden: str) -> None:
    head = encoder.files.head
    outputs = {name: extents for name, extents in head["outputs"] if name.endswith("logits")}
    with graph.scope("head"):
        x = _read(encoder, hidden, head["reads"])
        for stage in head["stages"]:
            x = _product(graph, encoder, x, stage["linear"])
            x = graph.activation(x, stage["activation"]) if stage["activation"] else x
            x = encoder.norm(x, stage["norm"]) if stage["norm"] else x
        if head["reads"] == "mean_logits":
            x = _pool(graph, encoder, x, encoder.attention_mask, "mean")
        if encoder.choices:  # [B * choices, 1]
            x = graph.op("Reshape", x, graph.slice(graph.op("Shape", encoder.inputs[0]), 0, 0, 2))
        for i, (name, extents) in enumerate(outputs.items()):
            shape = [int(each) if each.isdigit() else each for each in extents]
            each = x if len(outputs) == 1 else graph.op("Gather", x, graph.integer(i), axis=2)
            graph.output(name, each, shape)


def _read(encoder: Encoder, hidden: str, reads: str) -> str:
    """The head's input."""
    graph, mask = encoder.graph, encoder.attention_mask
    if reads == "last" and encoder.files.family == "decoder":  # the last that is not padding, by its id too
        is_padding = graph.op("Equal", encoder.ids, graph.integer(encoder.config["pad_token_id"]))
        mask = graph.op("Where", is_padding, graph.integer(0), mask)
    elif reads in ("first", "last"):  # padding or not, as in transformers
        return graph.op("Gather", hidden, graph.integer(0 if reads == "first" else -1), axis=1)
    return _pool(graph, encoder, hidden, mask, reads) if reads in ("last", "mean") else hidden


def _pooler(encoder: Encoder, hidden: str) -> str:
    pooled = encoder.linear(_read(encoder, hidden, "first"), f"{encoder.files.prefix}pooler.dense")
    return encoder.graph.op("Tanh", pooled)


def _product(graph: Graph, encoder: Encoder, x: str, name: str) -> str:
    """A layer; the vocabulary's may be tied."""
    bias = next((each for each in (f"{name}.bias", "cls.predictions.bias") if encoder.files.has(each)), None)
    if encoder.files.has(f"{name}.weight"):
        logits = encoder.linear(x, name)  # with its own bias
        bias = None if bias == f"{name}.bias" else bias
    else:
        logits = graph.op("MatMul", x, graph.op("Transpose", encoder.word_embeddings(), perm=[1, 0]))
    return graph.op("Add", logits, graph.constant(bias, encoder.files.weight(bias))) if bias else logits


# ---- sentence-transformers


def cross_encoder_dir(model_dir: str) -> str | None:
    """The folder of the model in a directory that names a CrossEncoder and has modules; None for others."""
    settings, modules = (Path(model_dir) / name for name in ("config_sentence_transformers.json", "modules.json"))
    if not settings.is_file() or not modules.is_file():
        return None
    is_one = json.loads(settings.read_bytes()).get("model_type") == "CrossEncoder"
    return str(Path(model_dir) / json.loads(modules.read_bytes())[0]["path"]) if is_one else None


class SentenceModules:
    """The modules after the encoder, from modules.json. The engine has checked these files."""

    def __init__(self, where: str, model_dir: str, info: dict):
        self.poolings: list[str] = info["pooling"]
        self.dimensions: int = info["dimensions"]
        self.normalized: bool = info["normalized"]
        self.width: int = info["width"]
        self.encoder_dir, self.steps = model_dir, []
        path = Path(model_dir) / "modules.json"
        if not path.exists():
            return
        for module in json.loads(path.read_bytes()):
            kind, folder = module["type"].rsplit(".", 1)[-1], Path(model_dir) / module["path"]
            if kind == "Transformer":
                self.encoder_dir = str(folder)
            elif kind == "Pooling":
                if not json.loads((folder / "config.json").read_bytes()).get("include_prompt", True):
                    rule = "include_prompt must be true, because a graph sees no prompt"
                    raise ValueError(f"[{where}] {rule}, got false")
            elif kind in _STEPS:
                self.steps.append((kind, folder))
            elif kind != "Dropout":
                raise ValueError(f"[{where}] modules must be Transformer, Pooling, {', '.join(_STEPS)}, got {kind}")


_STEPS = ("Dense", "LayerNorm", "Normalize")
_ACTIVATIONS = {"Identity": None, "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu"}


def add_embedding(graph: Graph, encoder: Encoder, hidden: str, modules: SentenceModules) -> None:
    """One vector [B, dimensions] for each sequence."""
    mask = encoder.attention_mask
    with graph.scope("pooling"):
        pooled = [_pool(graph, encoder, hidden, mask, name) for name in modules.poolings]
        x = pooled[0] if len(pooled) == 1 else graph.op("Concat", *pooled, axis=1)
    for number, (kind, folder) in enumerate(modules.steps):
        with graph.scope(f"{kind.lower()}.{number}"):
            if kind == "Normalize":
                x = _normalized(graph, x)
            else:
                x = (_dense if kind == "Dense" else _layer_norm)(graph, x, folder, f"{kind.lower()}.{number}")
    if modules.dimensions < modules.width:
        x = graph.slice(x, 1, 0, modules.dimensions)
        x = _normalized(graph, x) if modules.normalized else x
    graph.output("sentence_embedding", x, ["batch", modules.dimensions])


def _pool(graph: Graph, encoder: Encoder, hidden: str, mask: str, name: str) -> str:
    if name == "pooler":
        return _pooler(encoder, hidden)
    width = encoder.config["hidden_size"]
    kept = graph.unsqueeze(graph.cast(mask, TensorProto.BOOL), 2)  # [B, T, 1]
    if name in ("cls", "last"):  # the first or the last token that is attended to
        numbers = graph.cast(graph.cast(mask, TensorProto.BOOL), TensorProto.INT64)
        if name == "last":
            numbers = graph.op("Mul", numbers, graph.op("Add", encoder.attention.positions, graph.integer(1)))
        row = graph.op("ArgMax", numbers, axis=1, keepdims=1)  # [B, 1]
        index = graph.op("Expand", graph.unsqueeze(row, 2), graph.ints(1, 1, width))
        return graph.op("Squeeze", graph.op("GatherElements", hidden, index, axis=1), graph.ints(1))
    if name == "max":
        largest = graph.reduce("ReduceMax", graph.op("Where", kept, hidden, graph.number(-LARGEST_FLOAT)), 1)
        any_kept = graph.reduce("ReduceMax", graph.cast(kept, TensorProto.FLOAT), 1)
        return graph.op("Where", graph.cast(any_kept, TensorProto.BOOL), largest, graph.number(0.0))
    weights = graph.cast(kept, TensorProto.FLOAT)
    if name == "weighted-mean":  # by the numbers of tokens, from 1
        numbers = graph.op("Add", graph.cast(encoder.attention.positions, TensorProto.FLOAT), graph.number(1.0))
        weights = graph.op("Mul", weights, graph.unsqueeze(numbers, 0, 2))
        hidden = graph.op("Mul", hidden, weights)
    total = graph.reduce("ReduceSum", graph.op("Where", kept, hidden, graph.number(0.0)), 1)
    count = graph.reduce("ReduceSum", weights, 1)
    divisor = graph.op("Max", count, graph.number(1.0))
    return graph.op("Div", total, graph.op("Sqrt", divisor) if name == "mean-sqrt-len" else divisor)


def _normalized(graph: Graph, x: str) -> str:
    length = graph.reduce("ReduceL2", x, 1, keep=True)
    return graph.op("Div", x, graph.op("Max", length, graph.number(1e-12)))


def _weights(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return {key: np.asarray(value, np.float32) for key, value in load_file(folder / "model.safetensors").items()}


def _layer_norm(graph: Graph, x: str, folder: Path, name: str) -> str:
    weights = _weights(folder)
    parts = [graph.constant(f"{name}.{part}", weights[f"norm.{part}"]) for part in ("weight", "bias")]
    return graph.op("LayerNormalization", x, *parts, axis=-1, epsilon=1e-5)  # of torch.nn.LayerNorm


def _dense(graph: Graph, x: str, folder: Path, name: str) -> str:
    config, weights = json.loads((folder / "config.json").read_bytes()), _weights(folder)
    y = graph.linear(x, name, weights["linear.weight"], weights.get("linear.bias"))
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh").rsplit(".", 1)[-1]
    if _ACTIVATIONS[activation]:
        y = graph.activation(y, _ACTIVATIONS[activation])
    if not config.get("use_residual", False):
        return y
    through = (
        graph.linear(x, f"{name}.residual", weights["residual.weight"], None) if "residual.weight" in weights else x
    )
    return graph.op("Add", y, through)
