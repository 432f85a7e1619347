"""roformer_cpp.ray on a local cluster: vectors against those of one process, killed actors, shards, and bad input."""

import json
import logging
import os
import signal
import subprocess
import threading
import time
import types
from importlib.util import find_spec

import numpy as np
import pytest

import ray_case
import roformer_cpp
import sentence_model
from engine_case import WIDE
from job_case import RUN, finish, pretrain
from training_case import same_model, wait_until

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="NOT TESTED: needs pip install 'roformer-cpp[ray]'")
ROWS, BATCH = 12000, 256


@pytest.fixture(scope="module")
def ray():
    with ray_case.cluster() as ray:
        import ray.data

        logging.getLogger("ray.data").setLevel("CRITICAL")
        yield ray


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    sentence_model.save_encoder(folder, "RoFormer", **WIDE)
    return folder


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(1)
    letters = np.array([*"abcdefghij   "])
    return ["".join(random.choice(letters, random.integers(0, 40))) for _ in range(ROWS)]


@pytest.fixture(scope="module")
def parquet(texts, tmp_path_factory):
    """A folder with three files of the texts, numbered."""
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("rows")
    for number, ids in enumerate(np.array_split(np.arange(ROWS), 3)):
        table = pyarrow.table({"id": ids, "text": [texts[i] for i in ids]})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet")
    return str(folder)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def read(folder):
    """The rows of a folder of Parquet files, in the order of names."""
    import pyarrow
    import pyarrow.parquet

    return pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in sorted(folder.iterdir())])


# ---- vectors


def kill_some(folder, number, killed):
    """Kills ``number`` actors one after the other, each after further files have been written."""
    for files in range(1, number + 1):
        wait_until(lambda least=files: len(list(folder.glob("[!.]*"))) > 2 * least)
        wait_until(lambda: any(ray_case.kill(pid) for pid in ray_case.actors()[:1]))
        killed.append(len(list(folder.glob("[!.]*"))))


def test_no_row_is_lost_or_doubled_when_actors_are_killed(ray, model, texts, parquet, tmp_path):
    output, killed = tmp_path / "vectors", []
    killer = threading.Thread(target=kill_some, args=(tmp_path / "vectors.part" / "rows", 3, killed))
    killer.start()
    options = dict(output=output, actors=2, batch_size=BATCH, normalize=True)
    dataset = roformer_cpp.ray.embed(ray.data.read_parquet(parquet), model, **options)
    killer.join()
    files = len(list(output.iterdir()))
    assert len(killed) == 3 and max(killed) < files and files >= ROWS / BATCH
    rows = read(output)
    assert rows["id"].to_pylist() == list(range(ROWS)) and rows["text"].to_pylist() == texts
    alone = roformer_cpp.Engine(model, task="embed", threads=1, normalize=True).embed(texts)
    assert same_bits(rows["embedding"].combine_chunks().to_numpy_ndarray(), alone)
    assert not output.with_name("vectors.part").exists()
    assert dataset.count() == ROWS and set(dataset.schema().names) == {"id", "text", "embedding"}


def test_a_dataset_keeps_its_order_and_its_options(ray, model, tmp_path):
    texts = ["abc de", None, "", "the cat sat", "abc de"] * 40
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"body": text, "number": i}) + "\n" for i, text in enumerate(texts)))
    given = ray.data.read_json(str(path), lines=True)
    options = dict(column="body", into="v", dtype="float16", actors=1, cpus_per_actor=2, batch_size=30)
    dataset = roformer_cpp.ray.embed(given, str(model), **options)
    assert not given.context.execution_options.preserve_order
    batch = dataset.take_batch(len(texts), batch_format="numpy")
    alone = roformer_cpp.Engine(model, task="embed").embed([text or "" for text in texts])
    assert batch["number"].tolist() == list(range(len(texts)))
    assert same_bits(batch["v"], alone.astype(np.float16))


def test_what_killed_tasks_left_is_removed(ray, tmp_path):
    from roformer_cpp.ray import _files

    (tmp_path / ".00.x.12").touch()
    assert _files.write(ray.data.range(9, override_num_blocks=3), tmp_path, "{:02}.x", _files.save_parquet) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00.x", "01.x", "02.x"]


