"""Model directories as `transformers` writes them, loaded, saved and loaded again: the same ids on both sides."""

import contextlib
import itertools
import json
import random
import warnings

import pytest
import tokenizer_probe as probe
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers.models.auto import tokenization_auto

import roformer_cpp
from tokenizer_texts import SPECIALS
from tokenizer_texts import small_vocabulary as characters_and_pieces


def small_vocabulary():
    return [*characters_and_pieces(), "don", "we", "20", "##24"]


def write_vocab(directory, tokens=None):
    directory.mkdir(exist_ok=True)
    probe.write_vocabulary(directory / "vocab.txt", tokens or small_vocabulary())


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def check_directory(directory, theirs, seed, tokens=()):
    texts = [*probe.random_texts(800, seed, tokens=[*SPECIALS, *tokens]), "", " ", "x" * 101]
    probe.check_texts(directory, texts, probe.bare(theirs))
    probe.check_specials(directory, texts, theirs)
    draw = random.Random(seed)
    lists = [theirs(text)["input_ids"] for text in texts[:200]]
    lists += [[draw.randrange(len(theirs)) for _ in range(15)] for _ in range(200)]
    probe.check_decoding(directory, theirs, lists)


def saved_by_us(tmp_path, dictionary=None):
    """What we save of "theirs", as transformers opens it."""
    (tmp_path / "ours").mkdir()
    assert probe.ask(tmp_path / "theirs", [{"save": str(tmp_path / "ours")}], dictionary) == [{}]
    return transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")


def check_same(ours, theirs, texts, *pair):
    """Two tokenizers of transformers, with texts or pairs."""
    for text in texts:
        assert ours(text, *pair)["input_ids"] == theirs(text, *pair)["input_ids"], ascii(text)


def raw(content, **flags):
    return AddedToken(content, normalized=False, **flags)


