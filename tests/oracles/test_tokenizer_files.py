"""Model directories as `transformers` writes them, loaded, saved and loaded again: the same ids on both sides."""

import json
import random
import shutil

import pytest
from tokenizer_probe import ask, check_decoding, check_texts, of_texts, random_texts, refusal, write_vocabulary

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
AddedToken, Tokenizer = tokenizers.AddedToken, tokenizers.Tokenizer
decoders, models, normalizers = tokenizers.decoders, tokenizers.models, tokenizers.normalizers
pre_tokenizers, processors = tokenizers.pre_tokenizers, tokenizers.processors


SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def small_vocabulary():
    chars = [
        chr(code) for code in (*range(0x21, 0x7F), *range(0xC0, 0x180), *range(0x3B1, 0x3CA), *range(0x430, 0x450))
    ]
    chars += list("中文東京한국어한タワー。、！？") + [chr(code) for code in range(0x1100, 0x1200)]
    pieces = ["hell", "hello", "##lo", "wor", "##ld", "world", "na", "naive", "don", "we", "20", "##24"]
    return list(dict.fromkeys(SPECIALS + chars + ["##" + char for char in chars] + pieces))


def write_vocab(directory, tokens):
    directory.mkdir(exist_ok=True)
    write_vocabulary(directory / "vocab.txt", tokens)


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def check_directory(directory, theirs, seed, tokens=()):
    texts = [*random_texts(800, seed, tokens=[*SPECIALS, *tokens]), "", " ", "x" * 101]
    encode = theirs._tokenizer.encode
    check_texts(directory, texts, lambda text: encode(text, add_special_tokens=False))
    for text, got in zip(texts, ask(directory, [{"text": text, "specials": True} for text in texts]), strict=True):
        assert got["ids"] == theirs(text)["input_ids"], ascii(text)
    draw = random.Random(seed)
    lists = [theirs(text)["input_ids"] for text in texts[:200]]
    lists += [[draw.randrange(len(theirs)) for _ in range(15)] for _ in range(200)]
    check_decoding(directory, theirs, lists)


@pytest.mark.parametrize("name", ["DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"])
def test_other_names_of_bert(tmp_path, name):
    tokens = small_vocabulary()
    write_vocab(tmp_path / "m", tokens)
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": name, "do_lower_case": False})
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "m")
    assert isinstance(theirs, transformers.BertTokenizer)
    check_directory(tmp_path / "m", theirs, 5)


def check_round_trips(tmp_path, theirs, seed, tokens=(), keeps_class=True):
    """Theirs, ours made of theirs, and theirs made of ours made of theirs."""
    theirs.save_pretrained(tmp_path / "theirs")
    check_directory(tmp_path / "theirs", theirs, seed, tokens)
    (tmp_path / "ours").mkdir()
    assert ask(tmp_path / "theirs", [{"save": str(tmp_path / "ours")}]) == [{}]
    check_directory(tmp_path / "ours", theirs, seed + 1, tokens)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    if keeps_class:
        assert type(again) is type(theirs)
    again.save_pretrained(tmp_path / "again")
    check_directory(tmp_path / "again", theirs, seed + 2, tokens)
    for text in random_texts(300, seed + 3, tokens=[*SPECIALS, *tokens]):
        assert again(text)["input_ids"] == theirs(text)["input_ids"], ascii(text)
        assert again(text, "b a")["input_ids"] == theirs(text, "b a")["input_ids"], ascii(text)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_lower_case": False},
        {"strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
        {"clean_up_tokenization_spaces": True},
    ],
    ids=str,
)
def test_bert(tmp_path, options):
    write_vocab(tmp_path / "bare", small_vocabulary())
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path / "bare", **options)
    if not options:
        check_directory(tmp_path / "bare", theirs, seed=1)
    check_round_trips(tmp_path, theirs, seed=2)


def test_bert_with_other_special_tokens(tmp_path):
    tokens = ["<pad>" if token == "[PAD]" else "<mask>" if token == "[MASK]" else token for token in small_vocabulary()]
    write_vocab(tmp_path / "bare", tokens)
    names = {"pad_token": "<pad>", "mask_token": AddedToken("<mask>", lstrip=True, special=True)}
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path / "bare", **names)
    check_round_trips(tmp_path, theirs, seed=5, tokens=["<pad>", "<mask>"])


