"""roformer_cpp.patch and unpatch: what they change and restore, what transformers goes on to compute, bad input."""

import copy
import importlib.util
import io
import json
import re
from pathlib import Path

import pytest
import torch

import roformer_cpp
import tolerances as tol

transformers = pytest.importorskip("transformers")

import patch_models as models  # noqa: E402
from patch_models import close, patched_copy, said  # noqa: E402

SOME = ["roformer", "t5", "deberta-v2", "llama"]


@pytest.fixture(params=SOME)
def model(request):
    return models.build(models.FAMILIES[request.param])


def classes(model):
    return [type(module) for module in model.modules()]


def implementations(model):
    return [m.config._attn_implementation for m in model.modules() if isinstance(m, transformers.PreTrainedModel)]


def test_unpatch_restores(model):
    given = models.batch("right")
    before = models.logits(model, given)
    had = classes(model), implementations(model), dict(vars(model))
    assert roformer_cpp.patch(model) is model
    assert set(implementations(model)) == {"roformer"}
    once = classes(model), implementations(model)
    roformer_cpp.patch(model)
    assert (classes(model), implementations(model)) == once
    assert close(models.logits(model, given), before)
    assert roformer_cpp.unpatch(model) is model
    assert (classes(model), implementations(model)) == had[:2] and vars(model) == had[2]
    assert torch.equal(models.logits(model, given), before)
    roformer_cpp.unpatch(model)
    assert (classes(model), implementations(model)) == had[:2]


def test_parts_of_models_and_modules_that_contain_some():
    model = models.build(models.FAMILIES["llama"])
    roformer_cpp.patch(model.model)
    roformer_cpp.patch(model)
    roformer_cpp.unpatch(model)
    assert set(implementations(model)) == {"sdpa"}
    model = torch.nn.ModuleDict({name: models.build(models.FAMILIES[name]) for name in ("bert", "roformer")})
    roformer_cpp.patch(model)
    assert set(implementations(model)) == {"roformer"}
    roformer_cpp.unpatch(model)
    assert set(implementations(model)) == {"sdpa", "eager"}


def test_copies(model):
    """deepcopy and pickle of a patched model are patched, and can be unpatched."""
    given = models.batch("right")
    patched = patched_copy(model)
    want = models.logits(patched, given)
    file = io.BytesIO()
    torch.save(patched, file)
    file.seek(0)
    for again in (copy.deepcopy(patched), torch.load(file, weights_only=False)):
        assert classes(again) == classes(patched)
        assert torch.equal(models.logits(again, given), want)
        roformer_cpp.unpatch(again)
        assert classes(again) == classes(model)
        assert torch.equal(models.logits(again, given), models.logits(model, given))
    assert set(implementations(patched)) == {"roformer"}


def test_saved_models_do_not_name_us(model, tmp_path):
    patched_copy(model).save_pretrained(tmp_path / "patched")
    model.save_pretrained(tmp_path / "plain")
    texts = [json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("patched", "plain")]
    assert texts[0] == texts[1]
    again, plain = (type(model).from_pretrained(tmp_path / folder).eval() for folder in ("patched", "plain"))
    assert implementations(again) == implementations(model)
    assert torch.equal(models.logits(again, models.batch("none")), models.logits(plain, models.batch("none")))


def test_by_name(model, tmp_path):
    """attn_implementation="roformer" without patch: for families without the interface, what transformers computes."""
    model.save_pretrained(tmp_path)
    roformer_cpp.register_attention()
    named = type(model).from_pretrained(tmp_path, dtype=torch.float64, attn_implementation="roformer").eval()
    for padding in ("none", "left"):
        given = models.batch(padding)
        out, reasons = said(models.logits, named, given)
        assert close(out, models.logits(model, given))
        assert reasons == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "roformer", "t5"])
def test_compiled(name):
    """In one graph where the attention interface is taken; the others break it at their attention."""
    model = models.build(models.FAMILIES[name])
    compiled = torch.compile(patched_copy(model), backend="aot_eager", fullgraph=name not in ("roformer", "deberta-v2"))
    for padding in ("right",) if name == "t5" else ("none", "right"):
        given = models.batch(padding)
        with torch.no_grad():
            assert close(models.logits(compiled, given), models.logits(model, given))


def test_inference_mode(model):
    with torch.inference_mode():
        given = models.batch("right")
        assert close(models.logits(patched_copy(model), given), models.logits(model, given))


