"""What PyTorch's users do with a model that is made of modules: hooks, attention weights, losses, embeddings as input,
gradient checkpointing, LoRA; and its numbers, which are those of the C++ model that trains."""

import json

import accelerate
import peft
import pytest
import torch
import transformers
from torch import nn

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_IDS as IDS
from encoding_case import TINY_MODEL, assert_same, perturbed
from encoding_files import INFOS
from nn.test_model import config_of, ids_of
from roformer_cpp.encoding import Encoding
from roformer_cpp.model import HEADS

SIZES = TINY_MODEL | {"hidden_size": 24, "num_labels": 4}


def built(head="RoFormerForMaskedLM", **changes):
    family = {"Be": "bert", "Rf": "rf_encoder"}.get(head[:2], "roformer")
    return perturbed(roformer_cpp.build_model(SIZES | {"model_type": family} | changes, head))


# ---- the numbers of the C++ model


def weighted(results):
    return sum((x * torch.linspace(-1, 2, x.numel()).view_as(x)).sum() for x in results.values())


def assert_computes_as_cpp(model, inputs, choices=1):
    """Results and gradients in training, with dropout; the same bits, as the operators are the same."""
    script = torch.classes.roformer.Model.build(json.dumps(model.config), model.head, 0)
    names, state = [*script.named_parameters(), *script.named_buffers()], model.state_dict(keep_vars=True)
    assert set(names) == set(state)
    given = [state[name].detach().clone().requires_grad_(state[name].requires_grad) for name in names]
    for training in (False, True):
        model.train(training)
        found = model(**inputs, num_choices=choices, dropout_key=(7, 2))
        expected = script.forward(given, training, inputs, choices, [7, 2])
        assert found.keys() == set(expected)
        assert all(torch.equal(x, expected[name]) for name, x in found.items()), training
    for results in (found, expected):
        weighted(results).backward()
    for name, tensor in zip(names, given, strict=True):
        ours = state[name].grad
        assert (ours is None) == (tensor.grad is None), name
        assert ours is None or torch.equal(ours, tensor.grad), name


SEGMENTS = torch.tensor([[0] * 4 + [1] * 3 + [-1] * 2, [0] * 9], dtype=torch.int32)
SEEN = torch.ones(2, 9, dtype=torch.int64)
SEEN[1, :3] = 0
INPUTS = {"plain": {}, "mask": {"attention_mask": SEEN}, "packed": {"segments": SEGMENTS}}
DROPS = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}


@pytest.mark.parametrize("name", INFOS)
def test_every_encoding_computes_as_cpp(name):
    model = perturbed(roformer_cpp.build_model(config_of(name, **DROPS), "RfEncoderForMaskedLM"))
    for given in INPUTS.values():
        model.zero_grad()
        assert_computes_as_cpp(model, {"input_ids": ids_of(2, 9)} | given)


VARIANTS = {
    "RoFormerForSequenceClassification": {"embedding_size": 16},
    "RoFormerForMultipleChoice": {},
    "RoFormerForTokenClassification": {},
    "RoFormerForQuestionAnswering": {},
    "BertModel": {},
    "BertForSequenceClassification": {},
    "BertForNextSentencePrediction": {},
    "RfEncoderForSequenceClassification": {"classifier_pooling": "mean"},
    "RoFormerForCausalLM": {"is_decoder": True, "tie_word_embeddings": False},
    "RfEncoderForCausalLM": {"is_decoder": True, "prefix_lm": True},
    "RfEncoderForMaskedLM": {"family": "roformer_v2", "position_encoding": "rope", "attention": "linear"},
    "RfEncoderForTokenClassification": {"training_positions": {"type": "shifted", "max_shift": 5}},
}


@pytest.mark.parametrize("head", VARIANTS)
def test_every_head_computes_as_cpp(head):
    model = built(head, **VARIANTS[head], **DROPS)
    choices = 2 if head.endswith("Choice") else 1
    types = torch.arange(9).ge(4).long().expand(2, 9)
    assert_computes_as_cpp(model, {"input_ids": ids_of(2, 9), "token_type_ids": types}, choices)


