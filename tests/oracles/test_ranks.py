"""Tokenizers of ranks, tiktoken's files and Mistral's tekken.json, against tiktoken and transformers."""

import base64
import functools
import json
import unicodedata

import pytest
import tiktoken
import tiktoken_ext.openai_public
from tokenizer_probe import ask, check_texts, of_texts, random_texts, refusal
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode
from transformers.integrations.mistral.tokenizer import MistralConverter
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from roformer_cpp import Tokenizer as OurTokenizer

COUNTS = {"r50k_base": 50256, "cl100k_base": 100256, "o200k_base": 199998}  # ranks of the published files
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MISTRAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"]


@functools.cache
def ranks():
    """Tokens by rank: the bytes in another order than theirs, and merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(list(random_texts(800, 3)) * 2, trainer)
    byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokens = [bytes([(i + 33) % 256]) for i in range(256)]
    for merge in json.loads(tokenizer.to_str())["model"]["merges"]:
        token = bytes(byte_of[letter] for letter in "".join(merge))
        if token not in tokens:
            tokens.append(token)
    tokens += [b"\n" * 17, b" lo ng", "中文한".encode()]  # no merges make them
    return {token: rank for rank, token in enumerate(tokens)}


def write_ranks(path, tokens=None, first=None):
    tokens = ranks() if tokens is None else tokens
    lines = [f"{base64.b64encode(token).decode()} {rank}" for token, rank in tokens.items()]
    if first is not None:
        lines[0] = first
    path.write_text("".join(line + "\n" for line in lines))
    return path.parent


def published(name, monkeypatch):
    """tiktoken's encoding with ranks of ours in place of the published ones."""
    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda *_, **__: ranks())
    made = getattr(tiktoken_ext.openai_public, name)()
    specials = {token: len(ranks()) + id - COUNTS[name] for token, id in made["special_tokens"].items()}
    return tiktoken.Encoding(name, pat_str=made["pat_str"], mergeable_ranks=ranks(), special_tokens=specials)


def check_ids(folder, encoding, normalize=lambda text: text):
    specials = sorted(encoding.special_tokens_set)
    texts = ["", "a", "x" * 4000, " " * 300, " lo ng", "\n" * 17 + "b", "'LL I'm", *random_texts(3000, 5, specials)]
    for text, got in zip(texts, ask(folder, of_texts(texts)), strict=True):
        assert got["ids"] == encoding.encode(normalize(text), allowed_special="all"), ascii(text)
    ids = encoding.encode(texts[-1], allowed_special="all")
    assert ask(folder, [{"ids": ids, "skip": False}])[0]["text"] == encoding.decode(ids)


@pytest.mark.parametrize("name", COUNTS)
def test_published_encodings(name, tmp_path, monkeypatch):
    check_ids(write_ranks(tmp_path / f"{name}.tiktoken"), published(name, monkeypatch))


def test_qwen(tmp_path):
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
    specials = {token: len(ranks()) + i for i, token in enumerate(names)}
    encoding = tiktoken.Encoding("q", pat_str=PRETOKENIZE_REGEX, mergeable_ranks=ranks(), special_tokens=specials)
    folder = write_ranks(tmp_path / "qwen.tiktoken")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "QWenTokenizer"}')
    check_ids(folder, encoding, lambda text: unicodedata.normalize("NFC", text))


def test_llama(tmp_path):
    """Ids and offsets of the tokenizer that transformers makes of Llama 3's file; its 256 special tokens follow."""
    folder = write_ranks(tmp_path / "tokenizer.model")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    theirs = TikTokenConverter(str(folder / "tokenizer.model")).converted()
    check_texts(folder, random_texts(2000, 7), theirs.encode)
    tokenizer = OurTokenizer(folder)
    count = len(ranks())
    known = {"<|begin_of_text|>": 0, "<|end_of_text|>": 1, "<|start_header_id|>": 6, "<|eom_id|>": 8, "<|eot_id|>": 9}
    known |= {"<|python_tag|>": 10, "<|reserved_special_token_3|>": 11, "<|reserved_special_token_247|>": 255}
    for token, place in known.items():
        assert tokenizer.encode(token) == [count, count + place], token
    framed = ask(folder, [{"text": "a", "specials": True}])[0]["ids"]
    assert framed == [count, *theirs.encode("a").ids]


def test_specials_of_a_config(tmp_path):
    folder = write_ranks(tmp_path / "tokenizer.model")
    count = len(ranks())
    added = {str(count + i): {"content": f"<{name}>", "special": True} for i, name in enumerate("ab")}
    config = {"bos_token": "<a>", "add_bos_token": True, "added_tokens_decoder": added}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert ask(folder, [{"text": "<b>", "specials": True}])[0]["ids"] == [count, count + 1]


def tekken(specials=MISTRAL, special_count=40, size=None, pattern=TEKKEN):
    vocab = [{"rank": r, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for t, r in ranks().items()]
    size = len(vocab) - 90 + special_count if size is None else size
    config = {"pattern": pattern, "num_vocab_tokens": len(vocab), "default_vocab_size": size}
    config |= {"version": "v11" if specials else "v3"}
    file = {"config": config | {"default_num_special_tokens": special_count}, "vocab": vocab}
    if specials:
        file["special_tokens"] = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(specials)]
        file["special_tokens"].reverse()
    return file


def write_tekken(folder, file):
    (folder / "tekken.json").write_text(json.dumps(file))
    return folder


