"""Byte-level BPE against the library `tokenizers`: ids, offsets and decoding of small trained models."""

import codecs
import functools
import json
import random

import pytest
import transformers
from tokenizer_probe import ask, changed, check_decoding, check_texts, of_texts, offsets, random_texts, refusal
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_texts import code_points

SPECIALS = ["<|endoftext|>", "[MASK]"]
GPT2_EXPRESSION = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@functools.cache
def train(vocab_size=800):
    """The file of a model that its users load and change."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    given = {"initial_alphabet": alphabet, "special_tokens": SPECIALS, "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, **given)
    tokenizer.train_from_iterator(random_texts(3000, seed=1), trainer)
    return tokenizer.to_str()


def save(tokenizer, directory, **options):
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=SPECIALS[0], **options)
    wrapped.save_pretrained(directory)
    return wrapped


def tune(tokenizer, variant):
    """The set-ups of GPT-2, ModernBERT, RoBERTa and SmolLM, and what tokenizer.json allows besides."""
    if "prefix" in variant:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    if "nfc" in variant:
        tokenizer.normalizer = normalizers.NFC()
    if "one-word" in variant:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    first = {"split": pre_tokenizers.Split(Regex(GPT2_EXPRESSION), behavior="isolated")}
    first |= {"digits": pre_tokenizers.Digits(individual_digits=True)}
    for name, step in first.items():
        if name in variant:
            level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "digits")
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([step, level])
    if "trim" in variant:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space="prefix" in variant)
    if "added" in variant:
        normalized = {"é": {}, "wor": {"single_word": True}, "<lr>": {"rstrip": True, "lstrip": True}}
        raw = {"ld": {"single_word": True}, "<l>": {"lstrip": True}, "<r>": {"rstrip": True}, "<x": {}, "<xy>": {}}
        tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 6)])
        tokenizer.add_tokens([AddedToken(text, normalized=True, **flags) for text, flags in normalized.items()])
        tokenizer.add_tokens([AddedToken(text, normalized=False, **flags) for text, flags in raw.items()])
    return tokenizer


VARIANTS = ["plain", "nfc", "prefix", "prefix-trim", "trim", "one-word", "split", "added", "digits"]
VARIANTS += ["nfc-added", "nfc-added-prefix-trim", "digits-nfc-added-trim"]


@pytest.fixture
def trained():
    return train()


@pytest.mark.parametrize("variant", VARIANTS)
def test_random_strings(tmp_path, trained, variant):
    wrapped = save(tune(Tokenizer.from_str(trained), variant), tmp_path)
    tokens = [*SPECIALS, "<l>", "<r>", "<lr>", "<xy>", "<x", "<xz", "wor", "ld", "  "]
    texts = [*random_texts(2000, seed=len(variant), tokens=tokens), "", " ", "a", "é" * 200, "x" * 999]
    check_texts(tmp_path, texts, wrapped._tokenizer.encode)
    draw = random.Random(2)
    lists = [wrapped._tokenizer.encode(text).ids for text in texts[:300]]
    lists += [[draw.randrange(len(wrapped)) for _ in range(20)] for _ in range(300)]
    check_decoding(tmp_path, wrapped, lists)


def test_every_code_point(tmp_path, trained):
    """After a letter and after a space. Of the planes without characters, every 64th."""
    wrapped = save(tune(Tokenizer.from_str(trained), "nfc"), tmp_path)
    assigned = [code for code in code_points() if code < 0x40000 or code % 64 == 0 or 0xE0000 <= code < 0xE0200]
    pieces = [f"a{chr(code)} {chr(code)}1\n" for code in assigned]
    texts = ["".join(pieces[i : i + 512]) for i in range(0, len(pieces), 512)]
    check_texts(tmp_path, texts, wrapped._tokenizer.encode)


def test_long_words(tmp_path, trained):
    """A word of a megabyte takes no quadratic time, and the queue gives what the scan gives."""
    wrapped = save(tune(Tokenizer.from_str(trained), "one-word"), tmp_path)
    texts = ["".join(text for text in random_texts(60, seed)) for seed in range(20)] + ["ab" * 50_000]
    texts += ["".join(random_texts(6000, seed)) for seed in (30, 31)]  # cut in windows of 32 KiB
    texts += ["a" * 200_001, " hello world" * 20_000, "\u00e9" * 70_000]
    assert all(len(text.encode()) > 100_000 for text in texts[-5:])
    check_texts(tmp_path, texts, wrapped._tokenizer.encode)


@pytest.mark.parametrize("variant", ["plain", "nfc", "prefix-trim", "digits"])
def test_long_texts(tmp_path, trained, variant):
    """Which are rewritten in stretches of 64 KiB or more, parted at a space between two letters."""
    wrapped = save(tune(Tokenizer.from_str(trained), variant), tmp_path)
    texts = [" ".join(random_texts(9000, seed)) for seed in (40, 41)] + ["x" * 150_000 + " hello e\u0301 world" * 9000]
    assert all(len(text.encode()) > 150_000 for text in texts)
    check_texts(tmp_path, texts, wrapped._tokenizer.encode)


def test_long_added_tokens(tmp_path, trained):
    """Longer than what the search walks through, with fronts in common and ends that begin another."""
    tokenizer = Tokenizer.from_str(trained)
    contents = ["ab" * 40, "ab" * 40 + "c", "ab" * 17, "b" + "ab" * 20, "a" * 50, "a" * 33 + "b", "a", "<s>" * 30]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in contents])
    wrapped = save(tokenizer, tmp_path)
    draw = random.Random(4)
    parts = [*contents, "ab" * 16, "abab", "b", "c", "a" * 49, " ", "aab"]
    texts = ["".join(draw.choices(parts, k=draw.randrange(1, 9))) for _ in range(500)]
    check_texts(tmp_path, texts, wrapped._tokenizer.encode)


def ill_formed_texts():
    """Bytes of every part of a sequence in any order, with spaces between and around them."""
    draw = random.Random(3)
    parts = (0x41, 0x20, 0x20, 0x80, 0xBF, 0xC1, 0xC3, 0xE0, 0xED, 0xF0, 0xF4, 0xF5)
    texts = [bytes(draw.choice(parts) for _ in range(9)) for _ in range(500)]
    return [*texts, b"\x80", b"\x80 ", b"\xbf\xbf  a", b"  \x80  ", b"\xe4\xb8 x"]


@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_ill_formed_utf8(tmp_path, trained, variant, merges):
    """Read as Python's decode(errors="replace") does; each U+FFFD has the bytes that it stands for. Without merges the
    space that is put in front is a token of its own."""
    tokenizer = Tokenizer.from_str(trained if merges else train(vocab_size=256 + len(SPECIALS)))
    wrapped = save(tune(tokenizer, variant), tmp_path)
    raw = ill_formed_texts()
    for data, got in zip(raw, ask(tmp_path, of_texts(raw)), strict=True):
        text = data.decode("utf-8", errors="replace")
        want = wrapped._tokenizer.encode(text)
        assert (got["ids"], offsets(got)) == (want.ids, want.offsets), data
        assert got["replaced"] == text.count("\ufffd"), data
        begins = byte_of_characters(data)
        assert got["byte_begin"] == [begins[at] for at in got["begin"]], data
        assert got["byte_end"] == [begins[at] for at in got["end"]], data


def byte_of_characters(data):
    """Where each character of data.decode(errors="replace") begins, and the end."""
    replaced = {}

    def note(error):
        replaced[error.start] = error.end
        return "\ufffd", error.end

    codecs.register_error("note", note)
    text = data.decode("utf-8", errors="note")
    begins = [0]
    for char in text:
        begins.append(replaced.get(begins[-1], begins[-1] + len(char.encode())))
    return begins


def test_ignore_merges(tmp_path, trained):
    tokenizer = Tokenizer.from_str(trained)
    tokenizer.model.ignore_merges = True
    tokenizer.add_tokens(["zzz"])
    check_texts(tmp_path, random_texts(500, seed=5), save(tokenizer, tmp_path)._tokenizer.encode)


def test_bytes_without_tokens(tmp_path, trained):
    """Of control characters, and those that begin no character, as SmolLM2's vocabulary has it."""
    letters = set("\u0104\u0106\u0116\u00c0\u00f1\u00ff")  # 4, 6, 22, 192, 241, 255
    file = json.loads(trained)
    model = file["model"]
    model["merges"] = [merge for merge in model["merges"] if not letters & set("".join(merge))]
    tokens = [token for token in model["vocab"] if not letters & set(token)]
    assert len(tokens) <= len(model["vocab"]) - len(letters)
    model["vocab"] = {token: id for id, token in enumerate(tokens)}
    for added in file["added_tokens"]:
        added["id"] = model["vocab"][added["content"]]
    wrapped = save(Tokenizer.from_str(json.dumps(file)), tmp_path)
    plain = [text for text in random_texts(500, seed=6) if not any(c in text for c in "\4\6\x16")]
    check_texts(tmp_path, [*plain, "a \4 b", "\6", "x\x16"], wrapped._tokenizer.encode)


