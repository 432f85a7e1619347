"""Every line of `roformer doctor --families` against transformers: head size, base and frequencies against its rotary
module, and the pairing against the function with which its attention rotates."""

import importlib
import inspect
import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

import tolerances
from cli_support import results
from doctor_models import report, write

FAMILIES = {line["model_type"]: line for line in results("doctor", "--families")}
LENGTH = 128
# Those that compute their rows inside a model, by the names of their functions.
TABLE = ("gptj", "codegen")


def small(model_type):
    """The default configuration of a class, with its own sizes of heads."""
    keys = {"gptj": dict(n_positions=LENGTH), "codegen": dict(n_positions=LENGTH)}.get(
        model_type, dict(max_position_embeddings=LENGTH)
    )
    if model_type == "glm4_moe":  # its default, 4096 / 96 * 0.5, is odd
        keys |= dict(head_dim=64)
    if model_type == "esm":
        keys |= dict(position_embedding_type="rotary", vocab_size=33)
    return AutoConfig.for_model(model_type, **keys)


def modeling(config):
    return importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))


def rotary_module(config):
    found = [
        cls
        for name, cls in inspect.getmembers(modeling(config), inspect.isclass)
        if name.endswith("RotaryEmbedding") and "Vision" not in name and cls.__module__ == modeling(config).__name__
    ]
    assert len(found) == 1, found
    return found[0](config)


