"""C-01: if the tokens of an encoder without a position encoding are permuted, its outputs are permuted and nothing else
changes; with an encoding this is not so."""

from .encoding_arms import parse_arm
from .run import Experiment, row

ENCODINGS = ["none", "learned", "sinusoidal", "shaw", "nezha", "huang-m2", "huang-m3", "huang-m4", "alibi"]
ENCODINGS += ["transformer-xl", "t5", "tupe-a", "tupe-r", "deberta", "rope", "axial:grid_width=5", "xpos"]
MEASURE = "difference of outputs for permuted tokens from permuted outputs, of the largest"


def settings():
    sizes = {"tokens": 24, "hidden_size": 32, "heads": 4, "layers": 2}
    # weights_std is added to the initialisation, with which attention is nearly uniform.
    return sizes | {"encodings": ENCODINGS, "weights_std": 0.3, "seeds": [1, 2, 3]}


def run(_, settings):
    found = {}
    for encoding in settings["encodings"]:
        found[encoding] = [order_seen(encoding, settings, seed) for seed in settings["seeds"]]
        for seed, value in zip(settings["seeds"], found[encoding], strict=True):
            yield row(MEASURE, encoding, value, seed=seed)
    without = max(found.pop("none"))
    yield row(f"{MEASURE}: largest", "without encoding", without)
    yield row(f"{MEASURE}: least", "with each encoding", min(map(min, found.values())))


def order_seen(encoding, settings, seed):
    import torch

    import roformer_cpp

    name, options = parse_arm(encoding)
    tokens, width = settings["tokens"], settings["hidden_size"]
    config = {"position_encoding": {"type": name, **options}, "vocab_size": tokens + 1, "hidden_size": width}
    config |= {"intermediate_size": width, "num_attention_heads": settings["heads"]}
    config |= {"num_hidden_layers": settings["layers"], "max_position_embeddings": tokens}
    model = roformer_cpp.build_model(config, seed=seed).double()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += settings["weights_std"] * torch.randn_like(parameter)
        ids_BT, order = torch.arange(1, tokens + 1)[None], torch.randperm(tokens)
        outputs, permuted = model.encode(ids_BT), model.encode(ids_BT[:, order])
    return ((permuted - outputs[:, order]).abs().max() / outputs.abs().max()).item()


EXPERIMENTS = [Experiment("permutation", "Does attention see the order of its tokens?", run, settings, has_scale=False)]
