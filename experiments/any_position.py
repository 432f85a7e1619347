"""C-03: rotations at any position, and a model without a longest input. The reference is cos and sin of
position * 10000^(-2i/D) in long double, whose error is below 1e-9 up to position 2^31."""

import numpy as np

from .run import Experiment, row

ERROR, LONGEST = "largest error of cos and sin", "longest input read by a model for 64 tokens"


def settings():
    positions = [1, 511, 1535, 131071, 1048575, 100000000, 2147483647]
    return {
        "head_dim": 64,
        "positions": positions,
        "model_positions": 64,
        "model_tokens": [64, 65, 256, 1024],
        "seeds": [1],
    }


def run(_, settings):
    import torch

    from .vectors import frequencies, rotated

    dim, worst = settings["head_dim"], {}
    for position in settings["positions"]:
        unit_TD = torch.tensor([[1.0, 0.0] * (dim // 2)])  # a pair (1, 0) rotates to (cos, sin)
        exact = rotated(unit_TD, torch.tensor([position])).view(-1, 2)
        angle = frequencies(dim).float() * float(position)
        product = torch.stack([angle.cos(), angle.sin()], 1)
        for arm, found in (("rope, float32", exact), ("angles as float32 products", product)):
            error = error_of(found.double().numpy(), position)
            yield row(f"{ERROR} by position", arm, error, step=position)
            worst[arm] = max(worst.get(arm, 0), error)
    for arm, error in worst.items():
        yield row(ERROR, arm, error)
    for encoding in ("rope", "learned"):
        yield row(LONGEST, encoding, longest_read(encoding, settings))


def error_of(found_I2, position):
    pairs = len(found_I2)
    angle_I = np.longdouble(position) * np.longdouble(10000) ** (-np.arange(pairs, dtype=np.longdouble) / pairs)
    return float(np.max(np.abs(found_I2 - np.stack([np.cos(angle_I), np.sin(angle_I)], 1))))


def longest_read(encoding, settings):
    import torch

    import roformer_cpp

    config = {"position_encoding": encoding, "vocab_size": 10, "hidden_size": 32, "intermediate_size": 32}
    config |= {"num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": settings["model_positions"]}
    model, longest = roformer_cpp.build_model(config, seed=settings["seeds"][0]), 0
    for tokens in settings["model_tokens"]:
        try:
            with torch.no_grad():
                hidden = model.encode(torch.arange(tokens)[None] % 10)
        except ValueError:  # the encoding has fewer positions
            continue
        longest = max(longest, tokens if hidden.isfinite().all() else 0)
    return longest


EXPERIMENTS = [Experiment("any-position", "Is RoPE defined at every position?", run, settings, has_scale=False)]