# ---- transforms of torch.func

TRANSFORMED = ["rope", "alibi", "t5", "transformer-xl", "deberta", "fire", "fope", "huang-m3", "fox", "rerope"]
TRANSFORMED += ["dai-literal"]
TRANSFORMED_HEADS = {
    "RoFormerForSequenceClassification": {"embedding_size": 16},
    "BertForTokenClassification": {"hidden_act": "gelu_new"},
    "RfEncoderForCausalLM": {"is_decoder": True, "prefix_lm": True},
    "RfEncoderForMaskedLM": {"family": "roformer_v2", "position_encoding": "rope", "attention": "linear"},
}


def assert_per_sample_gradients(model):
    ids, mask = ids_of(3, 9), torch.ones(3, 9, dtype=torch.int64)
    mask[0, 6:], mask[2, 4:] = 0, 0
    parameters = {name: x.detach() for name, x in model.named_parameters()}

    def loss(parameters, ids, mask):
        out = torch.func.functional_call(model, parameters, (ids[None], mask[None]), {"dropout_key": (3, 1)})
        return out["logits"].square().mean()

    mapped = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, ids, mask)
    for i in range(3):
        model.zero_grad()
        model(ids[i : i + 1], mask[i : i + 1], dropout_key=(3, 1))["logits"].square().mean().backward()
        alone = torch.func.grad(loss)(parameters, ids[i], mask[i])
        for name, x in model.named_parameters():
            if x.grad is not None:
                limit = tol.T4_MAX * max(x.grad.abs().max().item(), 1)
                assert (mapped[name][i] - x.grad).abs().max() <= limit, (i, name)
                assert (alone[name] - x.grad).abs().max() <= limit, (i, name)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_gradients_of_each_text(name):
    model = perturbed(roformer_cpp.build_model(config_of(name, **DROPS), "RfEncoderForMaskedLM"))
    if name != "t5":  # whose scores are not scaled, so that float32 rounds more
        assert_per_sample_gradients(model.train())
    assert_per_sample_gradients(model.double().eval())


@pytest.mark.parametrize("head", TRANSFORMED_HEADS)
def test_gradients_of_each_text_by_head(head):
    assert_per_sample_gradients(built(head, **TRANSFORMED_HEADS[head]).double())


def test_jacobians_and_ensembles():
    model = built("RfEncoderForMaskedLM", position_encoding="t5").double()
    parameters = {name: x.detach() for name, x in model.named_parameters()}
    path = "roformer.encoder.layer.0.attention.self.value.bias"

    def hidden(parameters):
        return torch.func.functional_call(model, parameters, (IDS,))["hidden"]

    jacobian = torch.func.jacrev(lambda x: hidden(parameters | {path: x})[0, 0])(parameters[path])
    first, parameter = model(IDS)["hidden"][0, 0], model.get_parameter(path)
    expected = torch.stack([torch.autograd.grad(x, parameter, retain_graph=True)[0] for x in first])
    assert torch.allclose(jacobian, expected, rtol=tol.T1_RTOL, atol=tol.T1_RTOL)
    with pytest.raises(ValueError, match=r'vmap must be given randomness="same" for dropout, got "different"'):
        torch.vmap(lambda ids: model.train()(ids[None])["hidden"], randomness="different")(IDS)
    model.eval()
    both = torch.vmap(hidden)({name: torch.stack([x, 2 * x]) for name, x in parameters.items()})
    assert torch.allclose(both[0], model(IDS)["hidden"], rtol=tol.T1_RTOL, atol=tol.T1_RTOL)


# ---- what is inside


