"""roformer doctor: the rotation that it reports is that of transformers and of the formulas in mpmath, for every
scaling in the keys of both versions, and so are the errors of float32 angles."""

import mpmath
import numpy as np
import pytest
import torch
from transformers import StableLmConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import roformer_cpp
import rope_scaling_reference as reference
import tolerances
from cli_support import on_terminal, refused, run
from doctor_models import HEAD, HEADS, LENGTH, config, llama_weights, report, rules, write
from rope_scaling_reference import CONFIGURATIONS

assert reference.HEAD_DIM == HEAD
THEIRS = {name: given for name, given in CONFIGURATIONS.items() if given["rope_type"] not in reference.OURS}


def version5(parameters):
    return dict(rope_parameters=parameters)


def version4(parameters):
    inside = {key: value for key, value in parameters.items() if key not in ("rope_theta", "partial_rotary_factor")}
    inside["type"] = inside.pop("rope_type")
    outside = {"rope_theta": parameters["rope_theta"]}
    if "partial_rotary_factor" in parameters:
        outside["partial_rotary_factor"] = parameters["partial_rotary_factor"]
    return dict(rope_scaling=inside, **outside)


def rotation_of(tmp_path, **keys):
    (rotation,) = report(write(tmp_path / "model", config(**keys)))["rotations"]
    return rotation


def with_share(parameters):
    """What a model type that rotates a quarter by default is given for a whole head."""
    return {"partial_rotary_factor": 1.0} | parameters


@pytest.mark.parametrize("name", THEIRS)
def test_frequencies_are_those_of_the_formulas_and_of_transformers(name, tmp_path):
    parameters = with_share(THEIRS[name])
    rotation = rotation_of(tmp_path, model_type="stablelm", **version5(parameters))
    assert rotation_of(tmp_path, model_type="stablelm", **version4(parameters)) == rotation
    assert rotation["scaling"] == parameters["rope_type"] and rotation["pairing"] == "halves"
    assert rotation["base"] == parameters["rope_theta"]
    assert rotation["rotary_size"] == reference.rotary_dim(parameters, HEAD)
    trained = parameters.get("original_max_position_embeddings", LENGTH)
    with mpmath.workdps(reference.DIGITS):
        for key, length in [("frequencies", trained), ("longest_frequencies", LENGTH)]:
            exact = [float(theta) for theta in reference.frequencies(parameters, HEAD, length, LENGTH)]
            found = rotation[key] if rotation[key] is not None else rotation["frequencies"]
            np.testing.assert_allclose(found, exact, rtol=tolerances.eps("float64"))
        scale = float(reference.attention_factor(parameters, LENGTH))
    assert rotation["attention_factor"] == pytest.approx(scale, rel=4 * tolerances.eps("float64"))
    if name.startswith("default"):
        return
    theirs = StableLmConfig(hidden_size=HEADS * HEAD, num_attention_heads=HEADS, max_position_embeddings=LENGTH,
                            rope_parameters=dict(parameters))  # fmt: skip
    inv_freq, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](theirs, seq_len=1)
    np.testing.assert_allclose(rotation["frequencies"], inv_freq.double().numpy(), rtol=tolerances.FLOAT32_FREQUENCIES)
    assert rotation["attention_factor"] == pytest.approx(factor, rel=4 * tolerances.eps("float64"))


def test_reads_the_version_of_the_keys(tmp_path):
    for keys, version in (
        (config(rope_theta=5e5), 4),
        (config(rope_parameters={"rope_theta": 5e5}), 5),
        (config(transformers_version="4.40.1"), 4),
        (config(), None),
        (config(rope_theta=5e5, transformers_version="5.1"), 5),
        (config("gpt_neox", rotary_emb_base=1e4), 4),
    ):
        assert report(write(tmp_path / "model", keys))["version"] == version


def check_error(found, angles, positions, theta, *close):
    """The larger of the errors of cos and sin of these angles [positions, pairs] is the one that is found, and at its
    place. close: absolute tolerances of both."""
    exact, angles = positions[:, None] * theta, np.float64(angles)
    errors = np.maximum(np.abs(np.cos(angles) - np.cos(exact)), np.abs(np.sin(angles) - np.sin(exact)))
    at = errors[found["position"] - positions[0], found["pair"]]
    for value, tolerance in zip((found["error"], at), close, strict=True):
        assert value == pytest.approx(errors.max(), abs=tolerance)


LONG = 131072
LONG_KEYS = dict(num_attention_heads=1, num_key_value_heads=1, hidden_size=128, max_position_embeddings=LONG)


def test_errors_of_float32_angles(tmp_path):
    llama3 = CONFIGURATIONS["llama3"] | dict(factor=32.0, original_max_position_embeddings=8192)
    rotation = rotation_of(tmp_path, **LONG_KEYS, **version5(llama3))
    assert rotation["float16_positions"] == {"error": 2.0, "position": LONG - 4096, "pair": 0}  # beyond float16
    positions, theta = np.arange(LONG - 4096, LONG), np.array(rotation["frequencies"])
    angles = np.float32(positions)[:, None] * np.float32(theta)
    assert angles.dtype == np.float32
    # Cosines of float32 angles are rounded to float32 once more.
    check_error(rotation["float32_angles"], angles, positions, theta, tolerances.TABLE_F32, 2 * tolerances.TABLE_F32)


