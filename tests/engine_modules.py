"""Models of every encoding and attention, made and saved by the package's modules, and their hidden states."""

import numpy as np
import torch

import roformer_cpp
from engine_case import SIZES

INFOS = {info["name"]: info for info in roformer_cpp.encodings()}


def save(encoding, directory, head=None, **changes):
    names = [e if isinstance(e, str) else e["type"] for e in (encoding if isinstance(encoding, list) else [encoding])]
    causal = {"is_decoder": any(INFOS[name]["needs_causal"] for name in names)}
    model = roformer_cpp.build_model(SIZES | causal | {"position_encoding": encoding} | changes, head)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.02 if name.endswith("freqs") else 0.3
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    model.save(directory)
    return model


def save_linear(directory, feature_map, site, encoding="rope", head=None, options=None, **changes):
    """With linear attention; options: more of it."""
    given = {"feature_map": feature_map, "rope_site": site} | (options or {})
    encoding = "sinusoidal" if site == "none" else encoding
    return save(encoding, directory, head, attention={"type": "linear"} | given, **changes)


def hidden_of(model, ids, types, positions=None):
    rows = []
    with torch.no_grad():
        for i, (row, type_row) in enumerate(zip(ids, types, strict=True)):
            given = {} if positions is None else {"positions": torch.as_tensor(positions[i])[None]}
            tokens = torch.tensor(row)[None].long(), torch.tensor(type_row)[None].long()
            rows.append(model.encode(tokens[0], token_type_ids=tokens[1], **given)[0].numpy())
    return np.concatenate(rows)
