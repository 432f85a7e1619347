"""Every run file under examples/ trains, at its own sizes but for two short steps a stage; and the four Chinese models
of docs/pretraining.md, from raw text to what transformers opens."""

import json
import random

import numpy as np
import pytest
import transformers

from cli_support import ROOT, make_corpus, refused, results
from task_files import options

EXAMPLES = sorted((ROOT / "examples").glob("**/*.json"))
RUN_FILES = [path for path in EXAMPLES if path.parent.name not in ("models", "chinese")]
CHINESE = dict.fromkeys(("bert", "nezha", "roformer_v2"), "characters") | dict.fromkeys(("wobert", "roformer"), "words")
WORDS = ["今天", "天气", "非常", "好", "我们", "在", "北京", "中国", "人民", "法律", "规定"]


def pretrain(path, data, folder):
    run = json.loads(path.read_text())
    run["stages"] = [{**stage, "max_length": 32, "batch": 4, "steps": 2} for stage in run["stages"]]
    run["schedule"]["warmup_steps"] = 1
    (folder / "run.json").write_text(json.dumps(run))
    (report,) = results("pretrain", "--config", folder / "run.json", "--data", data, "--output", folder / "run")
    assert report["steps"] == 2 * len(run["stages"]) and np.isfinite(report["train_loss"])
    return folder / "run"


@pytest.fixture(scope="module")
def bytes_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    make_corpus(folder / "corpus")
    results("vocab", "--bytes", "--output", folder / "bytes")
    results("prepare", "--input", folder / "corpus", "--model", folder / "bytes", "--output", folder / "data")
    return folder / "data"


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_run_files(path, bytes_data, tmp_path):
    pretrain(path, bytes_data, tmp_path)


@pytest.fixture(scope="module")
def chinese(tmp_path_factory):
    """characters/ and words/ (tokenizers), data-characters/ and data-words/."""
    folder = tmp_path_factory.mktemp("chinese")
    rng = random.Random(1)
    texts = ["".join(rng.choices(WORDS, k=40)) + "。" for _ in range(60)]
    for name, lines in (("train", texts[:50]), ("valid", texts[50:])):
        rows = [json.dumps({"text": line}, ensure_ascii=False) for line in lines]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    results("vocab", "--input", folder / "train.jsonl", "--size", 6000, "--output", folder / "characters/vocab.txt")
    dictionary = "".join(f"{word} 100\n" for word in WORDS)
    (folder / "characters" / "dict.txt").write_text(dictionary)
    train = ["--input", folder / "train.jsonl"]
    (report,) = results("add-words", "--model", folder / "characters", *train, "--output", folder / "words")
    assert report["new_words"] == sum(len(word) > 1 for word in WORDS)
    (folder / "words" / "dict.txt").write_text(dictionary)
    for kind in ("characters", "words"):
        more = ["--valid-input", folder / "valid.jsonl", "--words", "jieba", "--output", folder / f"data-{kind}"]
        results("prepare", *train, "--model", folder / kind, *more)
        manifest = json.loads((folder / f"data-{kind}" / "data.json").read_text())
        assert manifest["splits"]["valid"]["documents"] == 10 and manifest["words"] == "jieba"
    return folder


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_models(chinese, tmp_path, name, monkeypatch):
    path = ROOT / "examples" / "chinese" / f"{'bert' if name == 'wobert' else name}.json"
    run = pretrain(path, chinese / f"data-{CHINESE[name]}", tmp_path)
    written = json.loads((run / "config.json").read_text())
    own = {"nezha": "rf_encoder", "roformer_v2": "roformer_v2"}  # transformers 5 has none
    assert written["model_type"] == ({"roformer": "roformer"} | own).get(name, "bert")
    if name in own:
        monkeypatch.setattr(transformers.CONFIG_MAPPING, "_extra_content", {})  # register() of other tests
        with pytest.raises(ValueError, match=own[name]):
            transformers.AutoModelForMaskedLM.from_pretrained(run)
    else:
        model, report = transformers.AutoModelForMaskedLM.from_pretrained(run, output_loading_info=True)
        assert type(model).__name__ == ("RoFormerForMaskedLM" if name == "roformer" else "BertForMaskedLM")
        assert not report["missing_keys"] and not report["unexpected_keys"]


def test_a_roformer_v2_in_every_command(chinese, tmp_path):
    """Pretrained, it fills masks, gives vectors, and is tuned for a task, whose head has biases."""
    run = pretrain(ROOT / "examples" / "chinese" / "roformer_v2.json", chinese / "data-characters", tmp_path)
    (filled,) = results("fill-mask", "--model", run, "--text", "今天[MASK]气非常好")
    assert len(filled["predictions"]) == 5
    (vector,) = (line for line in results("embed", "--model", run, "--text", "今天天气") if "embedding" in line)
    assert np.isfinite(vector["embedding"]).all() and len(vector["embedding"]) == 128
    lines = [f"{''.join(WORDS[i % 3 :: 3])}\t{i % 2}" for i in range(24)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    files = dict.fromkeys(("train", "valid"), tmp_path / "train.tsv")
    assert "chosen" in results(*options(run, files, tmp_path / "tuned", "classification", "--epochs", 1))[-1]
    config = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert (config["model_type"], *config["architectures"]) == ("roformer_v2", "RoFormerForSequenceClassification")
    assert len(results("predict", "--model", tmp_path / "tuned", "--text", "今天天气")) == 1


def test_evaluating_the_test_split(bytes_data, tmp_path):
    (tmp_path / "test.txt").write_text("abc " * 100)
    prepare = ["prepare", "--model", bytes_data.parent / "bytes", "--input", bytes_data.parent / "corpus"]
    (report,) = results(*prepare, "--test-input", tmp_path / "test.txt", "--output", tmp_path / "data")
    assert report["test_tokens"] == 400
    run = pretrain(ROOT / "examples/byte-lm/softmax-rope.json", tmp_path / "data", tmp_path)
    (tested,) = results("evaluate", "--model", run, "--data", tmp_path / "data", "--split", "test")
    assert tested["predicted_tokens"] == 400
    assert 'the split "test", got none' in refused("evaluate", "--model", run, "--data", bytes_data, "--split", "test")
