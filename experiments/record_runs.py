"""Records the training runs of `roformer reproduce` as data: one Parquet file per experiment, a row for each value.

    python -m experiments record-runs reproduced/small/runs experiments/results/runs

Columns: `run` (the folder of the run), `arm` (the encoding with its options), `task`, `learning_rate`, `seed`,
`measure`, `step` and `length` (null if the measure does not depend on them), `value`; then how the run was made:
`seconds`, `commit`, `cpu`, `command` (joined by " | " if several processes trained it), `data` (hash of the training
data) and `settings` (JSON). Training curves keep at most 200 steps per run, spread evenly, with the last one.

    import pandas
    rows = pandas.read_parquet("experiments/results/runs/atlas.parquet")
    rows[(rows.measure == "loss") & (rows.length == 1024)].groupby("arm").value.mean()
"""

import json
import re

import pyarrow
from pyarrow import parquet

MAX_POINTS = 200  # of a training curve
_CURVES = ("loss", "gradient_norm", "tokens_per_second")
_OF_EVALUATIONS = ("loss", "accuracy", "unigram_loss")
_COSTS = ("parameters", "peak_bytes", "step_ms", "diverged_at_step", "train_loss")
_RECORD = ".training.json"  # after the name of the run's folder
_SCHEMA = pyarrow.schema(
    [(name, pyarrow.string()) for name in ("run", "arm", "task")]
    + [("learning_rate", pyarrow.float64()), ("seed", pyarrow.int64()), ("measure", pyarrow.string())]
    + [("step", pyarrow.int64()), ("length", pyarrow.int64()), ("value", pyarrow.float64())]
    + [("seconds", pyarrow.float64())]
    + [(name, pyarrow.string()) for name in ("commit", "cpu", "command", "data", "settings")]
)


def rows_of_experiment(folder):
    """The rows of all finished runs of an experiment, as dicts; `folder` is <output>/<scale>/runs/<experiment>."""
    rows = []
    for path in sorted(folder.rglob(f"*{_RECORD}")):
        record = _json(path)
        if not record["finished"]:
            continue
        run = path.parent / path.name.removesuffix(_RECORD)
        about = _about(folder, run, record)
        names = ("measure", "step", "length", "value")
        rows += [about | dict(zip(names, value, strict=True)) for value in _values(run, record)]
    return rows


def write(runs, output):
    """Writes <output>/<experiment>.parquet for each experiment in the folder `runs`. Raises OSError."""
    output.mkdir(parents=True, exist_ok=True)
    for folder in sorted(path for path in runs.iterdir() if path.is_dir()):
        table = pyarrow.Table.from_pylist(rows_of_experiment(folder), _SCHEMA)
        if table.num_rows:
            parquet.write_table(table, output / f"{folder.name}.parquet", compression="zstd", compression_level=19)


def _about(folder, run, record):
    settings, parts = record["settings"], record["parts"]
    compared = run.parents[1] / "compare.json"  # of runs that differ in their arm and seed
    result = _json(run / "result.json") if (run / "result.json").exists() else {}
    rate = settings.get("schedule", {}).get("learning_rate") or settings.get("learning_rates", [None])[0]
    seed = re.search(r"seed-(\d+)", run.name)
    return {
        "run": str(run.relative_to(folder)),
        "arm": settings.get("arm") or result.get("encoding") or run.parent.name,
        "task": settings.get("task", {}).get("name"),
        "learning_rate": rate,
        "seed": int(seed[1]) if seed else settings.get("seed"),
        "seconds": record["seconds"],
        **{key: " | ".join(dict.fromkeys(part[key] for part in parts)) for key in ("commit", "cpu", "command")},
        "data": record.get("data") or (_json(compared)["data"] if compared.exists() else None),
        "settings": json.dumps(settings, sort_keys=True),
    }


def _values(run, record):
    """(measure, step, length, value) of everything that was measured of a run."""
    settings = record["settings"]
    log = run / "metrics.jsonl"
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    curve = [entry for entry in entries if entry["type"] == "train"]
    for entry in thinned(curve):
        yield from ((f"training {name}", entry["step"], None, entry[name]) for name in _CURVES)
    for entry in entries:
        if entry["type"] != "train":
            names = (name for name in _OF_EVALUATIONS if name in entry)
            yield from ((f"held-out {name}", entry["step"], entry.get("length"), entry[name]) for name in names)
    if (run / "result.json").exists():
        result = _json(run / "result.json")
        for length, loss in zip(_lengths(run, settings), result.get("losses", []), strict=False):
            yield "loss", None, length, loss
        for length, scores in zip(settings.get("lengths", []), result.get("scores", []), strict=False):
            scores = scores or {"accuracy": None, "loss": None}  # the encoding cannot read rows of this length
            yield from ((name, None, length, value) for name, value in scores.items())
        yield from ((name, None, None, result[name]) for name in _COSTS if name in result)
    for name in ("readings", "outcome"):
        yield from ((measure, None, None, value) for measure, value in _numbers(name, record.get(name, {})))


def _lengths(run, settings):
    compared = run.parents[1] / "compare.json"
    factors = _json(compared)["length_factors"] if compared.exists() else []
    return [factor * settings["stages"][-1]["max_length"] for factor in factors]


def thinned(points):
    """At most MAX_POINTS of them, spread evenly, with the last."""
    every = -(-len(points) // MAX_POINTS) or 1
    return points[::-1][::every][::-1]


def _numbers(name, value):
    """(path, number) of every number in nested dicts and lists."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _numbers(f"{name}/{key}", each)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from _numbers(f"{name}/{i}", each)
    elif isinstance(value, (int, float)):
        yield name, value


def _json(path):
    return json.loads(path.read_text(encoding="utf-8"))
