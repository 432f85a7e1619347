"""Added tokens against the library `tokenizers`: those that take white space from one another, and 10,000 that begin
alike."""

import json
import random

import pytest
import transformers
from tokenizer_probe import ask, of_texts, offsets, write_vocabulary
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

UNK = "[UNK]"
# No two have one normalised form: of such tokens `tokenizers` finds either one at random.
CONTENTS = {
    "bert": [" ", "  ", "x", " x", "x ", "xy", "É", "中", "\u0301a", "x  y"],
    "byte-level": [" ", "  ", "\t", "\u00a0", "\u3000", "x", " x", "x ", "x\n", "é", "Ġ", " Ġ", "中", "x  y"],
}
LETTERS = [" ", " ", " ", "  ", "\t", "\n", "\u00a0", "\u3000", "x", "y", "a", "É", "é", "Ġ", "G\u0307", "中", "\u0301"]


def bert(tokens):
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token=UNK))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return tokenizer


def byte_level(draw):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*alphabet, UNK])}, []))
    prefix = draw.random() < 0.5
    if draw.random() < 0.5:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    if draw.random() < 0.8:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=prefix)
    return tokenizer


def random_tokens(draw, kind):
    for content in draw.sample(CONTENTS[kind], draw.randrange(1, 6)):
        flags = {flag: draw.random() < 0.5 for flag in ("lstrip", "rstrip", "normalized")}
        yield AddedToken(content, single_word=draw.random() < 0.1, **flags)


def encode(tokenizer, text):
    """None where `tokenizers` panics: where a token with lstrip begins in white space that rstrip has taken."""
    try:
        return tokenizer.encode(text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


@pytest.mark.parametrize("kind", CONTENTS)
def test_white_space_that_two_tokens_take(tmp_path, kind):
    draw = random.Random(61)
    counts = {"same": 0, "panics": 0}
    for case in range(40):
        tokenizer = bert([UNK, "y", "a", "##a"]) if kind == "bert" else byte_level(draw)
        tokenizer.add_tokens(list(random_tokens(draw, kind)))
        directory = tmp_path / str(case)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNK).save_pretrained(directory)
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        texts = ["".join(draw.choices(LETTERS, k=draw.randrange(1, 9))) for _ in range(200)]
        answers = ask(directory, of_texts(texts))
        assert len(answers) == len(texts), answers
        for text, got in zip(texts, answers, strict=True):
            assert all(0 <= begin <= end <= len(text) for begin, end in offsets(got)), (case, ascii(text))
            want = encode(tokenizer, text)
            counts["panics" if want is None else "same"] += 1
            if want is not None:
                assert (got["ids"], offsets(got)) == (want.ids, want.offsets), (case, ascii(text))
    assert min(counts.values()) > 0, counts


VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
TOKENS = [f"<{'reserved_' * 8}token_{i:05}>" for i in range(10_000)]
TEXT = f"a {TOKENS[0]}b{TOKENS[9_999]} {TOKENS[77][:-1]} h"


def write_json(folder, oracle):
    oracle.save(str(folder / "tokenizer.json"))
    return {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}


def write_decoder(folder, oracle):
    write_vocabulary(folder / "vocab.txt", VOCAB)
    added = {len(VOCAB) + i: {"content": token, "special": True} for i, token in enumerate(TOKENS)}
    return {"tokenizer_class": "BertTokenizer", "added_tokens_decoder": added}


def write_map(folder, oracle):
    write_vocabulary(folder / "vocab.txt", VOCAB)
    (folder / "added_tokens.json").write_text(json.dumps({token: len(VOCAB) + i for i, token in enumerate(TOKENS)}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": TOKENS}))
    return {"tokenizer_class": "BertTokenizer"}


@pytest.mark.parametrize("write", [write_json, write_decoder, write_map])
def test_many_that_begin_alike(write, tmp_path):
    """From every file that may hold them. Opening takes time in proportion to their number: 0.4 s for 100,000."""
    oracle = bert(VOCAB)
    oracle.add_tokens([AddedToken(token, special=True, normalized=False) for token in TOKENS])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(write(tmp_path, oracle)))
    (ours,) = ask(tmp_path, of_texts([TEXT]))
    assert ours["ids"] == oracle.encode(TEXT).ids
