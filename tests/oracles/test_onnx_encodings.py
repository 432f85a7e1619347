"""ONNX files of every position encoding and feature map, and of batches of all shapes, against our own modules in
float64, which other tests compare with the papers, and against a second implementation of the operators."""

import json
import re

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
import torch

import roformer_cpp
from encoding_files import INFOS, sweep_keys
from engine_case import LENGTHS, SIZES, VOCAB, assert_close, make_sequences
from engine_modules import hidden_of, save, save_linear
from onnx_case import OPSETS, kept, padded, run
from parity_case import perturbed

ROPE = {"type": "rope"}
SCALED = {"factor": 4.0, "original_max_position_embeddings": 8}
OPTIONS = [
    ROPE | {"layout": "halves"},
    ROPE | {"partial_rotary_factor": 0.5},
    ROPE | {"layout": "halves", "partial_rotary_factor": 0.5, "rotary_value": True},
    ROPE | {"trainable": True},
    ROPE | {"trainable": "log"},
    ROPE | {"precision": "float32", "rope_theta": 500.0},
    ROPE | {"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
    ROPE | {"rope_parameters": {"rope_type": "yarn"} | SCALED},
    ROPE | {"rope_parameters": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0} | SCALED},
    ROPE | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
    {"type": "axial", "grid_width": 4},
    {"type": "axial-nd", "grid_shape": [-1, 2, 3]},
    {"type": "log-n", "original_max_position_embeddings": 3},
    ROPE | {"log_n": "position", "rope_parameters": {"rope_type": "yarn"} | SCALED},
    ROPE | {"rope_parameters": {"rope_type": "hope", "original_max_position_embeddings": 16}},
    {"type": "mrope", "rope_parameters": {"rope_type": "default", "mrope_section": [3, 2, 1]}},
    {"type": "sinusoidal", "scale_embedding": True},
    {"type": "nezha", "max_relative_position": 4},
    {"type": "shaw", "max_relative_position": 3},
    {"type": "transformer-xl", "clamp_len": 5},
    {"type": "t5", "scale": "sqrt"},
    [{"type": "t5", "scale": "sqrt"}, "rope"],
    ["sinusoidal", "shaw", "alibi"],
    ["rope", "nezha", {"type": "t5", "scale": "sqrt"}],
]
HEAD_DIM = SIZES["hidden_size"] // SIZES["num_attention_heads"]
PLAIN = [{"type": name} | sweep_keys(name, HEAD_DIM) for name, info in INFOS.items() if info["onnx"]]
NOT_EXPORTED = [name for name, info in INFOS.items() if not info["onnx"]]


# The layouts and a table of each kind with both sets of operators, the others with one.
BOTH = [*OPTIONS[:3], {"type": "shaw"}, {"type": "t5"}, {"type": "tupe-r"}, {"type": "rope"}]
CASES = [(e, o) for i, e in enumerate([*PLAIN, *OPTIONS]) for o in (OPSETS if e in BOTH else OPSETS[i % 2 :][:1])]


def check(folder, lengths=LENGTHS, **options):
    """Exports a model."""
    roformer_cpp.export_onnx(folder, folder / "model.onnx", **options)
    ids, types = make_sequences(lengths)
    batch = padded(ids, types)
    ours = kept(run(folder / "model.onnx", *batch)["last_hidden_state"], batch[1])
    assert_close(ours, hidden_of(roformer_cpp.load_model(folder, dtype="float64"), ids, types))


@pytest.mark.parametrize(("encoding", "opset"), CASES, ids=json.dumps)
def test_encodings(encoding, opset, tmp_path):
    save(encoding, tmp_path)
    check(tmp_path, opset=opset)


HALF_ROPE = ROPE | {"partial_rotary_factor": 0.5, "layout": "halves"}
MAPS = ("elu", "shen_original", "shen", "favor", "relu", "cosine")
LINEAR = [(name, site, {}, "rope") for name in MAPS for site in ("after_map", "before_map", "none")]
LINEAR += [
    ("elu", "after_map", {"rotate_denominator": True, "eps": 0.5}, "rope"),
    ("favor", "after_map", {"num_features": 10, "feature_eps": 0.01, "orthogonal": False}, "rope"),
    ("favor", "after_map", {"eps": 1e-3, "num_features": 12}, HALF_ROPE),
    ("relu", "after_map", {}, "xpos"),
    ("elu", "after_map", {}, ["learned", "rope"]),
]


@pytest.mark.parametrize(("feature_map", "site", "options", "encoding"), LINEAR, ids=str)
def test_linear_attention(feature_map, site, options, encoding, tmp_path):
    save_linear(tmp_path, feature_map, site, encoding=encoding, options=options)
    for opset in OPSETS:
        check(tmp_path, opset=opset)


class Steps(roformer_cpp.CustomEncoding):
    def __init__(self, shape):
        super().__init__()
        self.rows = torch.nn.Parameter(torch.zeros(shape.num_attention_heads, 7))

    def shared(self, positions, key_positions, dtype):
        return roformer_cpp.Terms(bias=roformer_cpp.DistanceTable(self.rows.to(dtype), -3, 3))


