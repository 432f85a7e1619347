"""Byte-level BPE with other splitting expressions than GPT-2's, against the library `tokenizers`."""

import functools
import json
import random
import time

import gguf
import pytest
import transformers
from tokenizer_probe import ask, check_decoding, check_texts, ends, of_texts, random_texts, refusal
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import roformer_cpp
from rotary_decoders import add_tokenizer, close_gguf
from tokenizer_texts import code_points

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace(CONTRACTIONS + "?", "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
# The letters as escapes: some are equal to others in NFC.
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_LLM = ["[\r\n]", rf"\s?[{DEEPSEEK_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", DEEPSEEK_CODER[-1]]
POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
QWEN3_5 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+", 1).replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")


LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def isolated(*expressions, digits=None):
    steps = [pre_tokenizers.Split(Regex(each), behavior="isolated") for each in expressions]
    steps += [] if digits is None else [pre_tokenizers.Digits(individual_digits=digits)]
    return [*steps, LEVEL]


def others_removed(expression):
    return [pre_tokenizers.Split(Regex(expression), behavior="removed", invert=True), LEVEL]


PATTERNS = {
    "llama3": isolated(LLAMA3),
    "qwen2": isolated(QWEN2),
    "qwen3_5": isolated(QWEN3_5),
    "possessive": isolated(POSSESSIVE),
    "o200k": isolated(O200K),
    "tekken": isolated(TEKKEN),
    "deepseek": isolated(*DEEPSEEK),
    "deepseek-llm": isolated(*DEEPSEEK_LLM, digits=True),
    "deepseek-coder": isolated(*DEEPSEEK_CODER, digits=True),
    "cl100k": others_removed(LLAMA3),
    "gaps": others_removed(r"\s?\p{L}+|\p{Nd}{2}"),
    "line-ends": isolated(r"\s+$", r"\p{P}$|.(?=\p{L})", digits=False),
    "string": [
        pre_tokenizers.Split("a.", behavior="isolated"),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ],
    "backs-off": isolated(r"a*a*b|\s*\s*\n|(?:\p{L}+|\p{L}\d)?!|[ab]{2,}c|\S\D\P{L}"),
}
HOSTILE = ["'S", "'ſ", "'LL", "'Ve", "'re", "'RE'd", "don'T", "1", "12", "1234567", "٣٤٥", "²", "Ⅷ", "\U00011de0"]
HOSTILE += ["\n", "\r\n", "\n\n", "  \n", " \n  ", "\t", "   ", "!", "!!\n", "/", "//\r\n/", "$x", "#Ab", "HTTPServer"]
HOSTILE += ["camelCase", "ǅ", "ʰ", "ª", "ß", "ab", "aab", "aabc", "a.", "東京タワー", "かな", "漢字", "한국", "x\u0301"]
HOSTILE += ["\u0301", "\u0300\n", "e\u0301\u0323Z", "\u2028", "\u0085", "\u00a0", "\u3000", "\U0001f600", "_", "«»"]


def texts_of(pattern, count):
    many = 60 if pattern == "backs-off" else 3000  # `tokenizers` takes cubic time
    yield from ["", " ", "\n", "a", "  ", " a", "a \n", "\n\n"]
    yield from ["x" * many, " " * many + "b", "\n" + " " * many, "aA" * many]
    yield from random_texts(count, seed=len(pattern), tokens=HOSTILE)
    draw = random.Random(len(pattern))
    for _ in range(count):
        yield "".join(draw.choices(HOSTILE, k=draw.randrange(1, 14)))


@functools.cache
def train(pattern, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PATTERNS[pattern])
    if pattern.startswith("qwen"):
        tokenizer.normalizer = normalizers.NFC()
    return trained(tokenizer, pattern)


def trained(tokenizer, name):
    tokenizer.decoder = decoders.ByteLevel()
    given = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>", "<s>", "</s>"], **given)
    tokenizer.train_from_iterator(texts_of(name, 700), trainer)
    return tokenizer


def save(tokenizer, directory):
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    wrapped.save_pretrained(directory)
    return wrapped


