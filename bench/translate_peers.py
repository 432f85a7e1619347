#!/usr/bin/env python3
"""Compares translation with CTranslate2 on the same weights: lines per second by beam search.

    bench/translate_peers.py --model DIR --input test.en [--beams 4] [--rounds 3] [--threads 2]

DIR is a run of `roformer train-translation` with the encoding {"type": "sinusoidal", "layout": "half"}, which is a
MarianMTModel. Both sides compute in float32 and sort lines by length; the sides take turns, and the best round of each
counts. Times include tokenizing and, for ours, the start of the program, so use some thousand lines. Prints one JSON
line: the times, and the number of equal lines.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import ctranslate2
import torch
import transformers
from ctranslate2.converters.transformers import BartLoader
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

from cli_support import run  # noqa: E402

EXTRA_TOKENS = 50  # of a translation, beyond the tokens of its line


class Loader(BartLoader):
    """CTranslate2's loader for Marian drops the last row of the embedding, where published models have padding, and
    starts the decoder from zeros; in our models padding is the first row, and the decoder starts from the end's
    embedding."""

    def get_model_spec(self, model):
        model.config.normalize_before = model.config.normalize_embedding = False
        return super().get_model_spec(model)


def converted(model_dir, folder):
    """The weights as CTranslate2 reads them."""
    model = transformers.MarianMTModel.from_pretrained(model_dir, dtype=torch.float32)
    tokens = sorted(
        json.loads((model_dir / "tokenizer.json").read_text())["model"]["vocab"].items(), key=lambda x: x[1]
    )
    names = [name for name, _ in tokens]
    spec = Loader().get_model_spec(model)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.decoder_start_token = names[model.config.decoder_start_token_id]
    spec.config.bos_token = spec.config.eos_token = names[model.config.eos_token_id]
    spec.config.unk_token = "<unk>"
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--length-penalty", type=float, default=0.6)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    lines = options.input.read_text(encoding="utf-8").splitlines()
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))

    def ours():
        done = run(
            "translate", "--model", options.model, "--input", options.input, "--beams", options.beams,
            "--length-penalty", options.length_penalty, "--batch-tokens", options.batch_tokens,
            "--max-extra", EXTRA_TOKENS, threads=options.threads,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:-1]

    with tempfile.TemporaryDirectory() as folder:
        converted(options.model, folder)
        peer = ctranslate2.Translator(folder, intra_threads=options.threads, compute_type="float32")

        def theirs():
            tokens = [encoding.tokens for encoding in tokenizer.encode_batch(lines)]
            found = peer.translate_batch(
                tokens, beam_size=options.beams, length_penalty=options.length_penalty, max_decoding_length=256,
                max_batch_size=options.batch_tokens // options.beams, batch_type="tokens",
                suppress_sequences=[["<pad>"]],
            )  # fmt: skip
            ids = [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in found]
            return tokenizer.decode_batch(ids)

        best, texts = {}, {}
        for _ in range(options.rounds):
            for name, side in (("roformer", ours), ("ctranslate2", theirs)):
                start = time.perf_counter()
                texts[name] = side()
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
    same = sum(a == b for a, b in zip(texts["roformer"], texts["ctranslate2"], strict=True))
    rates = {f"{name}_lines_per_second": len(lines) / seconds for name, seconds in best.items()}
    print(json.dumps({"lines": len(lines), "same": same, "threads": options.threads, "beams": options.beams, **rates}))


if __name__ == "__main__":
    main()
