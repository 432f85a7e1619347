"""BERT against transformers 5 (spec R-VAR-03): every head on random, perturbed models, and directories both ways; NEZHA
(R-VAR-04, transformers 4's names) against NumPy loops in float64.
"""

import json
import math

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import engine_case
import roformer_cpp
import tolerances as tol
from parity_case import assert_close, assert_close_gradients, gradients_of, make_batch, weighted_mean

CHOICES = 2
HEADS = (
    "Model",
    "ForMaskedLM",
    "LMHeadModel",
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForPreTraining",
)
# What transformers calls the outputs, and what ours are called.
OUTPUTS = {
    "last_hidden_state": "hidden",
    "pooler_output": "pooled",
    "logits": "logits",
    "prediction_logits": "logits",
    "start_logits": "start_logits",
    "end_logits": "end_logits",
}
SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 20}


def make_oracle(head, folder, **changes):
    """Saved in a folder."""
    oracle = engine_case.make_oracle("Bert", head, **(SIZES | {"is_decoder": head == "LMHeadModel"} | changes))
    oracle.save_pretrained(folder)
    return oracle


def change_config(folder, **keys):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | keys
    path.write_text(json.dumps(config))
    return config


def both_outputs(model, oracle, batch):
    """Ours and theirs, as lists."""
    ids, mask, types = batch
    choices = CHOICES if "MultipleChoice" in type(oracle).__name__ else 1
    theirs = [x.reshape(-1, CHOICES, x.shape[1]) if choices > 1 else x for x in batch]
    ours = model(ids, mask, token_type_ids=types, num_choices=choices)
    theirs = oracle(input_ids=theirs[0], attention_mask=theirs[1], token_type_ids=theirs[2])
    names = [name for name in OUTPUTS if theirs.get(name) is not None]
    assert names
    return [ours[OUTPUTS[name]] for name in names], [theirs[name] for name in names]


def check(model, oracle, batch):
    for pair in zip(*both_outputs(model, oracle, batch), strict=True):
        assert_close(*pair)


@pytest.mark.parametrize("head", HEADS)
def test_forward_and_gradients(head, tmp_path):
    oracle = make_oracle(head, tmp_path)
    for dtype in ("float32", "float64"):
        oracle = oracle.to(getattr(torch, dtype))
        oracle.zero_grad()
        model = roformer_cpp.load_model(tmp_path, dtype=dtype)
        assert model.head == f"Bert{head}".replace("ForPreTraining", "ForMaskedLM")
        ours, theirs = both_outputs(model, oracle, make_batch())
        for pair in zip(ours, theirs, strict=True):
            assert_close(*pair)
        weighted_mean(ours).backward()
        weighted_mean(theirs).backward()
        assert_close_gradients(gradients_of(model), gradients_of(oracle))


@pytest.mark.parametrize(("head", "tied"), [*((head, True) for head in HEADS[:-1]), ("ForMaskedLM", False)])
def test_saved_directory_reopens(head, tied, tmp_path):
    """Every tensor survives bit by bit, transformers finds no key missing or too many, and the configuration is the
    same."""
    changes = dict(tie_word_embeddings=tied, hidden_act="gelu_new", layer_norm_eps=1e-5, pad_token_id=2)
    oracle = make_oracle(head, tmp_path / "theirs", **changes)
    roformer_cpp.load_model(tmp_path / "theirs").save(tmp_path / "ours")
    theirs = load_file(tmp_path / "theirs" / "model.safetensors")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    again, info = getattr(transformers, f"Bert{head}").from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.architectures == [f"Bert{head}"]
    values, expected = again.config.to_dict(), oracle.config.to_dict()
    for ignored in ("_name_or_path", "architectures", "dtype", "transformers_version"):
        values.pop(ignored, None)
        expected.pop(ignored, None)
    assert values == expected


