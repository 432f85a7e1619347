"""Every line of `roformer doctor --families` against transformers: head size, base and frequencies against its rotary
module, and the pairing against the function with which its attention rotates."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

import tolerances
from cli_support import refused, results, run
from doctor_models import report, write

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
import doctor_table as table
import rotary_classes as classes

FAMILIES = {line["model_type"]: line for line in results("doctor", "--families")}
LENGTH = 128
# Columns of the table that the tests read.
ROWS = {
    match[1]: {
        "layers": "own" if "LayerTypes::kOwn" in match[2] else "two" if "LayerTypes::kTwo" in match[2] else "one",
        "plain_qkv": ".plain_qkv = false" not in match[2],
        "head_key": "qk_rope_head_dim" if "qk_rope_head_dim" in match[2] else "",
    }
    for match in re.finditer(r'    \{\.model_type = "([^"]+)"(.*)\},', table.PATH.read_text())
}
# Values without which a class does not rotate, or whose default gives an odd size.
NEEDED = {
    "esm": {"position_embedding_type": "rotary", "vocab_size": 33},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "glm4_moe": {"head_dim": 64},
    "glm4v_moe_text": {"head_dim": 64},
    "qwen3_omni_moe_text": {"head_dim": 64},
}
# Those that compute their rows inside a model, by the names of their functions.
TABLE = ("gptj", "codegen")


def small(model_type):
    """The default configuration of a class, with its own sizes of heads and a layer of each type."""
    keys = dict(NEEDED.get(model_type, {}))
    if model_type in TABLE:
        return AutoConfig.for_model(model_type, n_positions=LENGTH)
    cls = table.CONFIG_MAPPING[model_type]
    keys |= classes.types_of(cls()) if getattr(cls(), "rope_parameters", None) else {}
    return classes.build(cls, **keys, max_position_embeddings=LENGTH) or cls(**keys)


def inverse_frequencies(config, layers):
    """[R/2] of the module of transformers, float64."""
    if config.model_type in TABLE:
        rows = classes.modeling_of(type(config)).create_sinusoidal_positions(2, config.rotary_dim)
        return torch.asin(rows[1, : config.rotary_dim // 2].double()).numpy()  # of position 1, below a quarter turn
    if config.model_type == "roformer":
        head = config.hidden_size // config.num_attention_heads
        rows = classes.modeling_of(type(config)).RoFormerSinusoidalPositionalEmbedding(2, head).create_weight()
        return torch.asin(rows[1, : head // 2].double()).numpy()
    return classes.frequencies(config, None if layers == "all" else layers).numpy()


def reported(config, folder):
    return report(write(folder, json.loads(config.to_json_string(use_diff=False))))


def test_the_original_length_of_a_class(tmp_path):
    """Phi-3's counts before that of the dictionary."""
    yarn = {"rope_type": "longrope", "original_max_position_embeddings": 16, "rope_theta": 1e4}
    config = AutoConfig.for_model("phi3", hidden_size=16, num_attention_heads=2)
    keys = config.to_dict() | {"rope_parameters": yarn | {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}}
    del keys["original_max_position_embeddings"]
    (rotation,) = report(write(tmp_path / "model", keys))["rotations"]
    theirs = type(config)(**keys).rope_parameters["original_max_position_embeddings"]
    assert rotation["scaling_parameters"]["original_max_position_embeddings"] == theirs == 4096


