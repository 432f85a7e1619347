"""BPE over characters with byte fallback (Gemma, Llama 2, Mistral) against `tokenizers` and transformers."""

import functools
import json
import random
import time

import pytest
import tokenizer_probe as probe
import transformers
from tokenizer_probe import MARKER, ask, bare, changed, check_saved, check_texts, ends, of_texts, offsets, refusal
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
REPLACE, PREPEND = normalizers.Replace(" ", MARKER), normalizers.Prepend(MARKER)
BACK = [decoders.Replace(MARKER, " "), decoders.ByteFallback(), decoders.Fuse()]
WAYS = {
    "gemma": (REPLACE, pre_tokenizers.Split(" ", "merged_with_previous")),
    "llama2": (normalizers.Sequence([PREPEND, REPLACE]), None),
    "mistral": (None, pre_tokenizers.Metaspace(MARKER, "first", False)),
    "always": (None, pre_tokenizers.Metaspace(MARKER, "always", False)),
    "split": (None, pre_tokenizers.Metaspace(MARKER, "always", True)),
    "never": (None, pre_tokenizers.Metaspace(MARKER, "never", False)),
}
HOSTILE = [MARKER, MARKER * 3, f"a{MARKER}b", " ", "   ", "    \t", "<0x41>", "<s>", "<unk>", "hello hello", "\n\n"]
HOSTILE += ["the", " the", "中文", "\U0001f600", "\u0301", "<n>", "<r>", " <n> ", "<l>", "w", "of the"]


def texts_of(count, seed):
    return probe.sentence_texts(count, seed, HOSTILE)


@functools.cache
def trained(crossing, **model):
    """The file of the model, without steps."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **({"fuse_unk": True, "byte_fallback": True} | model)))
    tokenizer.normalizer = REPLACE
    tokenizer.pre_tokenizer = None if crossing else pre_tokenizers.Split(MARKER, "merged_with_next")
    specials = ["<unk>", "<s>", "</s>", *(BYTES if model.get("byte_fallback", True) else [])]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=specials, limit_alphabet=150, show_progress=False)
    words = ["".join(c for c in text if c not in "<>")[:200] for text in texts_of(600, seed=1)]
    tokenizer.train_from_iterator(words, trainer)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] in specials[:3]]
    file["normalizer"] = file["pre_tokenizer"] = None
    return json.dumps(file)


def train(way, crossing=False, **model):
    """With `crossing`, some merges join a space with the word before it."""
    normalizer, splitter = WAYS[way]
    tokenizer = Tokenizer.from_str(trained(crossing, **model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Sequence([*BACK, *([] if way == "gemma" else [decoders.Strip(" ", 1, 0)])])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s> $B", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def save(tokenizer, directory):
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    wrapped.save_pretrained(directory)
    return wrapped


MODELS = {
    "fallback": {},
    "unknown": {"byte_fallback": False},
    "unknown-single": {"byte_fallback": False, "fuse_unk": False},
    "crossing": {"crossing": True},
    "ignore-merges": {"ignore_merges": True},
}
# Every way with the first model, half of the other pairs, and the one that splits words and ignores merges.
PAIRS = [(way, model) for i, way in enumerate(WAYS) for j, model in enumerate(MODELS) if j == 0 or (i + j) % 2]
PAIRS.append(("split", "ignore-merges"))


@pytest.mark.parametrize(("way", "model"), PAIRS)
def test_hostile_strings(tmp_path, way, model):
    tokenizer = train(way, **MODELS[model])
    added = {"<n>": {"normalized": True}, "of the": {"normalized": True}, "<r>": {"normalized": False}}
    added |= {"<l>": {"normalized": True, "lstrip": True, "rstrip": True}}
    added |= {"w": {"normalized": True, "single_word": True}}
    if model != "unknown-single":
        tokenizer.add_tokens([AddedToken(text, **flags) for text, flags in added.items()])
    wrapped = save(tokenizer, tmp_path / "theirs")
    texts = list(texts_of(2000, seed=len(way)))
    assert len(texts) > 4000
    draw = random.Random(2)
    runs = [] if model == "unknown-single" else [[draw.randrange(3, 259) for _ in range(5)] for _ in range(200)]
    check_saved(tmp_path, wrapped, texts, runs)


@pytest.mark.parametrize("way", WAYS)
def test_ill_formed_utf8(tmp_path, way):
    wrapped = save(train(way), tmp_path)
    draw = random.Random(3)
    parts = (0x41, 0x20, 0x20, 0x80, 0xC3, 0xE0, 0xE2, 0x96, 0x81, 0xF0)
    raw = [bytes(draw.choice(parts) for _ in range(9)) for _ in range(500)]
    for data, got in zip(raw, ask(tmp_path, of_texts(raw)), strict=True):
        text = data.decode("utf-8", errors="replace")
        want = bare(wrapped)(text)
        assert (got["ids"], offsets(got), got["replaced"]) == (want.ids, want.offsets, text.count("\ufffd")), data


@pytest.mark.parametrize("model", ["fallback", "unknown", "crossing"])
def test_long_texts(tmp_path, model):
    """Cut in stretches and windows; without spaces, and with a million characters in linear time."""
    wrapped = save(train("mistral", **MODELS[model]), tmp_path)
    texts = [gap.join(probe.random_texts(9000, seed)) for gap, seed in ((" ", 40), ("", 41))]
    texts += ["ab" * 60_000, "é中a\u0301" * 30_000]
    check_texts(tmp_path, texts, bare(wrapped))
    start = time.monotonic()
    texts = ["a" * 1_000_000, " " * 1_000_000, "中é" * 300_000]
    assert ends(tmp_path, of_texts(texts)) == [len(text) for text in texts]
    assert time.monotonic() - start < 100


@pytest.mark.parametrize(("name", "way"), [("GemmaTokenizer", "gemma"), ("LlamaTokenizer", "mistral")])
def test_class_of_transformers(tmp_path, name, way):
    """The class builds its own steps; a file with others is refused."""
    file = json.loads(train(way).to_str())["model"]
    theirs = getattr(transformers, name)(vocab=file["vocab"], merges=[tuple(merge) for merge in file["merges"]])
    theirs.save_pretrained(tmp_path)
    texts = list(texts_of(300, seed=9))
    check_texts(tmp_path, texts, bare(theirs))
    probe.check_decoding(tmp_path, theirs, [theirs(text)["input_ids"] for text in texts[:100]])
    path = tmp_path / "tokenizer.json"
    path.write_text(train("split").to_str(), encoding="utf-8")
    assert "must agree on" in refusal(tmp_path) and name in refusal(tmp_path)


REFUSED = [
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}}, "normalizer"),
    ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}}, "Replace"),
    ({"normalizer": None}, "pre_tokenizer"),
    ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer"),
    ({"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "_"}}, "replacement"),
    ({"decoder": {"type": "Metaspace", "replacement": MARKER}}, "decoder"),
    ({"model__vocab": {"<unk>": 0, "a": 1}, "model__merges": [], "added_tokens": []}, "<0x00>"),
    ({"model__merges": [["a", "\u2603"]]}, "a \u2603"),
    ({"post_processor": {"type": "ByteLevel"}}, "post_processor"),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused_by_name(tmp_path, changes, named):
    file = changed(json.loads(train("gemma").to_str()), changes)
    if "model__vocab" in changes:
        file["post_processor"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    assert named in refusal(tmp_path)
