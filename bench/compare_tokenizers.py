#!/usr/bin/env python3
"""Compares ids and character offsets of our tokenizers with the originals' on all texts under a directory.

    bench/compare_tokenizers.py --data DIR --vocabs DIR --dict dict.txt [--megabytes N] [--kinds bert,roformer]

bert (English and Chinese vocabulary): transformers' BertTokenizer. roformer: transformers' RoFormerTokenizer.
bert-legacy: transformers' BertTokenizerLegacy, only ids, because it does not give offsets. wobert: transformers 4's
RoFormer tokenizer as assembled by tests/oracles/wobert_reference.py. A text is a line of a .txt or .tsv file or of a
string in a .jsonl file. Prints a line of JSON for each kind: how much was compared, and how many texts differ, with the
first difference. --megabytes limits the part of each file that is read.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import transformers
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "oracles"))

from wobert_reference import WobertReference  # noqa: E402  (found by the line above)

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


def batches(paths, max_bytes):
    batch = []
    for path in paths:
        for text in texts_of(path, max_bytes):
            batch.append(text)
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def tokens_of_ours(server, kind, vocab, dictionary, texts):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="\n") as file:
        file.write("".join(text + "\n" for text in texts))
        file.flush()
        command = [server, kind, vocab, file.name, *([dictionary] if kind in ("roformer", "wobert") else [])]
        done = subprocess.run(command, input=b"dump\n", stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    return [(answer["ids"], list(zip(answer["begin"], answer["end"], strict=True))) for answer in answers]


def make_peer(cls, vocab):
    if cls is BertTokenizerLegacy:
        return cls(vocab)
    tokens = Path(vocab).read_text(encoding="utf-8").split("\n")
    tokens = tokens[:-1] if tokens[-1] == "" else tokens
    if cls is WobertReference:
        return cls(tokens, "lower")
    return cls(vocab={token: i for i, token in enumerate(tokens)})


def tokens_of_peer(peer, texts):
    if isinstance(peer, BertTokenizerLegacy):
        return [(peer.convert_tokens_to_ids(peer.tokenize(text)), None) for text in texts]
    if isinstance(peer, WobertReference):
        encodings = [list(peer.encode(text)) for text in texts]
        return [([id for id, _, _ in tokens], [(begin, end) for _, begin, end in tokens]) for tokens in encodings]
    out = peer(texts, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False)
    return list(zip(out["input_ids"], out["offset_mapping"], strict=True))


def compare(name, paths, vocabs, dictionary, server, max_bytes):
    kind, vocab, cls = KINDS[name]
    peer = make_peer(cls, vocabs / vocab)
    result = {"kind": name, "texts": 0, "megabytes": 0.0, "different": 0}
    for texts in batches(paths, max_bytes):
        ours = tokens_of_ours(server, kind, vocabs / vocab, dictionary, texts)
        for text, got, want in zip(texts, ours, tokens_of_peer(peer, texts), strict=True):
            if got[0] == want[0] and want[1] in (None, got[1]):
                continue
            result["different"] += 1
            result.setdefault("first", text)
        result["texts"] += len(texts)
        result["megabytes"] += sum(len(text.encode()) for text in texts) / 1e6
        print(f"\r{name}: {result['megabytes']:.0f} MB, {result['different']} differ", end="", file=sys.stderr)
    print(file=sys.stderr)
    result["megabytes"] = round(result["megabytes"], 2)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--vocabs", required=True, type=Path)
    parser.add_argument("--dict", required=True, type=Path)
    parser.add_argument("--megabytes", type=float, default=float("inf"))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--server", type=Path, default=ROOT / "build" / "release" / "bench" / "tokenize_server")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    paths = sorted(path for path in options.data.rglob("*") if path.suffix in (".txt", ".tsv", ".jsonl"))
    different = 0
    for kind in options.kinds.split(","):
        result = compare(kind, paths, options.vocabs, options.dict, options.server, options.megabytes * 1e6)
        print(json.dumps(result, ensure_ascii=False), flush=True)
        different += result["different"]
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
