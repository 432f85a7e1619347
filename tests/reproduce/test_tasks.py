"""The experiments on tasks, chinese-models, long-texts and fine-tuning, at scale tiny on made-up sets."""

import csv
import json
import random

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from scipy import stats

import tolerances as tol
from cli_support import results

WORDS = ["天地", "玄黄", "宇宙", "洪荒", "日月"]
CHARACTERS = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"
LENGTHS = [128, 128, 256]


def chinese(rng, count):
    return "".join(rng.choices(CHARACTERS, k=count))


def write_table(path, rows):
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def write_lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_sets(folder, books):
    rng = random.Random(8)

    def english():
        return " ".join("".join(rng.choices("abcdefghijklm", k=3)) for _ in range(6))

    def pairs(text):
        return dict(sentence1=text(), sentence2=text())

    (folder / "en_books").symlink_to(books)
    (folder / "vocabs").mkdir()
    (folder / "vocabs" / "jieba_dict.txt").write_text("".join(f"{word} 1000 n\n" for word in [*WORDS, *CHARACTERS]))
    write_lines(folder / "zh_laws" / "laws_valid.jsonl", [dict(text=chinese(rng, 4000)) for _ in range(8)])
    for split, count in dict(train=300, dev=20, test=20).items():
        write_table(
            folder / "glue" / f"sst2_{split}.tsv", [dict(sentence=english(), label=i % 2) for i in range(count)]
        )
        write_table(folder / "glue" / f"mrpc_{split}.tsv", [dict(pairs(english), label=i % 2) for i in range(count)])
        write_table(folder / "glue" / f"stsb_{split}.tsv", [dict(pairs(english), score=i % 6) for i in range(count)])
        single = [dict(text=chinese(rng, 40), label=i % 2) for i in range(count)]
        write_table(folder / "zh_cls" / f"chnsenticorp_{split}.tsv", single)
        both = [dict(pairs(lambda: chinese(rng, 9)), label=i % 2) for i in range(count)]
        write_table(folder / "zh_pairs" / f"afqmc_{split}.tsv", both)
    # Some of a test file's texts are in the train file, with another label.
    path = folder / "zh_cls" / "chnsenticorp_test.tsv"
    trained = (folder / "zh_cls" / "chnsenticorp_train.tsv").read_text().splitlines()[1:4]
    path.write_text(path.read_text() + "".join(f"{line.split(chr(9))[0]}\t1\n" for line in trained))
    judgments = [
        dict(split=split, domain=domain, cause=f"{domain}{cause}", text=f"{split} {domain}{cause} " + chinese(rng, 150))
        for split in ("dev", "test")
        for domain in ("civil", "criminal")
        for cause in range(4)
        for _ in range(12)
    ]
    # A judgment of the test part is in the training part, too.
    judgments.append(dict(next(row for row in judgments if row["split"] == "test"), split="dev"))
    rng.shuffle(judgments)
    write_lines(folder / "cjrc_legal_docs" / "cjrc_docs.jsonl", judgments)
    scm = folder / "cail2019_scm"
    write_lines(scm / "docs.jsonl", [dict(doc=i, text=f"scm {i} " + chinese(rng, 150)) for i in range(30)])
    sides = [("train", range(10)), ("test", range(10, 20)), ("mixed", range(20, 30))]
    rows = []
    for side, documents in sides:
        for _ in range(7):
            a, b, c = rng.sample(documents, 3)
            rows.append(dict(id=len(rows), A=a, B=b, C=c, label=rng.choice("BC"), anchor_fold=0, doc_side=side))
    write_table(scm / "triples.tsv", rows)
    return folder


@pytest.fixture(scope="module")
def output(data_sets, tmp_path_factory):
    sets = make_sets(tmp_path_factory.mktemp("sets"), data_sets[0] / "en_books")
    output = tmp_path_factory.mktemp("tasks")
    for name in ("chinese-models", "long-texts", "fine-tuning"):
        assert [line["name"] for line in results("reproduce", name, "--output", output, "--data", sets)] == [name]
    return output / "tiny"


def result_of(output, name):
    return json.loads((output / name / "result.json").read_text())


def records(output, name, split):
    path = output / "corpus" / "tasks" / name / f"{split}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def report_of(directory):
    return json.loads((directory / "report.json").read_text())


