"""The pipelines `bert` and `roformer` against `transformers` 5, which runs them on the library `tokenizers`: words, ids
and offsets (spec R-TOK-01, R-TOK-04, R-TOK-05 table set A) of random strings, and of real texts (tests/samples)."""

import random
import unicodedata

import pytest
import rjieba
import tokenizer_probe
import tokenizers
import transformers
from tokenizer_probe import ROOT, SHARED, check_byte_offsets, chinese_strings, dictionary_words, first_of_words, offsets

from tokenizer_texts import SPECIALS, code_points, interesting_characters, random_strings, small_vocabulary

# do_lower_case, strip_accents, tokenize_chinese_chars
DEFAULTS = [(True, None, True), (False, None, True)]
OPTIONS = [*DEFAULTS, (True, True, False), (False, True, True), (True, False, True), (False, False, False)]
OPTIONS += [(True, None, False)]  # each pair of values
CLASSES = {"bert": transformers.BertTokenizer, "roformer": transformers.RoFormerTokenizer}


def probe(texts, pipeline, options, **more):
    """The probe's answers to texts or bytes."""
    lower, strip, cjk = options
    given = {"pipeline": pipeline, "lower": lower, "strip_accents": strip, "tokenize_chinese_chars": cjk}
    if pipeline == "roformer":
        given["dictionary"] = str(tokenizer_probe.DICTIONARY)
    return tokenizer_probe.ask(given | more, tokenizer_probe.of_texts(texts))


def library_words(options):
    """A function from text to words and their character offsets."""
    lower, strip, cjk = options
    given = {"handle_chinese_chars": cjk, "strip_accents": strip, "lowercase": lower}
    normalizer = tokenizers.normalizers.BertNormalizer(clean_text=True, **given)
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()

    def words(text):
        pre = tokenizers.PreTokenizedString(text)
        pre.normalize(normalizer.normalize)
        splitter.pre_tokenize(pre)
        return [(word, *offsets) for word, offsets, _ in pre.get_splits("original", "char")]

    return words


def check_words(texts, options):
    theirs = library_words(options)
    for text, got in zip(texts, probe(texts, "bert", options, words=True), strict=True):
        ours = [(word, *place) for word, place in zip(got["words"], offsets(got), strict=True)]
        assert ours == theirs(text), ascii(text)


@pytest.mark.parametrize("options", OPTIONS)
def test_every_code_point(options):
    """Alone, and inside a word that has letters of both cases around it. Most of those that are private or unknown to
    Python, which are dropped, are between letters of long words."""
    chars = [chr(code) for code in code_points() if options in DEFAULTS or code < 0x3400 or code % 29 == 0]
    dropped = [char for char in chars if ord(char) % 29 and unicodedata.category(char) in ("Cn", "Co")]
    pieces = [f"{char} X{char}y" for char in sorted({*chars} - {*dropped})]
    pieces += ["X" + "y".join(dropped[i : i + 16]) + "Y" for i in range(0, len(dropped), 16)]
    check_words([" ".join(pieces[i : i + 64]) for i in range(0, len(pieces), 64)], options)


@pytest.mark.parametrize("options", [(True, None, True), (False, True, True), (True, False, True)])
def test_runs_of_combining_characters(options):
    """Decomposition and canonical reordering, of marks that stay too (random strings of two to five)."""
    draw = random.Random(5)
    picked, common = interesting_characters()
    marks = [char for char in picked if unicodedata.combining(char)]
    words = []
    for _ in range(20_000):
        words.append("".join(draw.choice(draw.choice((picked, common, marks))) for _ in range(draw.randrange(2, 6))))
    check_words([" ".join(words[i : i + 50]) for i in range(0, len(words), 50)], options)


def library_tokenizer(pipeline, tokens, options):
    lower, strip, cjk = options
    vocab = {token: i for i, token in enumerate(tokens)}
    return CLASSES[pipeline](vocab, do_lower_case=lower, strip_accents=strip, tokenize_chinese_chars=cjk)