@pytest.mark.parametrize("head", [
    "BertForSequenceClassification", "RoFormerForSequenceClassification", "RfEncoderForMaskedLM",
    "BertForNextSentencePrediction",
])  # fmt: skip
def test_hooks_fire_on_every_module(head):
    """On parts that compute, and those that group them; a hook that changes a result changes what follows."""
    model, fired = built(head), set()
    modules = dict(model.named_modules())
    for name, module in modules.items():
        module.register_forward_hook(lambda module, args, out, name=name: fired.add(name))
    expected = built(head)(IDS)["logits"]
    assert torch.allclose(model(IDS)["logits"], expected, **tol.COMPILED_F32)
    silent = {name for name in modules if isinstance(modules[name], (nn.ModuleList, Encoding))}
    assert fired == set(modules) - silent
    model.base_model.encoder.layer[0].intermediate.dense.register_forward_hook(lambda module, args, out: 0 * out)
    assert not torch.allclose(model(IDS)["logits"], expected)
    last = next(model.get_submodule(name) for name in ("cls", "classifier") if name in modules)
    last.register_forward_hook(lambda module, args, out: 0 * args[0][..., : out.shape[-1]])
    assert not model(IDS)["logits"].any()


@pytest.mark.parametrize("head, path", [
    ("RoFormerForSequenceClassification", "classifier"), ("RfEncoderForMaskedLM", "cls"),
    ("RfEncoderForMaskedLM", "cls.predictions"),
])  # fmt: skip
def test_a_head_of_ones_own(head, path):
    model, own = built(head), nn.Sequential(nn.Tanh(), nn.Linear(24, 5))
    hidden = model(IDS)["hidden"]
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, own)
    out = model(IDS, labels=IDS[:, 0] % 5 if name == "classifier" else IDS % 5)
    assert torch.equal(out["logits"], own(hidden[:, 0] if name == "classifier" else hidden))
    out["loss"].backward()
    assert own[1].weight.grad.abs().max() > 0


def of_transformers(model, folder, **options):
    model.save(folder)
    return getattr(transformers, model.head).from_pretrained(folder, **options).eval()


@pytest.mark.parametrize("head", ["RoFormerForMaskedLM", "BertModel"])
def test_hidden_states_and_attentions_are_those_of_transformers(head, tmp_path):
    model = built(head)
    theirs = of_transformers(model, tmp_path, attn_implementation="eager")
    ids, asked = ids_of(2, 9), dict(output_hidden_states=True, output_attentions=True)
    asked["attention_mask"] = torch.ones_like(ids)
    asked["attention_mask"][0, -2:] = 0
    ours, theirs = model(ids, **asked), theirs(ids, **asked)
    for name in ("hidden_states", "attentions"):
        assert len(ours[name]) == len(theirs[name])
        for x, y in zip(ours[name], theirs[name], strict=True):
            assert x.shape == y.shape and (x - y)[..., :7, :].abs().max() <= tol.T4_MAX * y.abs().max()
    assert torch.equal(ours["hidden_states"][-1], ours["hidden"])


# Rotations, a bias, tables of keys, of values too, gates, scores that read tokens, and what is added to words.
@pytest.mark.parametrize("name", ["rope", "t5", "deberta", "shaw", "huang-m2", "fox", "path", "floater"])
def test_attentions_are_probabilities(name):
    """tests/python/test_inspection.py has those of every encoding."""
    model = perturbed(roformer_cpp.build_model(config_of(name)))
    out = model(ids_of(2, 7), output_attentions=True)
    assert torch.equal(out["hidden"], model(ids_of(2, 7))["hidden"])
    for weights in out["attentions"]:
        assert weights.shape == (2, 2, 7, 7) and weights.min() >= 0
        assert torch.allclose(weights.sum(-1), torch.ones(()), **tol.COMPILED_F32)