def test_tekken(tmp_path):
    """The vocabulary is cut to its size, after the special tokens and those that fill their count."""
    folder = write_tekken(tmp_path, tekken())
    theirs = MistralConverter(str(folder / "tekken.json")).converted()
    texts = list(random_texts(2000, 9, [*MISTRAL, "<SPECIAL_39>", "<SPECIAL_40>"]))
    check_texts(folder, texts, theirs.encode)
    assert ask(folder, [{"text": "a", "specials": True}])[0]["ids"] == [1, *theirs.encode("a").ids]
    ids = theirs.encode(texts[5]).ids
    for skip in (False, True):
        assert ask(folder, [{"ids": ids, "skip": skip}])[0]["text"] == theirs.decode(ids, skip_special_tokens=skip)
    ours = tmp_path / "ours"
    ours.mkdir()
    ask(folder, [{"save": str(ours)}])
    check_texts(ours, texts[:500], theirs.encode)
    (folder / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    assert ask(folder, [{"text": "a", "specials": True}])[0]["ids"] == theirs.encode("a").ids


def test_tekken_without_specials(tmp_path):
    """Those of mistral_common's first files."""
    names = ["<unk>", "<s>", "</s>", "[INST]", "[TOOL_CALLS]", "<pad>", "[SUFFIX]", "[TOOL_CONTENT]", "<SPECIAL_20>"]
    answers = ask(write_tekken(tmp_path, tekken(specials=None)), of_texts(names))
    assert [answer["ids"] for answer in answers] == [[i] for i in (0, 1, 2, 3, 9, 11, 16, 19, 20)]


def changed_tekken(change, folder):
    file = tekken()
    change(file)
    return write_tekken(folder, file)


def entry(key, value, place=3, section="vocab"):
    return lambda file: file[section][place].__setitem__(key, value)


def setting(**keys):
    return lambda file: file["config"].update(keys)


# Of a file of ranks, its first line.
LINES = {
    "no rank": ("IQ==", 'a line must be a token in base64, a space and its rank, got "IQ==" in line 1'),
    "no number": ("IQ== x", "a space and its rank"),
    "two spaces": ("IQ== 0 1", "a space and its rank"),
    "overflow": ("IQ== 99999999999999999999", "a space and its rank"),
    "negative": ("IQ== -1", "each once, got -1 in line 1"),
    "too large": ("IQ== 2000000", "each once, got 2000000 in line 1"),
    "doubled rank": ("IQ== 5", "each once, got 5 in line 6"),
    "bad base64": ("I!== 0", 'a token must be base64 of 1 to 256 bytes, got "I!==" in line 1'),
    "short base64": ("IQ= 0", "a token must be base64"),
    "no bytes": ("==== 0", "a token must be base64"),
    "long token": ("IQAA" * 400 + " 0", "a token must be base64 of 1 to 256 bytes"),
    "doubled token": ("Ig== 0", "tokens must be unique"),
    "lacks a byte": ("ISEhISEh 0", "each of the 256 bytes must have a rank, got none for 33"),
}
SPECIAL_RANKS = "special_tokens must have a name and the ranks 0 to 5"
LARGE = {"default_num_special_tokens": 2**40, "default_vocab_size": 2**40 + 9}
# Of tekken.json, what is changed.
CHANGES = {
    "no pattern": (lambda file: file["config"].pop("pattern"), "config must have pattern, a text, got none"),
    "bad pattern": (setting(pattern="(?<=a)b"), "must be an expression"),
    "vocab": (lambda file: file.update(vocab=5), "vocab must be a list"),
    "bytes": (entry("token_bytes", 5), "vocab[3] must have token_bytes, a text, got 5"),
    "base64": (entry("token_bytes", "A"), "a token must be base64"),
    "rank": (entry("rank", 4), "each once, got 4 in vocab[4]"),
    "real rank": (entry("rank", 3.5), "vocab[3] must have rank, an integer, got 3.5"),
    "size": (setting(default_vocab_size=10**6), "default_vocab_size must be above"),
    "negative size": (setting(default_vocab_size=-(2**63)), "default_vocab_size must be above"),
    "many specials": (setting(**LARGE), "default_num_special_tokens must be from"),
    "no specials": (lambda file: file.pop("special_tokens"), "special_tokens must be given after version v7, got none"),
    "few specials": (setting(default_num_special_tokens=2), "must be from the 6 special tokens to 1048576, got 2"),
    "special rank": (entry("rank", 6, section="special_tokens"), SPECIAL_RANKS),
    "special name": (entry("token_str", "", section="special_tokens"), SPECIAL_RANKS),
    "same name": (entry("token_str", "<s>", place=0, section="special_tokens"), "<s>"),
}
RANKS = "qwen.tiktoken"
CASES = {
    "two files": (lambda folder: write_ranks(write_ranks(folder / RANKS) / "cl100k_base.tiktoken"), "one file of"),
    "empty": (lambda folder: write_ranks(folder / RANKS, {}), "tokens, got none"),
    "tekken: a list": (lambda folder: write_tekken(folder, []), "must have default_vocab_size, an integer, got none"),
}
for name, (line, message) in LINES.items():
    CASES[name] = (lambda folder, line=line: write_ranks(folder / RANKS, first=line)), message
for name, (change, message) in CHANGES.items():
    CASES[f"tekken: {name}"] = functools.partial(changed_tekken, change), message


@pytest.mark.parametrize("case", CASES)
def test_refused(case, tmp_path):
    write, message = CASES[case]
    found = refusal(write(tmp_path))
    assert message in found and "\n" not in found, found
