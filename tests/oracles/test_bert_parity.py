"""BERT against transformers 5 (spec R-VAR-03): every head on random, perturbed models, and directories both ways; NEZHA
(R-VAR-04, transformers 4's names) against NumPy loops in float64.

Weights are moved by N(0, 0.3), because the usual N(0, 0.02) makes attention nearly uniform and hides errors.
"""

import json
import math

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import roformer_cpp
import tolerances as tol

VOCAB, TYPES, LABELS, CHOICES = 53, 3, 5, 2
HEADS = (
    "BertModel",
    "BertForMaskedLM",
    "BertLMHeadModel",
    "BertForSequenceClassification",
    "BertForMultipleChoice",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForPreTraining",
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
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 37,
    "max_position_embeddings": 20,
    "type_vocab_size": TYPES,
}


def perturbed(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return model.eval()


def make_oracle(head, **changes):
    torch.manual_seed(0)
    # A question answering model has two labels, start and end, or transformers cannot run it.
    labels = 2 if head == "BertForQuestionAnswering" else LABELS
    settings = SIZES | {"num_labels": labels, "is_decoder": head == "BertLMHeadModel"} | changes
    return perturbed(getattr(transformers, head)(transformers.BertConfig(**settings)))


def make_batch(tokens=13):
    """Ids, mask and types of four sequences with 0, 1, 4 and 7 tokens of padding on the right."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, VOCAB, (4, tokens), generator=generator)
    types = torch.randint(0, TYPES, (4, tokens), generator=generator)
    mask = torch.ones(4, tokens, dtype=torch.int64)
    for row, count in enumerate((0, 1, 4, 7)):
        mask[row, tokens - count :] = 0
    return ids * mask, mask, types


def both_outputs(model, oracle, batch):
    """Pairs of outputs, ours first."""
    ids, mask, types = batch
    choices = CHOICES if "MultipleChoice" in type(oracle).__name__ else 1
    theirs = [t.reshape(-1, CHOICES, t.shape[1]) if choices > 1 else t for t in batch]
    ours = model(ids, mask, token_type_ids=types, num_choices=choices)
    theirs = oracle(input_ids=theirs[0], attention_mask=theirs[1], token_type_ids=theirs[2])
    pairs = [(ours[OUTPUTS[name]], theirs[name]) for name in OUTPUTS if theirs.get(name) is not None]
    assert pairs
    return pairs


def assert_close(ours, theirs):
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    difference, scale = (ours - theirs).abs(), theirs.abs().max()
    if ours.dtype == torch.float64:
        assert difference.max() <= tol.MODEL_F64 * scale
    else:
        assert difference.max() <= tol.T4_MAX * scale
        assert difference.mean() <= tol.T4_MEAN * scale


@pytest.mark.parametrize("head", HEADS)
def test_forward_and_gradients(head, tmp_path):
    oracle = make_oracle(head)
    oracle.save_pretrained(tmp_path)
    for dtype in ("float32", "float64"):
        oracle = oracle.to(getattr(torch, dtype))
        oracle.zero_grad()
        model = roformer_cpp.load_model(tmp_path, dtype=dtype)
        assert model.head == head.replace("ForPreTraining", "ForMaskedLM")
        pairs = both_outputs(model, oracle, make_batch())
        for ours, theirs in pairs:
            assert_close(ours, theirs)
        for i in range(2):
            sum((pair[i] * torch.linspace(-1, 2, pair[i].numel()).view_as(pair[i])).mean() for pair in pairs).backward()
        gradients = dict(model.named_parameters())
        largest = max(p.grad.abs().max() for p in oracle.parameters() if p.grad is not None)
        for name, parameter in oracle.named_parameters():
            if parameter.grad is None:
                assert name not in gradients or gradients[name].grad is None
                continue
            scale = max(parameter.grad.abs().max(), tol.GRADIENT_FLOOR * largest)
            bound = (tol.GRADIENT_F64 if dtype == "float64" else tol.GRADIENT_F32) * scale
            assert (gradients[name].grad - parameter.grad).abs().max() <= bound, name


@pytest.mark.parametrize("tied", (True, False))
@pytest.mark.parametrize("head", HEADS[:-1])
def test_saved_directory_reopens(head, tied, tmp_path):
    """Every tensor survives bit by bit, transformers finds no key missing or too many, and the configuration is the
    same."""
    oracle = make_oracle(head, tie_word_embeddings=tied, hidden_act="gelu_new", layer_norm_eps=1e-5, pad_token_id=2)
    oracle.save_pretrained(tmp_path / "theirs")
    roformer_cpp.load_model(tmp_path / "theirs").save(tmp_path / "ours")
    theirs = load_file(tmp_path / "theirs" / "model.safetensors")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    again, info = getattr(transformers, head).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.architectures == [head]
    values, expected = again.config.to_dict(), oracle.config.to_dict()
    for ignored in ("_name_or_path", "architectures", "dtype", "transformers_version"):
        values.pop(ignored, None)
        expected.pop(ignored, None)
    assert values == expected


def test_pretraining_files_open_under_every_head(tmp_path):
    """The usual published file: pooler, language model and next-sentence layer, a layer norm's old names, indices."""
    oracle = make_oracle("BertForPreTraining")
    oracle.save_pretrained(tmp_path)
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
        model = roformer_cpp.load_model(tmp_path, head, allow_fresh_head=True)
        out = model(ids, mask, token_type_ids=types, num_choices=CHOICES if "Choice" in head else 1)
        assert_close(out["hidden"], theirs.last_hidden_state)
        if "pooled" in out:
            assert_close(out["pooled"], theirs.pooler_output)


def test_a_missing_pooler_is_named(tmp_path):
    make_oracle("BertForMaskedLM").save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match=r'2 missing, the first "pooler.dense.weight"'):
        roformer_cpp.load_model(tmp_path, "BertModel")
    assert "pooled" in roformer_cpp.load_model(tmp_path, "BertModel", allow_fresh_head=True)(make_batch()[0])


