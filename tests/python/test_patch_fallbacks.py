"""What a patched model leaves to transformers, with a warning: the same numbers."""

import importlib
import json
import re
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")

import patch_models as models  # noqa: E402
import roformer_cpp  # noqa: E402
import tolerances as tol  # noqa: E402
from patch_models import close, patched_copy, said  # noqa: E402

HEADS = 4
T5 = [f"{each}Attention" for each in ("T5", "MT5", "SwitchTransformers")]
KNOWN = {
    "roformer": {"RoFormerSelfAttention.forward"},
    "t5": {f"{cls}.{name}" for cls in T5 for name in ("compute_bias", "forward")},
    "deberta-v2": {"DisentangledSelfAttention.forward"},
    "mpnet": {"MPNetSelfAttention.forward"},
    "llama": {"sdpa_attention_forward", "sdpa_mask", "eager_mask"},
}


def reason(cls, what):
    return [f"[patch] {cls}: transformers computes {what}"]


ATTENTION = {"roformer": "RoFormerSelfAttention", "deberta-v2": "DisentangledSelfAttention", "t5": "T5Attention"}
ATTENTION |= {"mpnet": "MPNetSelfAttention", "llama": "LlamaAttention", "bert": "BertSelfAttention"}


@pytest.mark.parametrize("name", ATTENTION)
def test_weights(name):
    """output_attentions=True returns the weights of eager attention."""
    model = models.build(models.FAMILIES[name])
    patched = patched_copy(model)
    if name not in ("roformer", "deberta-v2"):
        model.set_attn_implementation("eager")
    given = models.batch("right")
    options = {"decoder_input_ids": given.ids[:, :5].clamp(min=3)} if name == "t5" else {}
    for mask in (None, given.mask):
        want = model(given.ids, attention_mask=mask, output_attentions=True, **options)
        out, reasons = said(patched, given.ids, attention_mask=mask, output_attentions=True, **options)
        assert reasons == reason(ATTENTION[name], "attention whose weights are returned")
        for key in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
            assert (key in out) == (key in want)
            for got, expected in zip(out.get(key) or (), want.get(key) or (), strict=True):
                assert got.shape[1] == HEADS and close(got, expected)
        assert close(out.logits, want.logits)


def test_softcapping():
    model = models.build(models.FAMILIES["gemma2"], torch.float32, attn_logit_softcapping=5.0)
    patched = patched_copy(model)
    given = models.batch("left")
    want = models.outputs_and_gradients(model, given)
    got, warned = said(models.outputs_and_gradients, patched, given)
    assert warned == reason("Gemma2Attention", "attention with logit softcapping")
    assert all(torch.equal(got[name], value) for name, value in want.items())


def test_masks_of_the_caller():
    model = models.build(models.FAMILIES["llama"])
    patched = patched_copy(model)
    ids = models.batch("none").ids
    attend = (torch.rand(models.ROWS, 1, models.TOKENS, models.TOKENS) < 0.5) | torch.eye(models.TOKENS).bool()
    out, reasons = said(patched, ids, attention_mask=attend)
    assert reasons == [] and close(out.logits, model(ids, attention_mask=attend).logits)
    numbers = torch.randn(attend.shape, dtype=torch.float64)
    roformer = models.build(models.FAMILIES["roformer"])
    out, reasons = said(patched_copy(roformer), ids, attention_mask=numbers)
    assert reasons == reason("RoFormerSelfAttention", "attention with a mask of its caller")
    assert torch.equal(out.logits, roformer(ids, attention_mask=numbers).logits)
    shut = numbers.masked_fill(~attend, -torch.inf)
    for mask in (numbers, shut, shut[:, :, -1:], torch.zeros_like(numbers).masked_fill(~attend, -torch.inf)):
        want = model(ids, attention_mask=mask).logits
        for _ in range(2):
            out, reasons = said(patched, ids, attention_mask=mask)
            assert reasons == [] and close(out.logits, want)
    learned = numbers.clone().requires_grad_()
    sums = (each(ids, attention_mask=learned).logits.cos().sum() for each in (patched, model))
    assert close(*(torch.autograd.grad(each, learned)[0] for each in sums), tol.GRADIENT_F64)


@pytest.mark.parametrize("name", ["roformer, causal", "bert, causal"])
def test_attention_to_an_encoder(name):
    """Of RoFormer it is left to transformers, of BERT it is ours."""
    model = models.build(models.FAMILIES[name], add_cross_attention=True)
    given = models.batch("right")
    encoded = torch.randn(models.ROWS, 6, 32, dtype=torch.float64)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 2 + [0] * 4])
    options = {"encoder_hidden_states": encoded, "encoder_attention_mask": mask}
    out, reasons = said(models.logits, patched_copy(model), given, **options)
    assert reasons == (reason("RoFormerSelfAttention", "attention to an encoder") if "roformer" in name else [])
    assert close(out, models.logits(model, given, **options))


