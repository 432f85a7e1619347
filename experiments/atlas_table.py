"""The atlas: every position encoding in the same small language model, as rows and as a CSV file."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

LENGTHS = (128, 256, 512, 1024)
_COSTS = {"parameters": "parameters", "peak MiB": "peak_mib", "learning rate": "learning_rate"}
_TIME = "time of attention at {} tokens, of rope's"
_TASKS = ("copy back", "first occurrence", "count")


@dataclass
class Entry:
    name: str
    source: str
    losses: dict = field(default_factory=dict)  # {length: [one per seed]}
    less_rope: tuple = (None, None, None)  # of the loss at the training length: mean and 95 % interval
    accuracies: dict = field(default_factory=dict)  # {task: mean at the training length}
    costs: dict = field(default_factory=dict)  # by column of the result's table
    time: float | None = None  # of attention at 1,024 tokens, as a multiple of rope's

    def loss(self, length):
        return fmean(self.losses[length]) if self.losses.get(length) else None


def entries(found):
    """[Entry] of all encodings of the program, also of those without results."""
    atlas, synthetic = found.results.get("atlas"), found.results.get("synthetic")
    by_name = {each["name"]: Entry(each["name"], each["source"]) for each in found.encodings}
    for row in atlas.rows if atlas else []:
        entry = by_name.setdefault(row["encoding"], Entry(row["encoding"], ""))  # also arms such as t5:scale=sqrt
        for length in LENGTHS:
            losses = atlas.measured(f"loss at {length} tokens, nats per token", entry.name).values()
            entry.losses[length] = [loss for loss in losses if loss is not None]
        names = ("loss at 128 tokens less rope's, nats per token", "from, 95 %", "to, 95 %")
        entry.less_rope = tuple(row[name] for name in names)
        entry.costs = {column: row[column] for column in _COSTS}
        entry.time = row[_TIME.format(1024)]
    for row in synthetic.rows if synthetic else []:
        entry = by_name.setdefault(row["encoding"], Entry(row["encoding"], ""))
        entry.accuracies[row["task"]] = row["accuracy at 64 tokens"]
    return list(by_name.values())


def write_csv(rows, path):
    """One line per encoding: mean losses by length, difference from RoPE with its interval, accuracies, costs."""
    columns = ["encoding", *(f"loss_{length}" for length in LENGTHS), "less_rope", "less_rope_low", "less_rope_high"]
    columns += [f"accuracy_{task.replace(' ', '_')}" for task in _TASKS] + ["time_1024_of_rope", *_COSTS.values()]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for entry in rows:
            losses = [entry.loss(length) for length in LENGTHS]
            accuracies = [entry.accuracies.get(task) for task in _TASKS]
            costs = [entry.costs.get(column) for column in _COSTS]
            writer.writerow([entry.name, *losses, *entry.less_rope, *accuracies, entry.time, *costs])