@pytest.mark.parametrize("dtype, key", [(torch.bfloat16, "bfloat16_positions"), (torch.float16, "float16_positions")])
def test_errors_of_rounded_positions(dtype, key, tmp_path):
    keys = LONG_KEYS | dict(max_position_embeddings=40000, torch_dtype=str(dtype)[6:])
    found = report(write(tmp_path / "model", config(**keys)))
    assert ("note", "rounded-positions") in rules(found)
    positions = torch.arange(40000 - 4096, 40000)
    theta = np.array(found["rotations"][0]["frequencies"])
    angles = positions.to(dtype).double().numpy()[:, None] * theta
    check_error(found["rotations"][0][key], angles, positions.numpy(), theta, *[tolerances.DOCTOR_FLOAT64_ANGLES] * 2)


def test_a_model_without_faults(tmp_path):
    found = report(write(tmp_path / "model", config(rope_theta=10000.0, torch_dtype="float32"), llama_weights()))
    assert found["findings"] == []
    assert (found["heads"], found["kv_heads"], found["head_size"], found["tensors"]) == (4, 2, 24, 6)
    assert (found["layers"], found["length"], found["dtype"]) == (2, 512, "float32")


def test_two_rotations(tmp_path):
    keys = config("gemma3_text", head_dim=HEAD, rope_theta=1e6, rope_local_base_freq=2e4,
                  rope_scaling={"rope_type": "linear", "factor": 8.0})  # fmt: skip
    full, sliding = report(write(tmp_path / "model", keys))["rotations"]
    assert (full["layers"], full["base"], full["scaling"]) == ("full_attention", 1e6, "linear")
    assert (sliding["layers"], sliding["base"], sliding["scaling"]) == ("sliding_attention", 2e4, "default")
    assert full["scaling_parameters"] == {"factor": 8.0}


def test_layers_that_do_not_rotate(tmp_path):
    for model_type, keys, unrotated in (
        ("smollm3", {}, [3, 7]),
        ("smollm3", {"no_rope_layers": [1, 0, 1, 1, 1, 1, 1, 0]}, [1, 7]),
        ("cohere2", {"sliding_window_pattern": 2}, [1, 3, 5, 7]),
        ("cohere2", {"layer_types": ["full_attention"] + ["sliding_attention"] * 7}, [0]),
        ("exaone4", {"sliding_window_pattern": "LG", "sliding_window": 4}, [1, 3, 5, 7]),
        ("exaone4", {"sliding_window_pattern": 2}, []),
    ):
        found = report(write(tmp_path / "model", config(model_type, num_hidden_layers=8, **keys)))
        assert found["unrotated_layers"] == unrotated, (model_type, keys)


def test_the_text_part_of_a_model_of_several_media(tmp_path):
    keys = {"model_type": "gemma3", "dtype": "float16", "text_config": config("gemma2", head_dim=16, rope_theta=3e4)}
    found = report(write(tmp_path / "model", keys))
    assert found["dtype"] == "float16"
    assert (found["model_type"], found["head_size"], found["rotations"][0]["base"]) == ("gemma2", 16, 3e4)


def test_axes_of_images_do_not_concern_a_text(tmp_path):
    scaling = {"type": "mrope", "rope_type": "default", "mrope_section": [4, 4, 4]}
    found = report(write(tmp_path / "model", config("qwen2_vl", rope_theta=1e6, rope_scaling=scaling)))
    (rotation,) = found["rotations"]
    assert (rotation["scaling"], rotation["pairing"], found["findings"]) == ("default", "halves", [])


def test_a_model_of_this_program(tmp_path):
    sizes = dict(vocab_size=31, hidden_size=48, num_hidden_layers=1, num_attention_heads=2, intermediate_size=6,
                 max_position_embeddings=64)  # fmt: skip
    roformer_cpp.build_model(sizes).save(str(tmp_path / "roformer"))
    found = report(tmp_path / "roformer")
    (rotation,) = found["rotations"]
    assert (found["model_type"], rotation["pairing"], rotation["base"]) == ("roformer", "pairs", 1e4)
    assert found["findings"] == [] and found["tensors"] > 10
    encoding = dict(type="rope", layout="halves", rope_theta=500.0, rope_scaling=dict(type="ntk", factor=2.0))
    keys = dict(model_type="rf_encoder", position_encoding=encoding) | sizes
    (rotation,) = report(write(tmp_path / "own", keys))["rotations"]
    assert (rotation["scaling"], rotation["pairing"], rotation["base"]) == ("ntk", "halves", 500.0)
    keys["position_encoding"] = "alibi"
    assert "must rotate" in refused("doctor", write(tmp_path / "other", keys))


def test_what_a_terminal_shows(tmp_path):
    keys = config(rope_theta=1e4, rope_parameters={"rope_theta": 5e5, "rope_type": "linear", "factor": 1.0})
    text = on_terminal("doctor", write(tmp_path / "model", keys), stream="stdout")
    shown = ("halves: elements i and i + 12", "linear, factor 1.0", "problem  bases-differ", "note     factor-one")
    assert all(words in text for words in shown), text
    assert "nothing found" in on_terminal("doctor", write(tmp_path / "good", config()), stream="stdout")


def test_exit_codes(tmp_path):
    faulty = write(tmp_path / "faulty", config(rope_theta=1e4, rope_parameters={"rope_theta": 5e5}))
    good = write(tmp_path / "good", config())
    for given, code in (([faulty], 0), ([faulty, "--strict"], 1), ([good, "--strict"], 0), ([], 2)):
        assert run("doctor", *given).returncode == code
    assert run("doctor", faulty, "--families").returncode == 2