def rotate(config, x, positions):
    """x [T, R], float64, as the attention of transformers rotates queries."""
    module = classes.modeling_of(type(config))
    heads = x[None, None]  # [B, H, T, R]
    if config.model_type in TABLE:
        rows = module.create_sinusoidal_positions(LENGTH, x.shape[-1])[positions].double()
        sin, cos = rows.chunk(2, dim=-1)
        return module.apply_rotary_pos_emb(heads.transpose(1, 2), sin[None], cos[None])[0, :, 0]
    if config.model_type == "roformer":
        rows = module.RoFormerSinusoidalPositionalEmbedding(LENGTH, x.shape[-1]).create_weight()[positions].double()
        attention = module.RoFormerSelfAttention
        return attention.apply_rotary_position_embeddings(rows[None, None], heads, heads)[0][0, 0]
    calls = classes.rotating_calls(config)
    other = "not " * (not getattr(config, "rope_interleave", True)) + "self.config.rope_interleave"
    function = next((call.function for call in calls if other in call.conditions), calls[0].function)
    return classes.rotate(config, function, x, positions)


def that_rotates(config):
    """The configuration, or one with the sections of axes without which its rotary module fails."""
    if config.model_type in table.FIXED:
        return config
    for each in [config, *classes.unscaled_variants(config)]:
        size = 2 * len(inverse_frequencies(each, classes.layer_types(each)[0] or "all"))
        try:
            rotate(each, torch.zeros(1, size, dtype=torch.float64), torch.zeros(1, dtype=torch.long))
            return each
        except classes.Refused:
            continue
    raise AssertionError(config.model_type)


def ours(rotation, x, positions):
    """x [T, R] rotated in NumPy by the report's pairing and frequencies."""
    angles = positions[:, None] * np.array(rotation["frequencies"])
    cos, sin = np.cos(angles), np.sin(angles)
    half, is_pairs = x.shape[-1] // 2, rotation["pairing"] == "pairs"
    first, second = (slice(0, None, 2), slice(1, None, 2)) if is_pairs else (slice(0, half), slice(half, None))
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
    generator = torch.Generator().manual_seed(1)
    size = 2 * len(rotation["frequencies"])
    x, y = torch.randn(2, 16, size, generator=generator, dtype=torch.float64)
    positions = torch.arange(0, 32, 2)
    scale = rotation["attention_factor"] ** 2
    theirs = rotate(config, x, positions) @ rotate(config, y, positions).T
    places = positions.double().numpy()
    expected = scale * ours(rotation, x.numpy(), places) @ ours(rotation, y.numpy(), places).T
    np.testing.assert_allclose(theirs.detach().double().numpy(), expected, atol=tolerances.DOCTOR_SCORES * size)
    other = rotation | {"pairing": "halves" if rotation["pairing"] == "pairs" else "pairs"}
    wrong = scale * ours(other, x.numpy(), places) @ ours(other, y.numpy(), places).T
    assert size == 2 or np.abs(wrong - expected).max() > tolerances.VISIBLE


def check_class_defaults(config, found, folder):
    """A file as version 4 wrote it, with the sizes that every model has, but the length, and nothing of rotation."""
    sizes = [*table.SIZE_KEYS["width"], *table.SIZE_KEYS["heads"], "num_hidden_layers", "n_layer", "n_layers"]
    sizes += NEEDED.get(config.model_type, {})
    keys = {key: value for key, value in config.to_dict().items() if key in sizes} | {"model_type": config.model_type}
    if ROWS[config.model_type]["layers"] == "own":
        assert "rope_parameters must have a dictionary" in refused("doctor", write(folder, keys))
        return
    bare = report(write(folder, keys))
    assert bare["head_size"] == found["head_size"]
    default = classes.build(type(config)) or config
    assert bare["length"] == (table.size_of(default.to_dict(), "length") or None)
    # Classes with scalings by default, which files carry.
    own_scaling = getattr(default, "rope_parameters", {}).get("rope_type") not in (None, "default")
    scaled = own_scaling or ROWS[config.model_type]["layers"] != "one"
    same = ["layers", "pairing", "rotary_size"] + ([] if scaled else ["base", "frequencies"])
    for mine, theirs in zip(bare["rotations"], found["rotations"], strict=True):
        assert {key: mine[key] for key in same} == {key: theirs[key] for key in same}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_line_is_what_the_class_computes(model_type, tmp_path):
    config = that_rotates(small(model_type))
    found = reported(config, tmp_path / "model")
    assert found["model_type"] == model_type
    check_frequencies(config, found)
    check_pairing(config, found)
    check_class_defaults(config, found, tmp_path / "bare")