def test_gradient_checkpointing(model):
    patched = patched_copy(model).train()
    patched.config.use_cache = False
    for module in patched.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    want = models.outputs_and_gradients(patched, models.batch("right"))
    for reentrant in (False, True):
        patched.activation_checkpointing_enable({"use_reentrant": reentrant})
        got = models.outputs_and_gradients(patched, models.batch("right"))
        assert got.keys() == want.keys()
        for name, value in want.items():
            assert (got[name] - value).abs().max() <= tol.GRADIENT_F64 * max(value.abs().max(), 1), name


def test_packed_sequences():
    """Positions that start again: a token attends to its own sequence only."""
    model = models.build(models.FAMILIES["llama"])
    patched = patched_copy(model)
    ids = models.batch("none").ids[:1]
    positions = torch.cat([torch.arange(7), torch.arange(models.TOKENS - 7)])[None]
    out = patched(ids, position_ids=positions, use_cache=False).logits
    assert close(out, model(ids, position_ids=positions, use_cache=False).logits)
    assert close(out[:, 7:], model(ids[:, 7:]).logits)


def test_the_families_that_are_refused():
    """The tutorial lists those of texts. Files without the interface are few; only they are imported."""
    from transformers.models.auto import modeling_auto as auto

    from roformer_cpp._patched.masks import modeling_of

    page = (Path(__file__).parents[2] / "docs/tutorials/patch-transformers.md").read_text()
    sentence = r"Of transformers (\S+), the families of texts that are refused are ([^.]*)\."
    version, listed = re.search(sentence, page).groups()
    if not transformers.__version__.startswith(version):
        pytest.skip(f"the list is that of transformers {version}")
    kinds = ("MASKED_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "TEXT_ENCODING")
    refused = set()
    for family, names in (x for kind in kinds for x in getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES").items()):
        name = names if isinstance(names, str) else names[0]
        module = f"transformers.{transformers._class_to_module[name].removeprefix('transformers.')}"
        has_interface = "ALL_ATTENTION_FUNCTIONS" in Path(importlib.util.find_spec(module).origin).read_text()
        if has_interface or module in importlib.import_module("roformer_cpp.patch")._FAMILIES:
            continue
        cls = getattr(transformers, name)
        if modeling_of(cls) is None and set(cls.config_class.sub_configs) <= {"attn_config"}:  # of no other family
            refused.add(family)
    assert refused == set(re.findall("`(.*?)`", listed))


def test_the_page_of_model_types():
    """Each type of the auto classes once; those whose file has the interface are not refused. Nothing is imported."""
    from transformers.models.auto import modeling_auto as auto

    page = (Path(__file__).parents[2] / "docs/patch-families.md").read_text()
    if f"Of transformers {transformers.__version__}," not in page:
        pytest.skip("the page is of another version of transformers (scripts/patch_page.py)")
    results = {}
    for result, types in re.findall(r"^\| (\w+).*\| \d+ \| (.*) \|$", page, re.MULTILINE):
        for model_type in re.findall("`(.*?)`", types):
            assert results.setdefault(model_type, result) == result, model_type
    kinds = ("", "_FOR_MASKED_LM", "_FOR_CAUSAL_LM", "_FOR_SEQ_TO_SEQ_CAUSAL_LM", "_FOR_TEXT_ENCODING")
    names = {x: name for kind in kinds[::-1] for x, name in getattr(auto, f"MODEL{kind}_MAPPING_NAMES").items()}
    assert results.keys() == names.keys()
    for model_type in ("bert", "llama", "t5", "gpt2", "bart", "gpt_oss"):
        assert results[model_type] == "patched"
    for model_type in ("bloom", "falcon", "gptj", "xlnet", "mamba", "resnet"):
        assert results[model_type] == "refused"


def test_bad_input():
    with pytest.raises(TypeError, match=r"^\[patch\] model must be a torch.nn.Module, got int$"):
        roformer_cpp.patch(3)
    with pytest.raises(TypeError, match=r"^\[unpatch\] model must be a torch.nn.Module, got str$"):
        roformer_cpp.unpatch("model")
    rule = "[patch] model must be a model of transformers, or contain one, got Linear"
    with pytest.raises(ValueError, match=re.escape(rule)):
        roformer_cpp.patch(torch.nn.Linear(2, 2))
    bloom = transformers.BloomModel(transformers.BloomConfig(vocab_size=5, hidden_size=8, n_layer=1, n_head=2))
    rule = "[patch] model must take transformers' attention interface, or be a RoFormer, T5, MT5, Switch "
    rule += "Transformers, DeBERTa or MPNet, "
    with pytest.raises(ValueError, match="^" + re.escape(rule + "got BloomModel") + "$"):
        roformer_cpp.patch(bloom)
    assert roformer_cpp.unpatch(bloom) is bloom