def test_an_encoding_in_python(tmp_path):
    """Its terms are in the directory, as those of others are."""
    roformer_cpp.register_encoding("steps-of-onnx", Steps)
    perturbed(roformer_cpp.build_model(SIZES | {"position_encoding": "steps-of-onnx"})).save(tmp_path)
    check(tmp_path)


@pytest.mark.parametrize("name", NOT_EXPORTED)
def test_other_encodings_are_refused(name, tmp_path):
    save({"type": name} | sweep_keys(name, HEAD_DIM), tmp_path)
    lacks = INFOS[name]["engine_lacks"]
    message = re.escape(lacks) if lacks else f"must not multiply queries by vectors of the distance.*got {name}"
    with pytest.raises((RuntimeError, ValueError), match=message):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")


def test_a_family_of_bert_with_rope(tmp_path):
    model = save("rope", tmp_path, "BertForSequenceClassification", family="bert", num_labels=3)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    batch = padded(*make_sequences())
    ids, mask, types = (torch.as_tensor(each) for each in batch)
    with torch.no_grad():
        theirs = model(ids, mask, token_type_ids=types)["logits"].numpy()
    assert_close(run(tmp_path / "model.onnx", *batch)["logits"], theirs)


# ---- shapes


ROWS = [("rope", 23), ("t5", 23), ("shaw", 17), ("tupe-r", 17), *((name, 23) for name in MAPS)]


@pytest.mark.parametrize(("encoding", "opset"), ROWS)
def test_rows_without_any_token(encoding, opset, tmp_path):
    """The attention of such a row is 0, and the other rows are what they were. Encodings, and feature maps."""
    model = save_linear(tmp_path, encoding, "before_map") if encoding in MAPS else save(encoding, tmp_path)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset)
    ids, mask, types = padded(*make_sequences())
    mask[1] = 0
    ours = run(tmp_path / "model.onnx", ids, mask, types)["last_hidden_state"]
    assert np.isfinite(ours).all()
    with torch.no_grad():
        theirs = model.encode(*(torch.as_tensor(x) for x in (ids, mask)), token_type_ids=torch.as_tensor(types)).numpy()
    assert_close(ours[1], theirs[1])
    assert_close(kept(ours, mask), kept(theirs, mask))


@pytest.mark.parametrize(("encoding", "opset"), [("rope", 23), ("shaw", 17)])
def test_shapes(encoding, opset, tmp_path):
    model = save(encoding, tmp_path)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset)
    for shape in [(1, 1), (3, 1), (1, 32)] + [(0, 5)] * (opset == 17):  # ONNX Runtime 1.31 refuses it in Attention
        ids = np.random.default_rng(0).integers(0, VOCAB, shape)
        ours = run(tmp_path / "model.onnx", ids, np.ones(shape), np.zeros(shape))["last_hidden_state"]
        assert ours.shape == (*shape, SIZES["hidden_size"])
        if shape[0] > 0:
            with torch.no_grad():
                assert_close(ours, model.encode(torch.as_tensor(ids)).numpy())


@pytest.mark.parametrize(
    ("encoding", "opset", "length"),
    [("rope", 23, 1), ("rope", 17, 9), ("t5", 23, 9), ("none", 17, 1), ("sinusoidal", 23, 1), ("learned", 17, 1)],
)
def test_longer_than_the_limit(length, encoding, opset, tmp_path):
    """Above all where the rows of one position would serve any number of tokens."""
    save(encoding, tmp_path)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset, length=length)
    one = np.ones((1, length + 1), np.int64)
    assert run(tmp_path / "model.onnx", *(one[:, :length],) * 3)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
        run(tmp_path / "model.onnx", one, one, one)


def test_longer_than_max_position_embeddings(tmp_path):
    """A rotation has no last position: transformers' table would end, ours is longer."""
    save("rope", tmp_path)
    check(tmp_path, (100,), length=100)


def test_what_the_file_says(tmp_path):
    save("rope", tmp_path)
    for opset in OPSETS:
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset)
        model = onnx.load(tmp_path / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        assert [(each.domain, each.version) for each in model.opset_import] == [("", opset)]
        kinds = {node.op_type for node in model.graph.node}
        assert ({"Attention", "RotaryEmbedding"} <= kinds) == (opset == 23)
        assert [each.name for each in model.graph.input] == ["input_ids", "attention_mask", "token_type_ids"]
        for value in (*model.graph.input, *model.graph.output):
            assert [each.dim_param for each in value.type.tensor_type.shape.dim][:2] == ["batch", "tokens"]
        assert {each.key: each.value for each in model.metadata_props}["max_tokens"] == "32"


def test_by_the_reference_evaluator(tmp_path):
    """A second implementation of operator set 23: what the file means is not ONNX Runtime's reading of it."""
    save(["rope", {"type": "t5", "scale": "sqrt"}], tmp_path, is_decoder=True)
    roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    batch = dict(zip(("input_ids", "attention_mask", "token_type_ids"), padded(*make_sequences()), strict=True))
    (theirs,) = onnx.reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, batch)
    ours = run(tmp_path / "model.onnx", *batch.values())["last_hidden_state"]
    assert_close(kept(ours, batch["attention_mask"]), kept(theirs, batch["attention_mask"]))
