"""Tokenizer of the package: the rows of transformers' tokenizer for the same directory."""

import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from test_batch import WORDS, random_samples

from roformer_cpp import Tokenizer
from tokenizer_texts import SPECIALS, random_strings, small_vocabulary

NAMES = ("input_ids", "token_type_ids", "attention_mask", "offset_mapping", "special_tokens_mask")


def saved(folder, cls, tokens, **options):
    tokenizer = cls(vocab={token: i for i, token in enumerate(dict.fromkeys(tokens))}, **options)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    return folder, saved(folder, transformers.BertTokenizer, small_vocabulary(), model_max_length=40)


@pytest.fixture(scope="module")
def roformer(tmp_path_factory):
    pytest.importorskip("rjieba")
    folder = tmp_path_factory.mktemp("roformer")
    words = ["今天", "天气", "非常", "好", "我们", "喜欢", "中文"]
    return folder, saved(folder, transformers.RoFormerTokenizer, [*small_vocabulary(), *words, *"今天气非常我们喜欢"])


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    """GPT-2's form, with merges, and no form for pairs with special tokens."""
    from tokenizers.pre_tokenizers import ByteLevel

    folder = tmp_path_factory.mktemp("bytes")
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "t"), ("Ġt", "he")]
    tokens = ["<|endoftext|>", *sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    return folder, saved(folder, transformers.GPT2Tokenizer, tokens, merges=merges, pad_token="<|endoftext|>")


@pytest.fixture(scope="module")
def bert_legacy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("legacy")
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(small_vocabulary())) + "\n", encoding="utf-8")
    theirs = transformers.BertTokenizerLegacy(folder / "vocab.txt")
    theirs.save_pretrained(folder)
    return folder, theirs


@pytest.fixture(params=["bert", "roformer", "byte_level"])
def case(request):
    """Our tokenizer and theirs."""
    folder, theirs = request.getfixturevalue(request.param)
    return Tokenizer.from_pretrained(folder), theirs


def rows_of_theirs(theirs, *texts, **options):
    everything = dict(return_offsets_mapping=True, return_special_tokens_mask=True, return_token_type_ids=True)
    out = theirs(*texts, return_attention_mask=True, **everything, **options)
    return {name: out[name] for name in (*NAMES, "overflow_to_sample_mapping") if name in out}


def rows_of_ours(ours, *texts, **options):
    return ours(*texts, return_offsets_mapping=True, return_special_tokens_mask=True, **options)


def test_rows_of_one_text(case):
    ours, theirs = case
    for text in [*random_strings(80, 5), "", " ", "hello the world", "今天天气非常好", "[CLS] a [MASK]"]:
        assert rows_of_ours(ours, text) == rows_of_theirs(theirs, text), ascii(text)
    assert rows_of_ours(ours, "hello", "") == rows_of_theirs(theirs, "hello", "")  # no pair


def test_empty_second_text_of_a_class_in_python(bert_legacy):
    folder, theirs = bert_legacy
    ours = Tokenizer.from_pretrained(folder)
    assert ours("hello", "") == dict(theirs("hello", "", return_token_type_ids=True))
    assert len(ours("hello", "")["input_ids"]) == 1 + len(ours("hello")["input_ids"])


def test_array_of_second_texts(bert):
    ours = Tokenizer.from_pretrained(bert[0])
    assert ours(["hello", "the"], np.array(["world", ""])) == ours(["hello", "the"], ["world", ""])


def random_options(draw, pairs):
    options = {}
    if draw.random() < 0.8:
        options["truncation"] = draw.choice(["longest_first", "longest_first", "only_first", "only_second"])
        options["max_length"] = draw.choice((3, 4, 5, 6, 7, 9, 12, 17, 30))
        if options["truncation"] == "only_second" and not pairs:
            options["truncation"] = "only_first"
        if draw.random() < 0.6:
            options["return_overflowing_tokens"] = True
            options["stride"] = draw.choice((0, 0, 1, 2, 4))
    padding = draw.choice(("none", "longest", "max_length"))
    if padding != "none":
        options["padding"] = padding
        options["max_length"] = options.get("max_length", draw.choice((2, 10, 40)))
        if draw.random() < 0.3:
            options["pad_to_multiple_of"] = draw.choice((4, 8))
    if draw.random() < 0.3:
        options["truncation_side"] = "left"
    if draw.random() < 0.3:
        options["padding_side"] = "left"
    if draw.random() < 0.2:
        options["add_special_tokens"] = False
    return options