def inverse_frequencies(config, layers):
    """[R/2] of the module of transformers, float64."""
    if config.model_type in TABLE:
        table = modeling(config).create_sinusoidal_positions(2, config.rotary_dim)
        return torch.asin(table[1, : config.rotary_dim // 2].double()).numpy()  # of position 1, below a quarter turn
    if config.model_type == "roformer":
        table = modeling(config).RoFormerSinusoidalPositionalEmbedding(
            2, config.hidden_size // config.num_attention_heads
        )
        return torch.asin(table.create_weight()[1].double())[: table.weight.shape[1] // 2].numpy()
    module = rotary_module(config)
    name = "inv_freq" if layers == "all" else f"{layers}_inv_freq"
    return getattr(module, name).double().numpy()


def reported(config, tmp_path):
    keys = config.to_dict()
    keys.pop("_name_or_path", None)
    return report(write(tmp_path / config.model_type, keys))


def test_the_original_length_of_a_class(tmp_path):
    """Phi-3's counts before that of the dictionary."""
    yarn = {"rope_type": "longrope", "original_max_position_embeddings": 16, "rope_theta": 1e4}
    config = AutoConfig.for_model("phi3", hidden_size=16, num_attention_heads=2)
    keys = config.to_dict() | {"rope_parameters": yarn | {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}}
    del keys["original_max_position_embeddings"]
    (rotation,) = report(write(tmp_path / "model", keys))["rotations"]
    theirs = type(config)(**keys).rope_parameters["original_max_position_embeddings"]
    assert rotation["scaling_parameters"]["original_max_position_embeddings"] == theirs == 4096


def rotate(config, x, positions, layers):
    """x [T, R], float64, as the attention of transformers rotates queries."""
    module = modeling(config)
    heads = x[None, None]  # [B, H, T, R]
    if config.model_type in TABLE:
        table = module.create_sinusoidal_positions(LENGTH, x.shape[-1])[positions].double()
        sin, cos = table.chunk(2, dim=-1)
        return module.apply_rotary_pos_emb(heads.transpose(1, 2), sin[None], cos[None])[0, :, 0]
    if config.model_type == "roformer":
        table = module.RoFormerSinusoidalPositionalEmbedding(LENGTH, x.shape[-1]).create_weight()[positions].double()
        attention = module.RoFormerSelfAttention
        return attention.apply_rotary_position_embeddings(table[None, None], heads, heads)[0][0, 0]
    rotary = rotary_module(config)
    extra = () if layers == "all" else (layers,)
    rows = rotary(heads, positions[None], *extra)
    if isinstance(rows, torch.Tensor):  # complex
        if config.model_type == "llama4_text":
            return module.apply_rotary_emb(heads.transpose(1, 2), heads.transpose(1, 2), rows)[0][0, :, 0]
        return module.apply_rotary_emb(heads, heads, rows)[0][0, 0]
    interleave = getattr(config, "rope_interleave", False)
    function = module.apply_rotary_pos_emb_interleave if interleave else module.apply_rotary_pos_emb
    if next(iter(inspect.signature(function).parameters)) == "x":  # gemma3n: one tensor
        return function(heads, *rows)[0, 0]
    return function(heads, heads, *rows)[0][0, 0]


def ours(rotation, x, positions):
    """x [T, R] rotated in NumPy by the report's pairing and frequencies."""
    angles = positions[:, None] * np.array(rotation["frequencies"])
    cos, sin = np.cos(angles), np.sin(angles)
    half = x.shape[-1] // 2
    first, second = (slice(0, None, 2), slice(1, None, 2)) if rotation["pairing"] == "pairs" else (
        slice(0, half), slice(half, None))  # fmt: skip
    y = np.empty_like(x)
    y[:, first] = x[:, first] * cos - x[:, second] * sin
    y[:, second] = x[:, second] * cos + x[:, first] * sin
    return y


def check_frequencies(config, found):
    for rotation in found["rotations"]:
        theirs, ours = inverse_frequencies(config, rotation["layers"]), np.array(rotation["frequencies"])
        if config.model_type == "roformer" or config.model_type in TABLE:  # sin(1) is asin's worst place, and float32
            theirs, ours = np.sin(theirs), np.sin(ours)
        np.testing.assert_allclose(ours, theirs, rtol=tolerances.FLOAT32_FREQUENCIES)


def check_pairing(config, found):
    """By scores of rotated queries and keys, because some write the rotated elements in another order."""
    rotation = found["rotations"][0]
    assert rotation["pairing"] == FAMILIES[config.model_type]["pairing"]
    generator = torch.Generator().manual_seed(1)
    size = 2 * len(rotation["frequencies"])
    x, y = torch.randn(2, 16, size, generator=generator, dtype=torch.float64)
    positions = torch.arange(0, 32, 2)
    scale = rotation["attention_factor"] ** 2
    theirs = rotate(config, x, positions, rotation["layers"]) @ rotate(config, y, positions, rotation["layers"]).T
    places = positions.double().numpy()
    expected = scale * ours(rotation, x.numpy(), places) @ ours(rotation, y.numpy(), places).T
    np.testing.assert_allclose(theirs.detach().double().numpy(), expected, atol=tolerances.DOCTOR_SCORES * size)
    other = rotation | {"pairing": "halves" if rotation["pairing"] == "pairs" else "pairs"}
    wrong = scale * ours(other, x.numpy(), places) @ ours(other, y.numpy(), places).T
    assert np.abs(wrong - expected).max() > tolerances.VISIBLE


def check_class_defaults(config, found, tmp_path):
    """A file as version 4 wrote it, with the sizes that every model has, but the length, and nothing of rotation."""
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "n_embd", "n_layer", "n_head",
             "position_embedding_type")  # fmt: skip
    sizes += ("head_dim",) if config.model_type == "glm4_moe" else ()
    keys = {key: value for key, value in config.to_dict().items() if key in sizes} | {"model_type": config.model_type}
    bare = report(write(tmp_path / "bare", keys))
    assert bare["head_size"] == found["head_size"]
    assert bare["length"] == AutoConfig.for_model(config.model_type).max_position_embeddings
    scaled = {"apertus", "cwm", "gpt_oss", "ministral3"}  # their classes have scalings by default, which files carry
    same = ["layers", "pairing", "rotary_size"] + ([] if config.model_type in scaled else ["base", "frequencies"])
    for mine, theirs in zip(bare["rotations"], found["rotations"], strict=True):
        assert {key: mine[key] for key in same} == {key: theirs[key] for key in same}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_line_is_what_the_class_computes(model_type, tmp_path):
    config = small(model_type)
    found = reported(config, tmp_path)
    assert found["model_type"] == model_type
    check_frequencies(config, found)
    check_pairing(config, found)
    check_class_defaults(config, found, tmp_path)


def write_sparse(path, tensors):
    """A safetensors file of bfloat16 zeros, which take no room on the disk."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        size = 2 * tensor.numel()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


# Their default configurations make no model.
INCOMPLETE = {"chameleon", "gemma3n_text", "ministral", "mllama_text_model", "nemotron"}


@pytest.mark.parametrize("model_type", sorted(FAMILIES.keys() - INCOMPLETE))
def test_the_weights_of_a_class_have_the_shapes_of_its_configuration(model_type, tmp_path):
    """Names as transformers gives them: a fused `qkv_proj.weight` also ends in `v_proj.weight`."""
    config = small(model_type)
    for key in {"num_hidden_layers", "n_layer"} & config.to_dict().keys():
        setattr(config, key, 1)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    folder = write(tmp_path / "model", config.to_dict())
    write_sparse(folder / "model.safetensors", model.state_dict())
    assert not [finding for finding in report(folder)["findings"] if finding["rule"].endswith("-shape")]
