"""Fixtures of the tests of `roformer reproduce`: the experiments without data at scale tiny, and made-up data sets."""

import json
import random

import pytest

from cli_support import results

NUMERIC = [
    *("permutation", "relative-score", "any-position", "norm", "bilinear", "sinusoid", "linear-attention", "pairwise"),
    *("decay", "score-by-distance", "random-features", "rotation-cost", "attention-time"),
]


@pytest.fixture(scope="session")
def numeric(tmp_path_factory):
    """{name: result.json} of every experiment that needs no data."""
    output = tmp_path_factory.mktemp("numeric")
    lines = results("reproduce", *NUMERIC, "--scale", "tiny", "--output", output)
    assert [line["name"] for line in lines] == NUMERIC  # the order of the table
    paths = {line["name"]: output / line["scale"] / line["name"] / "result.json" for line in lines}
    return {name: json.loads(path.read_text()) for name, path in paths.items()}


def make_books(folder):
    rng = random.Random(5)
    words = ["".join(rng.choices("abcdefghijklm", k=rng.randint(2, 7))) for _ in range(900)]
    folder.mkdir(parents=True)
    with (folder / "books_valid.jsonl").open("w") as file:
        for _ in range(8):
            file.write(json.dumps({"text": " ".join(rng.choices(words, k=9000))}) + "\n")


CHINESE_WORDS = ["今天", "天气", "非常", "我们", "北京", "中国"]


def make_chinese(folder):
    """Text of words of two characters, all in both vocabularies; characters that are in no word."""
    rng = random.Random(6)
    characters = sorted({c for word in CHINESE_WORDS for c in word} | set("的了是"))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for name in ("vocabs", "zh_laws", "zh_classics"):
        (folder / name).mkdir(parents=True)
    vocabs = folder / "vocabs"
    (vocabs / "bert_base_chinese_vocab.txt").write_text("\n".join([*special, *characters]) + "\n")
    (vocabs / "roformer_chinese_base_vocab.txt").write_text("\n".join([*special, *characters, *CHINESE_WORDS]) + "\n")
    (vocabs / "jieba_dict.txt").write_text("".join(f"{word} 1000 n\n" for word in [*CHINESE_WORDS, *characters]))
    laws = [rng.choices([*CHINESE_WORDS, "的", "了"], k=200) for _ in range(3)]
    with (folder / "zh_laws" / "laws_train.jsonl").open("w") as file:
        for words in laws:
            file.write(json.dumps({"text": "".join(words)}) + "\n")
    texts = {"zh_laws/laws_train.jsonl": [word for law in laws for word in law]}
    for name in ("hongloumeng", "sanguoyanyi", "shuihuzhuan", "xiyouji"):
        novel = rng.choices(["是", *CHINESE_WORDS[:2]], k=400)
        (folder / "zh_classics" / f"{name}.txt").write_text("".join(novel))
        texts[f"zh_classics/{name}.txt"] = novel
    return texts


@pytest.fixture(scope="session")
def data_sets(tmp_path_factory):
    """A directory for --data with made-up books, and Chinese text whose words are known."""
    folder = tmp_path_factory.mktemp("data_sets")
    make_books(folder / "en_books")
    return folder, make_chinese(folder)
