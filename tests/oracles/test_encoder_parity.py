"""RoFormer and BERT (R-VAR-03) against transformers 5: outputs and gradients of every head on random, perturbed models,
and directories both ways; NEZHA (R-VAR-04, transformers 4's names) against a BERT with another attention.

The float64 oracle gets its sin|cos table in float64, since transformers keeps it in float32.
"""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.bert import modeling_bert

import engine_case
import roformer_cpp
from engine_case import CAUSAL_HEADS, change_config
from parity_case import assert_close, assert_close_gradients, exact_table, gradients_of, make_batch, weighted_mean

MAX_POSITIONS, CHOICES = 40, 2
TASKS = ("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification", "ForQuestionAnswering")
HEADS = {family: ("Model", "ForMaskedLM", causal, *TASKS) for family, causal in CAUSAL_HEADS.items()}
# What transformers calls the outputs, and what ours are called.
OUTPUTS = {"last_hidden_state": "hidden", "pooler_output": "pooled", "prediction_logits": "logits"}
OUTPUTS |= {name: name for name in ("logits", "start_logits", "end_logits")}
# Head sizes 2, 6, 16 and 70; one to four heads; embedding_size above, below and equal to hidden_size; an odd length.
SHAPES = {
    "pairs-of-two": dict(hidden_size=8, num_attention_heads=4, embedding_size=8, hidden_act="gelu"),
    "narrow-embedding": dict(hidden_size=18, num_attention_heads=3, embedding_size=10, rotary_value=True),
    "wide-embedding": dict(hidden_size=32, num_attention_heads=2, embedding_size=40, hidden_act="gelu_new"),
    "one-head": dict(hidden_size=70, num_attention_heads=1, embedding_size=70, hidden_act="relu", rotary_value=True),
}
# Every head, and of RoFormer every shape both with and without a causal mask.
CASES = [("RoFormer", head, list(SHAPES)[i % 4]) for i, head in enumerate(HEADS["RoFormer"])]
MORE = [("RoFormer", head, shape) for shape in SHAPES for head in ("ForMaskedLM", "ForCausalLM")]
CASES += [case for case in MORE if case not in CASES]
CASES += [("Bert", head, None) for head in (*HEADS["Bert"], "ForPreTraining", "ForNextSentencePrediction")]


def saved_oracle(folder, head="ForMaskedLM", family="RoFormer", **changes):
    sizes = dict(num_hidden_layers=2, max_position_embeddings=MAX_POSITIONS, is_decoder=head == CAUSAL_HEADS[family])
    oracle = engine_case.make_oracle(family, head, **(sizes | changes))
    oracle.save_pretrained(folder)
    return oracle


def choices_of(head):
    return CHOICES if head.endswith("ForMultipleChoice") else 1


def both_outputs(model, oracle, batch, compared=None):
    """Ours and theirs, as lists, where `compared` is true [B,T]."""
    choices = choices_of(type(oracle).__name__)
    theirs = [x.reshape(-1, choices, x.shape[1]) if choices > 1 else x for x in batch]
    theirs = oracle(input_ids=theirs[0], attention_mask=theirs[1], token_type_ids=theirs[2])
    ours = model(*batch[:2], token_type_ids=batch[2], num_choices=choices)
    pairs = [(ours[OUTPUTS[name]], theirs[name]) for name in OUTPUTS if theirs.get(name) is not None]
    assert pairs
    return zip(*([x if compared is None else x[compared] for x in pair] for pair in pairs), strict=True)


def check(model, oracle, batch, gradients=True, compared=None):
    oracle.zero_grad()
    ours, theirs = both_outputs(model, oracle, batch, compared)
    for pair in zip(ours, theirs, strict=True):
        assert_close(*pair)
    if gradients:
        weighted_mean(ours).backward()
        weighted_mean(theirs).backward()
        assert_close_gradients(gradients_of(model), gradients_of(oracle))


@pytest.mark.parametrize(("family", "head", "shape"), CASES)
def test_forward_and_gradients(family, head, shape, tmp_path):
    oracle = saved_oracle(tmp_path, head, family, **SHAPES.get(shape, {}))
    for dtype, padding in (("float32", "left"), ("float64", "right"), ("float64", "left")):
        oracle = exact_table(oracle.double()) if dtype == "float64" else oracle
        batch = make_batch(padding)
        model = roformer_cpp.load_model(tmp_path, dtype=dtype)
        assert model.head == f"{family}{head}".replace("ForPreTraining", "ForMaskedLM")
        # Under a causal mask, left padding leaves rows without a key (R-CONV-11).
        check(model, oracle, batch, compared=batch[1].bool() if head == CAUSAL_HEADS[family] else None)


