"""Encoders whose Python code only their authors have: directories with random weights as those publish them, and the
hidden states by the formulas of the papers, in float64."""

import json
import math

import torch
from safetensors.torch import save_file
from torch.nn.functional import gelu, layer_norm, softmax

WIDTH, HEADS, INNER, LAYERS, VOCAB = 48, 6, 20, 4, 60


def save_random(folder, config, shapes, prefix=""):
    """Saves random tensors of these shapes, their names after a prefix; the tensors without it."""
    torch.manual_seed(5)
    tensors = {name: 0.2 * torch.randn(shape) for name, shape in shapes.items()}
    for name, value in tensors.items():
        value += "orm" in name.lower() and name.endswith("weight")
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({prefix + name: value for name, value in tensors.items()}, folder / "model.safetensors")
    return tensors


class Reference:
    """Parts of an encoder with these tensors, in float64."""

    def __init__(self, tensors, eps, heads=HEADS):
        self.w = {name: value.double() for name, value in tensors.items()}
        self.eps, self.heads = eps, heads

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def norm(self, x, name):
        return layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], self.eps)

    def embed(self, row):
        row = torch.tensor(row).long()
        words = self.w["embeddings.word_embeddings.weight"][row]
        return words + self.w["embeddings.token_type_embeddings.weight"][0]

    def attend(self, q, k, v, bias=0.0, turn=lambda x: x):
        """[tokens, width] each; bias: [heads, tokens, tokens]; turn: of heads [heads, tokens, head_dim]."""
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(0, 1) for x in (q, k, v))
        scores = turn(q) @ turn(k).transpose(1, 2) / math.sqrt(q.shape[-1]) + bias
        return (softmax(scores, -1) @ v).transpose(0, 1).flatten(1)


# ---- nomic-embed-text-v2-moe


NOMIC = {
    "model_type": "nomic_bert", "auto_map": {"AutoModel": "modeling_hf_nomic_bert.NomicBertModel"},
    "architectures": ["NomicBertModel"], "activation_function": "gelu", "n_embd": WIDTH, "n_layer": LAYERS,
    "n_head": HEADS, "n_inner": INNER, "n_positions": 64, "max_trained_positions": 64, "rotary_emb_base": 900.0,
    "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None, "layer_norm_epsilon": 1e-5, "qkv_proj_bias": True, "mlp_fc1_bias": True,
    "mlp_fc2_bias": True, "prenorm": False, "causal": False, "type_vocab_size": 1, "vocab_size": VOCAB,
    "pad_token_id": 1, "moe_every_n_layers": 2, "moe_top_k": 2, "num_experts": 5, "num_shared_experts": 0,
    "moe_normalize_expert_weights": False, "expert_choice_router": False, "ffn_div": 1, "use_flash_attn": True,
}  # fmt: skip


def nomic_shapes(config):
    shapes = {"embeddings.word_embeddings.weight": [VOCAB, WIDTH]}
    shapes |= {"embeddings.token_type_embeddings.weight": [1, WIDTH], "emb_ln.weight": [WIDTH], "emb_ln.bias": [WIDTH]}
    for i in range(LAYERS):
        layer = f"encoder.layers.{i}."
        linears = {"attn.Wqkv": (3 * WIDTH, WIDTH), "attn.out_proj": (WIDTH, WIDTH)}
        every = config["moe_every_n_layers"]
        if every and i % every == 1:
            experts = config["num_experts"]
            shapes |= {f"{layer}mlp.experts.mlp.{name}": [experts * INNER, WIDTH] for name in ("w1", "w2")}
            shapes |= {layer + "mlp.router.layer.weight": [experts, WIDTH], layer + "mlp.experts.bias": [WIDTH]}
        else:
            linears |= {"mlp.fc1": (INNER, WIDTH), "mlp.fc2": (WIDTH, INNER)}
        for name, (rows, columns) in linears.items():
            shapes |= {f"{layer}{name}.weight": [rows, columns], f"{layer}{name}.bias": [rows]}
        for norm in ("norm1", "norm2"):
            shapes |= {f"{layer}{norm}.weight": [WIDTH], f"{layer}{norm}.bias": [WIDTH]}
    return shapes