FLAGS = [{"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}]
RAW = [*(raw(f"<{i}>", **flags) for i, flags in enumerate(FLAGS)), raw("hel"), raw("hello w"), raw("文")]
RAW += [raw("don't", single_word=True)]
# Looked for in the normalised text: what users get who add words to a tokenizer.
NORMALIZED = ["Hello", "Naïve", "中文", "é", AddedToken("we'll", lstrip=True), AddedToken("it", single_word=True)]
# Options of BertTokenizer, tokens that are added, and tokens of texts.
OTHER_NAMES = {"pad_token": "<pad>", "mask_token": AddedToken("<mask>", lstrip=True, special=True)}
OF_RAW = ["<0>", "<1>", "<2>", "<3>", "hello world", "hel", "don't", "xdon't", "<extra>", "[SEP]]", "[MASK"]
OF_NORMALIZED = ["HELLO", "hello", "naive", "NAÏVE", "中文", "中", "we'll", "É", "e\u0301", "it", "its"]
TOKENIZERS = {
    "plain": ({}, [], []),
    "cased": ({"do_lower_case": False}, [], []),
    "with accents": ({"strip_accents": False}, [], []),
    "all options": ({"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}, [], []),
    "cleaned up": ({"clean_up_tokenization_spaces": True}, [], []),
    "special tokens": (OTHER_NAMES, [], ["<pad>", "<mask>"]),
    "added": ({}, RAW, OF_RAW),
    "normalized": ({}, NORMALIZED, OF_NORMALIZED),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_bert(tmp_path, name):
    """A vocabulary, theirs, ours made of theirs, and theirs made of ours made of theirs."""
    options, added, tokens = TOKENIZERS[name]
    others = {"[PAD]": "<pad>", "[MASK]": "<mask>"} if "pad_token" in options else {}
    write_vocab(tmp_path / "bare", [others.get(token, token) for token in small_vocabulary()])
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path / "bare", **options)
    if name == "plain":
        check_directory(tmp_path / "bare", theirs, seed=1)
    theirs.add_tokens(added)
    if name == "added":
        theirs.add_special_tokens({"extra_special_tokens": ["<extra>", AddedToken("[SEP]]", lstrip=True)]})
    theirs.save_pretrained(tmp_path / "theirs")
    again = saved_by_us(tmp_path)
    assert type(again) is type(theirs)
    again.save_pretrained(tmp_path / "again")
    for seed, directory in enumerate(("theirs", "ours", "again"), 2):
        check_directory(tmp_path / directory, theirs, seed, tokens)
    texts = list(probe.random_texts(300, 5, tokens=[*SPECIALS, *tokens]))
    check_same(again, theirs, texts)
    check_same(again, theirs, texts, "b a")


BERT, FAST = {"tokenizer_class": "BertTokenizer"}, {"tokenizer_class": "BertTokenizerFast"}
SAME = ("DistilBert", "Electra", "MobileBert")
SIZE = len(small_vocabulary())
NEW = {"content": "<new>", "lstrip": True, "normalized": False, "rstrip": True, "single_word": False, "special": True}
ADDED = {"added_tokens.json": {"<new>": SIZE, "<newer>": SIZE + 1}}
MASK = {"content": "[MASK]", "lstrip": True}
OLD_KEYS = {"init_inputs": [], "max_len": 512, "full_tokenizer_file": None, "use_fast": True, "do_lower_case": False}
OLD_NAMES = {"mask_token": "[MASK]", "pad_token": "<old>", "unk_token": "[UNK]"}
GOES_BEFORE = {"mask_token": MASK | {"normalized": True}, "pad_token": "[PAD]"}
EXTRA = {"additional_special_tokens": ["<old>"]}
# Files beside vocab.txt: tokenizer_config.json, and others.
DIRECTORIES = {
    **{name: ({"tokenizer_class": f"{name}Tokenizer", "do_lower_case": False}, {}) for name in SAME},
    "as transformers 4 wrote them": (BERT, ADDED | {"special_tokens_map.json": {"mask_token": MASK}}),
    "added_tokens_decoder": (
        FAST | {"added_tokens_decoder": {str(SIZE): NEW}, "do_lower_case": False},
        ADDED | {"special_tokens_map.json": {"mask_token": MASK}},
    ),
    "keys of old versions": (BERT | OLD_KEYS, {}),
    # Its flags, and its names: one that only the configuration has is no token.
    "special_tokens_map.json goes before": (BERT | OLD_NAMES, {"special_tokens_map.json": GOES_BEFORE}),
    "extra_special_tokens go before": (BERT | EXTRA | {"extra_special_tokens": ["<new>"]}, {}),
    "no extra_special_tokens go before": (BERT | EXTRA | {"extra_special_tokens": []}, {}),
    "additional_special_tokens": (BERT | EXTRA, {}),
    "config.json names the class": (None, {"config.json": FAST | {"model_type": "bert"}}),
}


@pytest.mark.parametrize("name", DIRECTORIES)
def test_directories(tmp_path, name):
    config, files = DIRECTORIES[name]
    write_vocab(tmp_path)
    for file, content in (files | ({"tokenizer_config.json": config} if config else {})).items():
        write_json(tmp_path / file, content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(theirs, transformers.BertTokenizer)
    check_directory(tmp_path, theirs, 11, ["<new>", "<newer>", "<old>", "  [MASK]", "[mask]"])


LEGACY = {"tokenizer_class": "BertTokenizerLegacy"}


def test_bert_legacy_with_other_special_tokens(tmp_path):
    """Only the names that the tokenizer has are special, also when control characters stand inside them."""
    write_vocab(tmp_path, [*small_vocabulary(), "<mask>"])
    write_json(tmp_path / "tokenizer_config.json", LEGACY | {"mask_token": "<mask>"})
    theirs = transformers.BertTokenizerLegacy.from_pretrained(tmp_path)
    tokens = ["[MASK]", "<mask>", "[SEP]", "<ma\x00sk>", "[MA\x00SK]", "a [SE\u200bP] b"]
    texts = list(probe.random_texts(300, seed=19, tokens=tokens))
    for text, got in zip(texts, probe.ask(tmp_path, probe.of_texts(texts)), strict=True):
        assert got["ids"] == theirs(text, add_special_tokens=False)["input_ids"], ascii(text)


@pytest.mark.parametrize("clean", [None, True, False], ids=str)
def test_bert_legacy_decoding(tmp_path, clean):
    """Which closes up punctuation of the whole text, unless told not to, and of no token by itself."""
    write_vocab(tmp_path / "m", [*small_vocabulary(), "'s", "a 's"])
    config = {} if clean is None else {"clean_up_tokenization_spaces": clean}
    write_json(tmp_path / "m" / "tokenizer_config.json", LEGACY | config)
    theirs = transformers.BertTokenizerLegacy.from_pretrained(tmp_path / "m")
    draw = random.Random(18)
    marks = theirs.convert_tokens_to_ids(["'", "don", ".", "'s", "a 's", "##lo"])
    lists = [[draw.randrange(len(theirs)) for _ in range(9)] + draw.choices(marks, k=6) for _ in range(300)]
    lists += [theirs(text)["input_ids"] for text in probe.random_texts(200, seed=18)]
    probe.check_decoding(tmp_path / "m", theirs, lists)
    (tmp_path / "ours").mkdir()
    probe.ask(tmp_path / "m", [{"save": str(tmp_path / "ours")}])
    probe.check_decoding(tmp_path / "ours", theirs, lists)


def test_tokenizer_json_goes_before_vocab_txt(tmp_path):
    tokens = small_vocabulary()
    write_vocab(tmp_path / "bare", tokens)
    transformers.BertTokenizer.from_pretrained(tmp_path / "bare").save_pretrained(tmp_path / "both")
    write_vocab(tmp_path / "both", SPECIALS + tokens[:4:-1])
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "both")
    assert theirs.convert_tokens_to_ids(tokens[9]) == 9
    check_directory(tmp_path / "both", theirs, seed=13)


def test_plain_file(tmp_path):
    """PreTrainedTokenizerFast: everything as tokenizer.json has it, also what the class BertTokenizer cannot say."""
    vocab = {token: i for i, token in enumerate(small_vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=7))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(pad_token="[PAD]")
    tokenizer.enable_truncation(9)
    names = {"unk_token": "[UNK]", "mask_token": "[MASK]"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    theirs.save_pretrained(tmp_path / "theirs")
    theirs._tokenizer.no_truncation()
    theirs._tokenizer.no_padding()
    texts = list(probe.random_texts(300, seed=15, tokens=SPECIALS))
    probe.check_texts(tmp_path / "theirs", texts, probe.bare(theirs))
    check_same(saved_by_us(tmp_path), theirs, texts)
    probe.check_decoding(tmp_path / "ours", theirs, [theirs(text)["input_ids"] for text in texts])


def roberta(**options):
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ġw", "o"), ("Ġ", "Ġ")]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    vocab = {token: i for i, token in enumerate([*tokens, "<mask>"])}
    return transformers.RobertaTokenizer(vocab=vocab, merges=merges, **options)


@pytest.mark.parametrize("options", [{}, {"add_prefix_space": True}, {"trim_offsets": False}], ids=str)
def test_roberta(tmp_path, options):
    theirs = roberta(mask_token=AddedToken("<mask>", lstrip=True, special=True), **options)
    theirs.save_pretrained(tmp_path / "theirs")
    texts = list(probe.random_texts(500, seed=21, tokens=["<mask>", "<s>", " <mask>", "hello"]))
    probe.check_texts(tmp_path / "theirs", texts, probe.bare(theirs))
    check_same(saved_by_us(tmp_path), theirs, texts, "hello w")


@pytest.mark.parametrize("has_json", [True, False])
def test_deberta(tmp_path, has_json):
    """Of the first version: GPT-2's byte pairs in RoBERTa's frame, with BERT's names."""
    texts = list(probe.random_texts(500, seed=25, tokens=["[MASK]", "[CLS]", " [MASK]", "hello"]))
    plain = [text.replace("[", "(") for text in texts]
    theirs = transformers.DebertaTokenizer().train_new_from_iterator(plain, 700)
    theirs.save_pretrained(tmp_path / "theirs")
    if not has_json:
        folder = tmp_path / "theirs"
        Tokenizer.from_file(str(folder / "tokenizer.json")).model.save(str(folder))  # vocab.json and merges.txt
        (folder / "tokenizer.json").unlink()
        write_json(folder / "tokenizer_config.json", {"do_lower_case": False, "vocab_type": "gpt2"})
        write_json(folder / "config.json", {"model_type": "deberta"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert type(theirs) is transformers.DebertaTokenizer
    probe.check_texts(tmp_path / "theirs", texts, probe.bare(theirs))
    check_same(saved_by_us(tmp_path), theirs, texts, "hello w")


def test_mpnet(tmp_path):
    """Word pieces in RoBERTa's frame."""
    names = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    tokens = [names.get(token, token) for token in small_vocabulary() if not token.endswith("\u0120")]
    theirs = transformers.MPNetTokenizer(vocab={token: at for at, token in enumerate(tokens)})
    theirs.save_pretrained(tmp_path / "theirs")
    check_directory(tmp_path / "theirs", theirs, 22, tokens=["<s>", "</s>"])
    again = saved_by_us(tmp_path)
    theirs.add_tokens([AddedToken("<n>", lstrip=True, rstrip=True, normalized=True)])
    theirs.save_pretrained(tmp_path / "more")
    masks = ["<mask>", " <mask>", "\t<mask> ", "\x01 <mask>", "\u3000<mask>", " <n> ", "<n>\u2003", "\x01 <n>"]
    texts = list(probe.random_texts(500, seed=24, tokens=masks))
    texts += ["".join(draw) for draw in itertools.product([" ", "中", "\x01", "a "], masks, ["", " ", "b"])]
    for folder, tokenizer in ((tmp_path / "ours", again), (tmp_path / "more", theirs)):
        probe.check_texts(folder, texts, probe.bare(tokenizer))
    texts = list(probe.random_texts(100, seed=23, tokens=["<mask>", " <mask>"]))
    check_same(again, theirs, texts, "hello w")
    probe.check_specials(tmp_path / "theirs", texts, theirs)


def test_roformer(tmp_path):
    """Saved with BertPreTokenizer in tokenizer.json; the class tells what it is (transformers issue 28164)."""
    words = ["今天", "天气", "非常", "今天天气", "我们", "北京", "中国", "T恤", "c++"]
    tokens = dict.fromkeys([*small_vocabulary(), *words, *"今天气非常好我们在北京国人恤"])
    theirs = transformers.RoFormerTokenizer(vocab={token: i for i, token in enumerate(tokens)})
    theirs.save_pretrained(tmp_path / "theirs")
    texts = list(probe.random_texts(500, seed=31, tokens=[*SPECIALS, "今天天气非常好", "我们在北京", "T恤", "C++是好"]))
    probe.check_texts(tmp_path / "theirs", texts, probe.bare(theirs), probe.DICTIONARY)
    again = saved_by_us(tmp_path, dictionary=probe.DICTIONARY)
    probe.check_texts(tmp_path / "ours", texts, probe.bare(theirs), probe.DICTIONARY)
    assert type(again) is transformers.RoFormerTokenizer
    check_same(again, theirs, texts)


def test_roformer_with_vocab_txt_alone(tmp_path):
    """From which `transformers` 5 takes no words, since it looks them up in the file's path, until it has saved."""
    write_vocab(tmp_path / "m", list(dict.fromkeys([*small_vocabulary(), "非常", *"今天气非常好"])))
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "RoFormerTokenizer"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    assert theirs.tokenize("非常好") == ["非", "常", "好"]
    theirs.save_pretrained(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs.tokenize("非常好") == ["非常", "好"]
    texts = list(probe.random_texts(300, seed=32, tokens=[*SPECIALS, "今天天气非常好", "非常"]))
    probe.check_texts(tmp_path / "m", texts, probe.bare(theirs), probe.DICTIONARY)


# What is changed in a file of a directory, and what the message has.
REFUSED_CONFIGS = [
    ({"tokenizer_class": "XLMTokenizer"}, "XLMTokenizer"),
    ({"split_special_tokens": True}, "split_special_tokens"),
    ({"wordpieces_prefix": "@@"}, "wordpieces_prefix"),
    ({"do_lower_case": "yes"}, "do_lower_case"),
    ({"do_lower_case": False}, "must agree on lowercase"),
    ({"strip_accents": False}, "must agree on strip_accents"),
    ({"tokenize_chinese_chars": False}, "must agree on handle_chinese_chars"),
    ({"roformer_pipeline": "wobert"}, "roformer_pipeline"),
    ({"roformer_pipeline": "other"}, "other"),
    ({"added_tokens_decoder": {"3": {"content": "<x>"}}}, "got 3"),
    ({"added_tokens_decoder": {"x": {"content": "<x>"}}}, "added_tokens_decoder"),
    ({"mask_token": 7}, "mask_token"),
    ({"mask_token": {"content": "[MASK]", "colour": 1}}, "colour"),
    ({"extra_special_tokens": 7}, "extra_special_tokens"),
    ({"tokenizer_class": "GPT2Tokenizer"}, "must agree on the model"),
]


REFUSED_FILES = [
    ({"model__continuing_subword_prefix": "@@"}, "continuing_subword_prefix"),
    ({"model__max_input_chars_per_word": 7}, "max_input_chars_per_word"),
    ({"normalizer__clean_text": False}, "clean_text"),
    ({"normalizer__type": "Lowercase"}, "Lowercase"),
    ({"pre_tokenizer__type": "Whitespace"}, "Whitespace"),
    ({"decoder__prefix": "@@"}, "prefix"),
    ({"decoder__cleanup": False}, "cleanup"),
]
TRIM = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
FRAME = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [99999], "tokens": ["<s>"]}},
}
LARGE = {"id": "<s>", "ids": [2**32], "tokens": ["<s>"]}
SEQUENCE = {"type": "Sequence"}
OF_ROBERTA = [
    ({"post_processor": SEQUENCE | {"processors": [TRIM, TRIM]}}, "processors[1].trim_offsets"),
    ({"post_processor": FRAME}, "post_processor must name tokens of the vocabulary, with ids below"),
    ({"post_processor": FRAME | {"special_tokens": {"<s>": 5}}}, "special_tokens"),
    ({"post_processor": FRAME | {"special_tokens": {"<s>": LARGE}}}, "special_tokens"),
    ({"post_processor": FRAME | {"special_tokens": ["<s>"]}}, "special_tokens"),
    ({"post_processor": FRAME | {"single": {"<s>": 1}}}, "single"),
    ({"post_processor": FRAME | {"single": FRAME["single"] * 2}}, 'single" must be each text once'),
    ({"post_processor": FRAME | {"pair": FRAME["pair"][:1]}}, 'pair" must be each text once'),
    ({"post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2**32], "cls": ["<s>", 0]}}, "sep"),
    ({"post_processor": SEQUENCE | {"processors": 5}}, "processors"),
    ({"pre_tokenizer": SEQUENCE | {"pretokenizers": {"a": TRIM, "b": TRIM}}}, "pre_tokenizer"),
    ({"pre_tokenizer": SEQUENCE | {"pretokenizers": 5}}, "pre_tokenizer"),
    ({"padding": {"pad_token": 5}}, "padding.pad_token"),
    ({"padding": []}, "padding"),
    ({"added_tokens": {"a": 1}}, "added_tokens"),
]
REFUSED = [("bert", "tokenizer_config.json", *row) for row in REFUSED_CONFIGS]
REFUSED += [("bert", "tokenizer.json", *row) for row in REFUSED_FILES]
REFUSED += [("roberta", "tokenizer.json", *row) for row in OF_ROBERTA]
REFUSED += [("vocab", "tokenizer_config.json", LEGACY | {"do_basic_tokenize": False}, "do_basic_tokenize")]
REFUSED += [("vocab", "tokenizer_config.json", LEGACY | {"never_split": ["x"]}, "never_split")]
REFUSED += [("vocab", "special_tokens_map.json", {"other_token": "[X]"}, "other_token")]
REFUSED += [("vocab", "added_tokens.json", {"<new>": 3}, "got 3")]


@pytest.mark.parametrize("step", [TRIM, TRIM | {"trim_offsets": False}], ids=["trims", "keeps"])
def test_byte_level_after_word_pieces(tmp_path, step):
    """Changes nothing without white space in tokens."""
    write_vocab(tmp_path, [token for token in small_vocabulary() if "\u0120" not in token])
    transformers.BertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["post_processor"] = SEQUENCE | {"processors": [document["post_processor"], step]}
    write_json(path, document)
    theirs = Tokenizer.from_file(str(path))
    texts = probe.random_texts(300, 8, SPECIALS)
    probe.check_texts(tmp_path, texts, lambda text: theirs.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("setting", [{"tokenizer_class": None}, {"do_basic_tokenize": False}, {"never_split": ["x"]}])
def test_settings_of_classes_in_python_alone(tmp_path, setting):
    """The others ignore them."""
    write_vocab(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", BERT | setting)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    probe.check_texts(tmp_path, probe.random_texts(100, 9, SPECIALS), probe.bare(theirs))


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_a_class_that_transformers_lacks(tmp_path, file):
    """The class is in the code of the model's authors: tokenizer.json is read as it is."""
    write_vocab(tmp_path)
    transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=False).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    write_json(tmp_path / file, {"tokenizer_class": "TheirTokenizerFast", "model_type": "bert"})
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    with pytest.warns(UserWarning, match=rf"{file}\] the tokenizer_class TheirTokenizer is unknown: tokenizer.json is"):
        ours = roformer_cpp.Tokenizer(tmp_path)
    for text in probe.random_texts(100, 10, SPECIALS):
        assert ours.encode(text) == theirs.encode(text).ids


NO_CLASSES = {"AutoTokenizer", "BasicTokenizer", "CharacterTokenizer", "MecabTokenizer", "WordpieceTokenizer"}


def test_every_class_of_transformers_is_known(tmp_path):
    """It is supported, or refused by name."""
    names = {name for name in [*tokenization_auto.TOKENIZER_MAPPING_NAMES.values(), *dir(transformers)] if name}
    write_vocab(tmp_path)
    transformers.BertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    own = (name.removesuffix("Fast") for name in names if name.endswith(("Tokenizer", "TokenizerFast")))
    for name in sorted(set(own) - NO_CLASSES):
        write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": name})
        with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
            warnings.filterwarnings("error", ".* is unknown")
            roformer_cpp.Tokenizer(tmp_path)


FRAMES = [None, processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])]


@pytest.mark.parametrize("frame", FRAMES, ids=["no frame", "bare frame"])
@pytest.mark.parametrize("name", ["DebertaV2Tokenizer", "AlbertTokenizer"])
def test_frames_of_classes(tmp_path, name, frame):
    pieces = [(piece, 0.0) for piece in ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "▁a", "▁", "b")]
    made = Tokenizer(models.Unigram(pieces, unk_id=3))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.add_special_tokens([piece for piece, _ in pieces[:5]])
    if frame is not None:
        made.post_processor = frame
    made.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": name})
    write_json(tmp_path / "config.json", {"model_type": "deberta-v2"})
    probe.check_specials(tmp_path, ["a b", "b", ""], transformers.AutoTokenizer.from_pretrained(tmp_path))


@pytest.mark.parametrize(("kind", "file", "changes", "named"), REFUSED, ids=range(len(REFUSED)))
def test_refused_by_name(tmp_path, kind, file, changes, named):
    write_vocab(tmp_path)
    if kind == "bert":
        transformers.BertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
        write_json(tmp_path / "tokenizer_config.json", BERT)
    elif kind == "roberta":
        roberta().save_pretrained(tmp_path)
        write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    path = tmp_path / file
    write_json(path, probe.changed(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}, changes))
    assert named in probe.refusal(tmp_path)
