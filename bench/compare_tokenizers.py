#!/usr/bin/env python3
"""Compares ids and character offsets of our tokenizers with the originals' on all texts under a directory.

    bench/compare_tokenizers.py --data DIR --vocabs DIR --dict dict.txt [--megabytes N] [--kinds bert,roformer]

bert (English and Chinese vocabulary): transformers' BertTokenizer. roformer: transformers' RoFormerTokenizer.
bert-legacy: transformers' BertTokenizerLegacy, only ids, because it does not give offsets. wobert: transformers 4's
RoFormer tokenizer as assembled by tests/oracles/wobert_reference.py. A text is a line of a .txt or .tsv file or of a
string in a .jsonl file. Prints a line of JSON for each kind: how much was compared, and how many texts differ, with the
first difference. --megabytes limits the part of each file that is read.
"""

import itertools
import json
import sys
from pathlib import Path

import harness
import transformers
from tokenizer_bench import our_server, our_tokens, peer_of, peer_tokens, tokens_of_file
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy
from wobert_reference import WobertReference

BATCH = 20000
KINDS = {
    "bert": ("bert", "bert_base_uncased_vocab.txt", transformers.BertTokenizer),
    "bert-chinese": ("bert", "bert_base_chinese_vocab.txt", transformers.BertTokenizer),
    "bert-legacy": ("bert-legacy", "bert_base_uncased_vocab.txt", BertTokenizerLegacy),
    "roformer": ("roformer", "roformer_chinese_base_vocab.txt", transformers.RoFormerTokenizer),
    "wobert": ("wobert", "roformer_chinese_base_vocab.txt", WobertReference),
}


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def texts_of(path, max_bytes):
    """The lines of a file's texts, as long as they are within the first max_bytes of it."""
    taken = 0
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            taken += len(line.encode())
            if taken > max_bytes:
                return
            strings = strings_in(json.loads(line)) if path.suffix == ".jsonl" else [line]
            for string in strings:
                yield from (text for text in string.split("\n") if text.strip())


def batches(texts):
    while batch := list(itertools.islice(texts, BATCH)):
        yield batch


def make_peer(cls, vocab):
    if cls is BertTokenizerLegacy:
        return cls(vocab)
    return cls(tokens_of_file(vocab), "lower") if cls is WobertReference else peer_of(cls, vocab)


def tokens_of_peer(peer, texts):
    if isinstance(peer, BertTokenizerLegacy):
        return [(peer.convert_tokens_to_ids(peer.tokenize(text)), None) for text in texts]
    if isinstance(peer, WobertReference):
        encodings = [list(peer.encode(text)) for text in texts]
        return [([id for id, _, _ in tokens], [(begin, end) for _, begin, end in tokens]) for tokens in encodings]
    return peer_tokens(peer, texts)


def compare(name, paths, vocabs, dictionary, max_bytes):
    kind, vocab, cls = KINDS[name]
    peer = make_peer(cls, vocabs / vocab)
    dictionary = dictionary if kind in ("roformer", "wobert") else None
    result = {"kind": name, "texts": 0, "megabytes": 0.0, "different": 0}
    for texts in batches(text for path in paths for text in texts_of(path, max_bytes)):
        ours = our_tokens(our_server(kind, vocabs / vocab, texts, dictionary), len(texts))
        for text, got, want in zip(texts, ours, tokens_of_peer(peer, texts), strict=True):
            if got[0] == want[0] and want[1] in (None, got[1]):
                continue
            result["different"] += 1
            result.setdefault("first", text)
        result["texts"] += len(texts)
        result["megabytes"] += sum(len(text.encode()) for text in texts) / 1e6
        print(f"\r{name}: {result['megabytes']:.0f} MB, {result['different']} differ", end="", file=sys.stderr)
    print(file=sys.stderr)
    return result | {"megabytes": round(result["megabytes"], 2)}


def main():
    parser = harness.options(__doc__)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--vocabs", required=True, type=Path)
    parser.add_argument("--dict", required=True, type=Path)
    parser.add_argument("--megabytes", type=float, default=float("inf"))
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    paths = sorted(path for path in given.data.rglob("*") if path.suffix in (".txt", ".tsv", ".jsonl"))
    max_bytes = given.megabytes * 1e6
    results = harness.shown(
        compare(kind, paths, given.vocabs, given.dict, max_bytes) for kind in given.kinds.split(",")
    )
    harness.finish(given, results, {})
    return int(any(result["different"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