def test_a_file_has_the_rows_of_its_blocks_in_their_order(tmp_path):
    import pyarrow

    from roformer_cpp.ray import _files

    blocks = [pyarrow.table({"id": np.arange(10 * i, 10 * i + rows)}) for i, rows in enumerate((10, 0, 10, 10))]
    sink = _files._OrderedFiles(tmp_path, "{:02}.x", _files.save_parquet)
    sink.write(blocks, types.SimpleNamespace(task_idx=7))
    sink.write(blocks[1:2], types.SimpleNamespace(task_idx=8))
    assert [path.name for path in tmp_path.iterdir()] == ["07.x"]
    assert read(tmp_path)["id"].to_pylist() == [*range(10), *range(20, 40)]


def test_a_slow_reader_holds_the_actors_back(ray, model, tmp_path):
    """Rows of 400 MB go through an object store of 100 MB: they are read as the results are taken."""
    blocks, size = 40, 10 * 2**20

    def write(row):
        (tmp_path / str(row["id"])).touch()
        return {"text": "abc", "load": b"x" * size}

    dataset = ray.data.range(blocks, override_num_blocks=blocks).map(write)
    batches = iter(roformer_cpp.ray.embed(dataset, model, actors=1, batch_size=1).iter_batches(batch_size=1))
    next(batches)
    time.sleep(3)
    assert len(list(tmp_path.iterdir())) <= blocks // 2
    assert 1 + sum(1 for _ in batches) == blocks == len(list(tmp_path.iterdir()))


def refusal(call):
    with pytest.raises(Exception) as caught:
        call()
    assert "\n" not in str(caught.value)
    return type(caught.value).__name__, str(caught.value)


def test_bad_arguments(ray, model, parquet, tmp_path):
    rows = ray.data.read_parquet(parquet)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "new.part").mkdir()
    for options, kind, message in (
        (dict(column="body"), "ValueError", "[embed] the dataset must have a column 'body', got id, text"),
        (dict(column="id"), "ValueError", "[embed] the column 'id' must hold text, got int64"),
        (dict(into="id"), "ValueError", "[embed] the dataset must not have a column 'id' yet, got id, text"),
        (dict(output=tmp_path / "full"), "ValueError", "/full must be new or an empty directory, got 1 files"),
        (dict(output=tmp_path / "full" / "file"), "ValueError", "file must be new or an empty directory, got a file"),
        (dict(output=tmp_path / "new"), "ValueError", "new.part must not exist, got what a call left"),
        (dict(actors=4), "ValueError", "4 actors of 1 CPU each, and 1 to read and write, must fit into the cluster"),
        (dict(actors=1, cpus_per_actor=9), "ValueError", "1 actors of 9 CPU each"),
        (dict(cpus_per_actor=4), "ValueError", "1 actors of 4 CPU each"),
        (dict(actors=0), "ValueError", "[embed] actors must be at least 1, got 0"),
        (dict(batch_size=0), "ValueError", "[embed] batch_size must be at least 1, got 0"),
        (dict(dtype="int8"), "ValueError", "[embed] dtype must be one of float32, float16, got 'int8'"),
        (dict(threads=2), "TypeError", "[embed] options must be those of Engine except task and threads, got threads"),
        (dict(pooling="sum"), "ValueError", "[engine] pooling must be one of"),
    ):
        found = refusal(lambda options=options: roformer_cpp.ray.embed(rows, model, **options))
        assert found[0] == kind and message in found[1], found
    refused = refusal(lambda: roformer_cpp.ray.embed(["a"], model))
    assert refused == ("TypeError", "[embed] the dataset must be a ray.data.Dataset, got list")
    assert refusal(lambda: roformer_cpp.ray.embed(rows, tmp_path / "none"))[0] == "FileNotFoundError"


def test_an_error_of_an_actor_is_raised_as_itself(ray, model, tmp_path):
    rows = ray.data.from_items([{"text": "a b c d e f g"}])
    options = dict(max_length=4, long_texts="refuse", actors=1, output=tmp_path / "vectors")
    found = refusal(lambda: roformer_cpp.ray.embed(rows, model, **options))
    assert found == ("ValueError", "[embed] texts must have at most 4 tokens, got 9")
    assert list(tmp_path.iterdir()) == []
    none = roformer_cpp.ray.embed(rows.limit(0), model, **options)
    assert list((tmp_path / "vectors").iterdir()) == [] and none.count() == 0


# ---- shards


@pytest.fixture(scope="module")
def documents(prepared):
    return [path.read_text() for path in sorted((prepared / "corpus").iterdir())]


