"""X-11 (C-30): tokens of Chinese text, by characters (BERT's tokenizer) and by words (RoFormer's)."""

import json
import shutil

from .run import Experiment, row

CHARACTERS, WORDS = "vocabs/bert_base_chinese_vocab.txt", "vocabs/roformer_chinese_base_vocab.txt"
DICTIONARY = "vocabs/jieba_dict.txt"
TEXTS = ["zh_laws/laws_train.jsonl", "zh_classics/hongloumeng.txt", "zh_classics/sanguoyanyi.txt"]
TEXTS += ["zh_classics/shuihuzhuan.txt", "zh_classics/xiyouji.txt"]


def settings():
    return {"files": [CHARACTERS, WORDS, DICTIONARY, *TEXTS], "texts": TEXTS}


def run(context, settings):
    by_character = _tokenizer(context, CHARACTERS, "BertTokenizer")
    by_word = _tokenizer(context, WORDS, "RoFormerTokenizer", dictionary=context.data / DICTIONARY)
    ratios = []
    for name in settings["texts"]:
        characters = of_characters = of_words = 0
        for text in _documents(context.data / name):
            characters += len(text)
            of_characters += _tokens(by_character, text)
            of_words += _tokens(by_word, text)
        ratios.append(of_words / of_characters)
        yield row("characters", name, characters)
        yield row("character tokens per 1,000 characters", name, 1000 * of_characters / characters)
        yield row("word tokens per 1,000 characters", name, 1000 * of_words / characters)
        yield row("word tokens by character tokens", name, ratios[-1])
    yield row("word tokens by character tokens: largest", "texts", max(ratios))


def _tokenizer(context, vocabulary, kind, **options):
    import roformer_cpp

    folder = context.path("runs", "chinese-tokens", kind)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(context.data / vocabulary, folder / "vocab.txt")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "do_lower_case": True}))
    return roformer_cpp.Tokenizer(folder, **options)


def _documents(path):
    with path.open(encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            yield from (json.loads(line)["text"] for line in file)
        else:
            yield file.read()


def _tokens(tokenizer, text):
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


EXPERIMENTS = [Experiment("chinese-tokens", "Do words make Chinese sequences shorter?", run, settings, has_scale=False)]