def test_pretraining_files_open_under_every_head(tmp_path):
    """The usual published file: pooler, language model and next-sentence layer, a layer norm's old names, indices."""
    oracle = make_oracle("ForPreTraining", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {}
    for name, tensor in load_file(path).items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[old] = tensor.clone()
    tensors["bert.embeddings.position_ids"] = torch.arange(20)[None]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})
    ids, mask, types = make_batch()
    theirs = oracle.bert(input_ids=ids, attention_mask=mask, token_type_ids=types)
    for head in HEADS[:-1]:
        model = roformer_cpp.load_model(tmp_path, f"Bert{head}", allow_fresh_head=True)
        out = model(ids, mask, token_type_ids=types, num_choices=CHOICES if "Choice" in head else 1)
        assert_close(out["hidden"], theirs.last_hidden_state)
        if "pooled" in out:
            assert_close(out["pooled"], theirs.pooler_output)


def test_a_missing_pooler_is_named(tmp_path):
    make_oracle("ForMaskedLM", tmp_path)
    with pytest.raises(RuntimeError, match=r'2 missing, the first "pooler.dense.weight"'):
        roformer_cpp.load_model(tmp_path, "BertModel")
    assert "pooled" in roformer_cpp.load_model(tmp_path, "BertModel", allow_fresh_head=True)(make_batch()[0])


def test_positions_end_with_the_table(tmp_path):
    """A trained table has no row for later positions: an error, as it is one in transformers; a wrong size is an error
    before memory is taken, since 2^31 rows would be 192 GiB."""
    make_oracle("Model", tmp_path)
    with pytest.raises(ValueError, match=r"must be in 0\.\.19.*got 20"):
        roformer_cpp.load_model(tmp_path)(torch.ones(1, 21, dtype=torch.int64))
    change_config(tmp_path, max_position_embeddings=2**31)
    with pytest.raises(RuntimeError, match=r"position_embeddings.weight.*shape \[2147483648, 24\].*got \[20, 24\]"):
        roformer_cpp.load_model(tmp_path)


def test_a_class_of_no_head_opens_under_a_named_one(tmp_path):
    """Files of tasks that this library has no head for; the class asked for is what counts."""
    oracle = make_oracle("ForPreTraining", tmp_path)
    keys = change_config(tmp_path, architectures=["BertForNextSentencePrediction"])
    with pytest.raises(RuntimeError, match="BertForNextSentencePrediction"):
        roformer_cpp.load_model(tmp_path)
    check(roformer_cpp.load_model(tmp_path, "BertForMaskedLM"), oracle, make_batch())
    assert roformer_cpp.build_model(keys, "BertModel").head == "BertModel"


def test_refused_configs(tmp_path):
    """A key that transformers would not honour may not stand in a file that says it is transformers' own."""
    make_oracle("Model", tmp_path)
    config = (tmp_path / "config.json").read_text()
    for change, words in [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type.*absolute.*relative_key"),
        ({"position_encoding": "shaw"}, "model_type bert.*position_encoding.*shaw"),
        ({"rope_theta": 500.0}, "model_type bert.*rope_theta.*500"),
        ({"attention": {"type": "linear"}}, "model_type bert.*attention.*linear"),
        ({"rotary_value": True}, "model_type bert.*rotary_value"),
        ({"embedding_size": 16}, "embedding_size.*24.*got 16"),
        ({"family": "roformer"}, "family.*roformer"),
        ({"use_relative_position": True}, "use_relative_position"),
    ]:
        change_config(tmp_path, **change)
        with pytest.raises(RuntimeError, match=words):
            roformer_cpp.load_model(tmp_path)
        (tmp_path / "config.json").write_text(config)


def test_harmless_keys_of_bert_configs(tmp_path):
    oracle = make_oracle("Model", tmp_path)
    extras = {"position_embedding_type": "absolute", "use_cache": True, "classifier_dropout": None}
    extras |= {"summary_type": "first", "summary_use_proj": True, "summary_activation": "tanh", "rope_theta": 10000.0}
    extras |= {"directionality": "bidi", "pooler_type": "first_token_transform", "embedding_size": 24}
    change_config(tmp_path, **extras)
    check(roformer_cpp.load_model(tmp_path), oracle, make_batch())


# ---- NEZHA: no oracle is installed, so the model is written out in NumPy ----


