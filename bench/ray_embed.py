#!/usr/bin/env python3
"""Compares vectors of many rows from a local cluster of Ray, whose actors are killed, with the vectors of one process.

    bench/ray_embed.py [--rows N] [--actors N] [--kill-every SECONDS] [--format parquet|jsonl] [--batch-size N]
                       [--seed N] [--folder DIR]

Writes rows of random words, embeds them with `roformer_cpp.ray.embed`, and kills an actor with SIGKILL at random
moments, on average every --kill-every seconds (0: never). Then one process embeds the same rows, and each row is
compared: its place, its text and the bits of its vector. The model is small, with random weights. The result is a line
of JSON; exit code 1 if a row differs. Needs the extra ray, and transformers, which makes the model.
"""

import json
import os
import random
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import harness
import numpy as np
import pyarrow
import pyarrow.json
import pyarrow.parquet
from harness import ROOT

import ray_case

# For the workers, which Ray starts.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))

FILES = 16
OBJECT_STORE_BYTES = 256 * 2**20


def words(rng, number=20000):
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 8))) for _ in range(number)]


def write_rows(folder, rows, kind, seed):
    """Files with the columns id and text."""
    rng = random.Random(seed)
    known = words(rng)
    folder.mkdir()
    for number, ids in enumerate(np.array_split(np.arange(rows), FILES)):
        texts = [" ".join(rng.choices(known, k=rng.randint(0, 6))) for _ in ids]
        path = folder / f"{number:02}.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(pyarrow.table({"id": ids, "text": texts}), path)
        else:
            lines = (json.dumps({"id": int(i), "text": text}) + "\n" for i, text in zip(ids, texts, strict=True))
            path.write_text("".join(lines), encoding="utf-8")


def table(folder):
    read = {".parquet": pyarrow.parquet.read_table, ".jsonl": pyarrow.json.read_json}
    return pyarrow.concat_tables([read[path.suffix](path) for path in sorted(folder.iterdir())])


@contextmanager
def killing(every_s, seed):
    """Kills actors until the block ends; a list of the seconds at which one was killed."""
    rng, stop, times, start = random.Random(seed), threading.Event(), [], time.perf_counter()

    def work():
        while not stop.wait(rng.expovariate(1 / every_s)):
            if (running := ray_case.actors()) and ray_case.kill(rng.choice(running)):
                times.append(round(time.perf_counter() - start, 1))

    thread = threading.Thread(target=work)
    if every_s:
        thread.start()
    try:
        yield times
    finally:
        stop.set()
        if every_s:
            thread.join()


def compare(rows, output, engine):
    """Numbers of rows that were found, and that differ from the result of one process; its seconds."""
    expected, found = table(rows), table(output)
    texts, start = expected["text"].to_pylist(), time.perf_counter()
    vectors = np.concatenate([engine.embed(texts[i : i + 4096]) for i in range(0, len(texts), 4096)])
    seconds = time.perf_counter() - start
    count = min(len(found), len(expected))
    ours = found["embedding"].combine_chunks().to_numpy_ndarray()[:count]
    same = (ours.view(np.uint32) == vectors[:count].view(np.uint32)).all(1)
    for name in ("id", "text"):
        same &= np.array(found[name].to_pylist()[:count], object) == np.array(
            expected[name].to_pylist()[:count], object
        )
    return len(found), len(expected) - int(same.sum()), seconds


def embed_on_ray(folder, given):
    """The duration in seconds, and the seconds at which actors were killed."""
    import ray

    import roformer_cpp.ray

    ray.init(
        num_cpus=given.actors + 1, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, log_to_driver=False
    )
    read = ray.data.read_parquet if given.format == "parquet" else ray.data.read_json
    start = time.perf_counter()
    with killing(given.kill_every, given.seed) as kills:
        roformer_cpp.ray.embed(
            read(str(folder / "rows")),
            folder / "model",
            actors=given.actors,
            batch_size=given.batch_size,
            output=folder / "vectors",
        )
    seconds = time.perf_counter() - start
    ray.shutdown()
    return seconds, kills


def main():
    parser = harness.options(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--actors", type=int, default=3)
    parser.add_argument("--kill-every", type=float, default=5.0)
    parser.add_argument("--format", choices=["parquet", "jsonl"], default="parquet")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    import engine_case
    import roformer_cpp
    import sentence_model

    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        (folder / "model").mkdir()
        sentence_model.save_encoder(folder / "model", "RoFormer", **engine_case.WIDE)
        write_rows(folder / "rows", given.rows, given.format, given.seed)
        seconds, kills = embed_on_ray(folder, given)
        engine = roformer_cpp.Engine(folder / "model", task="embed", threads=1)
        found, different, alone = compare(folder / "rows", folder / "vectors", engine)
    result = dict(rows=given.rows, found=found, different=different, actors=given.actors, kills=len(kills))
    result |= dict(seconds=round(seconds, 1), seconds_of_one_process=round(alone, 1), killed_at=kills)
    harness.finish(given, harness.shown([result]), {})
    return int(found != given.rows or different > 0)


if __name__ == "__main__":
    sys.exit(main())
