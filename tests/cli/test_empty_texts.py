"""An empty text is a text like others: it is counted, and its result is that of the library that made the model."""

import json

import numpy as np
import pytest
import torch

from cli_support import refused, results
from sentence_model import save_classifier
from tolerances import T4_MAX

TEXTS = ["abc de", "", "the cat", "  ", "", "--", ""]


def make_model(folder, labels):
    """A classifier of transformers, and a function that gives its logits for texts."""
    oracle, tokenizer = save_classifier(folder, labels)

    def logits(*texts):
        with torch.no_grad():
            inputs = tokenizer(*([text] for text in texts), return_tensors="pt")  # not in a list, "" is no second text
            return oracle(**inputs).logits[0].double()

    return logits


def given_texts(folder):
    """The texts in every way that a command takes them."""
    (folder / "a.txt").write_text("".join(text + "\n" for text in TEXTS))
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "a.csv").write_text("text\n" + "".join(f'"{text}"\n' for text in TEXTS))
    one_by_one = [part for text in TEXTS for part in ("--text", text)]
    return [["--text", *TEXTS], one_by_one, *(["--input", folder / f"a.{kind}"] for kind in ("txt", "jsonl", "csv"))]


def test_predict(tmp_path):
    logits = make_model(tmp_path, 3)
    expected = np.array([logits(text).softmax(-1).tolist() for text in TEXTS])
    for given in given_texts(tmp_path):
        lines = results("predict", "--model", tmp_path, *given)
        assert [line["index"] for line in lines] == list(range(len(TEXTS))), given
        first = 2 if ".csv" in str(given[-1]) else 1
        assert [line["line"] for line in lines] == list(range(first, first + len(TEXTS)))
        found = np.array([list(line["probabilities"].values()) for line in lines])
        assert np.abs(found - expected).max() <= T4_MAX


def test_rerank(tmp_path):
    logits = make_model(tmp_path, 1)
    for query in ("a cat", ""):
        expected = [logits(query, text).item() for text in TEXTS]
        for given in given_texts(tmp_path):
            lines = results("rerank", "--model", tmp_path, "--query", query, "--activation", "identity", *given)
            assert sorted(line["index"] for line in lines) == list(range(len(TEXTS))), given
            assert [line["text"] for line in lines] == [TEXTS[line["index"]] for line in lines]
            assert all(abs(line["score"] - expected[line["index"]]) <= T4_MAX for line in lines)


def test_inputs_without_a_name(tmp_path, sentence_encoder):
    make_model(tmp_path, 1)
    (tmp_path / "a.txt").write_text("a\n")
    for command in (
        ["predict", "--model", tmp_path],
        ["rerank", "--model", tmp_path, "--query", "a"],
        ["embed", "--model", sentence_encoder],
        ["similar", "--model", sentence_encoder, "--query", "a"],
    ):
        message = refused(*command, "--input", tmp_path / "a.txt", "")
        assert message == "[input] an input must have a name, got an empty one\n"


@pytest.mark.parametrize("command", [["predict"], ["rerank", "--query", "a"], ["evaluate"]], ids=lambda c: c[0])
def test_null_is_called_null(tmp_path, command):
    make_model(tmp_path, 1 if command[0] == "rerank" else 3)
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1}\n{"text": null, "label": 1}\n')
    message = refused(*command, "--model", tmp_path, "--input", tmp_path / "a.jsonl")
    assert message == f'[input] {tmp_path}/a.jsonl line 2 must have a value as "text", got null\n'