ENDS = {"start_positions": torch.tensor([1, 40]), "end_positions": torch.tensor([4, 3])}
LOSSES = [
    ("RoFormerForMaskedLM", {}, {"labels": torch.tensor([[1, -100, 3, 5, -100, 2, 9, 8, -100]]).repeat(2, 1)}),
    ("RoFormerForCausalLM", {"is_decoder": True}, {"labels": ids_of(2, 9)}),
    ("RoFormerForTokenClassification", {}, {"labels": ids_of(2, 9) % 4}),
    ("RoFormerForSequenceClassification", {}, {"labels": torch.tensor([2, 3])}),
    ("RoFormerForMultipleChoice", {}, {"labels": torch.tensor([1])}),
    ("BertForSequenceClassification", {"num_labels": 1, "problem_type": "regression"},
     {"labels": torch.tensor([0.5, -1.0])}),
    ("BertForSequenceClassification", {"num_labels": 2}, {"labels": torch.eye(2)}),
    ("BertForQuestionAnswering", {"num_labels": 2}, ENDS),
]  # fmt: skip


@pytest.mark.parametrize(("head", "changes", "given"), LOSSES)
def test_losses_are_those_of_transformers(head, changes, given, tmp_path):
    model, ids = built(head, **changes), ids_of(2, 9)
    choices = {"num_choices": 2} if head.endswith("Choice") else {}
    expected = of_transformers(model, tmp_path)(ids[None] if choices else ids, **given).loss
    for dtype in (torch.float32, torch.float64):
        out = model.to(dtype)(ids, **given, **choices)
        assert next(iter(out)) == "loss" and out["loss"].dtype == dtype
        assert abs(out["loss"] - expected) <= tol.T4_MAX * abs(expected)


def test_labels_in_place_of_ends():
    for head in ("BertForQuestionAnswering", "BertModel"):
        with pytest.raises(ValueError, match="must be asked for with"):
            built(head)(IDS, labels=IDS)
    with pytest.raises(ValueError, match="must be asked for with start_positions and end_positions"):
        built("BertForQuestionAnswering", num_labels=2)(IDS, start_positions=ENDS["start_positions"])


WRONG_LABELS = {
    "MaskedLM": (torch.full((2, 9), 37), r"labels must be int64 \[2, 9\], at least 0 and below 37, or -100, got 37"),
    "TokenClassification": (torch.full((2, 9), -1), r"\[2, 9\], at least 0 and below 4, or -100, got -1"),
    "CausalLM": (torch.zeros(2, 8).long(), r"labels must be int64 \[2, 9\], got torch.int64 \[2, 8\]"),
    "SequenceClassification": (torch.zeros(2).int(), r"labels must be int64 \[2\], got torch.int32 \[2\]"),
    "NextSentencePrediction": (torch.zeros(9).long(), r"labels must be int64 \[2\], got torch.int64 \[9\]"),
    "MultipleChoice": (torch.tensor([0.5, 1]), r"labels must be int64 \[2\], got torch.float32 \[2\]"),
}


@pytest.mark.parametrize("kind", WRONG_LABELS)
def test_labels_that_do_not_fit(kind):
    labels, rule = WRONG_LABELS[kind]
    family = "Bert" if kind == "NextSentencePrediction" else "RoFormer"
    model = built(f"{family}For{kind}", is_decoder=kind == "CausalLM")
    with pytest.raises(ValueError, match=r"^\[input\] .*" + rule):
        model(ids_of(2, 9), labels=labels)
    with pytest.raises(TypeError, match=r"\[input\] labels must be a tensor, got list"):
        model(ids_of(2, 9), labels=[1, 2])


def test_numbers_and_ends_that_do_not_fit():
    model = built("BertForSequenceClassification", num_labels=1)
    with pytest.raises(ValueError, match=r"labels must be numbers \[2\], got torch.float32 \[3\]"):
        model(IDS, labels=torch.zeros(3))
    assert torch.equal(model(IDS, labels=torch.ones(2).long())["loss"], model(IDS, labels=torch.ones(2, 1))["loss"])
    model, first = built("BertForQuestionAnswering", num_labels=2), torch.zeros(2).long()
    with pytest.raises(ValueError, match=r"end_positions must be int64 \[2\], at least 0, got -1"):
        model(IDS, start_positions=first, end_positions=first - 1)


