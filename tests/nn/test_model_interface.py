"""What a user of models meets first: names of inputs, masks, what is printed, warnings, errors of loading, and what the
process keeps of it.
"""

import fnmatch
import importlib.util
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers

import roformer_cpp
import tolerances as tol
from encoding_case import TINY_MODEL

SIZES = TINY_MODEL | {"hidden_size": 24, "max_position_embeddings": 16}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]


def build(head="RoFormerForMaskedLM", seed=0, **changes):
    return roformer_cpp.build_model(SIZES | changes, head, seed)


# ---- inputs ----


def test_the_output_of_a_tokenizer_is_the_input_of_a_model(tmp_path):
    """transformers computes the same from the same encoded texts."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    encoded = tokenizer(["a b", "a"], ["c", "d b c a"], padding=True, return_tensors="pt")
    assert set(encoded) == {"input_ids", "attention_mask", "token_type_ids"}
    model = build()
    model.save(tmp_path)
    theirs = transformers.RoFormerForMaskedLM.from_pretrained(tmp_path).eval()(**encoded).logits
    shown = encoded["attention_mask"].bool()
    ours = model(**encoded)["logits"]
    assert (ours - theirs)[shown].abs().max() <= tol.T4_MAX * theirs[shown].abs().max()
    assert torch.equal(model.encode(**encoded), model(**encoded)["hidden"])
    hint = r'input_ids must be a tensor, got list. Hint: tokenizer\(.., return_tensors="pt"'
    with pytest.raises(TypeError, match=hint):
        model(**tokenizer(["a b"]))


IDS = torch.tensor([[5, 6, 7, 8], [5, 6, 1, 2]])
SHOWN = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32])
def test_masks_of_0_and_1(dtype):
    model = build()
    assert torch.equal(model(IDS, SHOWN.to(dtype))["logits"], model(IDS, SHOWN)["logits"])
    assert not torch.equal(model(IDS, SHOWN.to(dtype))["logits"], model(IDS)["logits"])


ADDED = torch.where(SHOWN.bool(), 0.0, -torch.inf)


@pytest.mark.parametrize("mask", [ADDED, ADDED.clamp(-1e4).bfloat16(), torch.zeros(2, 4), SHOWN.double()])
def test_masks_of_numbers_are_refused(mask):
    name = {torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16"}[mask.dtype]
    rule = f"the mask must be bool, or integers 0 and 1, got {name}. "
    rule += "Hint: .* pass mask == 0; for one of 0.0 and 1.0, mask != 0"
    with pytest.raises(ValueError, match=rf"\[input\] {rule}"):
        build()(IDS, mask)
    crossed = build(is_decoder=True, add_cross_attention=True)
    with pytest.raises(ValueError, match=f"the encoder {rule[4:]}"):
        crossed(IDS, encoder_hidden=torch.zeros(2, 4, 24), encoder_mask=mask)
    qkv = [torch.zeros(2, 4, 2, 8)] * 3
    with pytest.raises(ValueError, match=f"mask must be bool, .*got {mask.dtype}.*give mask == 0"):
        roformer_cpp.attention(*qkv, mask=mask)


@pytest.mark.parametrize("number", [-1, -10000, 2])
def test_integers_other_than_0_and_1_are_refused(number):
    mask = SHOWN.clone()
    mask[1, 2] = number
    with pytest.raises(ValueError, match=rf"the mask must be in 0\.\.1, got {number} at row 1, column 2"):
        build()(IDS, mask)


# ---- what is printed ----


def test_models_say_what_they_are():
    model = build("RoFormerForMaskedLM", position_encoding=["rope", "alibi"])
    numbers = sum(p.numel() for p in model.parameters())
    text = "Model(RfEncoderForMaskedLM, rope+alibi, 2 layers, hidden_size 24, 2 heads, vocab_size 37, "
    text += f"{numbers:,} parameters, evaluation mode)"
    assert repr(model) == text
    assert repr(model.train()) == text.replace("evaluation", "training")
    assert model.training and not model.eval().training
    assert "RoFormerForMaskedLM, rope," in repr(build())
    assert "BertModel, learned," in repr(build("BertModel", model_type="bert"))


def test_encodings_and_terms_say_what_they_are():
    t5 = roformer_cpp.encoding("t5", num_attention_heads=2)
    assert repr(t5) == "Encoding(t5, 64 parameters)"
    places = "positions=int64 [1, 5], key_positions=int64 [1, 5]"
    terms = t5.terms(torch.arange(5))
    table = f"DistanceTable(float32 {list(terms.bias.rows.shape)}, distances {terms.bias.lo}..{terms.bias.hi})"
    assert repr(terms) == f"Terms(bias={table}, scale=1.0, {places})"
    rope = roformer_cpp.encoding("rope", head_dim=8).terms(torch.arange(5))
    rotation = "Rotation(float32 [1, 5, 4])"
    assert repr(rope) == f"Terms(query={rotation}, key={rotation}, layout='pairs', {places})"
    assert repr(roformer_cpp.Terms(reset_row=torch.zeros(3))) == "Terms(reset_row=float32 [3])"


def test_states_say_what_they_are():
    layer = roformer_cpp.LinearAttention(8, feature_map="relu", seed=3)
    assert repr(layer) == "LinearAttention(head_dim=8, layer=0, feature_map='relu', seed=3)"
    state = roformer_cpp.LinearAttentionState()
    assert repr(state) == "LinearAttentionState(no key yet)"
    x = torch.zeros(1, 3, 2, 8)
    with torch.no_grad():
        roformer_cpp.linear_attention(x, x, x, is_causal=True, state=state, kernel="explicit")
    assert repr(state) == "LinearAttentionState(sum=float32 [1, 2, 8, 8], norm=float32 [1, 2, 8, 1])"
    model = build("RoFormerForCausalLM", is_decoder=True)
    cache = model.new_cache()
    model(IDS, cache=cache)
    assert repr(cache) == "KeyValueCache(4 tokens of 2 rows, 2 layers)"


# ---- loading ----


def test_a_name_of_the_hub_has_a_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    opens = [roformer_cpp.load_model, roformer_cpp.load_translation_model, roformer_cpp.bake, roformer_cpp.Engine]
    opens += [roformer_cpp.SentenceTransformer, roformer_cpp.CrossEncoder, roformer_cpp.Tokenizer]
    opens += [lambda name: roformer_cpp.export_onnx(name, "model.onnx")]
    find_spec = importlib.util.find_spec
    for has_hub in (True, False):
        if not has_hub:  # as where the package is not installed
            monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "huggingface_hub" and find_spec(name))
        for name in ("junnyu/roformer_chinese_base", "gpt2"):
            for opened in opens:
                with pytest.raises(FileNotFoundError, match=rf"got {name}, which does not exist.* hf download {name}"):
                    opened(name)
    for path in ("/no/such/place", "https://huggingface.co/a/b", "../a", "a b/c", "gone.gguf"):
        with pytest.raises(FileNotFoundError, match=re.escape(f"got {path}, which does not exist")) as caught:
            roformer_cpp.load_model(path)
        assert "hf download" not in str(caught.value)
    (tmp_path / "file").write_text("{}")
    with pytest.raises(RuntimeError, match="got file, which is not a directory"):
        roformer_cpp.load_model("file")


def test_ids_of_the_hub_are_downloaded_where_huggingface_hub_is_installed(tmp_path, monkeypatch):
    """By a stand-in for it; the cache of this machine is asked first."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    build().save(tmp_path / "there")
    asked, patterns = [], []

    def download(name, allow_patterns):
        asked.append(name)
        patterns.extend(allow_patterns)
        return str(tmp_path / "there")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    roformer_cpp.load_model("owner/name")
    assert asked == ["owner/name"]
    for file in ("config.json", "1_Pooling/config.json", "model.safetensors", "spm.model", "chat_template.jinja"):
        assert any(fnmatch.fnmatch(file, pattern) for pattern in patterns), file
    cached = tmp_path / "cache" / "models--owner--name"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0123")
    (tmp_path / "there").rename((cached / "snapshots").mkdir() or cached / "snapshots" / "0123")
    roformer_cpp.load_model("owner/name")
    assert asked == ["owner/name"]


