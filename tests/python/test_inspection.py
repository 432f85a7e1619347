"""Attention to look at: weights beside NumPy, parts of scores that sum up, and the page in Chromium."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

import browser_case
import roformer_cpp
from encoding_case import TINY_IDS, TINY_MODEL
from graft_models import IDS, make
from roformer_cpp import _program
from roformer_cpp.plot_attention import main as plot_attention
from tolerances import SCORE_PARTS, SCORE_PARTS_F32, T1_ATOL, T1_RTOL

CLOSE = {"atol": T1_ATOL, "rtol": T1_RTOL}
SHAPE = {"num_attention_heads": 4, "head_dim": 8, "hidden_size": 32}


def qkv(tokens=11, keys=11, key_heads=4):
    generator = torch.Generator().manual_seed(0)
    sizes = ((tokens, 4), (keys, key_heads), (keys, key_heads))
    return [torch.randn(2, *size, 8, dtype=torch.float64, generator=generator) for size in sizes]


def test_weights_are_the_softmax_of_the_scores():
    q, k, v = qkv(tokens=5, key_heads=2)
    terms = roformer_cpp.encoding("alibi", **SHAPE).double().terms(torch.arange(6, 11), torch.arange(11),
                                                                   dtype=torch.float64)  # fmt: skip
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[0, :2] = False
    out, weights = roformer_cpp.attention(q, k, v, terms, is_causal=True, mask=mask, return_weights=True)
    scores = np.einsum("bthd,bshd->bhts", q.numpy(), k.repeat_interleave(2, 2).numpy()) / np.sqrt(8)
    distance = np.arange(6, 11)[:, None] - np.arange(11)
    scores -= 2.0 ** (-2 * np.arange(1, 5))[:, None, None] * np.abs(distance)
    scores = np.where((distance >= 0) & mask.numpy()[:, None, None], scores, -np.inf)
    expected = np.exp(scores - scores.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, **CLOSE)
    np.testing.assert_allclose(out, np.einsum("bhts,bshd->bthd", expected, v.repeat_interleave(2, 2)), **CLOSE)
    first = {name: x.transpose(1, 2) for name, x in (("q", q), ("k", k), ("v", v))}
    again = roformer_cpp.attention(**first, terms=terms, is_causal=True, mask=mask, return_weights=True,
                                   heads_first=True)  # fmt: skip
    assert torch.equal(again[1], weights) and torch.equal(again[0], out.transpose(1, 2))


ALL = [each for each in roformer_cpp.encodings() if each["terms"] != "-"]
KEYS = {"axial": {"grid_width": 4}, "axial-nd": {"grid_shape": [4, 4]}, "rope-mixed": {"grid_width": 4},
        "mrope": {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}}}  # fmt: skip


@pytest.mark.parametrize("row", ALL, ids=lambda row: row["name"])
def test_weights_of_every_encoding(row):
    q, k, v = qkv()
    encoding = roformer_cpp.encoding(row["name"], **SHAPE, **KEYS.get(row["name"], {}), is_decoder=True).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_(0, 0.5)
    hidden, weights = torch.randn(2, 11, 32, dtype=torch.float64), [torch.randn(32, 32).double() for _ in range(3)]
    positions = torch.arange(11)
    if row["name"] == "mrope":
        positions = positions[None, :, None].expand(1, 11, 3)
    terms = encoding.terms(positions, projections=weights, hidden_states=hidden, queries=q, keys=k, dtype=q.dtype)
    out, weights = roformer_cpp.attention(q, k, v, terms, is_causal=True, return_weights=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE)
    assert (weights.triu(1) == 0).all()
    if terms.value is None and terms.value_table is None:
        torch.testing.assert_close(torch.einsum("bhts,bshd->bthd", weights, v), out, **CLOSE)


@pytest.mark.parametrize("family", ["Llama", "Gemma3", "ModernBert", "Bert"])
def test_weights_of_a_model_are_those_of_transformers(family):
    model = make(family)
    found = roformer_cpp.inspect(model, IDS[0])
    assert not hasattr(model, "position_encoding") and found.tokens == [str(i) for i in IDS[0].tolist()]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(IDS[:1], output_attentions=True).attentions
    assert len(found.layers) == len(expected) == 4
    for layer, theirs in zip(found.layers, expected, strict=True):
        assert (layer.weights - theirs[0]).abs().max() <= 1e-5
        parts = (layer.content + layer.encoding).nan_to_num(-torch.inf).softmax(-1)
        torch.testing.assert_close(parts, layer.weights, **SCORE_PARTS)
        closed = layer.weights == 0
        assert torch.equal(layer.content.isnan(), closed)
        assert family == "Bert" or layer.encoding[~closed].abs().max() > 0.1
        assert family != "Bert" or layer.encoding[~closed].abs().max() < 1e-9


def test_the_encodings_part_is_that_of_its_terms():
    """Of alibi, in a causal model of transformers and in ours."""
    llama = roformer_cpp.graft(make("Llama"), "alibi")
    ours = roformer_cpp.build_model({"model_type": "rf_encoder", **TINY_MODEL, "position_encoding": "alibi"})
    for model, ids, heads in ((llama, IDS[0], 4), (ours, TINY_IDS[0], 2)):  # each has as many layers
        found = roformer_cpp.inspect(model, ids)
        assert len(found.layers) == heads
        distance = (torch.arange(len(ids))[:, None] - torch.arange(len(ids))).abs()
        slopes = 2.0 ** (-8 / heads * torch.arange(1.0, heads + 1, dtype=torch.float64))[:, None, None]
        for layer in found.layers:
            is_open = layer.weights > 0
            assert model is llama or is_open.all()
            torch.testing.assert_close(layer.encoding[is_open], (-slopes * distance)[is_open], **SCORE_PARTS_F32)


@pytest.mark.parametrize("make_model", [lambda: make("Llama"), lambda: roformer_cpp.build_model(TINY_MODEL)])
def test_inspect_leaves_other_threads_and_modes_alone(make_model):
    model = make_model()
    next(model.children()).train()
    modes = [part.training for part in model.modules()]
    expected = roformer_cpp.inspect(model, TINY_IDS[0])
    assert [part.training for part in model.modules()] == modes and not model._forward_hooks
    stop = threading.Event()

    def attend():
        while not stop.is_set():
            roformer_cpp.attention(*qkv())
            model(TINY_IDS)

    with ThreadPoolExecutor() as pool:
        other = pool.submit(attend)
        try:
            for _ in range(5):
                found = roformer_cpp.inspect(model, TINY_IDS[0])
                assert len(found.layers) == len(expected.layers)
                for x, y in zip(found.layers, expected.layers, strict=True):
                    assert torch.equal(x.weights, y.weights)
        finally:
            stop.set()
        other.result()


def test_what_is_refused():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"return_weights must be without dropout .*, got a dropout of 0.5"):
        roformer_cpp.attention(q, k, v, dropout=0.5, return_weights=True)
    inside = "must compute attention by roformer_cpp.attention, .* got"
    text, one = "text must be a text or its token ids, got", "text must be one text of at least one token, got"
    for model, given, error, message in (
        (torch.nn.Embedding(9, 3), [1, 2], ValueError, f"{inside} Embedding$"),
        (torch.nn.Linear(3, 4), [1, 2], ValueError, rf"{inside} Linear: mat1 and mat2 must have .*$"),
        (torch.nn.Module(), [1, 2], ValueError, rf"{inside} Module: .* is missing the required \"forward\" function$"),
        (roformer_cpp.build_model(TINY_MODEL), [99], ValueError, r"token ids must be in 0\.\.36, got 99"),
        (make("Llama"), ["a"], TypeError, rf"{text} \['a'\]$"),
        (make("Llama"), [1.5, 2.0], TypeError, rf"{text} \[1.5, 2.0\]$"),
        (make("Llama"), None, TypeError, f"{text} None$"),
        (make("Llama"), "abc", TypeError, "tokenizer must be given for a text, got None"),
        (make("Llama"), [], ValueError, rf"{one} \[0\]"),
        (make("Llama"), IDS, ValueError, rf"{one} \[2, 40\]"),
        ("folder", "abc", TypeError, r"model must be a torch.nn.Module, got str"),
    ):
        with pytest.raises(error, match=message):
            roformer_cpp.inspect(model, given)


def test_the_command_refuses(monkeypatch, capsys):
    for graft in ("{bad", "3"):
        with pytest.raises(SystemExit) as end:
            plot_attention(["folder", "abc", "--graft", graft])
        assert end.value.code == 2
        assert capsys.readouterr().err.endswith(f"argument --graft: must be a JSON object, got '{graft}'\n")
    monkeypatch.setattr("sys.argv", ["roformer", "plot-attention", "no-such-folder", "abc"])
    with pytest.raises(SystemExit) as end:
        _program.main()
    assert end.value.code == 1 and "no-such-folder" in capsys.readouterr().err


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a Llama whose tokens are words, one of them markup."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    words = ["<unk>", *(f"w{i}" for i in range(97)), "<img/src=x/onerror=document.title=1>", "cat"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    make("Llama").save_pretrained(folder)
    text = "w3 <img/src=x/onerror=document.title=1> cat w5 cat"
    assert plot_attention([str(folder), text, "--output", str(folder / "page.html")]) == 0
    with browser_case.chromium("1200,1400", "browser") as browser:
        browser.get((folder / "page.html").as_uri())
        yield browser, roformer_cpp.inspect(make("Llama").model, [4, 98, 99, 6, 99])


def rows(browser):
    return [row.text.split() for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]


def test_the_page_shows_the_numbers(page):
    browser, expected = page
    assert browser.title.startswith("Attention of ")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#heads button")) == 4
    for layer, head, query in ((0, 0, 4), (2, 3, 3), (3, 1, 1)):
        Select(browser.find_element(By.ID, "layer")).select_by_value(str(layer))
        browser.find_elements(By.CSS_SELECTOR, "#heads button")[head].click()
        browser.find_elements(By.CSS_SELECTOR, "#text button")[query].click()
        found = rows(browser)
        assert len(found) == query + 1
        for key, _, *numbers in found:
            for number, part in zip(numbers, vars(expected.layers[layer]).values(), strict=True):
                assert float(number) == pytest.approx(part[head, query, int(key)].item(), abs=2e-3)
        assert browser.find_element(By.ID, "name").text == f"Layer {layer}, head {head}"
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_the_page_draws_each_part_in_light_and_dark(page):
    browser, _ = page
    pictures = set()
    read = "return document.getElementById('big').toDataURL() + getComputedStyle(document.body).backgroundColor"
    for part in ("weights", "content", "encoding"):
        Select(browser.find_element(By.ID, "part")).select_by_value(part)
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            pictures.add(browser.execute_script(read))
    assert len(pictures) == 6