def test_gpt2_files(tmp_path, trained):
    """vocab.json and merges.txt, without a tokenizer.json."""
    Tokenizer.from_str(trained).model.save(str(tmp_path))
    theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    check_texts(tmp_path, random_texts(1000, seed=6, tokens=SPECIALS), theirs._tokenizer.encode)


def test_saved_and_loaded_again(tmp_path, trained):
    tokenizer = tune(Tokenizer.from_str(trained), "nfc-added-prefix-trim")
    wrapped = save(tokenizer, tmp_path / "theirs", mask_token="[MASK]", pad_token="<pad>", cls_token="<s>")
    (tmp_path / "ours").mkdir()
    ask(tmp_path / "theirs", [{"save": str(tmp_path / "ours")}])
    texts = list(random_texts(500, seed=7, tokens=[*SPECIALS, "<pad>", "<s>", "<l>", "<lr>"]))
    check_texts(tmp_path / "ours", texts, wrapped._tokenizer.encode)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in texts:
        assert again(text)["input_ids"] == wrapped(text)["input_ids"], ascii(text)
    assert again.special_tokens_map == wrapped.special_tokens_map


REFUSED = [
    ({"model__dropout": 0.1}, "model.dropout"),
    ({"model__continuing_subword_prefix": "##"}, "model.continuing_subword_prefix"),
    ({"model__end_of_word_suffix": "</w>"}, "model.end_of_word_suffix"),
    ({"model__type": "Unigram"}, "Unigram"),
    ({"model__type": "WordLevel"}, '"model.type" must be "WordPiece", "BPE" or "Unigram", got "WordLevel"'),
    ({"normalizer": {"type": "NFKC"}}, "NFKC"),
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}}, "Lowercase"),
    ({"pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
    ({"pre_tokenizer": None}, "pre_tokenizer"),
    ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]}}, "Digits"),
    ({"pre_tokenizer__prefix": 1}, "prefix"),
    ({"post_processor": {"type": "Other"}}, "Other"),
    ({"decoder": {"type": "Metaspace"}}, "Metaspace"),
    ({"version": "2.0"}, "version"),
    ({"surprise": 1}, "surprise"),
    ({"model__merges": ["a"]}, "model.merges"),
    ({"model__merges": [["a", "☃"]]}, "a ☃"),
    ({"model__vocab": {"a": 0, "b": 2}}, "got 2"),
    ({"model__vocab": {"a": 0, "b": 1}, "model__merges": [], "added_tokens": []}, "256 bytes"),
    ({"added_tokens": [{"id": 7777, "content": "<new>", "special": True}]}, "got 7777"),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED, ids=[str(named) for _, named in REFUSED])
def test_refused_by_name(tmp_path, trained, changes, named):
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed(json.loads(trained), changes)), encoding="utf-8")
    assert named in refusal(tmp_path)