@pytest.mark.parametrize("pattern", PATTERNS)
def test_hostile_strings(tmp_path, pattern):
    wrapped = save(train(pattern, ignore_merges=pattern in ("llama3", "tekken")), tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    ask(tmp_path / "theirs", [{"save": str(tmp_path / "ours")}])
    texts = list(texts_of(pattern, 2500))
    assert len(texts) > 5000
    answers = check_texts(tmp_path / "theirs", texts, wrapped._tokenizer.encode)
    assert ask(tmp_path / "ours", of_texts(texts)) == answers
    check_decoding(tmp_path / "theirs", wrapped, [answer["ids"] for answer in answers[:200]])


CATEGORIES = {"L": "ultmo", "M": "nce", "N": "dlo", "P": "cdseifo", "S": "mcko", "Z": "slp", "C": "cfon"}


@functools.cache
def telling_characters():
    """Expressions name categories and lists of letters, so long rows of one category, as the library knows them, are
    tested at their ends and at every 31st character."""
    listed = {*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x12000), *map(ord, "一龥\u9fa6가\ud7ff")}
    names = [kind + letter for kind, letters in CATEGORIES.items() for letter in letters]
    rows = pre_tokenizers.Split(Regex("|".join(rf"\p{{{name}}}+" for name in names)), "isolated")
    text = "".join(map(chr, code_points()))
    ends = {char for row, _ in rows.pre_tokenize_str(text) for char in (row[0], row[-1])}
    return [char for char in text if char in ends or ord(char) in listed or ord(char) % 31 == 0]


@pytest.mark.parametrize("pattern", ["llama3", "o200k", "deepseek", "deepseek-llm"])
def test_every_code_point(tmp_path, pattern):
    wrapped = save(train(pattern), tmp_path)
    pieces = [f"a{char} {char}B{char}\n" for char in telling_characters()]
    texts = ["".join(pieces[i : i + 512]) for i in range(0, len(pieces), 512)]
    check_texts(tmp_path, texts, wrapped._tokenizer.encode)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_linear_time(tmp_path, pattern):
    """Texts on which a matcher that remembers nothing takes quadratic time: minutes for 100,000 characters."""
    save(train(pattern), tmp_path)
    parts = ["a", " ", "\n ", "A", "1", "漢", "!", "a1", "\u0301", "'"]
    texts = [part * (100_000 // len(part)) + "x" for part in parts]
    start = time.monotonic()
    assert ends(tmp_path, of_texts(texts)) == [len(text) for text in texts]
    assert time.monotonic() - start < 60


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGITS, THREE = r"\p{N}", "[0-9][0-9][0-9]"
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
SPARK = DEEPSEEK[2].replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]")
JAIS2 = LLAMA3.split(r"|\s+(?!\S)")[0] + "".join(rf"|\s{{{2**i}}}(?!\S)" for i in range(9, 1, -1))
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
YOUTU = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"
CHAMELEON = ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", DIGITS]
# The expressions of llama.cpp's src/llama-vocab.cpp, or of the tokenizer.json that they stand for, by pre: one name of
# each row of the table.
PRES = {
    "gpt-2": [GPT2],
    "modern-bert": [GPT2],
    "roberta-bpe": [GPT2],
    "smollm": [DIGITS, GPT2],
    "command-r": [DIGITS, GPT2],
    "llama-bpe": [LLAMA3],
    "dbrx": [LLAMA3],
    "jais-2": [JAIS2 + r"|\s{1,2}(?!\S)|\s{1}"],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "qwen2": [QWEN2],
    "qwen35": [QWEN3_5],
    "stablelm2": [QWEN2],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "seed-coder": [QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")],
    "ufakzeka": [QWEN2.removeprefix(CONTRACTIONS + "|")],
    "bailingmoe": [BAILING],
    "gpt-4o": [O200K],
    "granite-embed-multi-97m": [O200K],
    "youtu": [YOUTU, O200K.replace(r"\p{N}{1,3}", r"\p{N}")],
    "tekken": [TEKKEN],
    "bloom": [BLOOM],
    "viking": [BLOOM, DIGITS],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE],
    "chameleon": [*CHAMELEON, r"[\p{P}!-/:-@\[-`{-~]", GPT2],
    "deepseek-llm": [*DEEPSEEK_LLM, DIGITS],
    "deepseek-coder": [*DEEPSEEK_CODER, DIGITS],
    "spark2_5": [*DEEPSEEK[:2], SPARK, DIGITS],
    "deepseek-v3": DEEPSEEK,
}
NFC = ["modern-bert", "command-r", "qwen2", "qwen35"]
IGNORE_MERGES = ["llama-bpe", "minicpm5", "granite-embed-multi-97m", "youtu", "tekken"]
ADD_BOS = ["llama-bpe", "tekken", "chameleon", "roberta-bpe"]
HOSTILE += ["<sentinel:12>", "IMGIMGABCZ", "IMGIMGZ", "    ", "…", "。", "ㄅ", "(", "|", "`", "=>", "'s", "  \t"]


def pre_tokenizer(pre):
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre in IGNORE_MERGES))
    steps = isolated(*PRES[pre])
    for i, expression in enumerate(PRES[pre]):
        if expression == DIGITS:  # which knows fewer characters than this step of those tokenizer.json
            steps[i] = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if pre in NFC:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def write_gguf(path, tokenizer, pre):
    writer = gguf.GGUFWriter(str(path), "llama")
    add_tokenizer(writer, tokenizer, pre)
    close_gguf(writer)
    return path