@pytest.mark.parametrize("head", ("ForMaskedLM", "ForCausalLM"))
def test_explicit_attention(head, tmp_path):
    """The path with dropout of probabilities, at a p that rounds to 0 of 65536: nothing is dropped."""
    changes = dict(attention_probs_dropout_prob=1e-6, hidden_dropout_prob=0.0, rotary_value=True)
    oracle = exact_table(saved_oracle(tmp_path, head, **changes).double())
    check(roformer_cpp.load_model(tmp_path, dtype="float64").train(), oracle, make_batch())


def test_activations(tmp_path):
    """R-HF-06, the names that SHAPES leaves out."""
    for act in ("gelu_pytorch_tanh", "relu2", "silu", "swish", "tanh"):
        oracle = saved_oracle(tmp_path, "ForSequenceClassification", hidden_act=act)
        check(roformer_cpp.load_model(tmp_path), oracle, make_batch(), gradients=False)


@pytest.mark.parametrize("head", HEADS["RoFormer"])
def test_unusual_settings(head, tmp_path):
    """What transformers permits and few models use: causal attention under any head and none under CausalLM, one token
    type, one label, another padding token, an untied decoder; one token, and right padding."""
    changes = dict(type_vocab_size=1, num_labels=1, problem_type="regression", summary_type="first", pad_token_id=7)
    changes |= dict(is_decoder=head != "ForCausalLM", tie_word_embeddings=False, layer_norm_eps=1e-5)
    oracle = exact_table(saved_oracle(tmp_path, head, **changes).double())
    for padding, tokens in (("none", 1), ("right", 13)):
        ids, mask, types = make_batch(padding, tokens)
        check(roformer_cpp.load_model(tmp_path, dtype="float64"), oracle, (ids, mask, torch.zeros_like(types)))


def test_no_mask_no_types(tmp_path):
    oracle = saved_oracle(tmp_path)
    ids, _, _ = make_batch("none")
    model = roformer_cpp.load_model(tmp_path)
    out = model(ids)
    assert_close(out["logits"], oracle(ids).logits)
    assert_close(model.masked_lm_logits(out["hidden"][1, 2:5]), out["logits"][1, 2:5])


# ---- directories


def tensors_of(folder):
    return load_file(folder / "model.safetensors")


def rewrite(folder, change):
    """Passes a checkpoint's tensors through `change`, as another program might have written them."""
    changed = change({name: tensor.clone() for name, tensor in tensors_of(folder).items()})
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})


SETTINGS = {
    "plain": {},
    "untied": {"tie_word_embeddings": False, "layer_norm_eps": 1e-5, "pad_token_id": 2},
    "five labels": {"num_labels": 5, "hidden_act": "gelu_new", "layer_norm_eps": 1e-7},
    "named labels": {"id2label": {0: "no", 1: "é"}, "label2id": {"no": 0, "é": 1}, "num_labels": 2, "pad_token_id": 3},
    "one label": {"num_labels": 1, "problem_type": "regression", "hidden_act": "relu", "hidden_dropout_prob": 0},
}
OF_ROFORMER = {
    "projected": {"embedding_size": 8},
    "projected, untied": {"embedding_size": 16, "tie_word_embeddings": False},
    "decoder": {"is_decoder": True, "add_cross_attention": True, "rotary_value": True},
    "summary": {"summary_type": "first", "bos_token_id": 1, "eos_token_id": [2, 3], "use_cache": False},
}
# The heads that read a setting; the plain ones are every head's.
OF_WORDS = ("ForMaskedLM", *CAUSAL_HEADS.values())
READ_BY = {
    "untied": OF_WORDS,
    "five labels": ("ForTokenClassification",),
    "named labels": ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"),
    "one label": ("ForSequenceClassification",),
    "projected": ("Model", *OF_WORDS),
    "projected, untied": OF_WORDS,
    "decoder": ("Model", "ForCausalLM"),
    "summary": ("ForSequenceClassification", "ForMultipleChoice"),
}
DIRECTORIES = [
    (family, head, name)
    for family in HEADS
    for name in SETTINGS | (OF_ROFORMER if family == "RoFormer" else {})
    for head in HEADS[family]
    if name == "plain" or head in READ_BY[name]
]


@pytest.mark.parametrize(("family", "head", "settings"), DIRECTORIES)
def test_saved_directory_reopens(family, head, settings, tmp_path):
    """Every tensor survives bit by bit, transformers finds no key missing or too many, and the configuration is the
    same."""
    oracle = saved_oracle(tmp_path / "theirs", head, family, **(SETTINGS | OF_ROFORMER)[settings])
    model = roformer_cpp.load_model(tmp_path / "theirs")
    model.save(tmp_path / "ours")
    theirs, ours = tensors_of(tmp_path / "theirs"), tensors_of(tmp_path / "ours")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    again, info = type(oracle).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    values, expected = again.config.to_dict(), oracle.config.to_dict() | {"architectures": [family + head]}
    for ignored in ("_name_or_path", "dtype", "transformers_version"):
        values.pop(ignored, None)
        expected.pop(ignored, None)
    assert values == expected and again.config.num_labels == oracle.config.num_labels
    reopened = roformer_cpp.load_model(tmp_path / "ours")
    assert reopened.config == model.config
    if settings.startswith(("plain", "projected", "untied")):
        check(reopened, oracle, make_batch(), gradients=False)


