"""The designs of scale `paper` have the hyperparameters of the papers, and the page names every experiment."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from experiments import run

ROOT = Path(__file__).resolve().parents[2]
REGISTER = json.loads((ROOT / "experiments" / "results" / "register.json").read_text(encoding="utf-8"))


def experiments():
    return {e.name: e for module in run.MODULES for e in import_module(f"experiments.{module}").EXPERIMENTS}


def design(name):
    return experiments()[name].settings("paper")["designs"][name]


def test_pretraining():
    """RoFormer, section 4.2."""
    found = design("convergence")
    assert found["run"]["model"]["model_type"] == "bert"  # whose defaults are those of BERT-base
    assert found["run"]["stages"] == [{"max_length": 512, "batch": 64, "steps": 100_000}]
    assert found["run"]["schedule"]["learning_rate"] == pytest.approx(1e-5)
    assert found["corpus"]["valid_fraction"] == pytest.approx(0.2)


def test_performer():
    """RoFormer, section 4.4; performer-pytorch."""
    found = design("linear-language-model")["run"]
    model = found["model"]
    assert (model["num_hidden_layers"], model["hidden_size"], model["num_attention_heads"]) == (12, 768, 12)
    assert model["attention"]["num_features"] == 266
    assert (found["stages"][0]["max_length"], found["stages"][0]["batch"]) == (1024, 128)
    assert found["schedule"]["learning_rate"] == pytest.approx(1e-4)


def test_stages():
    """Table 4: maximum length, batch and steps of each stage."""
    (published,) = [table for table in REGISTER["tables"] if table["id"] == "R-TAB-4"]
    designs = experiments()["staged-pretraining"].settings("paper")["designs"]
    stages = designs["staged"]["run"]["stages"]
    assert [[s["max_length"], s["batch"], s["steps"]] for s in stages] == [row[1:4] for row in published["rows"]]


def test_the_page_names_every_experiment():
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")

    named = set(re.findall(r"^\| `([\w-]+)` \| [RX]-", page, re.MULTILINE))
    assert named == experiments().keys()