def test_added_tokens(tmp_path):
    write_vocab(tmp_path / "bare", small_vocabulary())
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path / "bare")
    flags = [{"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}]
    theirs.add_tokens([AddedToken(f"<{i}>", normalized=False, **flag) for i, flag in enumerate(flags)])
    theirs.add_tokens([AddedToken("hel", normalized=False), AddedToken("hello w", normalized=False)])
    theirs.add_tokens([AddedToken("don't", normalized=False, single_word=True), AddedToken("文", normalized=False)])
    theirs.add_special_tokens({"extra_special_tokens": ["<extra>", AddedToken("[SEP]]", lstrip=True)]})
    tokens = ["<0>", "<1>", "<2>", "<3>", "hello world", "hel", "don't", "xdon't", "<extra>", "[SEP]]", "[MASK"]
    check_round_trips(tmp_path, theirs, seed=8, tokens=tokens)


def test_normalized_added_tokens(tmp_path):
    """Looked for in the normalised text: what users get who add words to a tokenizer."""
    write_vocab(tmp_path / "bare", small_vocabulary())
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path / "bare")
    theirs.add_tokens(
        ["Hello", "Naïve", "中文", "é", AddedToken("we'll", lstrip=True), AddedToken("it", single_word=True)]
    )
    tokens = ["HELLO", "hello", "naive", "NAÏVE", "中文", "中", "we'll", "É", "e\u0301", "it", "its"]
    check_round_trips(tmp_path, theirs, seed=9, tokens=tokens)


def test_old_files(tmp_path):
    """As `transformers` 4 wrote them: special_tokens_map.json, added_tokens.json, added_tokens_decoder."""
    write_vocab(tmp_path / "a", small_vocabulary())
    write_json(tmp_path / "a" / "special_tokens_map.json", {"mask_token": {"content": "[MASK]", "lstrip": True}})
    size = len(small_vocabulary())
    write_json(tmp_path / "a" / "added_tokens.json", {"<new>": size, "<newer>": size + 1})
    write_json(tmp_path / "a" / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    check_directory(tmp_path / "a", theirs, seed=11, tokens=["<new>", "<newer>"])
    decoder = {
        "content": "<new>",
        "lstrip": True,
        "normalized": False,
        "rstrip": True,
        "single_word": False,
        "special": True,
    }
    write_json(
        tmp_path / "a" / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizerFast", "added_tokens_decoder": {str(size): decoder}, "do_lower_case": False},
    )
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    check_directory(tmp_path / "a", theirs, seed=12, tokens=["<new>", "<newer>"])


def test_special_tokens_map_goes_before_tokenizer_config(tmp_path):
    """Its flags, and its names: one that only the configuration has is no token."""
    write_vocab(tmp_path / "m", small_vocabulary())
    write_json(
        tmp_path / "m" / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizer", "mask_token": "[MASK]", "pad_token": "<old>", "unk_token": "[UNK]"},
    )
    write_json(
        tmp_path / "m" / "special_tokens_map.json",
        {"mask_token": {"content": "[MASK]", "lstrip": True, "normalized": True}, "pad_token": "[PAD]"},
    )
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    check_directory(tmp_path / "m", theirs, seed=14, tokens=["  [MASK]", "[mask]", "<old>"])


@pytest.mark.parametrize("new", [["<new>"], [], None], ids=str)
def test_extra_special_tokens_go_before_additional_ones(tmp_path, new):
    write_vocab(tmp_path / "m", small_vocabulary())
    names = {"additional_special_tokens": ["<old>"]} | ({} if new is None else {"extra_special_tokens": new})
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"} | names)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    check_directory(tmp_path / "m", theirs, seed=16, tokens=["<old>", "<new>"])


def test_keys_of_old_versions(tmp_path):
    write_vocab(tmp_path / "m", small_vocabulary())
    config = {"init_inputs": [], "max_len": 512, "full_tokenizer_file": None, "use_fast": True, "do_lower_case": False}
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"} | config)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    check_directory(tmp_path / "m", theirs, seed=17)


def test_bert_legacy_with_other_special_tokens(tmp_path):
    """Only the names that the tokenizer has are special, also when control characters stand inside them."""
    write_vocab(tmp_path / "m", [*small_vocabulary(), "<mask>"])
    config = {"tokenizer_class": "BertTokenizerLegacy", "mask_token": "<mask>"}
    write_json(tmp_path / "m" / "tokenizer_config.json", config)
    theirs = transformers.BertTokenizerLegacy.from_pretrained(tmp_path / "m")
    tokens = ["[MASK]", "<mask>", "[SEP]", "<ma\x00sk>", "[MA\x00SK]", "a [SE\u200bP] b"]
    texts = list(random_texts(300, seed=19, tokens=tokens))
    for text, got in zip(texts, ask(tmp_path / "m", of_texts(texts)), strict=True):
        assert got["ids"] == theirs(text, add_special_tokens=False)["input_ids"], ascii(text)


@pytest.mark.parametrize("clean", [None, True, False], ids=str)
def test_bert_legacy_decoding(tmp_path, clean):
    """Which closes up punctuation of the whole text, unless told not to, and of no token by itself."""
    write_vocab(tmp_path / "m", [*small_vocabulary(), "'s", "a 's"])
    config = {} if clean is None else {"clean_up_tokenization_spaces": clean}
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "BertTokenizerLegacy"} | config)
    theirs = transformers.BertTokenizerLegacy.from_pretrained(tmp_path / "m")
    draw = random.Random(18)
    marks = theirs.convert_tokens_to_ids(["'", "don", ".", "'s", "a 's", "##lo"])
    lists = [[draw.randrange(len(theirs)) for _ in range(9)] + draw.choices(marks, k=6) for _ in range(300)]
    lists += [theirs(text)["input_ids"] for text in random_texts(200, seed=18)]
    check_decoding(tmp_path / "m", theirs, lists)
    (tmp_path / "ours").mkdir()
    ask(tmp_path / "m", [{"save": str(tmp_path / "ours")}])
    check_decoding(tmp_path / "ours", theirs, lists)


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
    texts = list(random_texts(300, seed=15, tokens=SPECIALS))
    encode = theirs._tokenizer.encode
    check_texts(tmp_path / "theirs", texts, lambda text: encode(text, add_special_tokens=False))
    (tmp_path / "ours").mkdir()
    ask(tmp_path / "theirs", [{"save": str(tmp_path / "ours")}])
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in texts:
        assert again(text)["input_ids"] == theirs(text)["input_ids"], ascii(text)
    check_decoding(tmp_path / "ours", theirs, [theirs(text)["input_ids"] for text in texts])