def test_a_key_that_nobody_knows_is_a_warning_of_python(tmp_path):
    build().save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"frobnicate": 1}))
    with pytest.warns(UserWarning, match='"frobnicate": 1'):
        roformer_cpp.load_model(tmp_path)


# ---- the process ----


def test_building_leaves_torchs_generator_as_it_was():
    torch.manual_seed(11)
    torch.randn(3)  # an odd number: the generator holds a second normal number
    state = torch.get_rng_state()
    first, second = build(seed=5), build(seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match="hidden_size"):
        build(hidden_size=23)
    assert torch.equal(torch.get_rng_state(), state)
    ours, same = dict(first.named_parameters()), dict(second.named_parameters())
    other = dict(build(seed=6).named_parameters())
    key = "cls.predictions.transform.dense.weight"
    assert all(torch.equal(ours[name], same[name]) for name in ours) and not torch.equal(ours[key], other[key])


def test_models_built_at_once_are_those_of_their_seeds():
    expected = [dict(build(seed=seed).named_parameters()) for seed in range(4)]
    torch.manual_seed(11)
    after = torch.randn(3)
    torch.manual_seed(11)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            for made, parameters in zip(pool.map(lambda seed: build(seed=seed), range(4)), expected, strict=True):
                assert all(torch.equal(value, parameters[name]) for name, value in made.named_parameters())
    assert torch.equal(torch.randn(3), after)


def test_a_seed_gives_the_numbers_of_torchs_generator():
    model = build(seed=5)
    torch.manual_seed(5)
    weight = torch.empty(37, 24).normal_(0, 0.02)
    weight[0] = 0  # the padding token
    assert torch.equal(dict(model.named_parameters())["roformer.embeddings.word_embeddings.weight"], weight)
