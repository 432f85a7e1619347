"""The designs of scale `paper` have the hyperparameters of the papers, and the page names every experiment."""

import json
import re
from pathlib import Path

import pytest

from experiments import recorded, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reproduce.md"


def designs(name):
    return run.experiments()[name][0].settings("paper")["designs"]


def test_pretraining():
    """RoFormer, section 4.2."""
    found = designs("convergence")["convergence"]
    assert found["run"]["model"]["model_type"] == "bert"  # whose defaults are those of BERT-base
    assert found["run"]["stages"] == [{"max_length": 512, "batch": 64, "steps": 100_000}]
    assert found["run"]["schedule"]["learning_rate"] == pytest.approx(1e-5)
    assert found["corpus"]["valid_fraction"] == pytest.approx(0.2)


def test_performer():
    """RoFormer, section 4.4; performer-pytorch."""
    found = designs("linear-language-model")["linear-language-model"]["run"]
    model = found["model"]
    assert (model["num_hidden_layers"], model["hidden_size"], model["num_attention_heads"]) == (12, 768, 12)
    assert model["attention"]["num_features"] == 266
    assert (found["stages"][0]["max_length"], found["stages"][0]["batch"]) == (1024, 128)
    assert found["schedule"]["learning_rate"] == pytest.approx(1e-4)


def test_stages():
    """Table 4: maximum length, batch and steps of each stage."""
    register = json.loads((recorded.RESULTS / "register.json").read_text(encoding="utf-8"))
    (published,) = [table for table in register["tables"] if table["id"] == "R-TAB-4"]
    stages = run.experiments()["staged-pretraining"][0].settings_at("paper")["run"]["stages"]
    assert [[s["max_length"], s["batch"], s["steps"]] for s in stages] == [row[1:4] for row in published["rows"]]


def test_the_page_names_every_experiment():
    named = set(re.findall(r"^\| `([\w-]+)` \| [RX]-", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert named == run.experiments().keys()