def test_checkpoint_variants(tmp_path):
    """Without the position table, and with a projection that is not used; test_tied_heads.py has tied copies."""
    saved_oracle(tmp_path)
    ids, mask, _ = make_batch()
    expected = roformer_cpp.load_model(tmp_path)(ids, mask)["logits"]
    rewrite(tmp_path, lambda t: {name: x for name, x in t.items() if "embed_positions" not in name})
    assert torch.equal(roformer_cpp.load_model(tmp_path)(ids, mask)["logits"], expected)
    rewrite(tmp_path, lambda t: t | {"roformer.embeddings_project.weight": torch.ones(24, 24)})
    assert torch.equal(roformer_cpp.load_model(tmp_path)(ids, mask)["logits"], expected)


def as_published(tensors):
    """A layer norm's old names, indices, and a tied copy."""
    old = {name.replace("Norm.weight", "Norm.gamma"): x for name, x in tensors.items()}
    old = {name.replace("Norm.bias", "Norm.beta"): x for name, x in old.items()}
    copy = {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone()}
    return old | copy | {"bert.embeddings.position_ids": torch.arange(MAX_POSITIONS)[None]}


@pytest.mark.parametrize(("family", "stored"), [("RoFormer", "Model"), ("Bert", "ForPreTraining")])
def test_a_file_opens_under_every_head(family, stored, tmp_path):
    """A RoFormerModel's names lack the prefix; BERT's usual published file has a pooler, a language model and a
    next-sentence layer. What a head saves is a bare model again."""
    oracle = saved_oracle(tmp_path / "a", stored, family)
    if family == "Bert":
        rewrite(tmp_path / "a", as_published)
    ids, mask, types = make_batch()
    theirs = oracle.base_model(input_ids=ids, attention_mask=mask, token_type_ids=types)
    for head in HEADS[family]:
        model = roformer_cpp.load_model(tmp_path / "a", family + head, allow_fresh_head=True)
        out = model(ids, mask, token_type_ids=types, num_choices=choices_of(head))
        assert_close(out["hidden"], theirs.last_hidden_state)
        if "pooled" in out:
            assert_close(out["pooled"], theirs.pooler_output)
        model.save(tmp_path / head)
        again = roformer_cpp.load_model(tmp_path / head, f"{family}Model", allow_fresh_head=True)
        assert torch.equal(again(ids, mask, token_type_ids=types)["hidden"], out["hidden"])
        if head in TASKS:
            with pytest.raises(RuntimeError, match=r"classifier|qa_outputs|another head"):
                roformer_cpp.load_model(tmp_path / "a", family + head)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_files(dtype, tmp_path):
    """R-HF-01. Their position table is rounded too: it is used as stored, with a warning, as transformers does."""
    saved_oracle(tmp_path).to(dtype).save_pretrained(tmp_path)
    oracle = transformers.RoFormerForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with pytest.warns(UserWarning, match="embed_positions.* stored one is used, and limits sequences to its 40 rows"):
        model = roformer_cpp.load_model(tmp_path)
    check(model, oracle, make_batch(), gradients=False)
    with pytest.raises(ValueError, match="40 rows"):
        model(torch.ones(1, MAX_POSITIONS + 1, dtype=torch.int64))
    model.save(tmp_path / "again")
    stored = tensors_of(tmp_path / "again")["roformer.encoder.embed_positions.weight"]
    assert torch.equal(stored, oracle.base_model.encoder.embed_positions.weight)


