#!/usr/bin/env python3
"""Compares tokenizing with other libraries: megabytes of UTF-8 per second, from strings in memory to ids and offsets.

    bench/tokenizer_bench.py bert     --vocab vocab.txt --text english.txt [--update-docs]
    bench/tokenizer_bench.py roformer --vocab vocab.txt --text chinese.txt --dict dict.txt [--update-docs]

bert: the library `tokenizers` (encode_batch), roformer: transformers' RoFormerTokenizer, both 1000 lines per call.
First every line's ids and offsets are compared; a difference ends the run. Then the sides take turns, one pass over the
text each, on one core; the result is the median of the passes, and the ratio the median of the ratios within a round.
Ours on two cores, through BatchEncoder, is compared with itself on one core. The slow side sees the first
--peer-megabytes of the text only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import transformers

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peer_timing import machine  # noqa: E402

TABLES = {"bert": "tokenizer_bench bert", "roformer": "tokenizer_bench roformer"}
SERVER = ROOT / "build" / "release" / "bench" / "tokenize_server"
BATCH = 1000


class Ours:
    def __init__(self, kind, vocab, text, dictionary):
        command = [SERVER, kind, vocab, text, *([dictionary] if dictionary else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def dump(self, lines):
        self.process.stdin.write("dump\n")
        self.process.stdin.flush()
        return [json.loads(self.process.stdout.readline()) for _ in range(lines)]


class Peer:
    def __init__(self, kind, vocab):
        tokens = Path(vocab).read_text(encoding="utf-8").split("\n")
        tokens = tokens[:-1] if tokens[-1] == "" else tokens
        cls = {"bert": transformers.BertTokenizer, "roformer": transformers.RoFormerTokenizer}[kind]
        self.tokenizer = cls(vocab={token: i for i, token in enumerate(tokens)})

    def encode(self, lines):
        if isinstance(self.tokenizer, transformers.BertTokenizer):
            return self.tokenizer.backend_tokenizer.encode_batch(lines, add_special_tokens=False)
        return self.tokenizer(lines, add_special_tokens=False, return_offsets_mapping=True)

    def tokens(self, lines):
        out = self.tokenizer(lines, add_special_tokens=False, return_offsets_mapping=True)
        return zip(out["input_ids"], out["offset_mapping"], strict=True)

    def seconds(self, lines):
        begin = time.perf_counter()
        for first in range(0, len(lines), BATCH):
            self.encode(lines[first : first + BATCH])
        return time.perf_counter() - begin


def verify(ours, peer, lines):
    for first in range(0, len(lines), BATCH):
        batch = lines[first : first + BATCH]
        for line, got, (ids, offsets) in zip(
            batch, ours.dump_lines[first : first + BATCH], peer.tokens(batch), strict=True
        ):
            if got["ids"] != ids or list(zip(got["begin"], got["end"], strict=True)) != offsets:
                raise SystemExit(f"[bench] both sides must give the same tokens, got a difference in {line!r}")


def docs_table(kind, result):
    compared = {"bert": "`bert`, compared with `tokenizers`", "roformer": "`roformer`, compared with transformers"}
    keys = ("ours", "peer", "ratio", "batch_one_core", "batch_two_cores", "scaling")
    numbers = [result[key if key in result else f"{key}_MB_per_s"] for key in keys]
    titles = ["kind", "ours, one core", "theirs, one core", "ratio"]
    titles += ["rows of `BatchEncoder`, one core", "two cores", "scaling"]
    return tables.markdown([titles, [compared[kind], *map(str, numbers)]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["bert", "roformer"])
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--dict")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--peer-megabytes", type=float, default=3)
    tables.add_option(parser)
    options = parser.parse_args()

    raw = Path(options.text).read_bytes()[: int(options.megabytes * 1e6)]
    lines = [line for line in raw.decode("utf-8", "replace").splitlines() if line.strip()]
    peer_lines, taken = [], 0
    for line in lines:
        if taken >= options.peer_megabytes * 1e6:
            break
        peer_lines.append(line)
        taken += len(line.encode())
    peer_bytes = sum(len(line.encode()) for line in peer_lines)
    ours_bytes = sum(len(line.encode()) for line in lines)

    peer = Peer(options.kind, options.vocab)
    with tempfile.TemporaryDirectory() as directory:
        whole, part = Path(directory, "whole.txt"), Path(directory, "part.txt")
        whole.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        part.write_text("".join(line + "\n" for line in peer_lines), encoding="utf-8", newline="\n")
        checked = Ours(options.kind, options.vocab, part, options.dict)
        checked.dump_lines = checked.dump(len(peer_lines))
        verify(checked, peer, peer_lines)
        ours = Ours(options.kind, options.vocab, whole, options.dict)
        ours.ask("encode")
        peer.seconds(peer_lines[:BATCH])
        one, two, single, theirs = [], [], [], []
        for _ in range(options.rounds):
            one.append(ours_bytes / 1e6 / ours.ask("encode")["seconds"])
            theirs.append(peer_bytes / 1e6 / peer.seconds(peer_lines))
            single.append(ours_bytes / 1e6 / ours.ask("batch 1")["seconds"])
            two.append(ours_bytes / 1e6 / ours.ask("batch 2")["seconds"])
    result = {
        "bench": "tokenize",
        "machine": machine(),
        "kind": options.kind,
        "text": Path(options.text).name,
        "megabytes": round(ours_bytes / 1e6, 2),
        "lines": len(lines),
        "verified_lines": len(peer_lines),
        "ours_MB_per_s": round(statistics.median(one), 2),
        "peer_MB_per_s": round(statistics.median(theirs), 3),
        "ratio": round(statistics.median(a / b for a, b in zip(one, theirs, strict=True)), 1),
        "batch_one_core_MB_per_s": round(statistics.median(single), 2),
        "batch_two_cores_MB_per_s": round(statistics.median(two), 2),
        "scaling": round(statistics.median(a / b for a, b in zip(two, single, strict=True)), 2),
    }
    print(json.dumps(result, ensure_ascii=False))
    if options.update_docs:
        tables.update_docs(TABLES[options.kind], result["machine"], docs_table(options.kind, result))


if __name__ == "__main__":
    main()