def test_triples_have_one_cause_and_parts_share_no_document(output):
    train, valid, test = (records(output, "triples", split) for split in ("train", "valid", "test"))
    own = [row for row in train if not row["A"].startswith("scm")]
    assert len(own) == 64 and len(train) == 64 + 7 and len(valid) == 16 and len(test) == 64
    for row in [*own, *valid, *test]:
        a, alike, other = (row[name].split()[1] for name in ("A", row["label"], "BC".replace(row["label"], "")))
        assert a == alike != other and a.rstrip("0123") == other.rstrip("0123")
        assert len({row["A"], row["B"], row["C"]}) == 3
    labels = [row["label"] for row in own]
    assert 16 < labels.count("B") < 48
    documents = [{row[name] for row in rows for name in "ABC"} for rows in (train, valid, test)]
    assert not (documents[0] & documents[1] or documents[0] & documents[2] or documents[1] & documents[2])
    assert {text.split()[0] for text in documents[2]} == {"test"}
    assert "test" not in {text.split()[0] for text in documents[0] | documents[1]}
    # Every cause has a pair of twelve judgments to choose by.
    assert len({row["A"].split()[1] for row in valid}) > 4 and len(documents[1]) <= 18
    scm = [row[name] for row in records(output, "scm", "test") for name in "ABC"]
    assert len(scm) == 3 * 7 and {int(text.split()[1]) for text in scm} <= set(range(10, 20))


def test_long_texts(output):
    result = result_of(output, "long-texts")
    rows = result["table"]["rows"]
    assert [row[:2] for row in rows] == [
        [name, length] for name, length in zip(["BERT", "RoFormer", "RoFormer"], LENGTHS, strict=True)
    ]
    for row in rows:
        report = report_of(output / "runs" / "long-texts" / f"{row[0]}-{row[1]}" / "seed-1")
        assert row[2] == report["chosen"]["test"]["accuracy"]
        assert row[5] == report["bag_of_words"]["test"]["accuracy"]
    (sweep,) = result["series"]
    assert sweep["x"] == [128, 256, 512] and sweep["y"][1] == rows[2][2]
    assert set(result["verdicts"]) == {"C-16", "C-22"}
    task = json.loads((output / "runs" / "long-texts" / "RoFormer-256" / "seed-1" / "task.json").read_text())
    assert task["max_length"] == 256


def test_chinese_models(output):
    result = result_of(output, "chinese-models")
    rows = {row[0]: row for row in result["table"]["rows"]}
    assert list(rows) == ["BERT", "WoBERT", "NEZHA", "RoFormer"]
    corpora = {
        kind: json.loads((output / "corpus" / f"laws-{kind}" / "data" / "data.json").read_text())
        for kind in ("characters", "words")
    }
    assert corpora["words"]["vocab_size"] == corpora["characters"]["vocab_size"] + len(WORDS)
    tokens = {kind: data["splits"]["valid"]["tokens"] for kind, data in corpora.items()}
    assert tokens["words"] < tokens["characters"] == 4 * 4000
    encodings = {}
    for name, row in rows.items():
        kind = "words" if name in ("WoBERT", "RoFormer") else "characters"
        run = output / "runs" / "chinese-models" / name / "seed-1"
        assert corpora[kind]["words"] == "jieba"
        assert json.loads((run / "run.json").read_text())["mask"]["unit"] == "whole-word"
        config = json.loads((run / "config.json").read_text())
        assert row[1] == kind and config["vocab_size"] == corpora[kind]["vocab_size"]
        encodings[name] = config["model_type"]
        loss = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]["loss"]
        assert row[2] == pytest.approx(loss) and row[5] == pytest.approx(loss * tokens[kind] / tokens["characters"])
        report = report_of(output / "runs" / "chinese-models" / "tuned" / name / "seed-1")
        assert row[6] == report["chosen"]["test"]["accuracy"] and report["model"].endswith(f"{name}/seed-1")
    assert encodings == dict(BERT="bert", WoBERT="bert", NEZHA="rf_encoder", RoFormer="roformer")
    assert set(result["verdicts"]) == {"C-22"} and len(result["series"]) == 4