@pytest.mark.parametrize("pairs", [False, True])
def test_rows_with_random_options(case, pairs, monkeypatch):
    ours, theirs = case
    if pairs and ours.cls_token is None:
        pytest.skip("no form for pairs")
    draw = random.Random(3 + pairs)
    compared = 0
    for _ in range(60):
        samples, options = random_samples(draw, pairs), random_options(draw, pairs)
        sides = {key: options.pop(key, "right") for key in ("truncation_side", "padding_side")}
        for key, side in sides.items():
            setattr(ours, key, side)
            monkeypatch.setattr(theirs, key, side)
        texts = [[sample[i] for sample in samples] for i in range(1 + pairs)]
        try:
            want = rows_of_theirs(theirs, *texts, **options)
        except BaseException:  # a panic of the library is no Exception
            with pytest.raises(ValueError):
                rows_of_ours(ours, *texts, **options)
            continue
        if "truncation" in options and any(len(row) > options["max_length"] for row in want["input_ids"]):
            continue  # the library's overflow of a text that keeps nothing
        assert rows_of_ours(ours, *texts, **options) == want, (samples, options)
        if pairs:
            assert ours(list(zip(*texts, strict=True)), **options)["input_ids"] == want["input_ids"]
        compared += 1
    assert compared > 20


def test_arrays_and_tensors(bert):
    ours, theirs = Tokenizer(bert[0]), bert[1]
    texts = ["hello world", "na", ""]
    got = rows_of_ours(ours, texts, padding=True, truncation=True, return_tensors="np")
    want = theirs(texts, padding=True, truncation=True, return_tensors="np", return_offsets_mapping=True)
    for name in ("input_ids", "attention_mask", "offset_mapping"):
        assert got[name].dtype == np.int64 and np.array_equal(got[name], want[name])
    tensors = ours(texts, padding=True, return_tensors="pt")
    assert all(isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64 for tensor in tensors.values())
    assert ours("hello", return_tensors="np")["input_ids"].shape == (1, 3)
    assert ours([], return_tensors="np")["input_ids"].shape == (0, 0)
    with pytest.raises(ValueError, match=r"rows must have one length for return_tensors, got 2 to 4 tokens"):
        ours(texts, return_tensors="np")
    assert ours(texts, return_length=True)["length"] == [4, 3, 2]


def test_sides_and_the_limit_of_the_directory(tmp_path):
    options = dict(padding_side="left", truncation_side="left", model_max_length=5)
    theirs = saved(tmp_path, transformers.BertTokenizer, [*SPECIALS, *WORDS], **options)
    ours = Tokenizer(tmp_path)
    assert (ours.padding_side, ours.truncation_side) == ("left", "left")
    texts = ["the cat sat on a mat", "a"]
    want = theirs(texts, truncation=True, padding=True)["input_ids"]
    assert ours(texts, truncation=True, padding=True)["input_ids"] == want
    assert ours.model_max_length == 5
    want = theirs("a", padding="max_length")["attention_mask"]
    assert ours("a", padding="max_length")["attention_mask"] == want


def test_texts_of_tokens(case):
    ours, theirs = case
    for text in ["hello world, na!", "今天天气 [MASK] x", ""]:
        ids = theirs(text)["input_ids"]
        for skip in (False, True):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
        assert ours.batch_decode([ids, ids[:1]]) == theirs.batch_decode([ids, ids[:1]])
        assert ours.tokenize(text) == theirs.tokenize(text)
        assert ours.encode(text) == theirs.encode(text)
        assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)