def test_embeddings_as_input():
    model = built()
    words = model.roformer.embeddings.word_embeddings(IDS).detach().requires_grad_()
    assert torch.equal(model(inputs_embeds=words)["logits"], model(IDS)["logits"])
    model(inputs_embeds=words)["logits"].sum().backward()
    assert words.grad.abs().max() > 0
    for given in ({"input_ids": IDS, "inputs_embeds": words}, {"inputs_embeds": words[..., :8]}):
        with pytest.raises(ValueError, match=r"inputs_embeds must be \[batch, tokens, 24\], without input_ids"):
            model(**given)
    with pytest.raises(ValueError, match=r"inputs_embeds must be torch.float32, as the weights are, got torch.fl"):
        model(inputs_embeds=torch.zeros(1, 2, 24, dtype=torch.float64))
    with pytest.raises(TypeError, match="output_attentions must be True or False, got 'yes'"):
        model(torch.ones(1, 2, dtype=torch.int64), output_attentions="yes")
    linear = roformer_cpp.build_model(config_of("rope", attention="linear"))
    with pytest.raises(ValueError, match=r"output_attentions needs softmax attention.*got linear attention"):
        linear(ids_of(2, 7), output_attentions=True)


def test_checkpointed_layers_have_the_same_gradients():
    model = built(**DROPS).train()
    counts = []
    model.roformer.encoder.layer[0].register_forward_pre_hook(lambda *_: counts.append(1))

    def gradients():
        model.zero_grad()
        model(IDS, labels=IDS, dropout_key=(1, 2))["loss"].backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    plain = gradients()
    for number, is_reentrant in enumerate((False, True), 1):
        model.gradient_checkpointing_enable({"use_reentrant": is_reentrant})
        again = gradients()
        assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True)) and len(counts) == 1 + 2 * number
    with pytest.raises(ValueError, match=r"cache must be None in training with gradient checkpointing, got Key"):
        causal = built("RoFormerForCausalLM", is_decoder=True).train()
        causal.gradient_checkpointing_enable()
        causal(IDS, cache=causal.new_cache())
    model.gradient_checkpointing_disable()
    gradients()
    assert len(counts) == 6
    drawn = roformer_cpp.build_model(config_of("rope", attention={"type": "linear", "feature_map": "favor"}))
    with pytest.raises(ValueError, match="gradient checkpointing needs layers that compute the same twice"):
        drawn.gradient_checkpointing_enable()


@pytest.mark.parametrize("name", ["rope", "deberta"])
def test_another_forward_of_a_module_is_called(name):
    """accelerate's hooks put one on the instance; also where projections are joined, or read by an encoding."""

    class Doubled(accelerate.hooks.ModelHook):
        def post_forward(self, module, output):
            return 2 * output

    model, other = (built("RfEncoderForMaskedLM", position_encoding=name) for _ in range(2))
    ids = ids_of(4, 9)
    for path in ("self.query", "self.value", "output.dense", "output.LayerNorm"):
        path = f"roformer.encoder.layer.0.attention.{path}"
        accelerate.hooks.add_hook_to_module(model.get_submodule(path), Doubled())
        for parameter in other.get_submodule(path).parameters():
            parameter.data.mul_(2)
    assert_same(model(ids)["logits"], other(ids)["logits"])


OFFLOADED = [({}, head) for head in HEADS] + [
    ({"position_encoding": name}, "RfEncoderForCausalLM" if name in ("cope", "fox") else "RfEncoderForMaskedLM")
    for name in ("t5", "transformer-xl", "cope", "fox", "learned", "complex")
]
OFFLOADED += [({"attention": {"type": "linear", "feature_map": "favor"}}, "RfEncoderForMaskedLM")]


