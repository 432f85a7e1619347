"""roformer tokenize and add-words: rows of pairs, words of a dictionary, words added to a model."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import roformer_cpp
from cli_support import refused, results
from tolerances import MEAN_F32

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天气非常好我们在北京。，", "##天", "a", "##b", "非常"]
DIVIDED = ["天", "气", "非常", "好", "。"]
DICTIONARY = "今天 500 t\n天气 400 n\n非常 300 d\n我们 200 r\n北京 100 ns\n今天天气 1 n\n"


SIZES = dict(vocab_size=len(TOKENS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(token + "\n" for token in TOKENS), encoding="utf-8")
    (tmp_path / "dict.txt").write_text(DICTIONARY, encoding="utf-8")
    return path


def test_words_of_the_dictionary(vocab, tmp_path):
    for kind, tokens in (("bert", "天气非常好。"), ("roformer", DIVIDED), ("wobert", DIVIDED)):
        more = [] if kind == "bert" else ["--dict", tmp_path / "dict.txt"]
        (row,) = results("tokenize", "--vocab", vocab, "--kind", kind, *more, stdin="天气非常好。\n")
        assert row["tokens"] == ["[CLS]", *tokens, "[SEP]"]
    assert row["offsets"] == [[0, 0], [0, 1], [1, 2], [2, 4], [4, 5], [5, 6], [0, 0]]
    assert row["byte_offsets"] == [[3 * a, 3 * b] for a, b in row["offsets"]]


def test_pairs_truncation_and_padding(vocab):
    options = ["--vocab", vocab, "--pairs", "--max-length", "7", "--truncation", "only-second"]
    rows = results("tokenize", *options, "--overflow", "--stride", "1", "--pad", stdin="今\t天气非常好\n北\t京\n")
    assert [row["line"] for row in rows] == [1, 1, 2]
    assert [row["tokens"] for row in rows] == [
        ["[CLS]", "今", "[SEP]", "天", "气", "非", "[SEP]"],
        ["[CLS]", "今", "[SEP]", "非", "常", "好", "[SEP]"],
        ["[CLS]", "北", "[SEP]", "京", "[SEP]", "[PAD]", "[PAD]"],
    ]
    assert rows[0]["types"] == [0, 0, 0, 1, 1, 1, 1]
    assert rows[2]["mask"] == [1, 1, 1, 1, 1, 0, 0]
    assert "line 2 with 0 tabs" in refused("tokenize", *options, stdin="a\tb\nno tab\n")
    own, model, words = ["--vocab", vocab], ["--model", vocab.parent], vocab.parent / "dict.txt"
    for given, code, rule in (
        ([*own, "--pad"], 1, "max_length"),
        ([*model, "--cased"], 2, "--vocab"),
        ([*own, "--max-length", "4"], 2, "--truncation"),
        *(([*own, side, "left"], 2, side) for side in ("--truncation-side", "--padding-side")),
        *(([*source, "--dict", words], 1, "dict.txt for bert") for source in (own, model)),
        *(([*source, "--user-dict", words], 1, "dict.txt for bert") for source in (own, model)),
    ):
        assert rule in refused("tokenize", *given, stdin="a\n", code=code)


@pytest.fixture
def model(vocab, tmp_path, request):
    """Its parameter: whether the embeddings are tied."""
    torch.manual_seed(3)
    config = transformers.BertConfig(**SIZES, max_position_embeddings=32)
    config.tie_word_embeddings = getattr(request, "param", True)
    made = transformers.BertForMaskedLM(config)
    torch.nn.init.normal_(made.cls.predictions.bias)
    made.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_bytes(vocab.read_bytes())
    return tmp_path / "model"


@pytest.mark.parametrize("settings", [{}, {"truncation_side": "left"}, {"padding_side": "left"}])
def test_sides_of_the_directory(model, settings):
    """By default; an option replaces them."""
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True} | settings
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.AutoTokenizer.from_pretrained(model)
    texts = ["今天气非常好", "我们", ""]
    given = ["tokenize", "--model", model, "--max-length", 5, "--truncation", "longest-first", "--pad"]
    for more in ([], ["--truncation-side", "right", "--padding-side", "left"]):
        if more:
            theirs.truncation_side, theirs.padding_side = "right", "left"
        expected = theirs(texts, truncation=True, max_length=5, padding="max_length")["input_ids"]
        assert [row["ids"] for row in results(*given, *more, stdin="".join(text + "\n" for text in texts))] == expected


def add_words(model, tmp_path, text, *more):
    """The report of add-words, and the tokens of the new vocabulary in tmp_path / "out"."""
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    given = ["--model", model, "--input", tmp_path / "corpus.txt", "--dict", tmp_path / "dict.txt"]
    (report,) = results("add-words", *given, "--output", tmp_path / "out", "--min-frequency", "1", *more)
    return report, (tmp_path / "out" / "vocab.txt").read_text(encoding="utf-8").splitlines()


def assert_means(before, after, tokens):
    """Each row is that of the old token, or the mean of those of its characters."""
    for token, row in zip(tokens, after.double(), strict=True):
        sources = [TOKENS.index(token)] if token in TOKENS else [TOKENS.index(char) for char in token]
        np.testing.assert_allclose(row, before.double()[sources].mean(0), rtol=MEAN_F32, atol=0)


@pytest.mark.parametrize("model", [True, False], ids=["tied", "untied"], indirect=True)
def test_added_words_begin_as_the_mean_of_their_characters(model, tmp_path):
    report, tokens = add_words(model, tmp_path, "今天天气非常好。我们在北京，北京天气好。\n", "--words", "2")
    kept = [token for token in TOKENS if token != "##天"]
    assert tokens[: len(kept)] == kept and len(tokens) == len(kept) + 2 == report["size"]
    assert report["weights"] is True and report["new_words"] == 2 and "北京" in tokens

    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, old in before.items():
        if old.shape[:1] != (len(TOKENS),):
            assert torch.equal(old, after[name]), name
        else:
            assert_means(old, after[name], tokens)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == len(tokens)
    missing = transformers.BertForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)[1]
    assert not missing["missing_keys"] and not missing["unexpected_keys"]
    (row,) = results("tokenize", "--model", tmp_path / "out", "--dict", tmp_path / "dict.txt", stdin="我们在北京\n")
    assert "北京" in row["tokens"]


def test_added_words_turn_as_the_mean_of_their_characters(model, tmp_path):
    """Frequencies that the encoding "complex" has for each word."""
    made = roformer_cpp.build_model(SIZES | {"position_encoding": "complex"})
    name = "position_encoding.word_freqs"
    with torch.no_grad():
        made.get_parameter(name).normal_(generator=torch.Generator().manual_seed(0))
    made.save(model)
    _, tokens = add_words(model, tmp_path, "我们在北京，北京天气好。\n", "--words", "2")
    before, after = (load_file(folder / "model.safetensors")[name] for folder in (model, tmp_path / "out"))
    assert "北京" in tokens and len(after) == len(tokens) != len(before)
    assert_means(before, after, tokens)


def test_added_tokens_stay_beside_added_words(model, tmp_path):
    """With their flags, behind the words; their embeddings are their own."""
    mask = transformers.AddedToken("[MASK]", lstrip=True, special=True)
    theirs = transformers.BertTokenizer.from_pretrained(model, mask_token=mask)
    theirs.add_special_tokens({"extra_special_tokens": ["<extra>"]})
    theirs.add_tokens([transformers.AddedToken("<more>", normalized=False, rstrip=True)])
    theirs.save_pretrained(model)
    grown = transformers.BertForMaskedLM.from_pretrained(model)
    grown.resize_token_embeddings(len(theirs))
    grown.save_pretrained(model)
    add_words(model, tmp_path, "我们在北京\n")

    text = "北京 [MASK] <extra><more>  好"
    (row,) = results("tokenize", "--model", tmp_path / "out", "--dict", tmp_path / "dict.txt", stdin=text + "\n")
    assert row["tokens"][1:-1] == ["北京", "[MASK]", "<extra>", "<more>", "好"]
    assert row["offsets"][1:-1] == [[0, 2], [2, 9], [10, 17], [17, 25], [25, 26]]
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert made.convert_tokens_to_ids(row["tokens"]) == row["ids"]
    before, after = load_file(model / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    for token in ("<extra>", "<more>"):
        new, old = made.convert_tokens_to_ids(token), theirs.convert_tokens_to_ids(token)
        assert torch.equal(after[name][new], before[name][old])


def test_add_words_refuses(model, tmp_path):
    (tmp_path / "corpus.txt").write_text("今天\n", encoding="utf-8")
    options = ["--model", model, "--input", tmp_path / "corpus.txt", "--dict", tmp_path / "dict.txt"]
    for more, rule in (([], "got none"), (["--words", "0"], "got 0"), (["--kind", "bert"], "got bert")):
        assert rule in refused("add-words", *options, "--output", tmp_path / "o", *more)
    assert "empty or a new directory" in refused("add-words", *options, "--output", model)
    assert not (tmp_path / "o").exists()
    with (model / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("zz\n")  # without a row in the model's matrix
    (tmp_path / "corpus.txt").write_text("我们在北京\n", encoding="utf-8")
    rule = f"[vocabulary] sources must be in 0..{len(TOKENS) - 1}, the tokens of the model, got {len(TOKENS)} for token"
    assert rule in refused("add-words", *options, "--min-frequency", "1", "--output", tmp_path / "p")
