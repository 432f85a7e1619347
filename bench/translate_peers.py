#!/usr/bin/env python3
"""Compares translation with CTranslate2 on the same weights: lines per second by beam search.

The model is a run of `roformer train-translation` with the encoding {"type": "sinusoidal", "layout": "half"}, which is
a MarianMTModel. Both sides compute in float32 and sort lines by length; the best round of each counts. Times include
tokenizing and, for ours, the start of the program, so use some thousand lines. Prints one JSON line: the times, and the
number of equal lines.
"""

import json
import tempfile
from pathlib import Path

import harness
from harness import Windows

from cli_support import run

EXTRA_TOKENS = 50  # of a translation, beyond the tokens of its line


def translations(given, source, batch_tokens, *more):
    options = ("--model", given.model, "--input", source, "--beams", given.beams, "--batch-tokens", batch_tokens)
    done = run("translate", *options, *more, threads=given.threads)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.split("\n")[:-1]


def converted(model_dir, folder):
    """The weights as CTranslate2 reads them."""
    import torch
    import transformers
    from ctranslate2.converters.transformers import BartLoader

    class Loader(BartLoader):
        """CTranslate2's loader for Marian drops the last row of the embedding, where published models have padding,
        and starts the decoder from zeros; in our models padding is the first row, and the decoder starts from the
        end's embedding."""

        def get_model_spec(self, model):
            model.config.normalize_before = model.config.normalize_embedding = False
            return super().get_model_spec(model)

    model = transformers.MarianMTModel.from_pretrained(model_dir, dtype=torch.float32)
    vocabulary = json.loads((model_dir / "tokenizer.json").read_text())["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.get)
    spec = Loader().get_model_spec(model)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.decoder_start_token = names[model.config.decoder_start_token_id]
    spec.config.bos_token = spec.config.eos_token = names[model.config.eos_token_id]
    spec.config.unk_token = "<unk>"
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir()
    spec.save(str(folder))


def compare_peers(given, source, folder):
    import ctranslate2
    from tokenizers import Tokenizer

    lines = source.read_text(encoding="utf-8").splitlines()
    tokenizer = Tokenizer.from_file(str(given.model / "tokenizer.json"))
    texts = {}
    converted(given.model, folder)
    peer = ctranslate2.Translator(str(folder), intra_threads=given.threads, compute_type="float32")

    def ours():
        more = ("--length-penalty", given.length_penalty, "--max-extra", EXTRA_TOKENS)
        texts["ours"] = translations(given, source, given.batch_tokens, *more)

    def theirs():
        tokens = [encoding.tokens for encoding in tokenizer.encode_batch(lines)]
        found = peer.translate_batch(
            tokens, beam_size=given.beams, length_penalty=given.length_penalty, max_decoding_length=256,
            max_batch_size=given.batch_tokens // given.beams, batch_type="tokens", suppress_sequences=[["<pad>"]],
        )  # fmt: skip
        ids = [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in found]
        texts["theirs"] = tokenizer.decode_batch(ids)

    sides = [Windows("roformer", ours, amount=len(lines)), Windows("ctranslate2", theirs, amount=len(lines))]
    harness.take_turns(sides, given.rounds)
    same = sum(a == b for a, b in zip(texts["ours"], texts["theirs"], strict=True))
    rates = {f"{side.name}_lines_per_second": 1 / min(side.seconds) for side in sides}
    yield {"lines": len(lines), "same": same, "threads": given.threads, "beams": given.beams, **rates}


def main():
    parser = harness.options(__doc__, rounds=3)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, nargs="+", required=True)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--length-penalty", type=float, default=0.6)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source.txt"
        source.write_text("".join(path.read_text(encoding="utf-8") for path in given.input), encoding="utf-8")
        harness.finish(given, harness.shown(compare_peers(given, source, folder / "converted")), {})


if __name__ == "__main__":
    main()