def test_sharded_checkpoint(tmp_path):
    oracle = saved_oracle(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    oracle.save_pretrained(tmp_path, max_shard_size="8KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    check(roformer_cpp.load_model(tmp_path), oracle, make_batch(), gradients=False)


@pytest.mark.parametrize("rotary_value", (False, True))
def test_longer_than_the_table(rotary_value, tmp_path):
    """R-HF-08: transformers stops at max_position_embeddings; ours continues as it would with a longer table."""
    oracle = saved_oracle(tmp_path, rotary_value=rotary_value)
    batch = make_batch(tokens=3 * MAX_POSITIONS + 1)
    for dtype in ("float32", "float64"):
        oracle = exact_table(oracle.to(getattr(torch, dtype)), rows=batch[0].shape[1])
        check(roformer_cpp.load_model(tmp_path, dtype=dtype), oracle, batch, gradients=False)


# ---- BERT alone


def test_a_missing_pooler_is_named(tmp_path):
    saved_oracle(tmp_path, family="Bert")
    with pytest.raises(RuntimeError, match=r'2 missing, the first "pooler.dense.weight"'):
        roformer_cpp.load_model(tmp_path, "BertModel")


def test_positions_end_with_the_table(tmp_path):
    """A trained table has no row for later positions: an error, as it is one in transformers; a wrong size is an error
    before memory is taken, since 2^31 rows would be 192 GiB."""
    saved_oracle(tmp_path, "Model", "Bert")
    with pytest.raises(ValueError, match=r"must be in 0\.\.39.*got 40"):
        roformer_cpp.load_model(tmp_path)(torch.ones(1, 41, dtype=torch.int64))
    change_config(tmp_path, max_position_embeddings=2**31)
    with pytest.raises(RuntimeError, match=r"position_embeddings.weight.*shape \[2147483648, 24\].*got \[40, 24\]"):
        roformer_cpp.load_model(tmp_path)


def test_a_class_of_no_head_opens_under_a_named_one(tmp_path):
    """Files of tasks that this library has no head for; the class asked for is what counts."""
    oracle = saved_oracle(tmp_path, "ForPreTraining", "Bert")
    change_config(tmp_path, architectures=["BertForNextSentencePrediction"])
    with pytest.raises(RuntimeError, match="BertForNextSentencePrediction"):
        roformer_cpp.load_model(tmp_path)
    check(roformer_cpp.load_model(tmp_path, "BertForMaskedLM"), oracle, make_batch(), gradients=False)
    config = json.loads((tmp_path / "config.json").read_text())
    assert roformer_cpp.build_model(config, "BertModel").head == "BertModel"


def test_keys_of_bert_configs(tmp_path):
    """Harmless ones are read; one that transformers would not honour may not stand in a file that says it is
    transformers' own."""
    oracle = saved_oracle(tmp_path, "Model", "Bert")
    config = json.loads((tmp_path / "config.json").read_text())
    extras = {"position_embedding_type": "absolute", "use_cache": True, "classifier_dropout": None}
    extras |= {"summary_type": "first", "summary_use_proj": True, "summary_activation": "tanh", "rope_theta": 10000.0}
    extras |= {"directionality": "bidi", "pooler_type": "first_token_transform", "embedding_size": 24}
    change_config(tmp_path, **extras)
    check(roformer_cpp.load_model(tmp_path), oracle, make_batch(), gradients=False)
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
        with pytest.raises((RuntimeError, ValueError), match=words):
            roformer_cpp.build_model(config | change)


CLIP = 3


def nezha_attention(module, query, key, value, mask, scaling, **_):
    """R-REL-09: keys and values have the interleaved sinusoid of the index clip(n - m) + CLIP itself added."""
    tokens, dim = query.shape[-2:]
    distances = (torch.arange(tokens) - torch.arange(tokens)[:, None]).clip(-CLIP, CLIP) + CLIP
    angles = distances[..., None] / 10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    table = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)  # [T,S,D]
    scores = query @ key.mT + torch.einsum("bhtd,tsd->bhts", query, table)
    weights = (scaling * scores + mask).softmax(-1)
    return (weights @ value + torch.einsum("bhts,tsd->bhtd", weights, table)).transpose(1, 2), weights


def test_nezha_checkpoint(tmp_path, monkeypatch):
    """R-VAR-04: names, configuration keys and stored distance tables of transformers 4."""
    oracle = saved_oracle(tmp_path, "Model", "Bert", attn_implementation="eager").double()
    name = "nezha.encoder.layer.0.attention.self.relative_positions_encoding.positions_encoding"
    body = {f"nezha.{name}": x for name, x in tensors_of(tmp_path).items() if "position" not in name}
    rewrite(tmp_path, lambda _: body | {name: torch.zeros(20, 20, 12)})
    keys = {"model_type": "nezha", "architectures": ["NezhaModel"], "max_relative_position": CLIP}
    keys |= {"embedding_size": 128, "use_relative_position": True, "classifier_dropout": 0.1, "use_cache": True}
    change_config(tmp_path, **keys)
    monkeypatch.setattr(modeling_bert, "eager_attention_forward", nezha_attention)
    oracle.embeddings.position_embeddings.weight.data.zero_()
    model = roformer_cpp.load_model(tmp_path, dtype="float64")
    check(model, oracle, make_batch(), gradients=False)
    # transformers 5 has no NEZHA: what is written back says that it is ours.
    assert model.head == "RfEncoderModel" and model.config["model_type"] == "rf_encoder"
    model.save(tmp_path / "ours")
    again = roformer_cpp.load_model(tmp_path / "ours", dtype="float64")
    check(again, oracle, make_batch(), gradients=False)
    assert again.config["position_encoding"] == {"type": "nezha", "max_relative_position": CLIP}
