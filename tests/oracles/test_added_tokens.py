"""Added tokens that take white space from one another, against the library `tokenizers`: random tokens, small texts."""

import random

import pytest
from tokenizer_probe import ask

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
AddedToken, Tokenizer = tokenizers.AddedToken, tokenizers.Tokenizer
models, normalizers = tokenizers.models, tokenizers.normalizers
pre_tokenizers, processors = tokenizers.pre_tokenizers, tokenizers.processors

UNK = "[UNK]"
# No two have one normalised form: of such tokens `tokenizers` finds either one at random.
CONTENTS = {
    "bert": [" ", "  ", "x", " x", "x ", "xy", "É", "中", "\u0301a", "x  y"],
    "byte-level": [" ", "  ", "\t", "\u00a0", "\u3000", "x", " x", "x ", "x\n", "é", "Ġ", " Ġ", "中", "x  y"],
}
LETTERS = [" ", " ", " ", "  ", "\t", "\n", "\u00a0", "\u3000", "x", "y", "a", "É", "é", "Ġ", "G\u0307", "中", "\u0301"]


def bert():
    vocabulary = {token: i for i, token in enumerate([UNK, "y", "a", "##a"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNK))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
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
        tokenizer = bert() if kind == "bert" else byte_level(draw)
        tokenizer.add_tokens(list(random_tokens(draw, kind)))
        directory = tmp_path / str(case)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNK).save_pretrained(directory)
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        texts = ["".join(draw.choices(LETTERS, k=draw.randrange(1, 9))) for _ in range(200)]
        answers = ask(directory, [{"text": text} for text in texts])
        assert len(answers) == len(texts), answers
        for text, got in zip(texts, answers, strict=True):
            offsets = list(zip(got["begin"], got["end"], strict=True))
            assert all(0 <= begin <= end <= len(text) for begin, end in offsets), (case, ascii(text))
            want = encode(tokenizer, text)
            counts["panics" if want is None else "same"] += 1
            if want is not None:
                assert (got["ids"], offsets) == (want.ids, want.offsets), (case, ascii(text))
    assert min(counts.values()) > 0, counts