def test_vocabulary_and_saved_again(case, tmp_path):
    ours, theirs = case
    ours.save_pretrained(tmp_path / "new")
    assert Tokenizer(tmp_path / "new")("hello the world, 今天天气") == ours("hello the world, 今天天气")
    assert (len(ours), ours.vocab_size, ours.get_vocab()) == (len(theirs), theirs.vocab_size, theirs.get_vocab())
    for role in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"):
        assert getattr(ours, role + "_token") == getattr(theirs, role + "_token")
        assert getattr(ours, role + "_token_id") == getattr(theirs, role + "_token_id")
    assert sorted(ours.all_special_ids) == sorted(set(theirs.all_special_ids))
    tokens = [*list(ours.get_vocab())[5:9], "not a token"]
    assert ours.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(tokens)
    assert ours.convert_tokens_to_ids(tokens[0]) == theirs.convert_tokens_to_ids(tokens[0])
    assert ours.convert_ids_to_tokens(5) == theirs.convert_ids_to_tokens(5)


def test_pickled_as_its_directory(bert):
    ours = Tokenizer(bert[0])
    ours.padding_side = "left"
    again = pickle.loads(pickle.dumps(ours))
    assert again(["hello", "a b"], padding=True) == ours(["hello", "a b"], padding=True)


def test_threads_in_parallel(bert):
    """Also batches that are large enough for threads of their own."""
    ours = Tokenizer(bert[0])
    texts = list(random_strings(1500, 9))
    alone = ours(texts)
    with ThreadPoolExecutor(4) as pool:
        assert all(rows == alone for rows in pool.map(ours, [texts] * 4))


def test_missing_and_damaged_files(bert, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^\[model\] a model must be a .*, got .*, which does not exist"):
        Tokenizer.from_pretrained(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RuntimeError, match=r"tokenizer\.json"):
        Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(TypeError, match="must be a path, got int"):
        Tokenizer(3)
    with pytest.raises(RuntimeError, match="dictionaries go with the pipelines"):
        Tokenizer(bert[0], dictionary=tmp_path / "dict.txt")


def test_bad_calls_and_ids(bert):
    ours = Tokenizer(bert[0])
    for texts, options, error, message in (
        ((3,), {}, TypeError, "text must be a string or a list of strings, got int"),
        ((["a", "\ud800"],), {}, ValueError, "no lone surrogates, got one at 1"),
        ((["a"], ["b", "c"]), {}, ValueError, "text_pair must be like text, 1 texts, got 2"),
        (("a", ["b"]), {}, ValueError, "text_pair must be like text"),
        (([("a",)],), {}, ValueError, "a pair must have two texts"),
        (("a",), dict(truncation="first"), ValueError, "truncation must be one of longest_first, "),
        (("a",), dict(truncation=True, max_length=1), ValueError, "at least the 2 special tokens of a row, got 1"),
        (("a",), dict(max_length=3), ValueError, "max_length must be with truncation or padding to it, got neither"),
        (("a",), dict(padding="left"), ValueError, "padding must be one of longest, "),
        (("a",), dict(return_overflowing_tokens=True), ValueError, "overflowing rows need truncation"),
        (("a",), dict(truncation=True, stride=-1), ValueError, "stride must be at least 0, got -1"),
        (("a",), dict(return_tensors="tf"), ValueError, "return_tensors must be one of np, pt, got 'tf'"),
        (("a",), dict(add_special_tokens=0), TypeError, "add_special_tokens must be True or False, got 0"),
    ):
        with pytest.raises(error, match=rf"^\[tokenize\] .*{message}"):
            ours(*texts, **options)
    for ids, error, message in (
        ([10**6], ValueError, r"an id must be in 0\.\.\d+, got 1000000"),
        ([-1], ValueError, "got -1"),
        (["a"], TypeError, "an id must be an integer, got str"),
        ("a", TypeError, "an id must be an integer, got str"),
    ):
        with pytest.raises(error, match=message):
            ours.decode(ids)
    with pytest.raises(ValueError):
        ours.convert_ids_to_tokens(10**6)
