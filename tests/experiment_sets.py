"""What the tests of the experiments on tasks share: made-up sets for --data, and an experiment's rows."""

import csv
import json

from experiments import judge, run

CHARACTERS = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"


def chinese(rng, count):
    return "".join(rng.choices(CHARACTERS, k=count))


def english(rng, letters="abcdefghijklm"):
    return " ".join("".join(rng.choices(letters, k=3)) for _ in range(6))


def write_table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
        table.writeheader()
        table.writerows(rows)


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def small_design(design, **changes):
    """A design of a smaller body, with few steps on short rows and without a search for rates."""
    model = design["run"]["model"] | {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32}
    stages = [{"max_length": 32, "batch": 8, "steps": 6}]
    run_file = design["run"] | {"model": model, "stages": stages, "evaluate_batches": 1}
    return design | {"run": run_file, "search": None} | changes


def rows_of(module, name, folder, data, changes=None):
    """The rows of an experiment at scale tiny, with some settings changed."""
    (experiment,) = (each for each in module.EXPERIMENTS if each.name == name)
    settings = experiment.settings_at("tiny")
    changed = settings | (changes(settings) if changes else {})
    return list(experiment.run(run.Context(folder, data, "tiny", threads=1), changed))


def values(rows):
    """{(measure, arm, seed): value} of the rows that rules read."""
    return {(row["measure"], row["arm"], row["seed"]): row["value"] for row in rows if row["step"] is None}


def check_rules(name, rows, is_tuned=True):
    """Every contrast of the experiment's rules has values, and every arm that must be tuned has rates."""
    rules = judge.rules_of(name)
    assert rules
    for rule in rules:
        for contrast in (*rule.parts, *rule.preconditions):
            assert judge.differences(rows, contrast.measure, contrast.arm, contrast.against), contrast
        if is_tuned:
            tried = {row["arm"] for row in rows if row["measure"] == judge.SHORT_RUN}
            assert set(rule.tuned) <= tried