def test_positions_end_with_the_table(tmp_path):
    """A trained table has no row for later positions: an error, as it is one in transformers."""
    make_oracle("BertModel").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"must be in 0\.\.19.*got 20"):
        roformer_cpp.load_model(tmp_path)(torch.ones(1, 21, dtype=torch.int64))


def test_a_class_of_no_head_opens_under_a_named_one(tmp_path):
    """Files of tasks that this library has no head for; the class asked for is what counts."""
    oracle = make_oracle("BertForPreTraining")
    oracle.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    keys = json.loads(path.read_text()) | {"architectures": ["BertForNextSentencePrediction"]}
    path.write_text(json.dumps(keys))
    with pytest.raises(RuntimeError, match="BertForNextSentencePrediction"):
        roformer_cpp.load_model(tmp_path)
    model = roformer_cpp.load_model(tmp_path, "BertForMaskedLM")
    for ours, theirs in both_outputs(model, oracle, make_batch()):
        assert_close(ours, theirs)
    assert roformer_cpp.build_model(keys, "BertModel").head == "BertModel"


def test_a_table_size_is_checked_before_memory_is_taken(tmp_path):
    """2^31 rows would be 192 GiB."""
    make_oracle("BertModel").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 2**31}))
    with pytest.raises(RuntimeError, match=r"position_embeddings.weight.*shape \[2147483648, 24\].*got \[20, 24\]"):
        roformer_cpp.load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type.*absolute.*relative_key"),
        ({"position_encoding": "shaw"}, "model_type bert.*position_encoding.*shaw"),
        ({"rope_theta": 500.0}, "model_type bert.*rope_theta.*500"),
        ({"attention": {"type": "linear"}}, "model_type bert.*attention.*linear"),
        ({"rotary_value": True}, "model_type bert.*rotary_value"),
        ({"embedding_size": 16}, "embedding_size.*24.*got 16"),
        ({"family": "roformer"}, "family.*roformer"),
        ({"use_relative_position": True}, "use_relative_position"),
    ],
)
def test_refused_configs(change, words, tmp_path):
    """A key that transformers would not honour may not stand in a file that says it is transformers' own."""
    make_oracle("BertModel").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RuntimeError, match=words):
        roformer_cpp.load_model(tmp_path)


def test_harmless_keys_of_bert_configs(tmp_path):
    oracle = make_oracle("BertModel")
    oracle.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    extras = {"position_embedding_type": "absolute", "use_cache": True, "classifier_dropout": None}
    extras |= {"summary_type": "first", "summary_use_proj": True, "summary_activation": "tanh", "rope_theta": 10000.0}
    extras |= {"directionality": "bidi", "pooler_type": "first_token_transform", "embedding_size": 24}
    path.write_text(json.dumps(json.loads(path.read_text()) | extras))
    for ours, theirs in both_outputs(roformer_cpp.load_model(tmp_path), oracle, make_batch()):
        assert_close(ours, theirs)


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
    oracle = make_oracle("BertModel")  # its names are NEZHA's, but for the table of positions
    weights = {}
    for name, tensor in oracle.state_dict().items():
        if "position" not in name:
            weights[name] = generator.normal(0, 0.4, tensor.shape) + ("LayerNorm.weight" in name)
    stored = {f"nezha.{name}": torch.from_numpy(value) for name, value in weights.items()}
    distances = "self.relative_positions_encoding.positions_encoding"
    stored[f"nezha.encoder.layer.0.attention.{distances}"] = torch.zeros(20, 20, 12)
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    keys = {
        "model_type": "nezha",
        "architectures": ["NezhaModel"],
        "max_relative_position": clip,
        "embedding_size": 128,
    }
    keys |= {"use_relative_position": True, "classifier_dropout": 0.1, "use_cache": True}
    (tmp_path / "config.json").write_text(json.dumps(SIZES | keys))
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