def test_fine_tuning(output):
    result = result_of(output, "fine-tuning")
    rows = result["table"]["rows"]
    assert [row[0] for row in rows[::2]] == ["SST-2", "MRPC", "STS-B", "ChnSentiCorp", "AFQMC"]
    for task, metric, split, arm, mean, low, high, baseline, bag_of_words, on_train in rows:
        report = report_of(output / "runs" / "fine-tuning" / task / arm / "seed-1")
        assert split == ("valid" if task in ("SST-2", "AFQMC") else "test")
        assert mean == low == high == report["chosen"][split][metric]
        assert on_train == report["chosen"]["train"][metric] and report["train_sample"] == 256
        assert baseline == (report["baseline"][split][metric] or 0)
        assert bag_of_words == report["bag_of_words"][split][metric]
        assert report["records"]["train"] == 256 and set(report["shared_with_train"].values()) == {0}
    assert set(result["verdicts"]) == {"C-20", "X-09"}
    measures = {(m["name"], m["arm"]): m["value"] for m in result["measures"]}
    for task, metric, _, arm, mean, *_, bag_of_words, on_train in rows:
        name = f"{task}, " + {"f1": "F1", "spearman": "Spearman's correlation"}.get(metric, metric)
        assert measures[f"{name} on training records", arm] == on_train
        assert measures[name, arm] == mean and measures[name, f"{arm}, bag of words"] == bag_of_words
        assert (name, f"{arm}, random body") in measures


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """The control with a BERT of transformers' making in place of the published body."""
    sets = tmp_path_factory.mktemp("control_sets")
    body = sets / "all_minilm_l6_v2"
    torch.manual_seed(4)
    letters = "abcdefghijklm"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    small = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40)
    model = transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **small))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=tol.PERTURBED)
    model.save_pretrained(body)
    (body / "vocab.txt").write_text("\n".join(words) + "\n")
    (body / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="BertTokenizer")))
    rng = random.Random(9)

    def english():
        return " ".join("".join(rng.choices(letters, k=3)) for _ in range(6))

    for split, count in dict(train=300, dev=20, test=20).items():
        rows = [dict(sentence1=english(), sentence2=english(), score=rng.randrange(6)) for _ in range(count)]
        write_table(sets / "glue" / f"stsb_{split}.tsv", rows)
    output = tmp_path_factory.mktemp("control")
    (line,) = results("reproduce", "real-weights", "--output", output, "--data", sets)
    assert line["verdicts"] == {"X-18": "smoke run"}
    return body, output / "tiny"


def test_the_control_of_fine_tuning(control):
    body, output = control
    result = result_of(output, "real-weights")
    rows = {(row[0], row[1]): row for row in result["table"]["rows"]}
    for weights, suffix in dict(published="", random="-random-body").items():
        report = report_of(output / "runs" / "real-weights" / "cls" / f"seed-1{suffix}")
        chosen = [report["chosen"][split]["spearman"] for split in ("train", "valid", "test")]
        assert rows["[CLS]", weights][3:7] == [5e-5, *chosen] and report["records"]["train"] == 256
        assert ("random-body" in report["model"]) == (weights == "random")
    published, drawn = (
        load_file(folder / "model.safetensors")
        for folder in (body, output / "runs" / "real-weights" / "random-body" / "seed-1")
    )
    assert published.keys() == drawn.keys() and "pooler.dense.weight" in drawn
    assert not np.allclose(published["pooler.dense.weight"], drawn["pooler.dense.weight"])
    measures = {(m["name"], m["arm"]): m["value"] for m in result["measures"]}
    assert measures["STS-B dev, Spearman's correlation", "[CLS]"] == rows["[CLS]", "published"][5]
    mean = output / "runs" / "real-weights" / "mean" / "seed-1"
    assert rows["mean of tokens", "published"][6] == report_of(mean)["chosen"]["test"]["spearman"]
    assert json.loads((mean / "config.json").read_text())["classifier_pooling"] == "mean"


def test_means_that_are_not_tuned_are_those_of_transformers(control):
    body, output = control
    model, tokenizer = (
        transformers.BertModel.from_pretrained(body).eval(),
        transformers.BertTokenizer.from_pretrained(body),
    )
    test = records(output, "STS-B-real-weights", "test")

    def mean(text):
        with torch.no_grad():
            return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).double()

    cosines = [torch.cosine_similarity(mean(row["text"]), mean(row["pair"]), dim=0).item() for row in test]
    expected = stats.spearmanr(cosines, [float(row["label"]) for row in test]).statistic
    rows = {(row[0], row[1]): row for row in result_of(output, "real-weights")["table"]["rows"]}
    assert rows["mean, not tuned", "published"][6] == pytest.approx(expected, abs=tol.RANKS_OF_NEAR_TIES)


def test_a_body_of_random_weights_is_tuned_too(output):
    (body,) = output.glob("runs/convergence/*/rope/seed-1")
    trained, drawn = (load_file(folder / "model.safetensors") for folder in (body, body / "random-body"))
    assert trained.keys() == drawn.keys()
    name = next(name for name in trained if name.endswith("word_embeddings.weight"))
    assert not np.allclose(trained[name], drawn[name]) and 0.015 < drawn[name].std() < 0.025
    tuned = output / "runs" / "fine-tuning" / "SST-2"
    reports = [report_of(tuned / "rope" / name) for name in ("seed-1", "seed-1-random-body")]
    assert reports[0]["model"] != reports[1]["model"]


def test_texts_that_were_trained_on_are_not_measured(output):
    test = records(output, "ChnSentiCorp", "test")
    assert len(test) == 20
    trained = {row["text"] for row in records(output, "ChnSentiCorp", "train")}
    assert not trained & {row["text"] for row in test}
