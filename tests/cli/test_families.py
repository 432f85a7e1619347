"""Encoders of other libraries in `pretrain` and `finetune`: what they save opens in transformers and in
sentence-transformers, with the numbers of our engine."""

import functools
import json
import re

import numpy as np
import pytest
import torch
import transformers

import roformer_cpp
import task_files
from cli_support import pretrain, refused, results, run, run_file
from engine_case import assert_close
from foreign_encoders import FAMILIES, SIZES, TRAINED, UNREAD
from rf_engine import Engine

WORDS = 150
# Of some heads.
CLASSLESS = [each for each in TRAINED if not hasattr(transformers, FAMILIES[each][0] + "ForMultipleChoice")]
KEYS = {key: value for key, value in SIZES.items() if key != "num_labels"} | {"vocab_size": WORDS}


def model_keys(family):
    keys = KEYS | FAMILIES[family][2] | {"pad_token_id": 0}
    if family == "distilbert":
        keys["hidden_dim"] = keys.pop("intermediate_size")
    if family == "ultrabert":
        rope = {"rope_type": "default", "rope_theta": 1e4}
        keys["rope_parameters"] = {"full_attention": rope, "sliding_attention": rope}
    del keys["vocab_size"], keys["pad_token_id"]  # the data's
    return {"model_type": family.split()[0]} | keys


@pytest.fixture(scope="module")
def body_of(prepared, tmp_path_factory):
    """A function from a family to a model, trained from random values by a run file; not to be changed."""

    @functools.cache
    def trained(family):
        folder = tmp_path_factory.mktemp("family")
        run = run_file(folder / "run.json", model=model_keys(family))
        line = results(*pretrain(prepared, run, folder / "body"))[-1]
        assert line["steps"] == 6
        return folder / "body"

    return trained


def few(folder, kind):
    return task_files.write_splits(folder, task_files.KINDS[kind], train=32, valid=9)


@pytest.mark.parametrize("family", TRAINED)
def test_from_a_run_file_to_a_fine_tuned_model(family, body_of, tmp_path):
    """Trained by a run file, then as a classifier of pairs, which transformers measures alike."""
    body = body_of(family)
    oracle, report = transformers.AutoModelForMaskedLM.from_pretrained(body, output_loading_info=True)
    assert not [name for names in report.values() for name in names if not name.endswith(UNREAD)]
    assert type(oracle).__name__ == FAMILIES[family][0] + "ForMaskedLM"
    files = few(tmp_path, "classification")
    results(*task_files.options(body, files, tmp_path / "tuned", "classification", "--epochs", 1))
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned").eval()
    tokenizer = roformer_cpp.Tokenizer(tmp_path / "tuned")
    texts = [json.loads(line)["text"] for line in files["test"].read_text().splitlines()[:5]]
    ids = [tokenizer(text)["input_ids"] for text in texts]
    with torch.no_grad():
        theirs = np.stack([classifier(torch.tensor([each])).logits[0].numpy() for each in ids])
    assert_close(np.concatenate([Engine(tmp_path / "tuned").logits([np.int32(each)]) for each in ids]), theirs)


@pytest.mark.parametrize("family", ["electra", *CLASSLESS])
def test_a_head_without_a_class_of_transformers(family, prepared, body_of, tmp_path):
    if family == "jina_embeddings_v3":
        keys, body = model_keys(family) | {"type_vocab_size": 2}, tmp_path / "body"
        results(*pretrain(prepared, run_file(tmp_path / "run.json", model=keys), body))
    else:
        body = body_of(family)
    for kind, head in (("answers", "ForQuestionAnswering"), ("choice", "ForMultipleChoice")):
        done = run(*task_files.options(body, few(tmp_path, kind), tmp_path / kind, kind, "--epochs", 1))
        assert done.returncode == 0, done.stderr
        name = FAMILIES[family][0] + head
        assert (f"transformers has no class {name}" in done.stderr) == (not hasattr(transformers, name))


def test_a_modernbert_in_sentence_transformers(body_of):
    """Trained here, with windows, and opened there without code of ours."""
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (pip)")
    body = body_of("modernbert")
    texts = ["ab ab ba", "b", "a long text " * 9]
    theirs = sentence_transformers.SentenceTransformer(str(body)).encode(texts)
    ours = roformer_cpp.Engine(body, task="embed", pooling="mean", normalize=False).embed(texts)
    assert_close(ours, theirs)


@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_padding_of_the_data(family, body_of, tmp_path):
    """In place of the family's, so that positions begin after its row."""
    body = body_of(family)
    config = json.loads((body / "config.json").read_text())
    assert config["pad_token_id"] == 0 and config["vocab_size"] == WORDS
    more = ("--epochs", 1, "--classifier-pooling", "mean")
    command = task_files.options(body, few(tmp_path, "classification"), tmp_path / "tuned", "classification", *more)
    if family == "modernbert":
        results(*command)
        assert json.loads((tmp_path / "tuned" / "config.json").read_text())["classifier_pooling"] == "mean"
    else:
        assert "classifier_pooling" in refused(*command)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block": "llama"}, 'block must be "modernbert" or absent, got "llama"'),
        ({"local_attention": 8}, 'local_attention must be absent without "block": "modernbert", got 8'),
        ({"block": "modernbert", "local_attention": 1}, r"local_attention must be null or in \[2, 2\^30\], got 1"),
        ({"block": "modernbert", "family": "roformer_v2"}, "block must be absent in the family roformer_v2"),
        ({"block": "modernbert", "model_type": "bert"}, "block must be left to a model_type of rf_encoder"),
        ({"block": "modernbert", "prefix_lm": True, "is_decoder": True}, "prefix_lm must be false with"),
        ({"block": "modernbert", "use_bias": True}, "use_bias must be false with"),
        ({"block": "modernbert", "hidden_act": "relu"}, "hidden_act must be gelu, gelu_new or silu with .*, got relu"),
        ({"model_type": "modernbert", "mlp_dropout": 0.2}, "mlp_dropout of a modernbert must be 0 for training"),
        ({"block": "modernbert", "attention": "linear"}, "local_attention must be null with linear attention"),
    ],
)
def test_refused(keys, message, prepared, tmp_path):
    run = run_file(tmp_path / "run.json", model=KEYS | keys)
    assert re.search(message, refused(*pretrain(prepared, run, tmp_path / "out")))
