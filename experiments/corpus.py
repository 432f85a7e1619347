"""Texts of the trained experiments, as data directories that `roformer prepare` makes once, and again if files change.

A corpus is a dict: `name`; `files` of --data; `tokens`: "bytes", the size of a vocabulary that is trained on the files,
or the file of one; `valid_fraction`; and if they are not the defaults `documents`, `field` (as `roformer prepare` takes
them) and `dictionary`, a file of jieba's words, which whole-word masking masks; with `pipeline` "roformer" they are
tokens, and the most frequent `add_words` words are added to the vocabulary.
"""

import json
import shutil

from .run import identity_of


def files_of(corpus):
    """The files of --data that it is made of."""
    named = [corpus["tokens"]] if isinstance(corpus["tokens"], str) and corpus["tokens"] != "bytes" else []
    return [*corpus["files"], *named, *([corpus["dictionary"]] if "dictionary" in corpus else [])]


def prepared(context, corpus):
    """The data directory, <scale>/corpus/<name>/data."""
    folder = context.path("corpus", corpus["name"])
    made_of = {"corpus": corpus, "data": identity_of(context.data, files_of(corpus))}

    def make():
        context.note(f"preparing {folder}")
        _make(context, corpus, folder)
        return None

    context.share("corpus", [corpus["name"]], lambda _: context.kept(folder / "corpus.json", made_of, make))
    return folder / "data"


def identity(data):
    """A hash of the files that a data directory was made of."""
    return json.loads((data.parent / "corpus.json").read_text(encoding="utf-8"))["settings"]["data"]


def _make(context, corpus, folder):
    vocabulary = folder / "vocabulary"
    vocabulary.mkdir(parents=True, exist_ok=True)
    given = {
        "input": [context.data / name for name in corpus["files"]],
        "field": corpus.get("field"),
        "no_quotes": True,
    }
    tokens = corpus["tokens"]
    if tokens == "bytes":
        context.roformer("vocab", bytes=True, output=vocabulary)
    elif isinstance(tokens, int):
        context.roformer("vocab", size=tokens, output=vocabulary / "vocab.txt", **given)
    else:
        shutil.copyfile(context.data / tokens, vocabulary / "vocab.txt")
    dictionary = context.data / corpus["dictionary"] if "dictionary" in corpus else None
    if "add_words" in corpus:
        characters, vocabulary = vocabulary, folder / "words"
        shutil.rmtree(vocabulary, ignore_errors=True)  # of files that have changed; add-words wants a new folder
        how = {"words": corpus["add_words"], "kind": corpus["pipeline"], "dict": dictionary}
        context.roformer("add-words", model=characters, output=vocabulary, **how, **given)
    elif "pipeline" in corpus:
        (vocabulary / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RoFormerTokenizer"}))
    if dictionary is not None:  # where prepare looks for it
        shutil.copyfile(dictionary, vocabulary / "dict.txt")
    options = {"documents": corpus.get("documents"), "valid_fraction": corpus["valid_fraction"]}
    options["words"] = None if dictionary is None else "jieba"
    context.roformer("prepare", model=vocabulary, output=folder / "data", **given, **options)


def books(scale):
    """Books in English, with a vocabulary of 4,096 that is trained on them; paper: BookCorpus and Wikipedia, 8 to 2."""
    if scale == "paper":
        tokens = "vocabs/bert_base_uncased_vocab.txt"
        files = ["en_pretraining/train.jsonl"]
        return {"name": "pretraining", "files": files, "tokens": tokens, "valid_fraction": 0.2}
    files = ["en_books/books_train.jsonl", "en_books/books_valid.jsonl"]
    if scale == "tiny":
        return {"name": "books", "files": files[1:], "tokens": 4096, "valid_fraction": 0.25}
    return {"name": "books", "files": files, "tokens": 4096, "valid_fraction": 0.05}


def laws(scale):
    """Chinese laws, with characters as tokens."""
    if scale == "paper":
        tokens = "vocabs/bert_base_chinese_vocab.txt"
        files = ["zh_pretraining/train.jsonl"]
        return {"name": "chinese", "files": files, "tokens": tokens, "valid_fraction": 0.001}
    files = ["zh_laws/laws_train.jsonl", "zh_laws/laws_valid.jsonl"]
    if scale == "tiny":
        return {"name": "laws", "files": files[1:], "tokens": 8000, "valid_fraction": 0.25}
    return {"name": "laws", "files": files, "tokens": 8000, "valid_fraction": 0.02}


def wikipedia(scale):
    """Wikipedia as XML, with bytes as tokens; paper: enwik8."""
    files = ["enwik8/enwik8.txt" if scale == "paper" else "enwiki_xml/enwiki_head.xml"]
    return {"name": "bytes", "files": files, "tokens": "bytes", "valid_fraction": 0.05, "documents": "blank-line"}


def book_bytes(scale):
    """The books of scale small, with bytes as tokens."""
    return books("tiny" if scale == "tiny" else "small") | {"name": "book-bytes", "tokens": "bytes"}


def held_out_rows(data, rows, tokens):
    """The first rows of `tokens` tokens of held-out documents, int64 [rows or fewer, tokens].

    Raises ValueError if every document has fewer tokens.
    """
    import torch

    import roformer_cpp

    found = []
    documents = roformer_cpp.ShardDataset(data, "valid", check=False)
    for number in range(documents.documents):
        ids, _ = documents.document(number)
        found += list(ids[: len(ids) // tokens * tokens].view(-1, tokens)[: rows - len(found)])
        if len(found) == rows:
            break
    if not found:
        raise ValueError(f"[corpus] held-out documents must have {tokens} tokens, got none so long in {data}")
    return torch.stack(found)