@pytest.mark.parametrize(("changes", "head"), OFFLOADED)
def test_offloaded_weights(changes, head, tmp_path):
    """Also those that no module reads in its own call: of encodings, and of heads that are tied to the embeddings."""
    head, call = head.replace("RoFormer", "RfEncoder"), {"num_choices": 2} if head.endswith("Choice") else {}
    model = built(head, is_decoder=head.endswith("CausalLM"), **changes)
    with torch.no_grad():
        expected = model(IDS, **call)
        for offload in (accelerate.cpu_offload, accelerate.disk_offload):
            where = [tmp_path / "weights"] if offload is accelerate.disk_offload else []
            offload(model, *where, execution_device="cpu")
            assert all(x.is_meta for x in model.parameters())
            found = model(IDS, **call)
            assert all(torch.equal(found[name], x) for name, x in expected.items())
            model.save(tmp_path / offload.__name__)
            assert torch.equal(roformer_cpp.load_model(tmp_path / offload.__name__).encode(IDS), expected["hidden"])
            accelerate.hooks.remove_hook_from_submodules(model)
        assert torch.equal(model.encode(IDS), expected["hidden"])


def test_layers_whose_projections_are_read_stay_on_their_device(registered, tmp_path):
    config = transformers.AutoConfig.for_model("rf_encoder", **SIZES, position_encoding="deberta-literal")
    model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    expected = model(IDS).logits
    accelerate.cpu_offload(model, execution_device="cpu")
    with pytest.raises(ValueError, match="layers must stay on their device with deberta-literal, which reads their"):
        model(IDS)
    accelerate.hooks.remove_hook_from_submodules(model)
    parts = {"roformer.embeddings": "disk", "roformer.encoder": "cpu", "position_encoding": "cpu", "cls": "cpu"}
    accelerate.dispatch_model(model, parts, "cpu", offload_dir=tmp_path)
    assert model.roformer.embeddings.word_embeddings.weight.is_meta
    assert_same(model(IDS).logits, expected)


def test_norms_of_another_kind():
    model, expected = built(**DROPS), built(**DROPS)(IDS)["logits"]
    for path, norm in list(model.named_modules()):
        if path.endswith("LayerNorm"):
            model.get_submodule(path.rpartition(".")[0]).LayerNorm = nn.Sequential(norm)
    assert_same(model(IDS)["logits"], expected)
    for layer in model.roformer.encoder.layer:
        layer.output.LayerNorm = nn.RMSNorm(24)
    model.train()(IDS)["logits"].sum().backward()
    assert model.roformer.encoder.layer[0].output.LayerNorm.weight.grad.abs().max() > 0


@pytest.mark.parametrize("name", ["rope", "transformer-xl", "deberta"])
def test_lora_on_every_linear_layer(name, tmp_path):
    """Also where an encoding reads the projections: the same as with merged weights."""
    model = built("RfEncoderForMaskedLM", position_encoding=name)
    targets = [path for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    tuned = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets))
    with torch.no_grad():
        for path, parameter in tuned.named_parameters():
            if "lora_B" in path:
                parameter.normal_(std=0.3)
    before, out = built("RfEncoderForMaskedLM", position_encoding=name)(IDS)["logits"], tuned(IDS, labels=IDS)
    assert not torch.allclose(out["logits"], before)
    out["loss"].backward()
    grads = {path: parameter.grad for path, parameter in tuned.named_parameters() if parameter.requires_grad}
    assert all("lora_" in path and grad is not None and grad.abs().max() > 0 for path, grad in grads.items())
    with pytest.raises(ValueError, match=r"must be the model's own.*merge_and_unload"):
        model.save(tmp_path)
    merged = tuned.merge_and_unload()
    assert_same(merged(IDS)["logits"], out["logits"])
    merged.save(tmp_path)
    assert torch.equal(roformer_cpp.load_model(tmp_path)(IDS)["logits"], merged(IDS)["logits"])


