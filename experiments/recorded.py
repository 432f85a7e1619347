"""Reads results, <folder>/<scale>/<experiment>.parquet as `python -m experiments` writes them, and published tables."""

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean

import pyarrow

from . import judge, run

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Result:
    """The result of an experiment.

    Args:
        rows: the dicts that run.row describes.
        about: the file's metadata (run.read). Of results that an earlier program recorded without values by seed they
            have `verdicts`, and `weakness` where they deserve less trust.
    """

    path: Path
    rows: list
    about: dict

    @property
    def name(self):
        return self.about["name"]

    @property
    def scale(self):
        return self.about["scale"]

    @property
    def question(self):
        known = run.experiments().get(self.name)
        return known[0].question if known else self.name

    @cached_property
    def verdicts(self):
        """{claim: what judge.judge says}."""
        return self.about.get("verdicts") or run.verdicts(self.name, self.rows, self.about)

    @property
    def date(self):
        return self.about.get("date", "")

    @property
    def rank(self):
        """The higher, the better: by scale, then by date."""
        return (run.SCALES.index(self.scale) if self.scale in run.SCALES else 0, self.date)

    @property
    def seconds(self):
        """The time of all training runs, or of the process if that is longer."""
        return max(self.about["seconds"], sum({row["seconds"] for row in self.rows if row["seconds"]}))

    @property
    def weaknesses(self):
        """Why the result deserves less trust: [text], empty for most."""
        found = ["a run of minutes, which only shows that the program works"] if self.scale == "tiny" else []
        if any("-dirty" in made["commit"] for made in chain(self.rows, [self.about])):
            found.append("made by a program with uncommitted changes")
        return found + ([self.about["weakness"]] if "weakness" in self.about else [])

    @cached_property
    def _by_key(self):
        found = {}
        for row in self.rows:
            found.setdefault((row["measure"], row["arm"], row["step"] is None), []).append(row)
        return found

    def of(self, measure, arm):
        """The rows of a measure and an arm, without the points of curves."""
        return self._by_key.get((measure, arm, True), [])

    def values(self, measure, arm):
        """{seed: value} of the finite values of a measure; seed None: without a seed."""
        return judge.values_of(self.of(measure, arm), measure, arm)

    def mean(self, measure, arm):
        """The mean over seeds; None without a value."""
        values = self.values(measure, arm).values()
        return fmean(values) if values else None

    def curves(self, measure, arm):
        """{seed: (steps, values)}."""
        found = {}
        for row in self._by_key.get((measure, arm, False), []):
            steps, values = found.setdefault(row["seed"], ([], []))
            steps.append(row["step"])
            values.append(row["value"])
        return found


@dataclass(frozen=True)
class Recorded:
    results: dict  # Result by the experiment's name
    tables: dict  # the papers' tables by id
    encodings: list  # of the program: dicts with name and source

    def get(self, name):
        return self.results.get(name)


def read(folders):
    """The Recorded of folders. Of several results of an experiment, the larger scale counts, then the newer result.

    Raises OSError, or ValueError that names the file and the error.
    """
    found = {}
    for path in chain(*(sorted(Path(folder).glob("*/*.parquet")) for folder in folders)):
        if path.parent.name in (*run.SCALES, run.NO_SCALE):
            result = read_result(path)
            if result.name not in found or result.rank >= found[result.name].rank:
                found[result.name] = result
    if not found:
        where = ", ".join(map(str, folders))
        raise ValueError(f"[report] {where} must hold results, got none. Hint: python -m experiments all --output DIR")
    order = list(run.experiments())
    results = dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))
    register = json.loads((RESULTS / "register.json").read_text(encoding="utf-8"))
    return Recorded(results, {table["id"]: table for table in register["tables"]}, register["encodings"])


def read_result(path):
    """The Result of a file. Raises OSError, or ValueError that names the file and what is wrong."""
    try:
        rows, about = run.read(path)
    except (pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"[report] {path} must be a result of python -m experiments, got {error}") from error
    if about is None:
        raise FileNotFoundError(f"[report] {path} must exist")
    return Result(path, rows, about)


def is_recorded(result):
    """Whether it is one of the repository's results, which findings.yaml is about."""
    return result.about == run.read_about(RESULTS / result.scale / f"{result.name}.parquet")
