"""roformer doctor on GGUF files. The writer here follows the format's description (ggml's docs/gguf.md); files of the
package gguf have been compared with it byte for byte, and are not needed to run this."""

import math
import struct
from functools import partial

import mpmath
import numpy as np
import pytest

import rope_scaling_reference as reference
import tolerances
from cli_support import refused
from doctor_models import config, report, rules, write

LENGTH, HEAD = 4096, 24
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def payload(kind, value):
    if kind == STRING:
        return text(value)
    if isinstance(kind, tuple):
        inner = kind[1]
        code = ARRAY if isinstance(inner, tuple) else inner
        return struct.pack("<IQ", code, len(value)) + b"".join(payload(inner, item) for item in value)
    return struct.pack("<" + CODES[kind], value)


def kind_of(value):
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, list):
        return (ARRAY, kind_of(value[0]))
    return {str: STRING, int: U32, float: F32}[type(value)]


def gguf(pairs, tensors=None, version=3, order="<"):
    """pairs: key -> value or (type, value); tensors: name -> float32 array."""
    tensors = tensors or {}
    out = b"GGUF" + struct.pack(order + "IQQ", version, len(tensors), len(pairs))
    for key, value in pairs.items():
        kind, value = value if isinstance(value, tuple) else (kind_of(value), value)
        code = ARRAY if isinstance(kind, tuple) else kind
        out += text(key) + struct.pack("<I", code) + payload(kind, value)
    offset = 0
    for name, array in tensors.items():
        shape = array.shape[::-1]
        out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        offset += -(-array.nbytes // 32) * 32
    out += bytes(-len(out) % 32)
    for array in tensors.values():
        out += array.astype("<f4").tobytes() + bytes(-array.nbytes % 32)
    return out


def pairs(architecture="llama", **keys):
    sizes = {"block_count": 2, "context_length": LENGTH, "embedding_length": 4 * HEAD, "attention.head_count": 4}
    sizes |= {"attention.head_count_kv": 2, "rope.freq_base": 10000.0}
    given = {f"{architecture}.{key}": value for key, value in sizes.items()}
    given |= {f"{architecture}.{key}": value for key, value in keys.items()}
    return {"general.architecture": architecture} | {key: value for key, value in given.items() if value is not None}


def frequencies(parameters):
    with mpmath.workdps(reference.DIGITS):
        return np.array([float(theta) for theta in reference.frequencies(parameters, HEAD)])


PLAIN = {"rope_type": "default"}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}


def gguf_report(tmp_path, *arguments, **options):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(*arguments, **options))
    return report(path)


def test_facts(tmp_path):
    found = gguf_report(tmp_path, pairs(), version=2)
    assert (found["format"], found["version"], found["model_type"]) == ("GGUF", 2, "llama")
    assert (found["heads"], found["kv_heads"], found["head_size"], found["layers"]) == (4, 2, HEAD, 2)
    assert found["findings"] == [] and found["tensors"] == 0
    (rotation,) = found["rotations"]
    assert (rotation["pairing"], rotation["rotary_size"], rotation["base"]) == ("pairs", HEAD, 1e4)
    np.testing.assert_allclose(rotation["frequencies"], frequencies(PLAIN), rtol=tolerances.eps("float64"))
    assert rotation["float32_angles"]["error"] > 0


@pytest.mark.parametrize(
    "architecture, pairing", [("deepseek2", "pairs"), ("qwen2", "halves"), ("gemma3", "halves"), ("mine", None)]
)
def test_pairing_is_that_of_the_architecture(architecture, pairing, tmp_path):
    found = gguf_report(tmp_path, pairs(architecture))
    assert found["rotations"][0]["pairing"] == pairing
    assert rules(found) == ({("note", "unknown-model-type")} if pairing is None else set())


def test_values_of_every_type(tmp_path):
    extra = {"a": (U8, 255), "b": (I8, -1), "c": (U16, 65535), "d": (I16, -2), "e": (I32, -3), "f": (BOOL, True),
             "g": (U64, 2**64 - 1), "h": (I64, -(2**63)), "i": (F64, 0.1), "j": ((ARRAY, STRING), ["x"] * 5000),
             "k": ((ARRAY, U8), [1] * 5000), "l": ((ARRAY, (ARRAY, F32)), [[1.0], [2.0, 3.0]]),
             "m": ((ARRAY, F64), [])}  # fmt: skip
    assert gguf_report(tmp_path, extra | pairs())["findings"] == []