def check_encodings(pipeline, texts, tokens, options, tmp_path):
    path = tokenizer_probe.write_vocabulary(tmp_path / "vocab.txt", tokens)
    fast = library_tokenizer(pipeline, tokens, options)
    for text, got in zip(texts, probe(texts, pipeline, options, vocab=str(path)), strict=True):
        theirs = fast(text, add_special_tokens=False, return_offsets_mapping=True)
        assert (got["ids"], offsets(got)) == (theirs.input_ids, theirs["offset_mapping"]), ascii(text)
        assert got["starts_word"] == first_of_words(theirs.word_ids()), ascii(text)
        check_byte_offsets(got, text)


@pytest.mark.parametrize("options", [*DEFAULTS, (True, False, False), (False, True, True)])
def test_bert_on_random_strings(tmp_path, options):
    """And on words that together are too long for pieces, parted by a character that is punctuation in NFD."""
    texts = [*random_strings(2_000, seed=11), "\u00e9" * 60 + "\u037e" + "a" * 60]
    check_encodings("bert", texts, small_vocabulary(), options, tmp_path)


def chinese_vocabulary():
    """The small one, words of jieba's and the characters of its first words, some joined with others."""
    chosen = dictionary_words()[:: len(dictionary_words()) // 4000]
    chars = sorted({char for word in chosen for char in word})
    return list(dict.fromkeys(small_vocabulary() + chosen + chars[::2] + ["##" + char for char in chars[::3]] + [" "]))


COMMON = ["\u200b", "\u0301", "A", "\x00", "[SEP]", "\ue000", "%", "3.5", "C++", "e\u0301\u0323", "İstanbul"]


@pytest.mark.parametrize("options", [*DEFAULTS, (True, False, True), (False, True, False)])
def test_roformer_on_random_strings(tmp_path, options):
    texts = [*chinese_strings(1_000, 12, COMMON), *random_strings(300, seed=12)]
    check_encodings("roformer", texts, chinese_vocabulary(), options, tmp_path)


def test_roformer_on_long_texts(tmp_path):
    """Which are worked on in stretches of 16 KiB or more, parted where neither jieba nor normalisation looks across."""
    word = "中华人民共和国"
    gaps = ("", "\u3002", "\u0301", "e\u0301")
    texts = ["x" * lead + word * 800 + gap + word * 20 for lead in range(3) for gap in gaps]
    texts.append("".join(chinese_strings(600, 13, COMMON)))
    assert all(len(text.encode()) > 16_384 for text in texts)
    check_encodings("roformer", texts, [*chinese_vocabulary(), word], DEFAULTS[0], tmp_path)


def test_long_words():
    """Which wait for their ends, one stretch of 16 KiB after the other."""
    draw = random.Random(14)
    letters = ["\u00c9", "e", "e\u0301"]
    words = ["".join(draw.choices(letters, k=draw.choice([1, 9_000, 30_000]))) for _ in range(30)]
    texts = [".".join(words[i : i + 6]) for i in range(0, len(words), 6)]
    texts += ["\u00c9" * 8_192 * stretches + end for stretches in (1, 2, 3) for end in (".", "..e", "e", "")]
    check_words(texts, DEFAULTS[0])


# First and last code points of blocks of ideographs.
EDGES = [0x2A6DF, 0x2A6E0, 0x2A700, 0x2B739, 0x2B73F, 0x2B740, 0x2B81D, 0x2B81F, 0x2B820, 0x2B91F, 0x2B920, 0x2CEA1]
EDGES += [0x2CEAF, 0x2CEB0, 0x2EBE0, 0x2EBEF, 0x2EBF0, 0x2F800, 0x2FA1D, 0x2FA1F, 0x2FA20, 0x2FFFE, 0x2FFFF, 0x30000]
EDGES += [0x3134A, 0x3134B, 0x31350, 0x323AF, 0x3FFFF]


@pytest.mark.parametrize("options", DEFAULTS)
def test_roformer_on_every_code_point(tmp_path, options):
    """A sample of those that no table treats in a special way, smaller for the second options; all others; alone,
    inside a word, and in rows. Some are in the vocabulary, or in words of it."""
    special = {*range(0x3400), *range(0xFFF0, 0x10000), *range(0xE0000, 0xE0200), *EDGES}
    step = 29 if options == DEFAULTS[0] else 149
    chars = [chr(code) for code in code_points() if code in special or code % step == 0]
    more = [*chars[::3], *("\u4e2d" + char for char in chars[1::3]), *("##" + char for char in chars[::5])]
    vocabulary = [token for token in dict.fromkeys([*chinese_vocabulary(), *more]) if not set(token) & set("\n\r")]
    draw = random.Random(6)
    pieces = [f"{x} \u4e2d{x}\u56fdX{x}y {draw.choice(chars)}{x}{draw.choice(chars)}中国{x}" for x in chars]
    texts = [" ".join(pieces[i : i + 64]) for i in range(0, len(pieces), 64)]
    check_encodings("roformer", texts, vocabulary, options, tmp_path)


def lines(name):
    return (ROOT / "tests" / "samples" / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def word_pieces(texts):
    """A vocabulary that the library learns from the texts."""
    learned = tokenizers.BertWordPieceTokenizer(lowercase=True)
    learned.train_from_iterator(texts, vocab_size=400, min_frequency=1, special_tokens=SPECIALS, show_progress=False)
    return sorted(learned.get_vocab(), key=learned.get_vocab().get)


def words_of_jieba(texts):
    """The words that rjieba finds, every other one, and the characters, so that words are cut in each way."""
    words = sorted({word for text in texts for word in rjieba.cut(text.lower(), False) if word.strip()})
    characters = sorted({char for text in texts for char in text.lower() if char.strip()})
    return list(dict.fromkeys([*SPECIALS, *words[::2], *characters, *("##" + char for char in characters[::2])]))


@pytest.mark.parametrize("options", DEFAULTS)
@pytest.mark.parametrize("name", ["english", "chinese"])
def test_real_texts(tmp_path, name, options):
    texts = lines(name)
    check_encodings("bert", [*texts, " ".join(texts)], word_pieces(texts), options, tmp_path)
    texts += [a + b for a, b in zip(lines("english"), lines("chinese"), strict=False)] + ["".join(texts)]
    check_encodings("roformer", texts, words_of_jieba(lines(name)), options, tmp_path)


@tokenizer_probe.needs_shared
@pytest.mark.parametrize("name", ["bert_base_uncased", "bert_base_chinese", "roformer_chinese_base"])
def test_real_vocabularies(tmp_path, name):
    tokens = (SHARED / "vocabs" / f"{name}_vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    check_encodings(name.split("_")[0], tokenizer_probe.shared_texts(), tokens, DEFAULTS[0], tmp_path)


@pytest.mark.parametrize("pipeline", CLASSES)
def test_invalid_utf8_is_replaced_as_python_does(tmp_path, pipeline):
    draw = random.Random(3)
    lead = (0x41, 0x20, 0x80, 0xBF, 0xC1, 0xC3, 0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0xF5)
    raw = [bytes(draw.choice(lead) for _ in range(9)) for _ in range(1000)]
    tokens = small_vocabulary()
    path = tokenizer_probe.write_vocabulary(tmp_path / "vocab.txt", tokens)
    fast = library_tokenizer(pipeline, tokens, DEFAULTS[0])
    for text, got in zip(raw, probe(raw, pipeline, DEFAULTS[0], vocab=str(path)), strict=True):
        decoded = text.decode("utf-8", errors="replace")
        theirs = fast(decoded, add_special_tokens=False, return_offsets_mapping=True)
        assert (got["ids"], offsets(got)) == (theirs.input_ids, theirs["offset_mapping"]), text
        assert got["replaced"] == decoded.count("\ufffd"), text
