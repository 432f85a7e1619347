"""Model directories for the tests of `roformer doctor`: a config.json, and tensors of zeros or given ones."""

import json

import numpy as np
from safetensors.numpy import save_file

from cli_support import results

HEADS, KV_HEADS, HEAD, LENGTH, LAYERS = 4, 2, 24, 512, 2
SIZES = dict(hidden_size=HEADS * HEAD, num_hidden_layers=LAYERS, num_attention_heads=HEADS)
SIZES |= dict(num_key_value_heads=KV_HEADS, max_position_embeddings=LENGTH)


def config(model_type="llama", **changes):
    """Keys of config.json; None removes one."""
    keys = dict(model_type=model_type, **SIZES) | changes
    return {key: value for key, value in keys.items() if value is not None}


def llama_weights(kv_heads=KV_HEADS, head=HEAD):
    names = {"q_proj": HEADS * head, "k_proj": kv_heads * head, "v_proj": kv_heads * head}
    return {
        f"model.layers.{layer}.self_attn.{name}.weight": np.zeros((rows, HEADS * HEAD), np.float32)
        for layer in range(LAYERS)
        for name, rows in names.items()
    }


def write(folder, keys, weights=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(keys))
    if weights is not None:
        save_file(weights, folder / "model.safetensors")
    return folder


def report(path, *options):
    (found,) = results("doctor", path, *options)
    return found


def rules(found):
    """(severity, rule) of all findings."""
    return {(finding["severity"], finding["rule"]) for finding in found["findings"]}