def rotate(x, base):
    """Halves of [heads, tokens, head_dim] by their positions."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[1]).double(), base ** (-torch.arange(half).double() / half))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def mix_experts(of, x, layer, config):
    shares = softmax(x @ of.w[layer + "mlp.router.layer.weight"].T, -1)
    up, down = (of.w[f"{layer}mlp.experts.mlp.{name}"].unflatten(0, (-1, INNER)) for name in ("w1", "w2"))
    kept = torch.zeros_like(shares)
    best = shares.topk(config["moe_top_k"], -1).indices
    kept.scatter_(1, best, shares.gather(1, best))
    each = torch.einsum("etf,efc->etc", gelu(torch.einsum("tc,efc->etf", x, up)), down)
    return torch.einsum("te,etc->tc", kept, each) + of.w[layer + "mlp.experts.bias"]


def nomic_hidden(tensors, config, row):
    of = Reference(tensors, config["layer_norm_epsilon"])
    x = of.norm(of.embed(row), "emb_ln")
    for i in range(LAYERS):
        layer = f"encoder.layers.{i}."
        q, k, v = of.linear(x, layer + "attn.Wqkv").chunk(3, -1)
        attended = of.attend(q, k, v, turn=lambda heads: rotate(heads, config["rotary_emb_base"]))
        x = of.norm(x + of.linear(attended, layer + "attn.out_proj"), layer + "norm1")
        if layer + "mlp.router.layer.weight" in of.w:
            fed = mix_experts(of, x, layer, config)
        else:
            fed = of.linear(gelu(of.linear(x, layer + "mlp.fc1")), layer + "mlp.fc2")
        x = of.norm(x + fed, layer + "norm2")
    return x.float().numpy()


# ---- JinaBERT


def jina_class(name):
    return {"auto_map": {"AutoModel": f"{name}--modeling_bert.JinaBertModel"}}


OF_CODE = "jinaai/jina-bert-v2-qk-post-norm"
JINA = jina_class("jinaai/jina-bert-implementation") | {
    "model_type": "bert", "architectures": ["JinaBertModel"], "position_embedding_type": "alibi",
    "feed_forward_type": "geglu", "emb_pooler": "mean", "attn_implementation": "torch", "hidden_act": "gelu",
    "vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": INNER, "layer_norm_eps": 1e-12, "max_position_embeddings": 200, "type_vocab_size": 2,
    "pad_token_id": 0,
}  # fmt: skip
FOR_CODE = JINA | {"_name_or_path": OF_CODE} | jina_class(OF_CODE)


def jina_shapes(for_code):
    shapes = {"embeddings.word_embeddings.weight": [VOCAB, WIDTH]}
    shapes["embeddings.token_type_embeddings.weight"] = [2, WIDTH]
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= {f"{layer}attention.{name}.weight": [WIDTH, WIDTH], f"{layer}attention.{name}.bias": [WIDTH]}
        up, down = ("up_gated_layer", "down_layer") if for_code else ("gated_layers", "wo")
        shapes |= {f"{layer}mlp.{up}.weight": [2 * INNER, WIDTH], f"{layer}mlp.{down}.weight": [WIDTH, INNER]}
        shapes[f"{layer}mlp.{down}.bias"] = [WIDTH]
        norms.append(layer + "attention.output.LayerNorm")
        if for_code:
            norms += [layer + name for name in ("layer_norm_1", "layer_norm_2")]
            norms += [f"{layer}attention.self.layer_norm_{side}" for side in "qk"]
        else:
            norms.append(layer + "mlp.layernorm")
    for norm in norms:
        shapes |= {norm + ".weight": [WIDTH], norm + ".bias": [WIDTH]}
    return shapes


def slopes(heads):
    """ALiBi's: a geometric row for a power of two, and then every second one of the next."""
    if heads & (heads - 1) == 0:
        return [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]
    below = 2 ** (heads.bit_length() - 1)
    return slopes(below) + slopes(2 * below)[::2][: heads - below]


def jina_hidden(tensors, for_code, row):
    of = Reference(tensors, 1e-12)
    x = of.norm(of.embed(row), "embeddings.LayerNorm")
    place = torch.arange(len(row)).double()
    bias = -torch.tensor(slopes(HEADS)).double()[:, None, None] * (place[:, None] - place).abs()
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        q, k, v = (of.linear(x, f"{layer}attention.self.{name}") for name in ("query", "key", "value"))
        if for_code:
            q, k = (of.norm(y, f"{layer}attention.self.layer_norm_{side}") for y, side in ((q, "q"), (k, "k")))
        attended = of.linear(of.attend(q, k, v, bias), layer + "attention.output.dense")
        attended = of.norm(x + attended, layer + "attention.output.LayerNorm")
        if for_code:
            x = of.norm(x + attended, layer + "layer_norm_1")
            up, gate = of.linear(x, layer + "mlp.up_gated_layer").chunk(2, -1)
            x = of.norm(x + of.linear(gelu(gate) * up, layer + "mlp.down_layer"), layer + "layer_norm_2")
        else:
            gate, up = of.linear(attended, layer + "mlp.gated_layers").chunk(2, -1)
            x = of.norm(attended + of.linear(gelu(gate) * up, layer + "mlp.wo"), layer + "mlp.layernorm")
    return x.float().numpy()


def made(config, shapes, hidden, kind):
    """What families_page.py needs: a function that saves a directory, and gives the one that computes rows."""

    def make(folder):
        tensors = save_random(folder, config, shapes)
        return lambda row: hidden(tensors, kind, row)

    return make


# Of docs/families.md: the class and what it is.
AUTHORS = {
    ("NomicBertModel", "nomic_bert with experts"): made(NOMIC, nomic_shapes(NOMIC), nomic_hidden, NOMIC),
    ("JinaBertModel", "bert with ALiBi"): made(JINA, jina_shapes(False), jina_hidden, False),
    ("JinaBertModel", "the same for code"): made(FOR_CODE, jina_shapes(True), jina_hidden, True),
}
