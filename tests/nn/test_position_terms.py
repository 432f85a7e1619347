"""position_terms.safetensors, which save() stores for the engine: lengths, names, what is not stored, and bake. Its
numbers are compared through the engine (tests/engine/test_encodings.py)."""

import re

import pytest
import torch
from safetensors import safe_open

import roformer_cpp
from encoding_case import perturbed
from encoding_files import INFOS, sweep_keys
from nn.test_model import GROWING, HEAD_DIM, SIZES, config_of

LAYERS, POSITIONS = SIZES["num_hidden_layers"], SIZES["max_position_embeddings"]
# Encodings whose terms are stored, and those with a term that is no constant of a checkpoint.
LACKING = [name for name, info in INFOS.items() if info["position_terms"] and not info["engine"]]


def saved(name, options, tmp_path, **changes):
    encoding = {"type": name} | sweep_keys(name, HEAD_DIM) | options
    model = perturbed(roformer_cpp.build_model(config_of(name, position_encoding=encoding, **changes)))
    model.save(tmp_path)
    return model


def read(directory):
    with safe_open(directory / "position_terms.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize("name", [name for name in INFOS if name not in LACKING])
def test_which_lengths_a_file_serves(name, tmp_path):
    saved(name, {}, tmp_path)
    assert (tmp_path / "position_terms.safetensors").exists() == INFOS[name]["position_terms"]
    if not INFOS[name]["position_terms"]:
        return
    _, metadata = read(tmp_path)
    # Tables whose rows do not end are those of max_position_embeddings = 32 and so of 2048 tokens.
    limits = {"table": (str(POSITIONS), str(POSITIONS)), "all": ("all", "all"), "stored": (str(2**23), "2048")}
    assert (metadata["longest"], metadata["tokens"]) == limits[INFOS[name]["lengths"]]


@pytest.mark.parametrize("name", LACKING)
def test_a_term_that_is_no_constant_is_named(name, tmp_path):
    model, term = saved(name, {}, tmp_path), INFOS[name]["engine_lacks"]
    tensors, metadata = read(tmp_path)
    assert not tensors and set(metadata) == {"format", "weights", "lacking"} and metadata["lacking"] == term
    with pytest.raises(RuntimeError, match=f"terms must be rows .*, got {re.escape(term)} from the position"):
        roformer_cpp.bake(tmp_path)
    again = roformer_cpp.load_model(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))


def test_the_table_names_each_kind_of_term_that_is_no_constant():
    terms = {
        "fox": "key_score (kappa)",
        "fire": "pair_bias (P)",
        "rope-mixed": "query (R^q)",
        "cope": "terms that depend on queries and keys",
        "complex": "word embeddings that turn with the position",
        "floater": "vectors added to the input of every layer",
    }
    assert {name: INFOS[name]["engine_lacks"] for name in terms} == terms
    assert {INFOS[name]["engine_lacks"] for name in LACKING} == set(terms.values())
    assert all(info["engine_lacks"] is None for info in INFOS.values() if info["engine"])


def test_bake_extends_what_does_not_end(tmp_path):
    saved("alibi", {}, tmp_path)
    short, _ = read(tmp_path)
    assert roformer_cpp.bake(tmp_path, 5000) == {"tokens": 5000, "longest": 2**23, "bytes": 2 * 9999 * 4}
    long, metadata = read(tmp_path)
    assert metadata["tokens"] == "5000" and metadata["bias.range"] == "-4999 4999"
    assert torch.equal(long["bias"][:, 4999 - 2047 : 4999 + 2048], short["bias"])
    assert roformer_cpp.bake(tmp_path)["tokens"] == 2048


def test_bake_writes_all_rows_that_there_are(tmp_path):
    saved("deberta", {"max_relative_positions": 6}, tmp_path)
    file = tmp_path / "position_terms.safetensors"
    before = file.read_bytes()
    file.unlink()
    report = roformer_cpp.bake(tmp_path, 3)
    assert report["tokens"] is None and report["longest"] is None and file.read_bytes() == before
    saved("rope", {}, tmp_path)
    assert roformer_cpp.bake(tmp_path, 9) is None


@pytest.mark.parametrize("name, length, message", [
    ("alibi", 0, "the length must be at least 1 and at most the 8388608 .* got 0"),
    ("tupe-r", 33, "at most the 32 that the position encoding reads, got 33"),
    ("transformer-xl", 2**23, r"must fit into 4 GiB, which is a length of \d+, got 8388608"),
])  # fmt: skip
def test_bake_refuses(name, length, message, tmp_path):
    saved(name, {}, tmp_path, hidden_size=120, num_attention_heads=2)
    with pytest.raises(ValueError, match=message):
        roformer_cpp.bake(tmp_path, length)


def test_names_of_terms(tmp_path):
    """Those of all layers are stored once. A file has the tables of all encodings, NEZHA's too, and no rotation."""
    saved("t5", {}, tmp_path)
    assert set(read(tmp_path)[0]) == {"bias"}
    saved("shaw", {}, tmp_path)
    expected = {f"layers.{i}.{term}" for i in range(LAYERS) for term in ("key_table", "value_table")}
    assert set(read(tmp_path)[0]) == expected
    encodings = ["rope", {"type": "nezha", "max_relative_position": 2}, "alibi"]
    roformer_cpp.build_model(SIZES | {"position_encoding": encodings}).save(tmp_path)
    tensors, metadata = read(tmp_path)
    assert set(tensors) == {"key_table", "value_table", "bias"}
    assert metadata["key_table.range"] == "-2 2" and metadata["bias.range"] == "-2047 2047"


@pytest.mark.parametrize("scaling", ["default", "longrope"])
def test_frequencies_of_precision_float32(scaling, tmp_path):
    parameters = GROWING.get(scaling, {"rope_type": scaling})
    saved("rope", {"precision": "float32", "rope_parameters": parameters}, tmp_path)
    powers = 10000.0 ** (torch.arange(0, 12, 2, dtype=torch.int64).float() / 12)
    expected = 1.0 / powers[None]
    if scaling == "longrope":  # as transformers' _compute_longrope_parameters
        factors = torch.tensor([parameters["short_factor"], parameters["long_factor"]], dtype=torch.float32)
        expected = 1.0 / (factors * powers)
    assert torch.equal(read(tmp_path)[0]["rotary_frequencies"], expected)


def test_other_readers_ignore_the_file_and_a_model_without_terms_removes_it(tmp_path):
    model = saved("shaw", {}, tmp_path)
    (tmp_path / "position_terms.safetensors").write_bytes(b"no safetensors file")
    again = roformer_cpp.load_model(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    saved("rope", {}, tmp_path)
    assert not (tmp_path / "position_terms.safetensors").exists()
