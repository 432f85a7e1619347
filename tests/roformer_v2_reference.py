"""RoFormerV2 in float64, written from its description (kexue.fm/archives/8998 and bert4keras' class RoFormerV2): a
post-norm encoder without biases whose norms are x / sqrt(mean(x^2) + eps), and directories with random weights.

There is no class of it in transformers. Dimensions: B batch, T tokens, E embedding_size, C hidden_size, H heads.
"""

import json

import torch
from safetensors.torch import save_file

SIZES = {"vocab_size": 61, "embedding_size": 24, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 37, "max_position_embeddings": 32, "type_vocab_size": 3, "hidden_act": "relu"}
SIZES |= {"layer_norm_eps": 1e-7}


def config_of(**changes):
    """As the published PyTorch port writes it."""
    port = {"model_type": "roformer", "use_bias": False, "norm_type": "rms_norm"}
    return SIZES | port | {"architectures": ["RoFormerForMaskedLM"]} | changes


def random_weights(config, seed=0):
    """Names as in the port; of order one where the sum is over many, so that no part of the model is hidden."""
    generator = torch.Generator().manual_seed(seed)
    embedding, hidden, inner = config["embedding_size"], config["hidden_size"], config["intermediate_size"]
    shapes = {
        "roformer.embeddings.word_embeddings.weight": (config["vocab_size"], embedding),
        "roformer.embeddings.token_type_embeddings.weight": (config["type_vocab_size"], embedding),
    }
    if embedding != hidden:
        shapes["roformer.embeddings_project.weight"] = (hidden, embedding)
        shapes["cls.predictions.transform.dense.weight"] = (embedding, hidden)
    for layer in range(config["num_hidden_layers"]):
        name = f"roformer.encoder.layer.{layer}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"{name}.{part}.weight"] = (hidden, hidden)
        shapes[f"{name}.intermediate.dense.weight"] = (inner, hidden)
        shapes[f"{name}.output.dense.weight"] = (hidden, inner)
    return {name: torch.randn(shape, generator=generator) * (1.5 / shape[1] ** 0.5) for name, shape in shapes.items()}


def save(folder, config, weights):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def rms(x, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def rotated(x_BHTD):
    """Pairs (2i, 2i + 1) by the angle t 10000^(-2i/D)."""
    dim = x_BHTD.shape[-1]
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(x_BHTD.shape[2], dtype=torch.float64)[:, None] * frequencies
    even, odd = x_BHTD[..., 0::2], x_BHTD[..., 1::2]
    pairs = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(pairs, -1).flatten(-2)


ACTIVATIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}


def forward(weights, config, ids, mask=None, types=None):
    """(last hidden state [B,T,C], logits [B,T,V]) in float64."""
    body = {name.removeprefix("roformer."): x for name, x in weights.items()}
    eps, heads = config["layer_norm_eps"], config["num_attention_heads"]
    act = ACTIVATIONS[config["hidden_act"]]
    words = body["embeddings.word_embeddings.weight"]
    types = torch.zeros_like(ids) if types is None else types
    x = rms(words[ids] + body["embeddings.token_type_embeddings.weight"][types], eps)
    projects = "embeddings_project.weight" in body
    if projects:
        x = x @ body["embeddings_project.weight"].T

    def split(name):
        return (x @ body[f"{name}.weight"].T).unflatten(-1, (heads, -1)).transpose(1, 2)

    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        q, k, v = (split(f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
        scores = rotated(q) @ rotated(k).transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, float("-inf"))
        attended = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
        x = rms(x + attended @ body[f"{name}.attention.output.dense.weight"].T, eps)
        inner = act(x @ body[f"{name}.intermediate.dense.weight"].T)
        x = rms(x + inner @ body[f"{name}.output.dense.weight"].T, eps)
    meets_words = x @ weights["cls.predictions.transform.dense.weight"].T if projects else x
    return x, meets_words @ words.T