def roberta(tmp_path, **options):
    vocab = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>"])}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[letter] = len(vocab)
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ġw", "o"), ("Ġ", "Ġ")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    vocab["<mask>"] = len(vocab)
    return transformers.RobertaTokenizer(vocab=vocab, merges=merges, **options)


@pytest.mark.parametrize("options", [{}, {"add_prefix_space": True}, {"trim_offsets": False}], ids=str)
def test_roberta(tmp_path, options):
    theirs = roberta(tmp_path, mask_token=AddedToken("<mask>", lstrip=True, special=True), **options)
    theirs.save_pretrained(tmp_path / "theirs")
    texts = list(random_texts(500, seed=21, tokens=["<mask>", "<s>", " <mask>", "hello"]))
    check_texts(tmp_path / "theirs", texts, lambda text: theirs._tokenizer.encode(text, add_special_tokens=False))
    (tmp_path / "ours").mkdir()
    ask(tmp_path / "theirs", [{"save": str(tmp_path / "ours")}])
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in texts:
        assert again(text, "hello w")["input_ids"] == theirs(text, "hello w")["input_ids"], ascii(text)


def test_roformer(tmp_path):
    """Saved with BertPreTokenizer in tokenizer.json; the class tells what it is (transformers issue 28164)."""
    pytest.importorskip("rjieba")
    jieba = pytest.importorskip("jieba")
    dictionary = jieba.get_module_res("dict.txt").name
    words = ["今天", "天气", "非常", "今天天气", "我们", "北京", "中国", "T恤", "c++"]
    vocab = {
        token: i
        for i, token in enumerate(dict.fromkeys([*small_vocabulary(), *words, *"今天气非常好我们在北京国人恤"]))
    }
    theirs = transformers.RoFormerTokenizer(vocab=vocab)
    theirs.save_pretrained(tmp_path / "theirs")
    texts = list(random_texts(500, seed=31, tokens=[*SPECIALS, "今天天气非常好", "我们在北京", "T恤", "C++是好"]))
    encode = theirs._tokenizer.encode

    def bare(text):
        return encode(text, add_special_tokens=False)

    check_texts(tmp_path / "theirs", texts, bare, dictionary)
    (tmp_path / "ours").mkdir()
    ask(tmp_path / "theirs", [{"save": str(tmp_path / "ours")}], dictionary)
    check_texts(tmp_path / "ours", texts, bare, dictionary)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert type(again) is transformers.RoFormerTokenizer
    for text in texts:
        assert again(text)["input_ids"] == theirs(text)["input_ids"], ascii(text)


