"""roformer doctor on models with known faults: one finding each, and nothing else; and on files that it refuses."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from cli_support import refused
from doctor_models import HEAD, LENGTH, config, llama_weights, report, rules, write

LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=128)  # fmt: skip
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=128)
LONGROPE = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 12, long_factor=[2.0] * 12,
                original_max_position_embeddings=128)  # fmt: skip
LINEAR, DYNAMIC = dict(rope_type="linear", factor=2.0), dict(rope_type="dynamic", factor=2.0)


def dictionary(base, **changes):
    keys = base | changes
    return dict(rope_parameters={key: value for key, value in keys.items() if value is not None})


# Keys of config.json, what is found, and words of its text.
NO_GROUPS = dict(num_key_value_heads=None)
PROBLEM, NOTE = "problem", "note"
FAULTS = [
    (dict(model_type="gptj", rotary_dim=7) | NO_GROUPS, PROBLEM, "rotary-size", "has 7"),
    (dict(model_type="phi", partial_rotary_factor=0.3), PROBLEM, "rotary-size", "24 * 0.3 comes to 7"),
    (dict(partial_rotary_factor=0.3) | dictionary(LINEAR), PROBLEM, "rotary-size", "comes to"),
    (dict(model_type="codegen", rotary_dim=26) | NO_GROUPS, PROBLEM, "rotary-size", "26 elements"),
    (dict(num_attention_heads=9, num_key_value_heads=9), PROBLEM, "heads", "96"),
    (dict(num_key_value_heads=3), PROBLEM, "kv-heads", "3"),
    (dictionary(LONGROPE, long_factor=[2.0] * 11), PROBLEM, "factor-lists", "11 numbers"),
    (dict(original_max_position_embeddings=128), PROBLEM, "length", "no scaling"),
    (dictionary(LINEAR, factor=0.25), PROBLEM, "factor", "is 0.25"),
    (dict(rope_theta=1e4) | dictionary(dict(rope_theta=5e5)), PROBLEM, "bases-differ", "500000"),
    (dictionary(dict(type="linear", rope_type="dynamic", factor=2.0)), PROBLEM, "types-differ", "dynamic"),
    (dict(rope_scaling=dict(type="linear", factor=2.0)) | dictionary(LINEAR, factor=4.0), PROBLEM,
     "dictionaries-differ", "follows rope_scaling"),
    (dict(original_max_position_embeddings=256) | dictionary(YARN, factor=2.0), PROBLEM, "original-length", "256"),
    (dictionary(LLAMA3, low_freq_factor=None), PROBLEM, "missing-key", "low_freq_factor"),
    (dictionary(dict(rope_type="ntk", factor=8.0)), PROBLEM, "unknown-scaling", "ntk"),
    (dict(partial_rotary_factor=0.5), PROBLEM, "ignored-share", "whole heads"),
    (dict(model_type="phi", partial_rotary_factor=0.5) | dictionary(dict(partial_rotary_factor=0.25)), PROBLEM,
     "share-differs", "0.25"),
    (dict(model_type="gptj", rotary_dim=8, rope_scaling=dict(type="linear", factor=2.0)) | NO_GROUPS, PROBLEM,
     "ignored-scaling", "rope_scaling"),
    (dict(rope_theta=0.5), PROBLEM, "base", "above 1"),
    (dict(model_type="smollm3", no_rope_layers=[1]), PROBLEM, "layer-list", "1 entries"),
    (dictionary(dict(full_attention=dict(rope_type="default"))), PROBLEM, "layer-types", "one rotation"),
    (dict(model_type="gemma3_text", head_dim=HEAD) | dictionary(LINEAR, factor=8.0), PROBLEM, "layer-types", "ignores"),
    (dictionary(LINEAR, factor=1.0), NOTE, "factor-one", "changes nothing"),
    (dictionary(LINEAR, beta_fast=32), NOTE, "ignored-key", "does not read beta_fast"),
    (dictionary(dict(factor=8.0)), NOTE, "ignored-key", "nothing is scaled"),
    (dictionary(YARN, attention_factor=1.0, mscale=1.0), NOTE, "ignored-key", "mscale"),
    (dictionary(YARN, mscale=1.0), NOTE, "ignored-key", "both given"),
    (dict(rotary_pct=0.5), NOTE, "ignored-key", "rotary_pct in llama"),
    (dictionary(YARN, mscale=1.0, mscale_all_dim=0.7), NOTE, "not-in-gguf", "mscale_all_dim"),
    (dictionary(DYNAMIC), NOTE, "not-in-gguf", "dynamic"),
    (dictionary(DYNAMIC), NOTE, "changes-with-length", "vLLM"),
    (dictionary(YARN, factor=8.0), NOTE, "factor", "is 4 times"),
    (dictionary(LLAMA3, original_max_position_embeddings=512), NOTE, "length", "not longer"),
    (dictionary(LLAMA3, original_max_position_embeddings=None), NOTE, "original-length", "512"),
    (dict(model_type="mine", rope_theta=1e4), NOTE, "unknown-model-type", "mine"),
    (dict(max_position_embeddings=None), NOTE, "length", "absent"),
    (dict(max_position_embeddings=131072), NOTE, "float32-angles", "wrong by up to"),
    (dict(torch_dtype="bfloat16"), NOTE, "rounded-positions", "above 256"),
]  # fmt: skip
# What comes with some besides.
OF_DYNAMIC = {(NOTE, "changes-with-length"), (NOTE, "not-in-gguf")}
COMPANIONS = {"not-in-gguf, dynamic": OF_DYNAMIC, "changes-with-length, vLLM": OF_DYNAMIC}
COMPANIONS |= {"types-differ, dynamic": OF_DYNAMIC, "original-length, 512": {(NOTE, "length")}}


@pytest.mark.parametrize(("keys", "severity", "rule", "words"), FAULTS)
def test_finds_what_is_wrong_and_nothing_else(keys, severity, rule, words, tmp_path):
    found = report(write(tmp_path / "model", config(**keys)))
    assert rules(found) == {(severity, rule)} | COMPANIONS.get(f"{rule}, {words}", set()), found["findings"]
    (text,) = [finding["text"] for finding in found["findings"] if finding["rule"] == rule]
    assert words in text, text
    if words in ("26 elements", "11 numbers", "ntk"):
        (rotation,) = found["rotations"]  # which cannot be computed
        assert rotation["frequencies"] is None and rotation["float32_angles"] is None


SQUARE = np.zeros((96, 96), np.float32)


def weights_report(tmp_path, weights, **keys):
    return report(write(tmp_path / "model", config(**keys), weights))


@pytest.mark.parametrize(
    "weights, expected",
    [
        (llama_weights(kv_heads=4), {"key-shape": "2 * 24 is 48", "value-shape": "and 1 more"}),
        (llama_weights(head=32), {"query-shape": "4 * 24 is 96"}),
        ({"model.layers.0.self_attn.qkv_proj.weight": SQUARE}, {"fused-shape": "8 * 24 is 192"}),
    ],
)
def test_shapes_that_contradict_the_sizes(weights, expected, tmp_path):
    found = {finding["rule"]: finding for finding in weights_report(tmp_path, weights)["findings"]}
    for rule, words in expected.items():
        assert found[rule]["severity"] == PROBLEM and words in found[rule]["text"]


@pytest.mark.parametrize(
    "name, rows, model_type, extra",
    [
        ("encoder.layer.0.attention.self.query.weight", 96, "roformer", {}),
        ("gpt_neox.layers.0.attention.query_key_value.weight", 288, "gpt_neox", dict(num_key_value_heads=None)),
        ("transformer.h.0.self_attention.query_key_value.weight", 144, "falcon", dict(num_key_value_heads=None)),
        ("transformer.h.0.self_attention.query_key_value.weight", 192, "falcon",
         dict(num_key_value_heads=None, num_kv_heads=2, new_decoder_architecture=True)),
        ("layers.0.attn.Wqkv.weight", 288, "modernbert", dict(num_key_value_heads=None)),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 40, "deepseek_v3",
         dict(kv_lora_rank=16, qk_rope_head_dim=24, qk_nope_head_dim=8)),
    ],
)  # fmt: skip
def test_shapes_of_other_families(name, rows, model_type, extra, tmp_path):
    good = {name: np.zeros((rows, 96), np.float32)}
    assert rules(weights_report(tmp_path, good, model_type=model_type, **extra)) == set()
    bad = {name: np.zeros((rows + 1, 96), np.float32)}
    ((severity, rule),) = rules(weights_report(tmp_path, bad, model_type=model_type, **extra))
    assert severity == PROBLEM and rule.endswith("-shape")


def test_other_projections_have_any_shape(tmp_path):
    layer = "model.layers.0."
    names = ["model.vision_tower.layers.0.self_attn.q_proj.weight", layer + "cross.k_proj.weight",
             layer + "cross_attn.q_proj.weight", "memory.k_proj.weight", "v_proj.weight"]  # fmt: skip
    assert rules(weights_report(tmp_path, {name: np.zeros((7, 96), np.float32) for name in names})) == set()


def inverse_frequencies(base=1e4, head=HEAD):
    return (1 / base ** (np.arange(0, head, 2) / head)).astype(np.float32)


INV_FREQ = "model.layers.1.self_attn.rotary_emb.inv_freq"


def test_stored_frequencies(tmp_path):
    assert rules(weights_report(tmp_path, {INV_FREQ: inverse_frequencies()})) == set()
    found = weights_report(tmp_path, {INV_FREQ: inverse_frequencies(5e5)})
    assert rules(found) == {(PROBLEM, "stored-frequencies")}
    text = found["findings"][0]["text"]
    assert "base near 5e+05" in text and "ignore the stored" in text
    found = weights_report(tmp_path, {INV_FREQ: inverse_frequencies(head=12)})
    assert "has 6 frequencies, and the rotation of config.json has 12" in found["findings"][0]["text"]
    esm = {"esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq": inverse_frequencies(5e5)}
    found = weights_report(tmp_path, esm, model_type="esm", position_embedding_type="rotary")
    assert "computes with the stored" in found["findings"][0]["text"]
    not_numbers = inverse_frequencies()
    not_numbers[3] = np.nan
    assert (PROBLEM, "stored-frequencies") in rules(weights_report(tmp_path, {INV_FREQ: not_numbers}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_stored_frequencies_that_are_rounded(dtype, tmp_path):
    model = write(tmp_path / "model", config())
    save_torch({INV_FREQ: torch.from_numpy(inverse_frequencies()).to(dtype)}, model / "model.safetensors")
    found = report(model)
    assert rules(found) == {(NOTE, "stored-frequencies")} and "is rounded to" in found["findings"][0]["text"]
    save_torch({INV_FREQ: torch.from_numpy(inverse_frequencies(5e5)).to(dtype)}, model / "model.safetensors")
    assert rules(report(model)) == {(PROBLEM, "stored-frequencies")}


def sinusoids(rows=LENGTH, width=HEAD, base=1e4):
    angles = np.arange(rows)[:, None] / base ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


TABLE = "roformer.encoder.embed_positions.weight"


@pytest.mark.parametrize(
    "table, words",
    [
        (sinusoids(), None),
        (sinusoids(base=2e4), "differs from sines and cosines"),
        (sinusoids(rows=LENGTH // 2), "has 256 rows"),
        (sinusoids(width=HEAD // 2), "rows of 12"),
    ],
)
def test_a_stored_table_of_sinusoids(table, words, tmp_path):
    found = weights_report(tmp_path, {TABLE: table}, model_type="roformer")
    assert rules(found) == ({(PROBLEM, "stored-table")} if words else set())
    assert not words or words in found["findings"][0]["text"]


def test_a_learned_table_beside_the_rotation(tmp_path):
    weights = {"model.embeddings.position_embeddings.weight": np.zeros((LENGTH, 96), np.float32)}
    found = weights_report(tmp_path, weights)
    assert rules(found) == {(NOTE, "learned-table")} and "[512, 96]" in found["findings"][0]["text"]


def test_shards(tmp_path):
    model = write(tmp_path / "model", config())
    names = {}
    for number, (name, tensor) in enumerate(llama_weights(kv_heads=4).items()):
        names[name] = f"model-{number}.safetensors"
        save_file({name: tensor}, model / names[name])
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert {(PROBLEM, "key-shape"), (PROBLEM, "value-shape")} == rules(report(model))


REFUSED = [
    *[(dict(rope_theta=value), "rope_theta") for value in ["10000", True, [1], 0, 1e300]],
    *[(dict(head_dim=value), "head_dim") for value in ["x", {"a": 1}, 0, 2**40, 1.5]],
    *[(dict(num_attention_heads=value), "num_attention_heads") for value in [-1, 2**70]],
    *[(dict(max_position_embeddings=value), "max_position_embeddings") for value in [0, 2**62]],
    *[(dictionary(dict(rope_type="linear", factor=value)), "rope_parameters.factor") for value in ["x", -1.0, 1e300]],
    (dict(hidden_size=None), "hidden_size"),
    (dict(hidden_size=2), "hidden_size / num_attention_heads"),
    (dict(rope_scaling=[1]), "rope_scaling"),
    (dict(rope_parameters="linear"), "rope_parameters"),
    (dictionary(dict(rope_type=3)), "rope_parameters.rope_type"),
    (dictionary(LONGROPE, short_factor=3.0), "rope_parameters.short_factor"),
    (dictionary(LONGROPE, short_factor=[0.0] * 12), "rope_parameters.short_factor"),
    (dictionary(LLAMA3, high_freq_factor=0.5), "rope_parameters.high_freq_factor"),
    (dict(model_type="phi", partial_rotary_factor=0.0), "partial_rotary_factor"),
    (dict(model_type="phi", partial_rotary_factor=1.5), "partial_rotary_factor"),
    (dict(model_type=7), "model_type"),
    (dict(model_type="smollm3", no_rope_layers=3), "no_rope_layers"),
    (dict(model_type="deepseek_v3", rope_interleave="yes"), "rope_interleave"),
    # Models that do not rotate.
    (dict(model_type="bert"), "bert with learned vectors"),
    (dict(model_type="bloom"), "ALiBi"),
    (dict(model_type="falcon", alibi=True), "ALiBi"),
    (dict(model_type="esm"), "position_embedding_type"),
    (dict(model_type="mine"), '"mine"'),
    (dict(model_type=None), "neither"),
]  # fmt: skip


@pytest.mark.parametrize("keys, words", REFUSED)
def test_values_that_no_rotation_can_have(keys, words, tmp_path):
    message = refused("doctor", write(tmp_path / "model", config(**keys)))
    assert message.startswith(f"[{tmp_path}/model/config.json] ") and message.count("\n") == 1
    assert words in message and "must" in message, message


def test_paths_and_files_that_cannot_be_read(tmp_path):
    assert "which does not exist" in refused("doctor", tmp_path / "none")
    assert "got neither" in refused("doctor", tmp_path)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert "2 .gguf files" in refused("doctor", tmp_path)
    model = write(tmp_path / "model", config())
    for text in ["[]", "{", '{"a": 1, "a": 2}']:
        (model / "config.json").write_text(text)
        assert "config.json" in refused("doctor", model)
    write(model, config())
    (model / "model.safetensors").write_bytes(b"\x01\0\0\0\0\0\0\0")
    assert "model.safetensors" in refused("doctor", model)
