"""The modules of a model, as its checkpoint names their parameters."""

import torch
from torch import nn

from ._model_layers import (
    AttentionBlock,
    Body,
    CrossAttention,
    Embeddings,
    Intermediate,
    Layer,
    Layers,
    Linear,
    Norm,
    Output,
    Pooler,
    SelfAttention,
)
from .encoding import Encoding
from .linear_attention import LinearAttention


def parts_of(script: torch.ScriptObject, layout: dict, text: str) -> dict[str, nn.Module]:
    """The modules by their paths; only the encoding has values. Marks tied weights in the stages."""
    tensors = script.named_parameters()
    prefix, p = layout["prefix"], layout["dropout"]

    def linear(name: str) -> Linear:
        outputs, inputs = tensors[f"{name}.weight"].shape
        return Linear(inputs, outputs, f"{name}.bias" in tensors, device="meta")

    def norm(name: str) -> Norm:
        weight = tensors.get(f"{name}.weight")
        size = layout["hidden_size"] if weight is None else len(weight)
        has = {"elementwise_affine": weight is not None, "bias": f"{name}.bias" in tensors}
        module = Norm(size, layout["eps"], **has, device="meta")
        module.kind = layout["norm"]
        return module

    def output(name: str) -> Output:
        own = norm(f"{name}.LayerNorm") if f"{name}.LayerNorm.weight" in tensors or layout["norm"] == "rms" else None
        return Output(linear(f"{name}.dense"), own, p, layout["pre_norm"])

    def attention(name: str, kind: type[SelfAttention], index: int) -> AttentionBlock:
        linears = {side: linear(f"{name}.self.{side}") for side in ("query", "key", "value")}
        return AttentionBlock(kind(index, **linears), output(f"{name}.output"))

    def layer(index: int) -> Layer:
        name = f"{prefix}encoder.layer.{index}"
        cross = attention(f"{name}.crossattention", CrossAttention, index) if layout["cross_attention"] else None
        gate = linear(f"{name}.intermediate.gate") if f"{name}.intermediate.gate.weight" in tensors else None
        inner = Intermediate(linear(f"{name}.intermediate.dense"), gate, layout["activation"])
        return Layer(attention(f"{name}.attention", SelfAttention, index), cross, inner, output(f"{name}.output"))

    encoding = _encoding(script, layout, text, tensors[f"{prefix}embeddings.word_embeddings.weight"].shape[1])
    own = f"{prefix}embeddings.position_embeddings.weight" in tensors
    below = {}
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings", "task_type_embeddings"):
        table = tensors.get(f"{prefix}embeddings.{name}.weight")
        if table is not None:
            padding = layout["pad_token_id"] if name == "word_embeddings" else None
            made = encoding if name == "position_embeddings" else None
            below[name] = made or nn.Embedding(*table.shape, padding_idx=padding, device="meta")
    if layout["embedding_norm"]:
        below["LayerNorm"] = norm(f"{prefix}embeddings.LayerNorm")
    body = {"embeddings": Embeddings(below, p, layout["drops_first"])}
    if f"{prefix}embeddings_project.weight" in tensors:
        body["embeddings_project"] = linear(f"{prefix}embeddings_project")
    last = norm(f"{prefix}encoder.final_norm") if layout["final_norm"] else None
    layers = [layer(index) for index in range(1 if layout["shared_layers"] else layout["layers"])]
    body["encoder"] = Layers(layers, layout["layers"] // len(layers), last)
    starts_with_pooler = any(stage["linear"] == layout["pooler"] for stage in layout["stages"])
    if f"{prefix}pooler.dense.weight" in tensors:
        body["pooler"] = Pooler(linear(f"{prefix}pooler.dense"), starts_with_pooler or not layout["prefix_lm"])
    parts: dict[str, nn.Module] = {prefix[:-1]: Body(body)} if prefix else body
    for stage in layout["stages"]:
        name = stage["linear"]
        stage["tied"] = f"{name}.weight" not in tensors
        own_bias = f"{name}.bias" if f"{name}.bias" in tensors else "cls.predictions.bias"
        stage["tied_bias"] = own_bias if stage["bias"] else ""
        if not stage["tied"] and name != layout["pooler"]:
            parts[name] = linear(name)
        if stage["norm"]:
            parts[stage["norm"]] = norm(stage["norm"])
    if not own:
        parts["position_encoding"] = encoding
    if layout["linear_attention"] is not None:
        size, options = layout["hidden_size"] // layout["heads"], layout["linear_attention"]
        layers = [LinearAttention(size, index, **options) for index in range(layout["layers"])]
        parts["linear_attention"] = nn.ModuleList(layers).to("meta")
    return parts


def _encoding(script: torch.ScriptObject, layout: dict, text: str, embedding_size: int) -> Encoding:
    sizes = {key: layout[key] for key in ("hidden_size", "max_position_embeddings")}
    described = {"model": text} | sizes | {"embedding_size": embedding_size}
    encoding = Encoding(script.encoding(), layout["position_encoding"], described)
    encoding._position_table = script.position_table()
    return encoding
