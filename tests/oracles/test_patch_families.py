"""Patched models of transformers beside unpatched ones: outputs and gradients of every family, by float64 and by the
rule for low precision, and continuations with a cache."""

import pytest
import torch

import tolerances as tol

pytest.importorskip("transformers")

import patch_models as models
from roformer_cpp._patched import attend as attend_module
from roformer_cpp._patched import deberta, interface, roformer

# Every family with left padding, some with each; and each once in low precision.
PADDINGS = [(name, "left") for name in models.FAMILIES]
PADDINGS += [(name, padding) for name in ("roformer", "t5", "deberta-v2", "llama") for padding in ("none", "right")]
LOW = [torch.float32, torch.bfloat16]
PRECISIONS = [(name, LOW[i % 2], "none" if i % 4 < 2 else "left") for i, name in enumerate(models.FAMILIES)]
CACHES = [(name, "dynamic") for name in models.WITH_DECODER]
CACHES += [(name, cache) for name in ("llama", "gemma2", "t5") for cache in ("static", "none")]


@pytest.fixture
def calls(monkeypatch):
    """The calls that our attention computes."""
    seen = []

    def counted(*args, **kwargs):
        seen.append(kwargs)
        return attend_module.attend(*args, **kwargs)

    for module in (interface, roformer, deberta):
        monkeypatch.setattr(module, "attend", counted)
    return seen


def pair(name, dtype=torch.float64):
    """A model, and the same patched."""
    model = models.build(models.FAMILIES[name], dtype)
    return model, models.patched_copy(model)


def assert_close(ours, theirs):
    """Relative to the largest number of a tensor; gradients that nearly vanish, to the model's largest."""
    assert ours.keys() == theirs.keys()
    largest = max(x.abs().max() for name, x in theirs.items() if name != "logits")
    for name, want in theirs.items():
        scale = want.abs().max() if name == "logits" else max(want.abs().max(), tol.GRADIENT_FLOOR * largest)
        assert ours[name].dtype == want.dtype and ours[name].shape == want.shape
        bound = tol.MODEL_F64 if name == "logits" else tol.GRADIENT_F64
        assert (ours[name] - want).abs().max() <= bound * scale, name


@pytest.mark.parametrize(("name", "padding"), PADDINGS)
def test_float64(name, padding, calls):
    model, patched = pair(name)
    given = models.batch(padding)
    theirs = models.outputs_and_gradients(model, given)
    assert not calls
    ours = models.outputs_and_gradients(patched, given)
    assert len(calls) == models.FAMILIES[name].layers
    assert_close(ours, theirs)


def error(got, want):
    """The norm over all gradients, or of the logits."""
    return torch.sqrt(sum(((got[name].double() - want[name].double()) ** 2).sum() for name in want))


@pytest.mark.parametrize(("name", "dtype", "padding"), PRECISIONS)
def test_low_precision(name, dtype, padding, calls):
    model, patched = pair(name, dtype)
    given = models.batch(padding)
    truth = models.outputs_and_gradients(models.copy_of(model, torch.float64), given)
    theirs = models.outputs_and_gradients(model, given)
    ours = models.outputs_and_gradients(patched, given)
    assert len(calls) == models.FAMILIES[name].layers
    for names in (["logits"], [name for name in truth if name != "logits"]):
        got, plain, want = ({name: side[name] for name in names} for side in (ours, theirs, truth))
        assert error(got, want) <= tol.LOW_PRECISION_RATIO * error(plain, want)


@pytest.mark.parametrize(("name", "cache"), CACHES)
def test_continuations(name, cache, calls):
    """Greedy, of prompts with left padding: the same tokens, and the same logits of each step."""
    model, patched = pair(name)
    given = models.batch("left")
    options = dict(max_new_tokens=9, do_sample=False, output_logits=True, return_dict_in_generate=True)
    options |= {"use_cache": False} if cache == "none" else {"cache_implementation": cache, "disable_compile": True}
    options |= {"attention_mask": given.mask, "min_new_tokens": 9}
    theirs, ours = (each.generate(given.ids, **options) for each in (model, patched))
    assert len(calls) >= 2 or cache == "static"  # of the prompt; steps have one query
    assert torch.equal(ours.sequences, theirs.sequences)
    for got, want in zip(ours.logits, theirs.logits, strict=True):
        assert models.close(got, want)
