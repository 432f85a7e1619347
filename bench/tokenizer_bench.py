#!/usr/bin/env python3
"""Compares tokenizing with other libraries: megabytes of UTF-8 per second, from strings in memory to ids and offsets.

bert: the library `tokenizers` (encode_batch), roformer: transformers' RoFormerTokenizer, both 1000 lines per call.
First every line's ids and offsets are compared; a difference ends the run. A window is one pass over the text, on one
core. Ours on two cores, through BatchEncoder, is compared with itself on one core. The slow side sees the first
--peer-megabytes of the text only.
"""

import itertools
import os
import tempfile
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import harness
import tables
import transformers
from harness import BUILD, Server, Windows, median_ratio

TABLES = {"bert": "tokenizer_bench bert", "roformer": "tokenizer_bench roformer"}
KINDS = {
    "bert": ("`bert`, compared with `tokenizers`", transformers.BertTokenizer),
    "roformer": ("`roformer`, compared with transformers", transformers.RoFormerTokenizer),
}
BATCH = 1000


def our_server(kind, vocab, lines, dictionary=None):
    """Our side, which has read the lines."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="\n") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        dictionary = [dictionary] if dictionary else []
        server = Server([BUILD / "bench" / "tokenize_server", kind, vocab, file.name, *dictionary])
        server.ask("encode")  # it has read the file when it answers
    return server


def our_tokens(server, count):
    """(ids, offsets) of each of `count` lines."""
    answers = [server.ask("dump"), *(server.answer() for _ in range(count - 1))]
    return [(answer["ids"], list(zip(answer["begin"], answer["end"], strict=True))) for answer in answers]


def peer_tokens(peer, lines):
    out = peer(lines, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False)
    return zip(out["input_ids"], out["offset_mapping"], strict=True)


def encode(peer, lines):
    for first in range(0, len(lines), BATCH):
        batch = lines[first : first + BATCH]
        if isinstance(peer, transformers.BertTokenizer):
            peer.backend_tokenizer.encode_batch(batch, add_special_tokens=False)
        else:
            peer(batch, add_special_tokens=False, return_offsets_mapping=True)


def megabytes(lines):
    return sum(len(line.encode()) for line in lines) / 1e6


def first_megabytes(lines, limit):
    before = itertools.accumulate((megabytes([line]) for line in lines), initial=0.0)
    return [line for line, size in zip(lines, before, strict=False) if size < limit]


def compare(given):
    raw = Path(given.text).read_bytes()[: int(given.megabytes * 1e6)]
    lines = [line for line in raw.decode("utf-8", "replace").splitlines() if line.strip()]
    peer_lines = first_megabytes(lines, given.peer_megabytes)
    what, cls = KINDS[given.kind]
    tokens = Path(given.vocab).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    peer = cls(vocab={token: i for i, token in enumerate(tokens)})
    ours = our_tokens(our_server(given.kind, given.vocab, peer_lines, given.dict), len(peer_lines))
    for line, got, want in zip(peer_lines, ours, peer_tokens(peer, peer_lines), strict=True):
        if got != want:
            raise SystemExit(f"[bench] both sides must give the same tokens, got a difference in {line!r}")
    server = our_server(given.kind, given.vocab, lines, given.dict)
    commands = {"one core": "encode", "batch": "batch 1", "two cores": "batch 2"}
    sides = [Windows(name, lambda c=c: server.ask(c), amount=megabytes(lines)) for name, c in commands.items()]
    sides.append(Windows("peer", lambda: encode(peer, peer_lines), amount=megabytes(peer_lines)))
    harness.take_turns(sides, given.rounds)
    one, batch, two, theirs = sides
    return {
        "kind": what,
        "ours, one core": round(1 / one.median, 2),
        "theirs, one core": round(1 / theirs.median, 3),
        "ratio": round(median_ratio(theirs, one), 1),
        "rows of `BatchEncoder`, one core": round(1 / batch.median, 2),
        "two cores": round(1 / two.median, 2),
        "scaling": round(median_ratio(batch, two), 2),
    }


def main():
    parser = harness.options(__doc__, TABLES, rounds=5)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--dict")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--peer-megabytes", type=float, default=3)
    given = parser.parse_args()
    results = harness.shown([compare(given)])
    harness.finish(given, results, {TABLES[given.kind]: tables.of_dicts(results)})


if __name__ == "__main__":
    main()
