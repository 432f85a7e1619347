"""Reads the output folder of `roformer reproduce`: register.json and <scale>/<experiment>/result.json."""

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
SCALES = ("tiny", "small", "paper", "any")  # results of a later scale replace those of an earlier one
SMOKE_SCALE = "tiny"
_KEYS = ("name", "title", "claims", "expected", "scale", "table", "verdicts", "figures", "seconds", "command")


@dataclass(frozen=True)
class Result:
    """An experiment's result: its JSON, and what a reader must know to trust it."""

    path: Path
    value: dict

    def __getitem__(self, key):
        return self.value[key]

    def get(self, key, default):
        return self.value.get(key, default)

    @property
    def rows(self):
        """The rows of the table as dicts. Of columns that have the same name, the first."""
        names = self["table"]["columns"]
        return [{name: row[names.index(name)] for name in names} for row in self["table"]["rows"]]

    @property
    def runs(self):
        """The records of the training runs, also of those that chose learning rates."""
        return [*self.get("training", []), *chain(*(rate.get("training", []) for rate in self.get("rates", [])))]

    @property
    def weaknesses(self):
        """Why the result deserves less trust: [text], empty for most."""
        parts = list(chain(*(run.get("parts", []) for run in self.runs)))
        commits = [made.get("commit", "") for made in (self.get("machine", {}), *parts)]
        found = ["a run of minutes, which only shows that the program works"] if self["scale"] == SMOKE_SCALE else []
        if any(commit.endswith("-dirty") for commit in commits):
            found.append("made by a program with uncommitted changes")
        if not self.get("kind", ""):  # of the first version of the file
            found.append("an early run: learning rates not searched, values by seed not recorded")
        return found

    def checks(self, claim, role="part"):
        return [check for check in self.get("checks", {}).get(claim, []) if check["role"] == role]

    def measured(self, name, arm):
        """{seed: value} of a measure."""
        found = (each for each in self.get("measures", []) if (each["name"], each["arm"]) == (name, arm))
        return {each["seed"]: each["value"] for each in found}


@dataclass(frozen=True)
class Recorded:
    claims: list  # dicts with id, text, source, status, note, experiments
    tables: dict  # the papers' tables by id
    encodings: list  # dicts with name, summary, source
    method: str
    results: dict  # Result by the experiment's name


def read(directory):
    """The Recorded of a folder. Raises OSError, or ValueError that names the file and what it lacks."""
    directory = Path(directory)
    register = _json(directory / "register.json", ("claims", "tables", "encodings", "method"))
    results = {}
    for scale in SCALES:
        for path in sorted((directory / scale).glob("*/result.json")):
            results[path.parent.name] = read_result(path)
    if not results:
        raise ValueError(f"[report] {directory} must hold results, got none. Hint: roformer reproduce all --output DIR")
    tables = {table["id"]: table for table in register["tables"]}
    return Recorded(register["claims"], tables, register["encodings"], register["method"], results)


def read_result(path):
    """The Result of a file. Raises OSError, or ValueError that names the file and what it lacks."""
    return Result(path, _json(path, _KEYS))


def _json(path, keys):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"[report] {path} must be JSON, got {error}") from error
    missing = [key for key in keys if key not in value] if isinstance(value, dict) else keys
    if missing:
        raise ValueError(f"[report] {path} must have the key {missing[0]}")
    return value