def test_counts_and_sizes_of_other_types(tmp_path):
    """And a rotation of a part of the head."""
    keys = {"attention.head_count": (I32, 4), "context_length": (U64, LENGTH), "rope.freq_base": (F64, 5e5)}
    keys |= {"attention.head_count_kv": [2, 2], "attention.key_length": (U16, 48), "rope.dimension_count": 12}
    found = gguf_report(tmp_path, pairs("gptneox", **keys))
    (rotation,) = found["rotations"]
    assert (found["kv_heads"], found["head_size"], rotation["base"]) == (2, 48, 5e5)
    assert rotation["rotary_size"] == 12 and len(rotation["frequencies"]) == 6


def test_scalings(tmp_path):
    (linear,) = gguf_report(tmp_path, pairs(**LINEAR))["rotations"]
    assert (linear["scaling"], linear["scaling_parameters"]) == ("linear", {"factor": 4.0})
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 1024,
            "rope.scaling.yarn_beta_fast": 24.0, "rope.scaling.finetuned": True}  # fmt: skip
    (yarn,) = gguf_report(tmp_path, pairs("qwen2", **keys))["rotations"]
    theirs = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 1024,
              "beta_fast": 24.0}  # fmt: skip
    np.testing.assert_allclose(yarn["frequencies"], frequencies(theirs), rtol=tolerances.eps("float64"))
    assert yarn["attention_factor"] == pytest.approx(0.1 * math.log(4) + 1, rel=tolerances.GOLDEN_SCORE_RTOL)
    keys["rope.scaling.attn_factor"] = 0.5
    (yarn,) = gguf_report(tmp_path, pairs("qwen2", **keys))["rotations"]
    assert yarn["attention_factor"] == pytest.approx(0.5 * (0.1 * math.log(4) + 1), rel=tolerances.GOLDEN_SCORE_RTOL)


