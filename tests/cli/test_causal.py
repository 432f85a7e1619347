"""Causal language models of bytes: the tokenizer, training with softmax and linear attention, the loss against
transformers, resuming, and what such a model is refused for. Run files are tests/train/run_config_test.cpp's."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
import transformers

import task_files
import tolerances
from cli_support import MODEL, make_corpus, metrics, pretrain, refused, results, run, run_file
from engine_case import make_causal

LENGTH = 16
CLS, SEP = 258, 259  # ids of the tokenizer of bytes
FAVOR = {"type": "linear", "feature_map": "favor", "num_features": 12}
# Two arms of X-04: position encoding, attention and a precision.
ARMS = {"eq19-favor": ("rope", FAVOR | {"redraw_every": 3}, "float32")}
ARMS |= {"before-map": (["sinusoidal", "rope"], FAVOR | {"rope_site": "before_map"}, "bfloat16")}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """corpus/, bytes/ (the tokenizer) and data/ in a folder; whole/ is data without held-out documents."""
    folder = tmp_path_factory.mktemp("bytes")
    make_corpus(folder / "corpus")
    results("vocab", "--bytes", "--output", folder / "bytes")
    for name, held_out in (("data", 0.2), ("whole", 0)):
        given = ["--input", folder / "corpus", "--model", folder / "bytes", "--output", folder / name]
        (report,) = results("prepare", *given, "--valid-fraction", held_out)
        assert report["train_tokens"] + report["valid_tokens"] == report["input_bytes"]
        assert report["unknown_tokens"] == 0 and (report["valid_tokens"] > 0) == (held_out > 0)
    return folder


def causal_run_file(path, encoding="rope", attention="softmax", precision="float32", **keys):
    model = {**MODEL, "position_encoding": encoding, "attention": attention}
    base = dict(objective="causal", model=model, stages=[dict(max_length=LENGTH, batch=4, steps=6)])
    return run_file(path, **{**base, "precision": precision, **keys})


@pytest.fixture(scope="module")
def trained(data):
    results(*pretrain(data, causal_run_file(data / "run.json"), data / "run"))
    return data / "run"


def test_bytes_are_their_own_ids_in_transformers_too(data):
    tokenizer = transformers.AutoTokenizer.from_pretrained(data / "bytes")
    rng = random.Random(1)
    one = lambda: chr(rng.choice([rng.randint(1, 127), rng.randint(160, 0x9FFF)]))  # noqa: E731
    texts = ["".join(one().replace("\n", " ").replace("\r", " ") for _ in range(50)) for _ in range(20)]
    ours = results("tokenize", "--model", data / "bytes", stdin="".join(text + "\n" for text in texts))
    for text, row in zip(texts, ours, strict=True):
        assert row["ids"] == tokenizer(text)["input_ids"] == [CLS, *text.encode(), SEP]
        assert tokenizer.decode(row["ids"], skip_special_tokens=True) == text
    assert tokenizer.convert_tokens_to_ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]) == list(range(256, 261))
    for more in (["--input", data / "corpus"], ["--size", 300], ["--cased"]):  # a vocabulary of bytes takes no text
        assert more[0] in refused("vocab", "--bytes", *more, "--output", data / "c", code=2)


def test_a_causal_run_is_a_causal_model(data, trained):
    (evaluation,) = metrics(trained, "evaluation")
    assert evaluation["bits"] == pytest.approx(evaluation["loss"] / np.log(2), rel=tolerances.T1_RTOL)
    assert evaluation["perplexity"] == pytest.approx(np.exp(evaluation["loss"]), rel=tolerances.T1_RTOL)
    written = json.loads((trained / "run.json").read_text())
    assert written["objective"] == "causal" and "mask" not in written
    model, report = transformers.AutoModelForCausalLM.from_pretrained(trained, output_loading_info=True)
    assert type(model) is transformers.RoFormerForCausalLM
    assert not report["missing_keys"] and not report["unexpected_keys"]
    # A token for each byte: the loss of held-out documents is over all of them, and evaluate finds it again.
    (again,) = results("evaluate", "--model", trained, "--data", data / "data", "--max-length", LENGTH)
    valid = json.loads((data / "data" / "data.json").read_text())["splits"]["valid"]
    assert again["predicted_tokens"] == evaluation["predicted_tokens"] == valid["tokens"]
    assert again["loss"] == pytest.approx(evaluation["loss"], rel=tolerances.T4_MAX)
    assert 1 < evaluation["unigram_loss"] < np.log(261)


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
def test_the_loss_is_that_of_transformers(data, tmp_path, family):
    """On random, perturbed weights, packed and padded."""
    shutil.copytree(data / "bytes", tmp_path / "model")
    oracle = make_causal(family, tmp_path / "model", vocab_size=261, max_position_embeddings=32, pad_token_id=256)
    rows = {}  # by length
    for text in ([*path.read_bytes()] for path in (data / "corpus").iterdir()):
        for part in (text[begin : begin + LENGTH - 2] for begin in range(0, len(text), LENGTH - 2)):
            rows.setdefault(len(part), []).append([CLS, *part, SEP])
    loss, tokens = 0, sum(length * len(of_length) for length, of_length in rows.items())
    for length, ids in zip(rows, map(torch.tensor, rows.values()), strict=True):
        with torch.no_grad():
            loss += oracle(ids, labels=torch.where(ids < 256, ids, -100)).loss.item() * length * len(ids)
    given = ["evaluate", "--model", tmp_path / "model", "--data", data / "whole", "--split", "train"]
    for packing in ([], ["--padded"]):
        (report,) = results(*given, "--max-length", LENGTH, *packing)
        assert report["predicted_tokens"] == tokens > 1000
        assert report["loss"] == pytest.approx(loss / tokens, rel=tolerances.T4_MAX)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_trains(data, tmp_path, arm):
    schedule = dict(kind="constant", learning_rate=1e-2, warmup_steps=0)
    stages = [dict(max_length=LENGTH, batch=8, steps=20)]
    config = causal_run_file(tmp_path / "run.json", *ARMS[arm], schedule=schedule, stages=stages)
    results(*pretrain(data, config, tmp_path / "run"))
    losses = [line["loss"] for line in metrics(tmp_path / "run", "train")]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0] - 1  # from log 261 down to the few letters of the corpus


def test_a_resumed_run_has_the_same_bits(data, tmp_path):
    """favor's vectors are drawn anew on the way, at steps 3 and 6."""
    config = causal_run_file(tmp_path / "run.json", *ARMS["eq19-favor"], keep_checkpoints=10)
    results(*pretrain(data, config, tmp_path / "whole"))
    shutil.copytree(tmp_path / "whole", tmp_path / "cut", ignore=shutil.ignore_patterns("checkpoint-6"))
    (tmp_path / "cut" / "model.safetensors").unlink()
    done = run(*pretrain(data, config, tmp_path / "cut", "--resume"))
    assert done.returncode == 0 and "resuming at step 4 of 6" in done.stderr
    for name in ("model.safetensors", "checkpoint-6/optimizer.safetensors", "checkpoint-6/state.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_warm_start_of_a_causal_run(data, trained, tmp_path):
    keys = dict(objective="causal", stages=[dict(max_length=LENGTH, batch=4, steps=6)], precision="float32")
    config = run_file(tmp_path / "run.json", **keys, init_from=str(trained))
    results(*pretrain(data, config, tmp_path / "run"))
    first, warm = (metrics(folder, "train")[0]["loss"] for folder in (trained, tmp_path / "run"))
    assert warm < first
    run_file(config, **keys | dict(objective="masked"), init_from=str(trained))
    message = refused(*pretrain(data, config, tmp_path / "other"))
    assert "is_decoder of init_from must be false with this objective, got true" in message


def test_refused_attention(data, tmp_path):
    shen = {"type": "linear", "feature_map": "shen_original"}
    for encoding, attention, part in (("rope", shen, "shen_original"), ("shaw", "linear", "shaw")):
        config = causal_run_file(tmp_path / "run.json", encoding, attention)
        assert part in refused(*pretrain(data, config, tmp_path / "run"))


def test_what_needs_both_sides_is_refused(data, trained, tmp_path):
    message = refused("fill-mask", "--model", trained, "--text", "abc [MASK]")
    assert "[fill-mask] the model must see both sides of a gap, got the causal one" in message
    message = refused("evaluate", "--model", trained, "--data", data / "data", "--mask-probability", 0.3)
    assert "masking options go with a masked language model" in message
    files = task_files.write_splits(tmp_path, task_files.classification, train=8, valid=4)
    message = refused(*task_files.options(trained, files, tmp_path / "out", "classification"))
    assert "[task] a task needs a model that attends both ways, got the causal one" in message
    assert not (tmp_path / "out").exists()