OF_BERT = {"attention_probs_dropout_prob": 0.5, "hidden_dropout_prob": 0.2}
DROPOUT = dict.fromkeys(("roformer", "deberta-v2", "bert"), OF_BERT)
DROPOUT |= {"t5": {"dropout_rate": 0.4}, "llama": {"attention_dropout": 0.5}}


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout(name):
    """Ours, from torch's generator: a seed gives the same numbers, another seed others, evaluation none."""
    model = models.build(models.FAMILIES[name], **DROPOUT[name])
    patched = patched_copy(model)
    given = models.batch("right")
    assert close(models.logits(patched, given), models.logits(model, given))
    patched.train()
    found = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        result, reasons = said(models.outputs_and_gradients, patched, given)
        assert reasons == []
        found.append(result["logits"])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


@pytest.mark.parametrize("name", ["roformer", "roformer, causal", "roformer, rotated values", "t5", "llama", "gemma2"])
def test_few_queries(name):
    """They go to torch's attention, and no warning is needed."""
    model = models.build(models.FAMILIES[name])
    given = models.batch("right", tokens=9)
    want = models.outputs_and_gradients(model, given)
    got, reasons = said(models.outputs_and_gradients, patched_copy(model), given)
    assert reasons == []
    largest = max(x.abs().max() for key, x in want.items() if key != "logits")
    for key, value in want.items():
        scale = value.abs().max() if key == "logits" else largest
        assert (got[key] - value).abs().max() <= tol.GRADIENT_F64 * scale, key


def test_an_argument_that_is_not_known():
    """A call with one is computed by transformers; a function with one is not replaced."""
    model = models.build(models.FAMILIES["roformer"])
    patched = patched_copy(model)
    layer, theirs = (m.roformer.encoder.layer[0].attention.self for m in (patched, model))
    states, positions = torch.randn(1, 20, 32, dtype=torch.float64), torch.randn(1, 1, 20, 8, dtype=torch.float64)
    (out, _), reasons = said(layer, states, None, positions, invented=torch.ones(2))
    assert reasons == reason("RoFormerSelfAttention", "attention with the argument invented")
    assert torch.equal(out, theirs(states, None, positions)[0])


@pytest.mark.parametrize(
    ("module", "name"),
    [("roformer", "roformer"), ("t5", "t5"), ("deberta", "deberta-v2"), ("mpnet", "mpnet"), ("interface", "llama")],
)
def test_a_version_with_other_arguments_is_refused(module, name, monkeypatch):
    """As of a later transformers; each function is one that is replaced or called."""
    module = importlib.import_module(f"roformer_cpp._patched.{module}")
    assert {known.__qualname__ for known in module.SIGNATURES} == KNOWN[name]
    for known, forms in module.SIGNATURES.items():

        def future(hidden_states, of_the_future, **kwargs):
            raise AssertionError

        future.__qualname__ = known.__qualname__
        monkeypatch.setattr(module, "SIGNATURES", {future: forms})
        model = models.build(models.FAMILIES[name])
        before = [type(m) for m in model.modules()]
        rule = f"[patch] transformers must be a version whose {known.__qualname__} is known, got"
        with pytest.raises(ValueError, match=f"^{re.escape(rule)}.*of_the_future"):
            roformer_cpp.patch(model)
        assert before == [type(m) for m in model.modules()] and model.config._attn_implementation != "roformer"


def test_the_tested_versions_are_those_that_are_stated():
    """scripts/test_transformers.sh writes the record."""
    root = Path(__file__).resolve().parents[2]
    oldest, newest = json.loads((root / "tests/python/transformers_versions.json").read_text())
    (low_1, low_2), (high_1, high_2) = (map(int, version.split(".")[:2]) for version in (oldest, newest))
    stated = re.findall(r'"(transformers[^"]*)"', (root / "pyproject.toml").read_text())
    assert (low_1, high_1) == (5, 5) and set(stated) == {f"transformers>=5.{low_2},<5.{high_2 + 1}"}
    assert f"transformers 5.{low_2} to 5.{high_2} are supported" in (root / "docs/python.md").read_text()
    assert low_2 <= int(transformers.__version__.split(".")[1]) <= high_2


@pytest.mark.parametrize(("name", "padding"), [("Splinter", "none"), ("Splinter", "left"), ("MarkupLM", "left")])
def test_models_that_take_softmaxes_in_float32(name, padding):
    """Their functions for eager attention are ones that the kernel computes; no mask means all keys, and MarkupLM's
    mask adds -10000."""
    torch.manual_seed(0)
    head = getattr(transformers, f"{name}Model")
    model = head(head.config_class(vocab_size=models.VOCAB, pad_token_id=0, **models._BERT)).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape))
    for tokens in (models.TOKENS, 8):
        given = models.batch(padding, tokens)
        out, reasons = said(patched_copy(model), given.ids, attention_mask=given.mask)
        want = model(given.ids, attention_mask=given.mask)
        rows = given.ids.bool() if given.mask is None else given.mask.bool()
        assert reasons == []
        assert close(out.last_hidden_state[rows], want.last_hidden_state[rows], tol.T4_MAX)