def test_divisors_in_a_tensor(tmp_path):
    divisors, plain = np.linspace(1, 8, HEAD // 2, dtype=np.float32), frequencies(PLAIN)
    check = partial(np.testing.assert_allclose, rtol=tolerances.GOLDEN_SCORE_RTOL)
    found = gguf_report(tmp_path, pairs(), {"other.weight": np.zeros((3, 5), "f4"), "rope_freqs.weight": divisors})
    check(found["rotations"][0]["frequencies"], plain / divisors)
    assert rules(found) == {("note", "stored-divisors")} and found["rotations"][0]["longest_frequencies"] is None
    (rotation,) = gguf_report(tmp_path, pairs(**LINEAR), {"rope_freqs.weight": divisors})["rotations"]
    assert rotation["scaling"] == "linear"
    check(rotation["frequencies"], plain / divisors / 4)
    yarn = LINEAR | {"rope.scaling.type": "yarn", "rope.scaling.original_context_length": 1024}
    (rotation,) = gguf_report(tmp_path, pairs(**yarn), {"rope_freqs.weight": divisors})["rotations"]
    assert rotation["scaling"] == "yarn" and rotation["frequencies"] is None
    found = gguf_report(tmp_path, pairs(), {"rope_freqs.weight": divisors[:5]})
    assert ("problem", "factor-lists") in rules(found)
    tensors = {"rope_factors_short.weight": divisors, "rope_factors_long.weight": 2 * divisors}
    keys = {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 1024}
    (rotation,) = gguf_report(tmp_path, pairs("phi3", **keys), tensors)["rotations"]
    assert rotation["scaling"] == "longrope"
    check(rotation["frequencies"], plain / divisors)
    check(rotation["longest_frequencies"], plain / (2 * divisors))


@pytest.mark.parametrize("local", [2e4, None])
def test_two_rotations(local, tmp_path):
    """llama.cpp takes 10000 for the layers with windows where the file says nothing."""
    found = gguf_report(tmp_path, pairs("gemma3", **{"rope.freq_base": 1e6, "rope.freq_base_swa": local}))
    bases = [(each["layers"], each["base"]) for each in found["rotations"]]
    assert bases == [("full_attention", 1e6), ("sliding_attention", local or 1e4)]


@pytest.mark.parametrize(
    ("architecture", "pattern", "unrotated"),
    [("smollm3", None, [3]), ("cohere2", None, [3]), ("exaone4", [1, 0, 1, 1, 1], [1]), ("llama", None, [])],
)
def test_layers_without_rotation(architecture, pattern, unrotated, tmp_path):
    keys = {"block_count": 5, "attention.sliding_window": 9, "attention.sliding_window_pattern": pattern}
    assert gguf_report(tmp_path, pairs(architecture, **keys))["unrotated_layers"] == unrotated


@pytest.mark.parametrize(
    "architecture, keys, finding, words",
    [
        ("llama", {"rope.dimension_count": 12}, ("problem", "rotary-size"), "llama.cpp refuses"),
        ("gptneox", {"rope.dimension_count": 7}, ("problem", "rotary-size"), "it has 7"),
        ("gptneox", {"rope.dimension_count": 26}, ("problem", "rotary-size"), "26 elements"),
        ("llama", {"rope.freq_base": None}, ("note", "base"), "takes 10000"),
        ("llama", {"context_length": None}, ("note", "length"), "llama.context_length"),
        ("llama", {"rope.scaling.factor": 4.0}, ("note", "scaling-type"), "scales linearly"),
        ("llama", {"rope.scaling.type": "dynamic"}, ("problem", "unknown-scaling"), "llama.cpp does not know"),
        ("phi3", {"rope.scaling.type": "longrope"}, ("problem", "missing-key"), "short_factor"),
        ("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}, ("note", "factor-one"), "nothing"),
    ],
)
def test_faults(architecture, keys, finding, words, tmp_path):
    found = gguf_report(tmp_path, pairs(architecture, **keys))
    assert finding in rules(found), found["findings"]
    assert words in next(each["text"] for each in found["findings"] if each["rule"] == finding[1])


def test_a_directory_with_one(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.gguf").write_bytes(gguf(pairs()))
    assert report(folder)["format"] == "GGUF"
    found = report(write(folder, config()))
    assert found["format"] == "config.json" and rules(found) == {("note", "other-file")}


def damaged(tmp_path, data):
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    message = refused("doctor", path)
    assert message.startswith(f"[{path}] ") and message.count("\n") == 1, message
    return message


def test_headers_that_lie(tmp_path):
    good = gguf(pairs())
    assert "must begin with GGUF" in damaged(tmp_path, b"ggml" + good[4:])
    assert "must be little-endian, got a big-endian one of version 3" in damaged(tmp_path, gguf(pairs(), order=">"))
    for version in (1, 4):
        assert f"must be 2 or 3, got {version}" in damaged(tmp_path, gguf(pairs(), version=version))
    for at, count in ((8, 2**63), (16, 2**64 - 1), (24, 2**40)):  # tensors, keys, the length of the first key
        assert "must lie within the file" in damaged(tmp_path, good[:at] + struct.pack("<Q", count) + good[at + 8 :])
    deep = struct.pack("<IQ", ARRAY, 1) * 5
    for content, old, new, rule in (
        ({"x": ((ARRAY, U64), [1])}, struct.pack("<IQ", U64, 1), struct.pack("<IQ", U64, 2**62), "must lie within"),
        ({"x": 1}, struct.pack("<I", U32), struct.pack("<I", 99), "must have a type"),
        ({"x": ((ARRAY, U32), [7])}, struct.pack("<IQI", U32, 1, 7), deep, "deep"),
        ({"x": 1, "y": 2}, text("y"), text("x"), "unique"),
        ({"general.alignment": 3} | pairs(), b"", b"", "power of two"),
    ):
        assert rule in damaged(tmp_path, gguf(content).replace(old, new))


@pytest.mark.parametrize(
    "content, words",
    [
        (pairs(**{"rope.freq_base": "x"}), "llama.rope.freq_base must be a number"),
        (pairs(**{"rope.freq_base": float("nan")}), "llama.rope.freq_base must be a number"),
        (pairs(context_length="x"), "llama.context_length must be an integer"),
        (pairs(context_length=(U64, 2**64 - 1)), "llama.context_length must be an integer"),
        (pairs(**{"attention.head_count": 0}), "head size"),
        (pairs(**{"attention.key_length": 2**31}), "llama.attention.key_length must be an integer"),
        (pairs(**{"rope.scaling.type": 7}), "llama.rope.scaling.type must be a string"),
        (pairs(**LINEAR | {"rope.scaling.factor": -1.0}), "llama.rope.scaling.factor must be a number"),
        # Models that do not rotate.
        (pairs("gpt2"), "gpt2"),
        ({"a": 1}, "general.architecture"),
        ({"general.architecture": 1}, "must be a string"),
    ],
)
def test_values_that_no_rotation_can_have(content, words, tmp_path):
    assert words in damaged(tmp_path, gguf(content))