@pytest.fixture(scope="module")
def made():
    """The table as the script makes it from the installed transformers."""
    return table.make_table()


def test_the_table_is_what_the_script_writes(made):
    assert f"transformers {table.transformers.__version__}." in table.PATH.read_text().splitlines()[0]
    assert table.text_of(made) == table.PATH.read_text()


KNOWN = {name for path in table.PATH.parent.glob("*.*") for name in re.findall(r'"(\w+)"', path.read_text())}


def kinds(value):
    """What the reader's code tells apart in a file: keys and names that its source has, and kinds of other values."""
    if isinstance(value, dict):
        return tuple(sorted((key, kinds(each)) for key, each in value.items() if key in KNOWN))
    return value if isinstance(value, str) and value in KNOWN else f"{type(value).__name__} {bool(value)}"


def test_every_model_type_has_a_report_or_a_reason(made, tmp_path):
    """Default configurations, as save_pretrained writes them; of the rows, which have a test each, every tenth, and of
    the types without rotation those whose files the reader tells apart."""
    wrong, others = {}, set()
    for model_type in sorted(table.CONFIG_MAPPING_NAMES.keys() - made.rows.keys()) + sorted(made.rows)[::10]:
        cls = table.CONFIG_MAPPING[model_type]
        config = classes.build(cls, **NEEDED.get(model_type, {}))
        if config is None or cls.model_type != model_type:  # another name of a class, which no file has
            continue
        config.save_pretrained(tmp_path / model_type)
        if model_type in made.others:
            alike = kinds(json.loads((tmp_path / model_type / "config.json").read_text()))
            if alike in others:
                continue
            others.add(alike)
        result = run("doctor", tmp_path / model_type)
        if model_type in made.rows or model_type in made.parts:
            found = json.loads(result.stdout) if result.returncode == 0 else {}
            if found.get("part", "") != made.parts.get(model_type):
                wrong[model_type] = result.stdout + result.stderr
        else:
            if result.returncode == 0 and "unknown-model-type" in result.stdout:
                continue  # rotary keys in a type without rotation
            reason = "must" if table.read_part(config) else made.refused.get(model_type, "must")
            one = result.stderr.startswith(f"[{tmp_path}") and result.stderr.count("\n") == 1
            if result.returncode != 1 or not one or reason not in result.stderr:
                wrong[model_type] = result.stdout + result.stderr
    assert not wrong and len(others) > 50


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


# Values without which a class makes no model, or one whose config.json is no JSON (an infinite time_step_limit), and
# both kinds of layers of bailing_hybrid: those without rotation have projections of another size.
BUILDABLE = {
    "bailing_hybrid": {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
    "falcon_h1": {"time_step_limit": [0.0, 1.0]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl_text": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
# Others have other projections, or default configurations that make no model.
PLAIN = [name for name, row in ROWS.items() if row["plain_qkv"] or row["head_key"] == "qk_rope_head_dim"]


@pytest.mark.parametrize("model_type", PLAIN)
def test_the_weights_of_a_class_have_the_shapes_of_its_configuration(model_type, tmp_path):
    """Names as transformers gives them: a fused `qkv_proj.weight` also ends in `v_proj.weight`."""
    config = small(model_type)
    for key, value in {"num_hidden_layers": 1, "n_layer": 1, **BUILDABLE.get(model_type, {})}.items():
        if key in config.to_dict():
            setattr(config, key, value)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    folder = write(tmp_path / "model", config.to_dict())
    write_sparse(folder / "model.safetensors", model.state_dict())
    assert not [finding for finding in report(folder)["findings"] if finding["rule"].endswith("-shape")]
