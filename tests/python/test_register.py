"""Our models in the Auto classes of transformers, whose directories `load_model` opens, and the other way round."""

import copy
import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

import roformer_cpp
from encoding_case import TINY_IDS as IDS
from encoding_case import TINY_MODEL
from tolerances import T4_MAX

pytestmark = pytest.mark.usefixtures("registered")
HEADS = ("Model", "ForMaskedLM", "ForCausalLM", "ForSequenceClassification", "ForMultipleChoice",
         "ForTokenClassification", "ForQuestionAnswering", "ForNextSentencePrediction")  # fmt: skip


def built(head, encoding="kerple-log", **changes):
    family = {"family": "bert"} if head.startswith("ForNext") else {}
    config = {**TINY_MODEL, "model_type": "rf_encoder", "position_encoding": encoding, **family, **changes}
    config |= {"is_decoder": head == "ForCausalLM"}
    model = roformer_cpp.build_model(config, "RfEncoder" + head)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return model


def results(model, **inputs):
    """Of both kinds of models, by one name."""
    out = dict(model(IDS, **inputs))
    out = {{"last_hidden_state": "hidden", "pooler_output": "pooled"}.get(name, name): x for name, x in out.items()}
    return {name: x for name, x in out.items() if name in ("hidden", "pooled") or "logits" in name}


@pytest.mark.parametrize("head", HEADS)
def test_models_open_in_each_other(head, tmp_path):
    ours = built(head)
    ours.save(tmp_path / "ours")
    auto = getattr(transformers, "AutoModel" + head.removeprefix("Model"))
    theirs, report = auto.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()) and isinstance(theirs, transformers.PreTrainedModel) and not theirs.training
    assert type(theirs).__name__ == "RfEncoder" + head
    call = {"num_choices": 2} if head == "ForMultipleChoice" else {}
    expected = results(ours, **call)
    if call:
        assert torch.equal(theirs(IDS[None]).logits, expected["logits"])
        assert [layer.weights.shape for layer in roformer_cpp.inspect(theirs, IDS[0]).layers] == [(2, 9, 9)] * 2
    else:
        found = results(theirs)
        assert found and all(torch.equal(x, expected[name]) for name, x in found.items())
    for other in (copy.deepcopy(theirs), pickle.loads(pickle.dumps(theirs))):
        assert torch.equal(other.encode(IDS), ours.encode(IDS))
    with torch.no_grad():
        theirs.get_input_embeddings().weight.mul_(1.5)
    theirs.save_pretrained(tmp_path / "theirs")
    files = {file.name for file in (tmp_path / "theirs").iterdir()}
    assert files - {"generation_config.json"} == {file.name for file in (tmp_path / "ours").iterdir()}
    again = roformer_cpp.load_model(tmp_path / "theirs")
    assert type(again) is type(ours) and again.head == ours.head
    assert torch.equal(again.encode(IDS), theirs.encode(IDS))
    assert not torch.equal(again.encode(IDS), ours.encode(IDS))


MROPE = {"type": "mrope", "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}}


@pytest.mark.parametrize(("head", "encoding"), [
    ("Model", MROPE), ("Model", "deberta"), ("Model", "tupe-r"), ("ForCausalLM", "fox")
])  # fmt: skip
def test_encodings(head, encoding, tmp_path):
    ours = built(head, encoding)
    ours.save(tmp_path)
    theirs = getattr(transformers, "AutoModel" + head.removeprefix("Model")).from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "again")
    expected, weights = ours.encode(IDS), dict(ours.named_parameters())
    for each in (theirs, roformer_cpp.load_model(tmp_path / "again")):
        # Products of mapped weights may differ in last bits, as these may be aligned otherwise.
        assert (each.encode(IDS) - expected).abs().max() <= T4_MAX * expected.abs().max()
        assert all(torch.equal(parameter, weights[name]) for name, parameter in each.named_parameters())


def test_another_head_and_new_models(tmp_path):
    ours = built("ForMaskedLM", "t5")
    ours.save(tmp_path)
    bare = transformers.AutoModel.from_pretrained(tmp_path)
    assert torch.equal(bare(IDS).last_hidden_state, ours(IDS)["hidden"])
    # Pretraining is of masked tokens, as transformers has it for families without a model of sentence pairs.
    masked = transformers.AutoModelForPreTraining.from_pretrained(tmp_path)
    assert type(masked).__name__ == "RfEncoderForMaskedLM" and torch.equal(masked(IDS).logits, ours(IDS)["logits"])
    bare.save_pretrained(tmp_path / "bare")
    heads = {}
    for folder in (tmp_path, tmp_path / "bare"):
        torch.manual_seed(0)
        model = transformers.AutoModelForTokenClassification.from_pretrained(folder, num_labels=5)
        assert torch.equal(model.encode(IDS), ours.encode(IDS)) and model(IDS).logits.shape == (2, 9, 5)
        heads[folder] = model.classifier.weight
        assert 0.01 < model.classifier.weight.std() < 0.03 and not model.classifier.bias.any()
    assert torch.equal(*heads.values())
    new, other = (transformers.AutoModel.from_config(bare.config).position_encoding for _ in range(2))
    assert new.training and 0.01 < new.relative_attention_bias.std() < 0.03
    assert not torch.equal(new.relative_attention_bias, other.relative_attention_bias)
    for call in (lambda: bare.resize_token_embeddings(50), lambda: bare.set_input_embeddings(torch.nn.Embedding(3, 4))):
        with pytest.raises(ValueError, match=r"\[model\] vocab_size must stay 37, got other word embeddings"):
            call()