def test_roformer_with_vocab_txt_alone(tmp_path):
    """From which `transformers` 5 takes no words, since it looks them up in the file's path, until it has saved."""
    pytest.importorskip("rjieba")
    dictionary = pytest.importorskip("jieba").get_module_res("dict.txt").name
    write_vocab(tmp_path / "m", list(dict.fromkeys([*small_vocabulary(), "非常", *"今天气非常好"])))
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "RoFormerTokenizer"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    assert theirs.tokenize("非常好") == ["非", "常", "好"]
    theirs.save_pretrained(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs.tokenize("非常好") == ["非常", "好"]
    texts = list(random_texts(300, seed=32, tokens=[*SPECIALS, "今天天气非常好", "非常"]))
    check_texts(
        tmp_path / "m", texts, lambda text: theirs._tokenizer.encode(text, add_special_tokens=False), dictionary
    )


def test_config_json_names_the_class(tmp_path):
    write_vocab(tmp_path / "m", small_vocabulary())
    write_json(tmp_path / "m" / "config.json", {"model_type": "bert", "tokenizer_class": "BertTokenizerFast"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    check_directory(tmp_path / "m", theirs, seed=41)


REFUSED_CONFIGS = [
    ({"tokenizer_class": "T5Tokenizer"}, "T5Tokenizer"),
    ({"do_basic_tokenize": False}, "do_basic_tokenize"),
    ({"never_split": ["x"]}, "never_split"),
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


@pytest.mark.parametrize(("config", "named"), REFUSED_CONFIGS, ids=[named for _, named in REFUSED_CONFIGS])
def test_config_refused_by_name(tmp_path, config, named):
    write_vocab(tmp_path / "bare", small_vocabulary())
    transformers.BertTokenizer.from_pretrained(tmp_path / "bare").save_pretrained(tmp_path / "m")
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"} | config)
    assert named in refusal(tmp_path / "m")


REFUSED_FILES = [
    ("model", "continuing_subword_prefix", "@@"),
    ("model", "max_input_chars_per_word", 7),
    ("normalizer", "clean_text", False),
    ("normalizer", "type", "Lowercase"),
    ("pre_tokenizer", "type", "Whitespace"),
    ("decoder", "prefix", "@@"),
    ("decoder", "cleanup", False),
]


@pytest.mark.parametrize(("section", "key", "value"), REFUSED_FILES, ids=[key for _, key, _ in REFUSED_FILES])
def test_file_refused_by_name(tmp_path, section, key, value):
    write_vocab(tmp_path / "bare", small_vocabulary())
    transformers.BertTokenizer.from_pretrained(tmp_path / "bare").save_pretrained(tmp_path / "m")
    document = json.loads((tmp_path / "m" / "tokenizer.json").read_text(encoding="utf-8"))
    document[section][key] = value
    write_json(tmp_path / "m" / "tokenizer.json", document)
    assert (str(value) if key == "type" else key) in refusal(tmp_path / "m")


TRIM = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
FRAME = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [99999], "tokens": ["<s>"]}},
}
REFUSED_STEPS = [
    ({"type": "Sequence", "processors": [TRIM, TRIM]}, "processors[1].trim_offsets"),
    (FRAME, "post_processor must name tokens of the vocabulary, with ids below"),
    (FRAME | {"special_tokens": {"<s>": 5}}, "special_tokens"),
    (FRAME | {"special_tokens": {"<s>": {"id": "<s>", "ids": [2**32], "tokens": ["<s>"]}}}, "special_tokens"),
    (FRAME | {"special_tokens": ["<s>"]}, "special_tokens"),
    (FRAME | {"single": {"<s>": 1}}, "single"),
    ({"type": "RobertaProcessing", "sep": ["</s>", 2**32], "cls": ["<s>", 0]}, "sep"),
]


@pytest.mark.parametrize(("post_processor", "named"), REFUSED_STEPS, ids=range(len(REFUSED_STEPS)))
def test_post_processor_refused_by_name(tmp_path, post_processor, named):
    roberta(tmp_path).save_pretrained(tmp_path / "m")
    document = json.loads((tmp_path / "m" / "tokenizer.json").read_text(encoding="utf-8"))
    write_json(tmp_path / "m" / "tokenizer.json", document | {"post_processor": post_processor})
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    assert named in refusal(tmp_path / "m")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": {"a": TRIM, "b": TRIM}}}, "pre_tokenizer"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": 5}}, "pre_tokenizer"),
        ({"padding": {"pad_token": 5}}, "padding.pad_token"),
        ({"padding": []}, "padding"),
        ({"added_tokens": {"a": 1}}, "added_tokens"),
        ({"post_processor": {"type": "Sequence", "processors": 5}}, "processors"),
    ],
)
def test_a_part_of_the_wrong_type_is_refused_by_name(tmp_path, changed, named):
    roberta(tmp_path).save_pretrained(tmp_path / "m")
    document = json.loads((tmp_path / "m" / "tokenizer.json").read_text(encoding="utf-8"))
    write_json(tmp_path / "m" / "tokenizer.json", document | changed)
    write_json(tmp_path / "m" / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    assert named in refusal(tmp_path / "m")


def test_special_tokens_file_refused_by_name(tmp_path):
    write_vocab(tmp_path / "m", small_vocabulary())
    write_json(tmp_path / "m" / "special_tokens_map.json", {"other_token": "[X]"})
    assert "other_token" in refusal(tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    write_vocab(tmp_path / "m", small_vocabulary())
    write_json(tmp_path / "m" / "added_tokens.json", {"<new>": 3})
    assert "got 3" in refusal(tmp_path / "m")
