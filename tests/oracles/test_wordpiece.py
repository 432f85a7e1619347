"""The BERT tokenizer against other people's programs (spec R-TOK-04, R-TOK-05 table set B, R-TOK-07).

The words and ids are those of `transformers`' bert.tokenization_bert_legacy, the offsets those of
`tokenizers.BertWordPieceTokenizer` wherever that library gives the same ids.
"""

import itertools
import random
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
import tokenizer_probe
import tokenizers
from tokenizer_probe import SHARED, check_byte_offsets, first_of_words, offsets, write_vocabulary
from transformers.models.bert import tokenization_bert_legacy as legacy

from tokenizer_texts import SPECIALS, code_points, interesting_characters, random_strings, small_vocabulary

TABLE_VERSION = "14.0.0"  # of Unicode, in text/src/unicode/unicode_tables.inc

same_unicode = pytest.mark.skipif(
    unicodedata.unidata_version != TABLE_VERSION,
    reason=f"SKIPPED LOUDLY: the tables follow Unicode {TABLE_VERSION}, this Python has {unicodedata.unidata_version}",
)


def probe(texts, case, **more):
    options = {"pipeline": "bert-legacy", "lower": case == "lower"} | more
    return tokenizer_probe.ask(options, tokenizer_probe.of_texts(texts))


def legacy_words(texts, case):
    basic = legacy.BasicTokenizer(do_lower_case=case == "lower")
    return [basic.tokenize(text, never_split=SPECIALS) for text in texts]


def check_words(texts, case):
    ours = probe(texts, case, words=True)
    for text, got, want in zip(texts, ours, legacy_words(texts, case), strict=True):
        assert got["words"] == want, ascii(text)


@same_unicode
@pytest.mark.parametrize("case", ["lower", "keep"])
def test_every_code_point(case):
    """Alone, and inside a word that has letters of both cases around it; what is dropped between letters of a word."""
    dropped = [char for char in map(chr, code_points()) if unicodedata.category(char) in ("Cn", "Co")]
    pieces = [f"{char} X{char}y" for char in map(chr, code_points()) if unicodedata.category(char) not in ("Cn", "Co")]
    if case == "lower":  # letter case changes nothing for what is dropped
        pieces += ["X" + "y".join(dropped[i : i + 16]) + "Y" for i in range(0, len(dropped), 16)]
    check_words([" ".join(pieces[i : i + 256]) for i in range(0, len(pieces), 256)], case)


@same_unicode
def test_pairs_and_runs_of_combining_characters():
    """NFC and NFD: composition, blocking and reordering (10^5 random strings of two to five)."""
    draw = random.Random(5)
    picked, common = interesting_characters()
    marks = [char for char in picked if unicodedata.combining(char)]
    words = []
    for _ in range(100_000):
        pools = (picked, common, marks)
        words.append("".join(draw.choice(draw.choice(pools)) for _ in range(draw.choice((2, 2, 2, 3, 4, 5)))))
    texts = [" ".join(words[i : i + 100]) for i in range(0, len(words), 100)]
    for case in ("lower", "keep"):
        check_words(texts, case)


def legacy_ids(vocab_path, texts, case):
    tokenizer = legacy.BertTokenizerLegacy(str(vocab_path), do_lower_case=case == "lower")
    return [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts]


def fast_tokenizer(vocab_path, case):
    vocab = {token: i for i, token in enumerate(Path(vocab_path).read_text(encoding="utf-8").split("\n")[:-1])}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocab, lowercase=case == "lower")
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def fast_words(fast, text):
    words = []
    for part in re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text):
        if part in SPECIALS:
            words.append(part)
        else:
            words += [word for word, _ in fast.pre_tokenizer.pre_tokenize_str(fast.normalizer.normalize_str(part))]
    return words


def reorders_what_stays(text):
    """`tokenizers` loses track of a reordered mark, which shows when it is one that stripping accents keeps."""
    return any(unicodedata.combining(char) and unicodedata.category(char) != "Mn" for char in text)