def test_pipelines_and_generation(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(97 + i) for i in range(26))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = roformer_cpp.Tokenizer(tmp_path)
    ours = built("ForMaskedLM")
    ours.save(tmp_path)
    ids = tokenizer(["a b [MASK] d"], return_tensors="pt")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("a b [MASK] d")["input_ids"] == ids["input_ids"][0].tolist()
    found = transformers.pipeline("fill-mask", str(tmp_path))("a b [MASK] d", top_k=3)
    expected = ours(**ids)["logits"][0, 3].softmax(-1).topk(3)
    assert [each["token"] for each in found] == expected.indices.tolist()
    vector = transformers.pipeline("feature-extraction", str(tmp_path))("a b", return_tensors=True)
    theirs = transformers.AutoModel.from_pretrained(tmp_path)(**tokenizer(["a b"], return_tensors="pt"))
    assert torch.equal(vector, theirs.last_hidden_state)
    built("ForCausalLM", is_decoder=True).save(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    written, ids = model.generate(IDS[:, :4], max_new_tokens=6, do_sample=False, eos_token_id=None), IDS[:, :4]
    for _ in range(6):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(written, ids)


@pytest.mark.parametrize("kind", ["roformer", "wobert"])
def test_tokenizers_of_words(kind, tmp_path):
    """AutoTokenizer cuts a directory's words, which transformers' own class does not know, before and after saving."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天气非常好e", "##a", "a", "今天天", "非常", "。"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    settings = {"tokenizer_class": "RoFormerTokenizer", "model_max_length": 8}
    settings |= {"roformer_pipeline": "wobert"} if kind == "wobert" else {}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    built("Model", vocab_size=len(words)).save(tmp_path)
    texts, cut = ["今天天气非常好。Éa [MASK]", "", "好[SEP]a"], {"roformer": "e ##a", "wobert": "e a"}[kind]
    for own, first in (("", "今 天 天 气"), ("今天天 100000 n\n", "今天天 气")):
        (tmp_path / "user_dict.txt").write_text(own)
        ours, theirs = roformer_cpp.Tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert " ".join(theirs.tokenize(texts[0])) == f"{first} 非常 好 。 {cut} [MASK]"
        theirs.save_pretrained(tmp_path / "saved")
        for tokenizer in (theirs, pickle.loads(pickle.dumps(theirs)), roformer_cpp.Tokenizer(tmp_path / "saved"),
                          transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")):  # fmt: skip
            for pairs, options in ((None, {"truncation": True}), (texts[::-1], {})):
                rows, expected = (
                    each(texts, pairs, padding=True, return_tensors="pt", **options) for each in (tokenizer, ours)
                )
                assert rows.keys() == expected.keys()
                assert all(torch.equal(rows[name], expected[name]) for name in expected)
            assert tokenizer.decode(expected["input_ids"][0]) == ours.decode(expected["input_ids"][0])
            assert len(tokenizer) == len(ours) and tokenizer.mask_token_id == 4


def test_losses_and_checkpoints_are_those_of_the_model(tmp_path):
    ours = built("ForTokenClassification")
    ours.save(tmp_path)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path).train()
    theirs.gradient_checkpointing_enable()
    assert theirs.is_gradient_checkpointing and isinstance(theirs(IDS, return_dict=False), tuple)
    torch.manual_seed(0)
    loss = theirs(IDS, labels=IDS % 2, output_hidden_states=True)
    torch.manual_seed(0)
    expected = ours.train()(IDS, labels=IDS % 2)["loss"]
    assert torch.equal(loss.loss, expected) and len(loss.hidden_states) == 3
    loss.loss.backward()
    expected.backward()
    for x, y in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert (x.grad - y.grad).abs().max() <= T4_MAX * y.grad.abs().max()


def test_an_encoding_with_parameters_written_in_python(tmp_path):
    roformer_cpp.register_encoding("kerple-register", KerpleInPython)
    ours = built("ForMaskedLM", "kerple-register")
    ours.save(tmp_path / "ours")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")
    assert torch.equal(theirs(IDS).logits, ours(IDS)["logits"])
    theirs.save_pretrained(tmp_path / "theirs")
    assert torch.equal(roformer_cpp.load_model(tmp_path / "theirs")(IDS)["logits"], ours(IDS)["logits"])


class KerpleInPython(roformer_cpp.CustomEncoding):
    def __init__(self, shape):
        super().__init__()
        self.log_r = torch.nn.Parameter(torch.zeros(2, shape.num_attention_heads, 1))

    def shared(self, positions, key_positions, dtype):
        lo, hi = int(positions.min() - key_positions.max()), int(positions.max() - key_positions.min())
        r1, r2 = self.log_r.exp()
        rows = -r1 * torch.log1p(r2 * torch.arange(lo, hi + 1).abs())
        return roformer_cpp.Terms(bias=roformer_cpp.DistanceTable(rows, lo=lo, hi=hi))


# Row 0 has fewer labels.
LABELS = IDS.masked_fill(torch.arange(9) < torch.tensor([[7], [2]]), -100)
ROWS = [{"input_ids": ids, "labels": labels} for ids, labels in zip(IDS, LABELS, strict=True)]


def trained(folder, **options):
    """Parameters after one step of Trainer."""
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, **dropout)
    options = {"max_steps": 1, "use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no",
               "optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0, **options}  # fmt: skip
    arguments = transformers.TrainingArguments(str(folder / "run"), **options)
    transformers.Trainer(model, arguments, train_dataset=ROWS).train()
    return model, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_trainer_with_checkpoints_and_accumulated_gradients(tmp_path):
    built("ForMaskedLM").save(tmp_path)
    _, expected = trained(tmp_path, per_device_train_batch_size=2)
    model, found = trained(tmp_path, per_device_train_batch_size=2, gradient_checkpointing=True)
    assert model.is_gradient_checkpointing and model.is_activation_checkpointing
    assert (found - expected).abs().max() <= T4_MAX * expected.abs().max()
    _, found = trained(tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=2)
    assert (found - expected).abs().max() <= T4_MAX * expected.abs().max()
    for option, rule in (({"every_n_layers": 2}, "every_n_layers must be 1, got 2"), ({"offload": True}, "offload")):
        with pytest.raises(ValueError, match=rule):
            model.activation_checkpointing_enable(**option)


def test_problem_types_set_later(tmp_path):
    built("ForSequenceClassification", num_labels=2).save(tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    model.config.problem_type = "regression"
    labels = torch.zeros(2, 2)
    out = model(IDS, labels=labels)
    assert torch.equal(out.loss, torch.nn.functional.mse_loss(out.logits, labels))


def test_dtypes_of_all_parameters(tmp_path):
    built("ForMaskedLM").save(tmp_path)
    auto = transformers.AutoModelForMaskedLM
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    for dtype in (torch.bfloat16, torch.float64):
        for model in (auto.from_pretrained(tmp_path, dtype=dtype), auto.from_config(config, dtype=dtype)):
            assert {parameter.dtype for parameter in model.parameters()} == {dtype}
            assert model(IDS).logits.dtype == dtype


def test_arguments_of_transformers(tmp_path):
    built("ForCausalLM").save(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa")
    out = model(IDS, use_cache=True, past_key_values=None)
    assert torch.equal(out.logits, model(IDS).logits) and out.past_key_values is None
    with pytest.raises(ValueError, match="past_key_values must be None, because caches are not kept, got DynamicCache"):
        model(IDS, past_key_values=transformers.DynamicCache())
    found = roformer_cpp.perplexity_by_position(model, IDS, edges=[9], chunk=None)["model"]
    loss = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())
    assert found[0] == pytest.approx(loss.exp().item(), rel=1e-5)
    table = model.get_input_embeddings()
    assert model.resize_token_embeddings() is table and model.resize_token_embeddings(37) is table
    shown = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_attentions=True)
    assert len(shown(IDS).attentions) == 2


def test_terms_are_saved_with_shards_and_pushed(tmp_path, monkeypatch):
    built("Model").save(tmp_path / "ours")
    model = transformers.AutoModel.from_pretrained(tmp_path / "ours")
    model.save_pretrained(tmp_path / "shards", max_shard_size="2KB")
    assert (tmp_path / "shards/model.safetensors.index.json").exists()
    assert (tmp_path / "shards/position_terms.safetensors").exists()
    model.save_pretrained(tmp_path / "main", True)
    assert (tmp_path / "main/position_terms.safetensors").exists()
    pushed = []
    hub = SimpleNamespace(create_repo=lambda *_, **__: SimpleNamespace(repo_id="x/y"))
    card = SimpleNamespace(save=lambda *_: None)
    monkeypatch.setattr("transformers.modeling_utils.hf_api", lambda: hub)
    monkeypatch.setattr("transformers.modeling_utils.create_and_tag_model_card", lambda *_, **__: card)

    def upload(_, folder, *__, **___):
        pushed.extend(file.name for file in Path(folder).iterdir())

    monkeypatch.setattr(transformers.PreTrainedModel, "_upload_modified_files", upload)
    model.save_pretrained(tmp_path / "pushed", push_to_hub=True)
    assert "position_terms.safetensors" in pushed