@pytest.mark.parametrize("pre", PRES)
def test_gguf(tmp_path, pre):
    tokenizer = trained(pre_tokenizer(pre), pre)
    path = write_gguf(tmp_path / "model.gguf", tokenizer, pre)
    check_texts(path, texts_of(pre, 500), tokenizer.encode)
    (answer,) = ask(path, [{"text": "a b", "specials": True}])
    assert answer["ids"] == [1] * (pre in ADD_BOS) + tokenizer.encode("a b").ids + [2] * (pre == "roberta-bpe")


@pytest.mark.parametrize("pre", ["kimi-k2", "superbpe", "tiny_aya", "exaone-moe", "afmoe", "gemma4", "rwkv"])
def test_other_pres_are_refused(tmp_path, pre):
    assert refusal(write_gguf(tmp_path / "model.gguf", train("llama3"), pre)).endswith(f'got "{pre}"')


def test_class_of_transformers(tmp_path):
    """Qwen2Tokenizer builds its own steps; a file with others is refused."""
    file = json.loads(train("qwen2").to_str())["model"]
    theirs = transformers.Qwen2Tokenizer(vocab=file["vocab"], merges=[tuple(merge) for merge in file["merges"]])
    theirs.save_pretrained(tmp_path)
    check_texts(tmp_path, texts_of("qwen2", 300), theirs._tokenizer.encode)
    train("llama3").save(str(tmp_path / "tokenizer.json"))
    assert "Qwen2Tokenizer must agree on the expression" in refusal(tmp_path)


REFUSED = {
    r"(?<=a)b": "groups",
    r"a|": "empty text",
    r"(a*)*": "groups",
    r"(a+)+b": "groups",
    r"\w+": "escapes",
    r"\p{Han}+": "general categories",
    r"a+?": "lazy",
    r"a{2}{3}": "repetition",
    r"[a[b]]": "inside [...]",
    r"[a&&b]": "inside [...]",
    r"\bx": "escapes",
    r"^a": "escape ^",
    r"(?i:ss)": "ss",
    r"(?i:é)": "ASCII",
    r"(a": "close its groups",
    r"a)": "groups that it opens",
    r"[a": "close its [",
    r"a{2001}": "1000 times",
    r"(?=ab)c": "one character",
    "(" * 600: "at most 512 characters, sets and groups",
    "[" + "a-c" * 3000 + "]": "at most 8192 bytes",
}


def write_expression(folder, document, expression):
    document["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": expression}
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("expression", REFUSED, ids=[each[:20] for each in REFUSED])
def test_refused_expressions(tmp_path, expression):
    write_expression(tmp_path, json.loads(train("llama3").to_str()), expression)
    message = refusal(tmp_path)
    assert REFUSED[expression] in message and "pretokenizers[0].pattern" in message, message
    assert expression[:200] in message and len(message) < 1000


def test_refused_steps(tmp_path):
    tokenizer = json.loads(train("llama3").to_str())
    split, level = tokenizer["pre_tokenizer"]["pretokenizers"]
    for steps, message in (
        ([split | {"behavior": "MergedWithNext"}, level], 'behavior" must be "Isolated"'),
        ([{"type": "Punctuation"}, level], "must be a Split or Digits"),
        ([split, level | {"add_prefix_space": True}], "without add_prefix_space"),
    ):
        tokenizer["pre_tokenizer"]["pretokenizers"] = steps
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        assert message in refusal(tmp_path)


def test_an_expression_that_backtracks(tmp_path):
    """Where tokenizers.Regex would need 2^40 steps."""
    save(train("llama3"), tmp_path)
    document = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    write_expression(tmp_path, document, "(?:a|a)" * 40 + "b")
    ours = roformer_cpp.Tokenizer.from_pretrained(tmp_path)
    assert len(ours.encode("x" * 60)) > 0
    with pytest.raises(ValueError, match=r"must match a text in at most 10000 steps and 4096 per byte, got more$"):
        ours.encode("a" * 60)
