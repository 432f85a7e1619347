"""The atlas: every position encoding in the same small language model, as rows and as a CSV file."""

import csv
from dataclasses import dataclass, field
from pathlib import Path

from . import judge
from .atlas import LENGTH, LOSS, TIME
from .language_models import PARAMETERS, PEAK
from .synthetic import ACCURACY, LENGTHS, TASKS

MULTIPLES = tuple(factor * LENGTH for factor in (1, 2, 4, 8))


@dataclass
class Entry:
    name: str
    losses: dict = field(default_factory=dict)  # {length: mean over seeds}
    less_rope: tuple = (None, None, None)  # of the loss at the training length: mean and 95 % interval
    accuracies: dict = field(default_factory=dict)  # {task: mean at the training length}
    costs: tuple = (None, None, None)  # parameters, peak MiB, learning rate
    time: float | None = None  # of attention at 1,024 tokens, as a multiple of rope's


def entries(found):
    """[Entry] of all encodings of the program, including encodings without results, and of other arms of the atlas."""
    atlas, synthetic = found.get("atlas"), found.get("synthetic")
    arms = [row["arm"] for row in atlas.rows if row["measure"] == PARAMETERS] if atlas else []
    names = dict.fromkeys([*(each["name"] for each in found.encodings), *arms])
    return [_entry(name, atlas, synthetic) for name in names]


def _entry(name, atlas, synthetic):
    entry = Entry(name)
    if atlas:
        entry.losses = {length: atlas.mean(LOSS.format(length), name) for length in MULTIPLES}
        measure = LOSS.format(LENGTH)
        own, rope = atlas.values(measure, name), atlas.values(measure, "rope")
        differences = [value - rope[seed] for seed, value in own.items() if seed in rope]
        if len(differences) > 1:
            found = judge.estimate(differences)
            entry.less_rope = (found.mean, found.low, found.high)
        if made := atlas.of(PARAMETERS, name):
            entry.costs = (int(made[0]["value"]), atlas.mean(PEAK, name), made[0]["learning_rate"])
        entry.time = atlas.mean(TIME.format(1024), name)
    if synthetic:
        entry.accuracies = {task: synthetic.mean(ACCURACY.format(task, LENGTHS[0]), name) for task in TASKS}
    return entry


def write_csv(rows, path):
    """One line per encoding: mean losses by length, difference from RoPE with its interval, accuracies, costs."""
    columns = ["encoding", *(f"loss_{length}" for length in MULTIPLES), "less_rope", "less_rope_low", "less_rope_high"]
    columns += [f"accuracy_{task.replace(' ', '_')}" for task in TASKS]
    columns += ["time_1024_of_rope", "parameters", "peak_mib", "learning_rate"]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for entry in rows:
            losses = [entry.losses.get(length) for length in MULTIPLES]
            accuracies = [entry.accuracies.get(task) for task in TASKS]
            writer.writerow([entry.name, *losses, *entry.less_rope, *accuracies, entry.time, *entry.costs])