def check_encodings(vocab_path, texts, case, least_agreement):
    """Ids against the legacy classes; offsets against `tokenizers` where it sees the same words. Returns ours."""
    ours = probe(texts, case, vocab=str(vocab_path))
    fast = fast_tokenizer(vocab_path, case)
    words = probe(texts, case, words=True)
    agreeing = 0
    for text, got, probed, want in zip(texts, ours, words, legacy_ids(vocab_path, texts, case), strict=True):
        assert got["ids"] == want, ascii(text)
        check_byte_offsets(got, text)
        if fast_words(fast, text) == probed["words"] and not reorders_what_stays(text):
            agreeing += 1
            theirs = fast.encode(text, add_special_tokens=False)
            assert (theirs.ids, theirs.offsets) == (want, offsets(got)), ascii(text)
            assert got["starts_word"] == first_of_words(theirs.word_ids), ascii(text)
    assert agreeing >= least_agreement * len(texts), f"{agreeing} of {len(texts)}"
    return ours


@same_unicode
@pytest.mark.parametrize("case", ["lower", "keep"])
def test_random_strings(tmp_path, case):
    texts = list(random_strings(10_000, seed={"lower": 1, "keep": 2}[case]))
    check_encodings(write_vocabulary(tmp_path / "vocab.txt", small_vocabulary()), texts, case, least_agreement=0.2)


def test_invalid_utf8_is_replaced_as_python_does():
    draw = random.Random(3)
    parts = (0x41, 0x20, 0x80, 0xBF, 0xC1, 0xC3, 0xE0, 0xED, 0xF0, 0xF4, 0xF5)
    raw = [bytes(draw.choices(parts, k=9)) for _ in range(3000)]
    ours = probe(raw, "lower", words=True)
    decoded = [text.decode("utf-8", errors="replace") for text in raw]
    for text, got, want in zip(decoded, ours, legacy_words(decoded, "lower"), strict=True):
        assert got["words"] == want, ascii(text)
        assert got["replaced"] == text.count("\ufffd"), ascii(text)
        firsts = [unicodedata.normalize("NFD", text[begin])[0].lower() for begin in got["begin"]]
        assert firsts == [word[0] for word in want], ascii(text)


@tokenizer_probe.needs_shared
@pytest.mark.parametrize("name", ["bert_base_uncased_vocab.txt", "bert_base_chinese_vocab.txt"])
def test_real_texts(name):
    check_encodings(SHARED / "vocabs" / name, tokenizer_probe.shared_texts(), "lower", least_agreement=0.9)


def naive_merges(words, size):
    """The trainer's algorithm by its definition: count all pairs anew before each merge."""
    pieces = {word: [char if i == 0 else "##" + char for i, char in enumerate(word)] for word in words}
    alphabet = sorted({char for word in words for char in word})
    tokens = SPECIALS + alphabet + sorted({piece for parts in pieces.values() for piece in parts[1:]})
    while len(tokens) < size:
        counts = Counter()
        for word, parts in pieces.items():
            for pair in itertools.pairwise(parts):
                counts[pair] += words[word]
        best = min(counts, key=lambda pair: (-counts[pair], [part.encode() for part in pair]), default=None)
        if counts[best] < 2:
            break
        merged = best[0] + best[1][2:]
        if merged not in tokens:
            tokens.append(merged)
        for word, parts in pieces.items():
            out = []
            while parts:
                take = 2 if tuple(parts[:2]) == best else 1
                out.append(merged if take == 2 else parts[0])
                parts = parts[take:]
            pieces[word] = out
    return tokens


def test_trainer_is_the_naive_algorithm():
    draw = random.Random(7)
    stems = ["".join(draw.choice("abcdeé") for _ in range(draw.randrange(1, 6))) for _ in range(60)]
    texts = [" ".join(draw.choice(stems) + draw.choice(["", "s", "ing", "aaa"]) for _ in range(200)) for _ in range(5)]
    words = Counter(" ".join(texts).split())
    for size in (40, 120, 400):
        (ours,) = probe(texts, "keep", train=size)
        assert ours["tokens"] == naive_merges(words, size)


def test_trained_vocabulary_loses_nothing(tmp_path):
    """R-TOK-07: encoding and decoding give the normalised text back, and transformers reads the same ids."""
    text = (tokenizer_probe.ROOT / "LICENSE").read_text(encoding="utf-8")
    (trained,) = probe([text], "lower", train=600)
    assert len(trained["tokens"]) == 600
    vocab_path = write_vocabulary(tmp_path / "vocab.txt", trained["tokens"])
    (ours,) = check_encodings(vocab_path, [text], "lower", least_agreement=1)
    decoded = " ".join(trained["tokens"][i] for i in ours["ids"]).replace(" ##", "")
    assert decoded == " ".join(legacy_words([text], "lower")[0])
