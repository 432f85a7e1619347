"""Model directories: every refusal, and a file's own table of positions. What transformers writes is read in
tests/oracles, round trips of every encoding are in test_model.py."""

import math
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

import roformer_cpp
from encoding_case import TINY_IDS as IDS
from encoding_case import TINY_MODEL, assert_same, perturbed

NAME, BIAS = "roformer.encoder.layer.1.output.dense.weight", "cls.predictions.bias"
TABLE = "roformer.encoder.embed_positions.weight"
ERRORS = (RuntimeError, FileNotFoundError)


@pytest.fixture
def saved(tmp_path):
    model = perturbed(roformer_cpp.build_model(TINY_MODEL, "RoFormerForMaskedLM"))
    model.save(tmp_path)
    return model, tmp_path


def rewrite(directory, change):
    """Writes the checkpoint again after `change` has had its tensors, by name."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def test_loading_draws_nothing(saved):
    state = torch.get_rng_state()
    model = roformer_cpp.load_model(saved[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(x.requires_grad for x in model.parameters()) and model._position_table is None
    assert all(x.dtype == torch.float64 for x in roformer_cpp.load_model(saved[1], dtype="float64").parameters())


def put(number):
    return lambda tensors: tensors[NAME].__setitem__((2, 5), number)


@pytest.mark.parametrize("change, words", [
    (put(math.nan), rf"got nan in {NAME}\[2, 5\]"),
    (put(-math.inf), rf"got -inf in {NAME}\[2, 5\]"),
    (lambda tensors: tensors.update({BIAS: torch.full((37,), 1e300, dtype=torch.float64)}),
     rf"finite in Float, got 1e\+300 in {BIAS}\[0\] \(37 such values\)"),
    (lambda tensors: tensors.update({BIAS: torch.zeros(38)}), r"(?=.*\[37\]).*\[38\]"),
    (lambda tensors: tensors.pop(BIAS), BIAS),
    (lambda tensors: tensors.update({"roformer.surprise": torch.zeros(1)}), "roformer.surprise"),
])  # fmt: skip
def test_numbers_shapes_and_names_are_strict(saved, change, words):
    rewrite(saved[1], change)
    with pytest.raises(RuntimeError, match=words):
        roformer_cpp.load_model(saved[1])
    if "1e" in words:
        wide = roformer_cpp.load_model(saved[1], dtype="float64")
        assert dict(wide.named_parameters())[BIAS][0].item() == 1e300
    saved[0].save(saved[1])
    rewrite(saved[1], put(torch.finfo(torch.float32).max))
    roformer_cpp.load_model(saved[1])


def test_a_stored_table_is_honoured(saved, capfd):
    """Loader rule (a): one that is not the computed one is used all the same, with a warning of Python, once."""
    model, directory = saved
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        roformer_cpp.load_model(directory)

    def check(change, expected, most):
        rewrite(directory, change)
        words = rf"\[load_model\] encoder.embed_positions.weight in .* by {most}"
        with pytest.warns(UserWarning, match=words) as caught:
            changed = roformer_cpp.load_model(directory)
        assert len(caught) == 1 and caught[0].filename == __file__
        assert capfd.readouterr() == ("", "")
        assert_same(changed.encode(IDS), expected)

    check(lambda tensors: tensors[TABLE][15, 0].add_(1e-5), model.encode(IDS), "1e-05")
    # Rows of zero angle: no rotation, as if every token stood at position 0.
    still = torch.tensor([0.0, 1.0]).repeat_interleave(4)
    check(lambda tensors: tensors[TABLE].copy_(still), model.encode(IDS, positions=torch.zeros_like(IDS)), r"\d")


def test_a_stored_decoder_is_a_warning(saved):
    """Its numbers are compared with transformers' in tests/oracles/test_tied_heads.py."""
    rewrite(saved[1], lambda tensors: tensors.update({"cls.predictions.decoder.bias": tensors[BIAS] + 1}))
    with pytest.warns(UserWarning, match=r'"cls\.predictions\.decoder\.bias" and'):
        assert not roformer_cpp.load_model(saved[1]).config["tie_word_embeddings"]


def test_missing_files_are_named(saved):
    _, directory = saved

    def check(*words):
        for word in words:
            with pytest.raises(ERRORS, match=word):
                roformer_cpp.load_model(directory)

    weights, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    weights.write_bytes(weights.read_bytes()[:-4])
    check("model.safetensors")
    weights.unlink()
    weights.symlink_to("model.safetensors")
    check(r"model.safetensors\] cannot open: Too many levels of symbolic links")
    weights.unlink()
    check("must hold model.safetensors")
    (directory / "pytorch_model.bin.index.json").write_text("{}")
    check("only pytorch_model.bin")
    (directory / "pytorch_model.bin.index.json").unlink()
    (directory / "pytorch_model.bin").write_text("x")
    check("only pytorch_model.bin", "roformer_cpp.convert")
    index.write_text('{"weight_map": {"a": "../away"}}')
    check('in the directory of the index, got "../away"')
    index.write_text('{"metadata": {}}')
    check("weight_map")
    (directory / "config.json").unlink()
    check("config.json")


def test_another_head_must_be_allowed(saved):
    model, directory = saved
    with pytest.raises(RuntimeError, match=r"cls\.predictions.*the file holds another head"):
        roformer_cpp.load_model(directory, "RoFormerForTokenClassification")
    other = roformer_cpp.load_model(directory, "RoFormerForTokenClassification", allow_fresh_head=True)
    assert torch.equal(other.encode(IDS), model.encode(IDS))


def test_an_unwritable_place_is_an_error(saved):
    with pytest.raises(RuntimeError, match=r"config\.json"):
        saved[0].save(saved[1] / "config.json" / "below")