def shards(folder):
    """Bytes of all files by name, except those of data.json, which names the inputs."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "data.json"}


@pytest.mark.parametrize("parts", [1, 3])
def test_shards_are_those_of_the_program(ray, prepared, documents, tmp_path, parts):
    given = ray.data.from_items([{"body": text} for text in documents], override_num_blocks=5)
    vocabulary, options = prepared / "vocabulary", dict(valid_fraction=0.2, seed=3)
    result = roformer_cpp.ray.prepare(given, vocabulary, tmp_path / "data", column="body", parts=parts, **options)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    alone = roformer_cpp.prepare(path, vocabulary, tmp_path / "alone", **options)
    assert result["documents"] == alone["documents"] == len(documents)
    assert result["output"] == str(tmp_path / "data")
    assert shards(tmp_path / "data") == shards(tmp_path / "alone")
    assert not (tmp_path / "data.part").exists()


def test_bad_arguments_of_prepare(ray, prepared, tmp_path):
    rows, model = ray.data.from_items([{"text": "abc", "id": 1}]), prepared / "vocabulary"
    for options, kind, message in (
        (dict(column="id"), "ValueError", "[prepare] the column 'id' must hold text, got int64"),
        (dict(input="x"), "TypeError", "[prepare] options must not say how files are read, got input"),
        (dict(parts=5), "ValueError", "[prepare] 5 tasks of 1 CPU each must fit into the cluster"),
        (dict(valid_fraction=2.0, parts=1), "ValueError", "[prepare] valid_fraction must be in [0, 1), got 2"),
    ):
        found = refusal(lambda options=options: roformer_cpp.ray.prepare(rows, model, tmp_path / "data", **options))
        assert found[0] == kind and message in found[1], found
    assert refusal(lambda: roformer_cpp.ray.prepare(rows.limit(0), model, tmp_path / "data"))[1].endswith("got none")
    assert list(tmp_path.iterdir()) == []


# ---- training


def test_workers_are_called_in_a_process_group(ray, tmp_path, monkeypatch):
    """Ray's part, with another function in place of the one that trains."""

    def report(given):
        import os

        import torch
        import torch.distributed as dist

        total = torch.tensor([1.0 + dist.get_rank()])
        dist.all_reduce(total)
        return dict(given, ranks=dist.get_world_size(), total=float(total), cpus=os.environ["GOMP_SPINCOUNT"])

    monkeypatch.setattr(roformer_cpp.ray._train, "pretrain_in_worker", report)
    (tmp_path / "data").mkdir()
    run = {"model": {}}
    found = roformer_cpp.ray.train(run, tmp_path / "data", tmp_path / "run", workers=2, seed=5)
    given = dict(run=run, data=str(tmp_path / "data"), output=str(tmp_path / "run"), seed=5, threads=1)
    assert found == dict(given, ranks=2, total=3.0, cpus="10000")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]

    def fail(given):
        raise ValueError("[pretrain] the run must be right, got wrong")

    monkeypatch.setattr(roformer_cpp.ray._train, "pretrain_in_worker", fail)
    found = refusal(lambda: roformer_cpp.ray.train(run, tmp_path / "data", tmp_path / "run", workers=1, restarts=0))
    assert found == ("ValueError", "[pretrain] the run must be right, got wrong")


def test_training_goes_on_after_a_worker_was_killed(ray, data, tmp_path):
    run = {**RUN, "stages": [dict(max_length=16, batch=8, accumulate=4, steps=400)], "log_every_steps": 1}
    finish(pretrain(2, data, tmp_path, "alone", run=run))

    def kill():
        wait_until(lambda: list((tmp_path / "on-ray").glob("checkpoint-*")))
        found = subprocess.run(["pgrep", "-f", "ray::.*TrainWorker"], capture_output=True, text=True, check=True)
        killed.append(int(found.stdout.split()[-1]))
        os.kill(killed[0], signal.SIGKILL)

    killed = []
    thread = threading.Thread(target=kill)
    thread.start()
    roformer_cpp.ray.train(run, data, tmp_path / "on-ray", workers=2)
    thread.join()
    assert killed and same_model(tmp_path / "on-ray", tmp_path / "alone")


def test_bad_arguments_of_train(ray, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for change, kind, message in (
        (dict(workers=5), "ValueError", "[train] 5 workers of 1 CPU each must fit into the cluster"),
        (dict(workers=0), "ValueError", "[train] workers must be at least 1, got 0"),
        (dict(output=tmp_path / "full"), "ValueError", "full must be new or an empty directory, got 1 files"),
        (dict(data=tmp_path / "none"), "FileNotFoundError", "[train] the data directory must exist"),
    ):
        options = dict(data=tmp_path / "data", output=tmp_path / "run", workers=1) | change
        found = refusal(lambda options=options: roformer_cpp.ray.train("run.json", **options))
        assert found[0] == kind and message in found[1], found