def layer_norm(x, gain, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * gain + bias


def nezha_table(clip, dim):
    """R-REL-09: row r is the interleaved sinusoid of the index r in 0..2 clip."""
    table = np.zeros((2 * clip + 1, dim))
    for r in range(2 * clip + 1):
        for i in range(0, dim, 2):
            table[r, i] = math.sin(r / 10000 ** (i / dim))
            table[r, i + 1] = math.cos(r / 10000 ** (i / dim))
    return table


def nezha_hidden(w, ids, types, mask, heads, clip):
    """Last hidden states [B,T,C], in loops over sequences and heads."""
    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))

    def linear(name, x):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(name, x):
        return layer_norm(x, w[name + ".weight"], w[name + ".bias"])

    rows = []
    for b in range(ids.shape[0]):
        x = w["embeddings.word_embeddings.weight"][ids[b]] + w["embeddings.token_type_embeddings.weight"][types[b]]
        x = norm("embeddings.LayerNorm", x)
        tokens, dim = x.shape[0], x.shape[1] // heads
        table = nezha_table(clip, dim)
        relative = np.clip(np.arange(tokens)[None, :] - np.arange(tokens)[:, None], -clip, clip) + clip
        for layer in range(2):
            name = f"encoder.layer.{layer}."
            q, k, v = (linear(f"{name}attention.self.{p}", x) for p in ("query", "key", "value"))
            context = np.zeros_like(x)
            for h in range(heads):
                part = slice(h * dim, (h + 1) * dim)
                scores = (q[:, part] @ k[:, part].T + np.einsum("td,tsd->ts", q[:, part], table[relative])) / dim**0.5
                scores = np.where(mask[b][None, :] > 0, scores, -np.inf)
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                context[:, part] = weights @ v[:, part] + np.einsum("ts,tsd->td", weights, table[relative])
            x = norm(f"{name}attention.output.LayerNorm", linear(f"{name}attention.output.dense", context) + x)
            inner = gelu(linear(f"{name}intermediate.dense", x))
            x = norm(f"{name}output.LayerNorm", linear(f"{name}output.dense", inner) + x)
        rows.append(x)
    return np.stack(rows)


def test_nezha_checkpoint(tmp_path):
    """R-VAR-04: names, configuration keys and stored distance tables of transformers 4."""
    clip = 3
    generator = np.random.default_rng(5)
    oracle = make_oracle("Model", tmp_path)  # its names are NEZHA's, but for the table of positions
    weights = {}
    for name, tensor in oracle.state_dict().items():
        if "position" not in name:
            weights[name] = generator.normal(0, 0.4, tensor.shape) + ("LayerNorm.weight" in name)
    stored = {f"nezha.{name}": torch.from_numpy(value) for name, value in weights.items()}
    distances = "self.relative_positions_encoding.positions_encoding"
    stored[f"nezha.encoder.layer.0.attention.{distances}"] = torch.zeros(20, 20, 12)
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    keys = {"model_type": "nezha", "architectures": ["NezhaModel"], "max_relative_position": clip}
    keys |= {"embedding_size": 128, "use_relative_position": True, "classifier_dropout": 0.1, "use_cache": True}
    (tmp_path / "config.json").write_text(json.dumps(engine_case.SIZES | SIZES | keys))
    ids, mask, types = make_batch()
    model = roformer_cpp.load_model(tmp_path, dtype="float64")
    out = model(ids, mask, token_type_ids=types)
    hidden = nezha_hidden(weights, ids.numpy(), types.numpy(), mask.numpy(), 2, clip)
    pooled = np.tanh(hidden[:, 0] @ weights["pooler.dense.weight"].T + weights["pooler.dense.bias"])
    for ours, theirs in ((out["hidden"], hidden), (out["pooled"], pooled)):
        assert (ours - torch.from_numpy(theirs)).abs().max() <= tol.MODEL_F64 * np.abs(theirs).max()
    # transformers 5 has no NEZHA: what is written back says that it is ours.
    assert model.head == "RfEncoderModel" and model.config["model_type"] == "rf_encoder"
    model.save(tmp_path / "ours")
    again = roformer_cpp.load_model(tmp_path / "ours")
    assert_close(again(ids, mask, token_type_ids=types)["hidden"], torch.from_numpy(hidden).float())
    assert again.config["position_encoding"] == {"type": "nezha", "max_relative_position": clip}