@pytest.mark.parametrize("head", ["RfEncoderModel", "BertModel", "RoFormerForMaskedLM", "BertForTokenClassification"])
def test_the_body_is_the_one_that_transformers_names(head):
    """It is trained apart from the head, with adapters in it that peft finds there."""
    model, theirs = built(head), getattr(transformers, head.replace("RfEncoder", "RoFormer"))
    assert model.base_model_prefix == theirs.base_model_prefix
    body, prefix = model.base_model, "" if head.endswith("Model") else f"{model.base_model_prefix}."
    assert (body is model) == (prefix == "")
    before = model(IDS)["hidden"]
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["query"], init_lora_weights=False), body)
    assert not torch.allclose(model(IDS)["hidden"], before)
    trained = {name for name, x in model.named_parameters() if x.requires_grad and "lora_" in name}
    assert trained == {f"{prefix}{name}" for name, _ in body.named_parameters() if "lora_" in name} != set()


@pytest.mark.parametrize("kind", [peft.PromptTuningConfig, peft.PromptEncoderConfig])
@pytest.mark.parametrize("head", ["RfEncoderForSequenceClassification", "RfEncoderForCausalLM"])
def test_prompts_of_peft(head, kind, tmp_path):
    """The trained vectors are word embeddings before the text's; peft's masks of them are floating point."""
    is_causal = head.endswith("LM")
    options = {"position_encoding": "alibi", "num_labels": 2, "is_decoder": is_causal}
    task = kind(task_type="CAUSAL_LM" if is_causal else "SEQ_CLS", num_virtual_tokens=3)
    task.encoder_hidden_size = 8  # of the second
    model, ids, mask = built(head, **options), ids_of(2, 9), torch.ones(2, 9, dtype=torch.int64)
    assert (model.device, model.dtype) == (torch.device("cpu"), torch.float32)
    tuned = peft.get_peft_model(model, task)
    mask[1, 6:] = 0
    labels = ids if is_causal else torch.tensor([0, 1])
    out = tuned(input_ids=ids, attention_mask=mask, labels=labels)
    out["loss"].backward()
    prompt = {path: x for path, x in tuned.named_parameters() if "prompt_encoder" in path}
    assert prompt and all(x.grad.abs().max() > 0 for x in prompt.values())
    words = torch.cat([tuned.get_prompt(2), model.base_model.embeddings.word_embeddings(ids)], 1)
    mask = torch.cat([torch.ones(2, 3, dtype=torch.int64), mask], 1)
    assert torch.equal(out["logits"], model(inputs_embeds=words, attention_mask=mask)["logits"])
    with pytest.raises(ValueError, match=r"the mask must be bool, or integers 0 and 1, got Float"):
        model(inputs_embeds=words, attention_mask=mask - 1.0)
    tuned.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(built(head, **options), tmp_path)
    assert torch.equal(again(input_ids=ids, attention_mask=mask[:, 3:])["logits"], out["logits"])
    with pytest.raises(ValueError, match="past_key_values must be None, because caches are not kept, got DynamicCache"):
        prefix = peft.PrefixTuningConfig(task_type=task.task_type, num_virtual_tokens=3)
        peft.get_peft_model(built(head, **options), prefix)(input_ids=ids, attention_mask=mask[:, 3:])


TASKS = {"RfEncoderModel": "FEATURE_EXTRACTION", "RfEncoderForSequenceClassification": "SEQ_CLS"}
TASKS |= {"RoFormerForTokenClassification": "TOKEN_CLS", "BertForQuestionAnswering": "QUESTION_ANS"}
TASKS |= {"RoFormerForCausalLM": "CAUSAL_LM", "RoFormerForMaskedLM": None, "RoFormerForMultipleChoice": None}
TASKS |= {"BertForNextSentencePrediction": None}


