"""Causal language models of bytes: the tokenizer, training with softmax and linear attention, the loss against
transformers, resuming, and what such a model is refused for."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
import transformers

import task_files
import tolerances
from cli_support import MODEL, make_corpus, refused, results, run, run_file

LENGTH = 16
CLS, SEP = 258, 259  # ids of the tokenizer of bytes
# The arms of X-04: position encoding and attention.
ARMS = {
    "none": ("none", {"type": "linear", "feature_map": "elu"}),
    "learned": ("learned", {"type": "linear", "feature_map": "elu"}),
    "eq19-elu": ("rope", {"type": "linear", "feature_map": "elu", "rope_site": "after_map"}),
    "eq19-favor": ("rope", {"type": "linear", "feature_map": "favor", "num_features": 12, "redraw_every": 3}),
    "before-map": (
        ["sinusoidal", "rope"],
        {"type": "linear", "feature_map": "favor", "num_features": 12, "rope_site": "before_map"},
    ),
    "softmax": ("rope", "softmax"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """corpus/, bytes/ (the tokenizer) and data/ in a folder."""
    folder = tmp_path_factory.mktemp("bytes")
    make_corpus(folder / "corpus")
    results("vocab", "--bytes", "--output", folder / "bytes")
    prepare = ["prepare", "--input", folder / "corpus", "--model", folder / "bytes", "--output", folder / "data"]
    (report,) = results(*prepare, "--valid-fraction", 0.2)
    assert report["train_tokens"] + report["valid_tokens"] == report["input_bytes"]
    assert report["unknown_tokens"] == 0
    return folder


def causal_run_file(path, encoding="rope", attention="softmax", **keys):
    model = {**MODEL, "position_encoding": encoding, "attention": attention}
    base = dict(
        objective="causal", model=model, stages=[dict(max_length=LENGTH, batch=4, steps=6)], precision="float32"
    )
    return run_file(path, **{**base, **keys})


@pytest.fixture(scope="module")
def trained(data):
    config = causal_run_file(data / "run.json")
    results("pretrain", "--config", config, "--data", data / "data", "--output", data / "run")
    return data / "run"


def metrics(folder, kind):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["type"] == kind]


def test_bytes_are_their_own_ids_in_transformers_too(data):
    tokenizer = transformers.AutoTokenizer.from_pretrained(data / "bytes")
    rng = random.Random(1)
    texts = [
        "".join(chr(rng.choice([rng.randint(1, 127), rng.randint(160, 0x9FFF)])) for _ in range(50)) for _ in range(20)
    ]
    texts = [text.replace("\n", " ").replace("\r", " ") for text in texts]  # a line a text for `tokenize`
    ours = results("tokenize", "--model", data / "bytes", stdin="".join(text + "\n" for text in texts))
    for text, row in zip(texts, ours, strict=True):
        assert row["ids"] == tokenizer(text)["input_ids"] == [CLS, *text.encode(), SEP]
        assert tokenizer.decode(row["ids"], skip_special_tokens=True) == text
    assert tokenizer.convert_tokens_to_ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]) == list(range(256, 261))


def test_vocab_of_bytes_takes_no_text(data, tmp_path):
    (report,) = results("vocab", "--bytes", "--output", tmp_path / "b")
    assert report["size"] == 261
    assert "--input" in refused("vocab", "--bytes", "--input", data / "corpus", "--output", tmp_path / "c", code=2)
    assert "--size" in refused("vocab", "--bytes", "--size", 300, "--output", tmp_path / "c", code=2)
    assert "--cased" in refused("vocab", "--bytes", "--cased", "--output", tmp_path / "c", code=2)


def test_a_causal_run_is_a_causal_model(data, trained):
    (evaluation,) = metrics(trained, "evaluation")
    assert evaluation["bits"] == pytest.approx(evaluation["loss"] / np.log(2), rel=tolerances.T1_RTOL)
    written = json.loads((trained / "run.json").read_text())
    assert written["objective"] == "causal" and "mask" not in written
    model, report = transformers.AutoModelForCausalLM.from_pretrained(trained, output_loading_info=True)
    assert type(model) is transformers.RoFormerForCausalLM
    assert not report["missing_keys"] and not report["unexpected_keys"]
    # A token for each byte: the loss of held-out documents is over all of them, and evaluate finds it again.
    (again,) = results("evaluate", "--model", trained, "--data", data / "data", "--max-length", LENGTH)
    assert again["predicted_tokens"] == evaluation["predicted_tokens"] == valid_tokens(data)
    assert again["loss"] == pytest.approx(evaluation["loss"], rel=tolerances.T4_MAX)
    assert 1 < evaluation["unigram_loss"] < np.log(261)


def valid_tokens(data):
    return json.loads((data / "data" / "data.json").read_text())["splits"]["valid"]["tokens"]


ORACLES = {
    "roformer": (transformers.RoFormerForCausalLM, transformers.RoFormerConfig),
    "bert": (transformers.BertLMHeadModel, transformers.BertConfig),
}


@pytest.mark.parametrize("packing", ["packed", "padded"])
@pytest.mark.parametrize("family", ORACLES)
def test_the_loss_is_that_of_transformers(data, tmp_path, family, packing):
    """On random, perturbed weights. Held-out documents are told from the others by their number of bytes."""
    model_class, config_class = ORACLES[family]
    sizes = dict(MODEL, vocab_size=261, is_decoder=True, max_position_embeddings=32, pad_token_id=256)
    torch.manual_seed(0)
    oracle = model_class(config_class(**sizes)).eval()
    with torch.no_grad():
        for parameter in oracle.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    shutil.copytree(data / "bytes", tmp_path / "model")
    oracle.save_pretrained(tmp_path / "model")
    (corpus,) = results("prepare", "--input", data / "corpus", "--model", data / "bytes", "--output", tmp_path / "data",
                        "--valid-fraction", 0)  # fmt: skip
    assert corpus["valid_tokens"] == 0
    loss = tokens = 0
    for path in sorted((data / "corpus").iterdir()):
        text = list(path.read_bytes())
        for begin in range(0, len(text), LENGTH - 2):
            ids = torch.tensor([[CLS, *text[begin : begin + LENGTH - 2], SEP]])
            labels = torch.where(ids < 256, ids, -100)
            with torch.no_grad():
                loss += oracle(ids, labels=labels).loss.item() * (labels >= 0).sum().item()
            tokens += (labels >= 0).sum().item()
    arguments = ["evaluate", "--model", tmp_path / "model", "--data", tmp_path / "data", "--split", "train"]
    (report,) = results(*arguments, "--max-length", LENGTH, *(["--padded"] if packing == "padded" else []))
    assert report["predicted_tokens"] == tokens == corpus["train_tokens"]
    assert report["loss"] == pytest.approx(loss / tokens, rel=tolerances.T4_MAX)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_trains(data, tmp_path, arm, precision):
    schedule = dict(kind="constant", learning_rate=1e-2, warmup_steps=0)
    stages = [dict(max_length=LENGTH, batch=8, steps=20)]
    config = causal_run_file(tmp_path / "run.json", *ARMS[arm], schedule=schedule, stages=stages, precision=precision)
    results("pretrain", "--config", config, "--data", data / "data", "--output", tmp_path / "run")
    losses = [line["loss"] for line in metrics(tmp_path / "run", "train")]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0] - 1  # from log 261 down to the few letters of the corpus


@pytest.mark.parametrize("arm", ["eq19-favor", "softmax"])
def test_a_resumed_run_has_the_same_bits(data, tmp_path, arm):
    """Stopped after every second step's checkpoint; favor's vectors are drawn anew on the way."""
    config = causal_run_file(tmp_path / "run.json", *ARMS[arm], keep_checkpoints=10)
    arguments = ["pretrain", "--config", config, "--data", data / "data", "--output"]
    results(*arguments, tmp_path / "whole")
    for step in (2, 4):
        shutil.copytree(tmp_path / "whole", tmp_path / str(step))
        for checkpoint in (tmp_path / str(step)).glob("checkpoint-*"):
            if int(checkpoint.name.split("-")[1]) > step:
                shutil.rmtree(checkpoint)
        (tmp_path / str(step) / "model.safetensors").unlink()
        done = run(*arguments, tmp_path / str(step), "--resume")
        assert done.returncode == 0 and f"resuming at step {step} of 6" in done.stderr
        for name in ("model.safetensors", "checkpoint-6/optimizer.safetensors", "checkpoint-6/state.json"):
            assert (tmp_path / str(step) / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_causal_comparison(data, tmp_path):
    config = causal_run_file(tmp_path / "run.json", attention={"type": "linear", "feature_map": "elu"})
    lines = results("compare", "--encodings", "none,rope", "--data", data / "data", "--config", config, "--seeds", 1,
                    "--output", tmp_path / "out", "--lengths", "1,2")  # fmt: skip
    assert [sorted(line["loss"]) for line in lines] == [["16", "32"]] * 2
    assert all(0 < loss < np.log(300) for line in lines for loss in line["loss"].values())
    folder = tmp_path / "out" / "rope" / "seed-1"
    (last,) = metrics(folder, "evaluation")
    assert last["loss"] == pytest.approx(lines[1]["loss"]["16"], rel=tolerances.T4_MAX)


def test_warm_start_of_a_causal_run(data, trained, tmp_path):
    config = causal_run_file(tmp_path / "run.json", init_from=str(trained))
    keys = json.loads(config.read_text())
    del keys["model"]
    config.write_text(json.dumps(keys))
    results("pretrain", "--config", config, "--data", data / "data", "--output", tmp_path / "run")
    first, warm = (metrics(folder, "train")[0]["loss"] for folder in (trained, tmp_path / "run"))
    assert warm < first
    config.write_text(json.dumps({**keys, "objective": "masked"}))
    message = refused("pretrain", "--config", config, "--data", data / "data", "--output", tmp_path / "other")
    assert "is_decoder of init_from must be false with this objective, got true" in message


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        (dict(objective="prefix"), "objective must be one of masked, causal"),
        (dict(mask=dict(probability=0.2)), "mask must be absent with objective causal"),
        (dict(model={**MODEL, "is_decoder": False}), "model.is_decoder must be true with objective causal"),
        (dict(objective="masked", model={**MODEL, "is_decoder": True}), "must be false with objective masked"),
        (dict(objective="masked", model={**MODEL, "position_encoding": "music"}), "music"),
        (dict(model={**MODEL, "attention": {"type": "linear", "feature_map": "shen_original"}}), "shen_original"),
        (dict(model={**MODEL, "position_encoding": "shaw", "attention": "linear"}), "shaw"),
    ],
)
def test_refused_run_files(data, tmp_path, keys, part):
    config = causal_run_file(tmp_path / "run.json", **keys)
    message = refused("pretrain", "--config", config, "--data", data / "data", "--output", tmp_path / "run")
    assert part in message, message


def test_what_needs_both_sides_is_refused(data, trained):
    message = refused("fill-mask", "--model", trained, "--text", "abc [MASK]")
    assert "[fill-mask] the model must see both sides of a gap, got the causal one" in message
    message = refused("evaluate", "--model", trained, "--data", data / "data", "--mask-probability", 0.3)
    assert "masking options go with a masked language model" in message


def test_a_causal_model_is_not_fine_tuned(trained, tmp_path):
    rows = "".join(json.dumps(dict(id=i, text="abc", label=["no", "yes"][i % 2])) + "\n" for i in range(8))
    for name in ("train", "valid"):
        (tmp_path / f"{name}.jsonl").write_text(rows)
    files = {name: tmp_path / f"{name}.jsonl" for name in ("train", "valid")}
    message = refused(*task_files.options(trained, files, tmp_path / "out", "classification"))
    assert "[task] a task needs a model that attends both ways, got the causal one" in message
    assert not (tmp_path / "out").exists()
