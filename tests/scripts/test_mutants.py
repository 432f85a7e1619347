"""scripts/mutants.py: which mutants it draws."""

import importlib.util
import itertools
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/mutants.py"
SPEC = importlib.util.spec_from_file_location("mutants", SCRIPT)
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)


def test_a_seed_names_the_same_mutants_of_every_module():
    first, again, other = (list(itertools.islice(mutants.draws(seed), 12)) for seed in (1, 1, 2))
    assert first == again != other
    assert [path.split("/")[0] for path, _, _ in first] == 2 * ["core", "engine", "nn", "text", "data", "train"]
    for each in [*first, *mutants.chosen()]:
        facts = mutants.shown(each)
        assert facts["before"] != facts["after"] and (mutants.ROOT / facts["file"]).read_text() == each[1]