@pytest.mark.parametrize("head", TASKS)
def test_tasks_of_peft(head, tmp_path):
    """Each head under peft's model of its task, whose own modules are trained whole."""
    made = {"is_decoder": head.endswith("CausalLM"), "num_labels": 2}
    made |= {"position_encoding": "t5"} if head == "RfEncoderModel" else {}
    whole = {"RfEncoderModel": "position_encoding", "RoFormerForMaskedLM": "cls", "RoFormerForCausalLM": "cls"}
    whole |= {"BertForQuestionAnswering": "qa_outputs", "BertForNextSentencePrediction": "cls"}
    model, name, changes = built(head, **made), whole.get(head, "classifier"), {}
    options = dict(r=2, task_type=TASKS[head], target_modules=["query", "value"], modules_to_save=[name])
    tuned, ids = peft.get_peft_model(model, peft.LoraConfig(**options)), ids_of(2, 9)
    if head.endswith("QuestionAnswering"):
        changes = {"start_positions": torch.tensor([0, 1]), "end_positions": torch.tensor([4, 3])}
    elif not head.endswith("Model"):
        rows = head.endswith(("LM", "TokenClassification"))
        changes = {"labels": ids % 2 if rows else torch.tensor([0, 1])}
    if head.endswith("Choice"):
        changes = {"labels": torch.tensor([1]), "num_choices": 2}
    tuned.train()
    out = tuned(input_ids=ids, attention_mask=torch.ones_like(ids), **changes)
    (out["loss"] if "loss" in out else out["hidden"].square().sum()).backward()
    grads = {path: parameter.grad for path, parameter in tuned.named_parameters() if parameter.requires_grad}
    assert any(name in path for path in grads) and all(grad is not None for grad in grads.values())
    tuned.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(built(head, **made), tmp_path).eval()
    out, found = tuned.eval()(input_ids=ids), again(input_ids=ids)
    assert all(torch.equal(out[key], found[key]) for key in out)
    with pytest.raises(ValueError, match=r"\[input\] return_dict must be True or None, got False"):
        model(ids, return_dict=False)
    tuned.merge_and_unload().save(tmp_path)
    merged = roformer_cpp.load_model(tmp_path)(ids)
    for key in out:
        assert_same(merged[key], out[key])


@pytest.mark.parametrize("kind", [peft.IA3Config, peft.LoHaConfig])
def test_other_adapters_on_classifiers_of_two_layers(kind, tmp_path):
    model, ids = built("RoFormerForSequenceClassification"), ids_of(2, 9)
    more = {"feedforward_modules": []} if kind is peft.IA3Config else {}
    tuned = peft.get_peft_model(model, kind(task_type="SEQ_CLS", target_modules=["value", "dense"], **more))
    tuned(input_ids=ids, labels=torch.tensor([0, 3]))["loss"].backward()
    with torch.no_grad():
        for parameter in tuned.parameters():
            parameter.sub_(0 if parameter.grad is None else parameter.grad)
    tuned.eval()
    expected = tuned(input_ids=ids)["logits"]
    assert not torch.allclose(expected, built(model.head)(ids)["logits"])
    tuned.merge_and_unload().save(tmp_path)
    assert_same(roformer_cpp.load_model(tmp_path)(ids)["logits"], expected)


def test_lora_on_words_that_the_head_is_tied_to(tmp_path):
    """The head reads the changed vectors, as it does after merging."""
    config = peft.LoraConfig(r=2, target_modules=["word_embeddings"], init_lora_weights=False)
    tuned = peft.get_peft_model(built(), config).eval()
    assert "vocab_size 37" in repr(tuned.get_base_model())
    expected = tuned(input_ids=IDS)["logits"]
    tuned.merge_and_unload().save(tmp_path)
    assert_same(roformer_cpp.load_model(tmp_path)(IDS)["logits"], expected)


def test_a_linear_layer_of_ones_own_is_saved(tmp_path):
    model = built("RoFormerForTokenClassification")
    model.classifier = nn.Linear(24, 4)
    model.save(tmp_path)
    assert_same(roformer_cpp.load_model(tmp_path)(IDS)["logits"], model(IDS)["logits"])
    model.classifier = nn.Linear(24, 5)
    with pytest.raises(RuntimeError, match=r"classifier.weight"):
        model.save(tmp_path)
