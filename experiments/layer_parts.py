"""Intermediate results of encoders, computed from the parameters of a loaded model. Shapes: B batch, H heads, T tokens,
D head size, C width."""

import torch

import roformer_cpp


def projected(model, layer, x_BTC, with_bias=True):
    """Queries and keys [B,H,T,D] of a layer, before any rotation."""
    heads = model.config["num_attention_heads"]

    def of(which):
        name = f"encoder.layer.{layer}.attention.self.{which}"
        bias = body_parameter(model, f"{name}.bias") if with_bias else None
        y_BTC = torch.nn.functional.linear(x_BTC, body_parameter(model, f"{name}.weight"), bias)
        return y_BTC.unflatten(2, (heads, -1)).transpose(1, 2)

    return of("query"), of("key")


def body_parameter(model, name):
    """A parameter by its name in the body; language models have the body's name before it."""
    (found,) = (value for key, value in model.named_parameters() if key.split(".", 1)[1] == name)
    return found


def input_parts(model, ids_BT):
    """The input of the first layer as two summands [B,T,C], from words and from positions: the norm divides by the
    deviation of the sum, and is linear otherwise."""
    words_BTC = torch.nn.functional.embedding(ids_BT, body_parameter(model, "embeddings.word_embeddings.weight"))
    words_BTC = words_BTC + body_parameter(model, "embeddings.token_type_embeddings.weight")[0]
    tables = [value for name, value in model.named_parameters() if name.endswith(_TABLES)]
    positions_TC = tables[0][: ids_BT.shape[1]] if tables else torch.zeros_like(words_BTC[0])
    sum_BTC = words_BTC + positions_TC
    deviation_BT1 = (sum_BTC.var(2, correction=0, keepdim=True) + model.config["layer_norm_eps"]).sqrt()
    gain = body_parameter(model, "embeddings.LayerNorm.weight")

    def part(x):
        return (x - x.mean(-1, keepdim=True)) / deviation_BT1 * gain

    return part(words_BTC) + body_parameter(model, "embeddings.LayerNorm.bias"), part(positions_TC.expand_as(words_BTC))


_TABLES = ("position_encoding.weight", "embeddings.position_embeddings.weight")


def layer_inputs(model, ids_BT):
    """The input [B,T,C] of each layer: the output of a model that has only the layers before it."""
    inputs = [sum(input_parts(model, ids_BT))]
    for layers in range(1, model.config["num_hidden_layers"]):
        part = roformer_cpp.build_model(model.config | {"num_hidden_layers": layers}, model.head)
        part.to(next(model.parameters()).dtype)
        part.load_state_dict({name: value for name, value in model.state_dict().items() if name in part.state_dict()})
        inputs.append(part.encode(ids_BT))
    return inputs
