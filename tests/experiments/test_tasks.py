"""The experiments on tasks at scale tiny, on made-up sets: their rows, their task files, and their controls."""

import json
import random
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from scipy import stats

import roformer_cpp
import tolerances as tol
from experiment_sets import (
    CHARACTERS,
    check_rules,
    chinese,
    english,
    rows_of,
    small_design,
    values,
    write_lines,
    write_table,
)
from experiments import (
    corpus,
    judge,
    real_weights,
    rest_of_glue,
    run,
    table2_glue,
    table3_chinese_models,
    table4_staged,
    table5_long_texts,
    tuned_models,
)
from parity_case import perturbed

LETTERS = "abcdefghijklm"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LATIN = [*SPECIAL, *LETTERS, *("##" + letter for letter in LETTERS)]


def report_of(directory):
    return json.loads((directory / "report.json").read_text())


def save_body(folder, tokens):
    """A BERT of transformers' making, with weights that are not those of the start."""
    torch.manual_seed(4)
    small = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40)
    perturbed(transformers.BertModel(transformers.BertConfig(vocab_size=len(tokens), **small))).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="BertTokenizer")))
    return folder


def make_tables(folder, name, draw, label, *columns):
    for split, number in dict(train=64, dev=20, test=20).items():
        values_of = {"score": 6, "gold_label": 3}.get(label, 2)
        rows = [{key: draw() for key in columns} | {label: i % values_of} for i in range(number)]
        write_table(folder / f"{name}_{split}.tsv", rows)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("sets"), random.Random(8)
    pair = ("sentence1", "sentence2")
    make_tables(folder / "glue", "mrpc", lambda: english(rng), "label", *pair)
    make_tables(folder / "glue", "stsb", lambda: english(rng), "score", *pair)
    make_tables(folder / "zh_cls", "chnsenticorp", lambda: chinese(rng, 30), "label", "text")
    write_lines(folder / "en_books" / "books_valid.jsonl", [dict(text=english(rng) * 40) for _ in range(8)])
    # Some of a test file's texts are in the train file, with another label.
    path = folder / "zh_cls" / "chnsenticorp_test.tsv"
    trained = (folder / "zh_cls" / "chnsenticorp_train.tsv").read_text().splitlines()[1:4]
    path.write_text(path.read_text() + "".join(f"{line.split(chr(9))[0]}\t1\n" for line in trained))
    save_body(folder / "all_minilm_l6_v2", LATIN)
    save_body(folder / "characters", [*SPECIAL, *CHARACTERS])
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
    documents = [dict(doc=i, text=f"scm {i} " + chinese(rng, 150)) for i in range(30)]
    write_lines(folder / "cail2019_scm" / "docs.jsonl", documents)
    rows = []
    for side, numbers in [("train", range(10)), ("test", range(10, 20)), ("mixed", range(20, 30))]:
        for _ in range(7):
            a, b, c = rng.sample(numbers, 3)
            rows.append(dict(id=len(rows), A=a, B=b, C=c, label=rng.choice("BC"), anchor_fold=0, doc_side=side))
    write_table(folder / "cail2019_scm" / "triples.tsv", rows)
    return folder


# ---- task files


def test_task_files_are_the_sets_without_what_was_trained_on(sets, tmp_path):
    (task,) = (task for task in table2_glue.tasks("tiny") if task["name"] == "ChnSentiCorp")
    files = tuned_models.task_files(run.Context(tmp_path, sets, "tiny"), task | {"most": 40})
    assert list(files) == ["train", "valid", "test"]
    for split, name, count in (("train", "train", 40), ("valid", "dev", 20), ("test", "test", 20)):
        lines = (sets / "zh_cls" / f"chnsenticorp_{name}.tsv").read_text().splitlines()[1 : count + 1]
        expected = [dict(zip(("text", "label"), line.split("\t"), strict=True)) for line in lines]
        assert tuned_models.read_lines(files[split]) == expected


def test_quotation_marks_are_text(tmp_path):
    (tmp_path / "a.tsv").write_text('text\tlabel\n"so\u2028 he" said\t1\r\n"\t0\n')
    rows = [(row["text"], row["label"]) for row in tuned_models.read_table(tmp_path / "a.tsv")]
    assert rows == [('"so\u2028 he" said', "1"), ('"', "0")]


def test_triples_have_one_cause_and_parts_share_no_document(sets):
    found = table5_long_texts.records_of(sets, dict(train=64, valid=16, test=64))
    train, valid, test = found.values()
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
    scm = [row[name] for row in table5_long_texts.scm_triples(sets, "test") for name in "ABC"]
    assert len(scm) == 3 * 7 and {int(text.split()[1]) for text in scm} <= set(range(10, 20))


# ---- tuned models


def check_rates(rows, arm, chosen):
    found = [row for row in rows if (row["measure"], row["arm"]) == (judge.SHORT_RUN, arm)]
    tried = {row["learning_rate"]: row["value"] for row in found}
    assert list(tried) == [1e-3, 1e-2] and min(tried.values()) == tried[chosen]


def check_tuned(found, measure, arm, directory, metric):
    """The rows of a tuned model and of its controls are what `roformer finetune` reports; its report."""
    report, seed = report_of(directory), int(directory.name[-1])
    drawn = report_of(directory.with_name(f"{directory.name}-random-body"))
    for name, each in ((arm, report), (f"{arm}, random body", drawn)):
        assert found[measure, name, seed] == each["chosen"]["test"][metric]
        assert found[f"{measure} on training records", name, seed] == each["chosen"]["train"][metric]
    assert "random-body" in drawn["model"] and "random-body" not in report["model"]
    assert found[measure, f"{arm}, baseline", seed] == report["baseline"]["test"][metric]
    words = report["bag_of_words"]["test"][metric]  # of our program; the row is scikit-learn's
    assert found[measure, f"{arm}, bag of words", seed] == pytest.approx(words, abs=1e-12)
    return report


def test_the_control_of_fine_tuning(sets, tmp_path):
    def small_tuning(settings):
        return {"tuning": settings["tuning"] | {"learning_rates": [1e-3, 1e-2], "max_length": 20}}

    rows = rows_of(real_weights, "real-weights", tmp_path, sets, small_tuning)
    found, runs, body = values(rows), tmp_path / "runs" / "real-weights", sets / "all_minilm_l6_v2"
    check_rules("real-weights", rows)
    for arm, folder in {"[CLS]": "cls", "[CLS], random body": "cls", "mean of tokens": "mean"}.items():
        report = report_of(runs / folder / ("seed-1-random-body" if "random" in arm else "seed-1"))
        for name, split in {"training records": "train", "dev": "valid", "test": "test"}.items():
            assert found[f"STS-B {name}, Spearman's correlation", arm, 1] == (report["chosen"][split]["spearman"] or 0)
        assert ("random-body" in report["model"]) == ("random" in arm)
    report = report_of(runs / "cls" / "seed-1")
    check_rates(rows, "[CLS] on STS-B-real-weights", report["chosen"]["learning_rate"])
    assert len(report_of(runs / "cls" / "seed-1-random-body")["rates"]) == 1
    assert json.loads((runs / "mean" / "seed-1" / "config.json").read_text())["classifier_pooling"] == "mean"
    published, drawn = (load_file(each / "model.safetensors") for each in (body, runs / "random-body" / "seed-1"))
    assert published.keys() == drawn.keys() and "pooler.dense.weight" in drawn
    assert not np.allclose(published["pooler.dense.weight"], drawn["pooler.dense.weight"])
    assert 0.015 < drawn["embeddings.word_embeddings.weight"].std() < 0.025
    task = run.experiments()["real-weights"][0].settings("tiny")["task"]
    files = {split: tmp_path / f"corpus/tasks/STS-B-real-weights/{split}.jsonl" for split in ("train", "test")}
    words = tuned_models.bag_of_words(task, files, body, 20)
    assert words == pytest.approx(report["bag_of_words"]["test"]["spearman"], abs=1e-12)
    # Means that are not tuned are those of transformers.
    model = transformers.BertModel.from_pretrained(body).eval()
    tokenizer = transformers.BertTokenizer.from_pretrained(body)
    test = tuned_models.read_lines(files["test"])

    def mean(text):
        with torch.no_grad():
            return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).double()

    cosines = [torch.cosine_similarity(mean(row["text"]), mean(row["pair"]), dim=0).item() for row in test]
    expected = stats.spearmanr(cosines, [float(row["label"]) for row in test]).statistic
    own = found["STS-B test, Spearman's correlation", "mean, not tuned", 1]
    assert own == pytest.approx(expected, abs=tol.RANKS_OF_NEAR_TIES)


WORDS = ["天地", "玄黄", "宇宙", "洪荒", "日月"]


def write_laws(sets):
    write_lines(sets / "zh_laws" / "laws_valid.jsonl", [dict(text=chinese(random.Random(3), 1500)) for _ in range(8)])
    (sets / "vocabs").mkdir(exist_ok=True)
    dictionary = "".join(f"{word} 1000 n\n" for word in [*WORDS, *CHARACTERS])
    (sets / "vocabs" / "jieba_dict.txt").write_text(dictionary)


def test_chinese_models(sets, tmp_path):
    """Tokens of the same laws are characters of one vocabulary, or words of that with words added."""
    write_laws(sets)

    def smaller(settings):
        models = {name: small_design(settings["models"][name]) for name in ("NEZHA", "RoFormer")}
        return {"models": models, "tuning": settings["tuning"] | {"max_length": 20}}

    rows = rows_of(table3_chinese_models, "chinese-models", tmp_path, sets, smaller)
    found, data = values(rows), {}
    for tokens in ("characters", "words"):
        data[tokens] = json.loads((tmp_path / "corpus" / f"laws-{tokens}" / "data" / "data.json").read_text())
        assert data[tokens]["words"] == "jieba"
    assert data["words"]["vocab_size"] == data["characters"]["vocab_size"] + len(WORDS)
    counts = {tokens: of["splits"]["valid"]["tokens"] for tokens, of in data.items()}
    assert counts["words"] < counts["characters"] == 4 * 1500
    for name, tokens, family in (("NEZHA", "characters", "rf_encoder"), ("RoFormer", "words", "roformer")):
        directory = tmp_path / "runs" / "chinese-models" / name / "seed-1"
        assert json.loads((directory / "run.json").read_text())["mask"]["unit"] == "whole-word"
        config = json.loads((directory / "config.json").read_text())
        assert (config["model_type"], config["vocab_size"]) == (family, data[tokens]["vocab_size"])
        loss = json.loads((directory / "metrics.jsonl").read_text().splitlines()[-1])["loss"]
        assert found["held-out loss, nats per token", name, 1] == loss
        by_character = found["held-out loss, nats per character token", name, 1]
        assert by_character == pytest.approx(loss * counts[tokens] / counts["characters"])
        tuned = tmp_path / "runs" / "chinese-models" / "tuned" / name / "seed-1"
        check_tuned(found, "ChnSentiCorp, accuracy", name, tuned, "accuracy")


def test_words_are_chosen_again_from_laws_that_changed(sets, tmp_path):
    write_laws(sets)
    context, words = run.Context(tmp_path, sets, "tiny", threads=1), table3_chinese_models.corpus_of("tiny", "words")
    before = corpus.identity(corpus.prepared(context, words))
    write_lines(sets / "zh_laws" / "laws_valid.jsonl", [dict(text="天地" * 900) for _ in range(8)])
    assert corpus.identity(corpus.prepared(context, words)) != before


def test_stages(sets, tmp_path):
    write_laws(sets)

    def smaller(settings):
        design = small_design(settings)["run"]
        stages = [stage | {"steps": 2} for stage in settings["run"]["stages"]]
        return {"run": design | {"stages": stages}}

    rows = rows_of(table4_staged, "staged-pretraining", tmp_path, sets, smaller)
    check_rules("staged-pretraining", rows, is_tuned=False)
    same = {row["arm"]: row["value"] for row in rows if row["measure"] == table4_staged.SAME_TOKENS}
    assert list(same) == ["32 tokens", "64 tokens", "128 tokens", "384 tokens"]
    assert all(0 <= value <= 1 for value in same.values())
    after = [row for row in rows if row["measure"] == "held-out loss after stage 6"]
    assert [row["arm"] for row in after] == list(same) and all(row["value"] > 0 for row in after)
    run_file = tmp_path / "runs" / "staged-pretraining" / "seed-1" / "run.json"
    assert json.loads(run_file.read_text())["mask"]["unit"] == "whole-word"


def test_rows_of_the_same_masked_tokens(monkeypatch):
    """Words of two tokens are masked as a whole, and alike in each row; a document that is too short has no rows. A
    shorter row is the middle of the longest one."""
    assert table4_staged._middle(torch.arange(14)[None], 6).tolist() == [list(range(4, 10))]
    assert table4_staged._middle(torch.ones(1, 8), 4, outside=0).tolist() == [[0, 0, 1, 1, 1, 1, 0, 0]]
    documents = [torch.arange(100, 109), torch.arange(5), torch.arange(50)]
    found = SimpleNamespace(documents=3, document=lambda i: (documents[i], documents[i] % 2 == 0))
    monkeypatch.setattr(roformer_cpp, "ShardDataset", lambda *_, **__: found)
    rows, masked = table4_staged._held_out_rows("data", 99, 6, 2, 0.5, 1)
    assert rows[:3].tolist() == [list(range(begin, begin + 6)) for begin in (100, 102, 0)] and len(rows) == 2 + 23
    assert masked.view(-1, 2).diff().sum() == 0 and (masked[0, 2:] == masked[1, :-2]).all()
    assert 0.25 < masked[2:].double().mean() < 0.75
    with pytest.raises(ValueError, match=r"\[table4\] held-out documents must have 51 tokens, got none so long"):
        table4_staged._held_out_rows("data", 99, 51, 2, 0.5, 1)


def test_fine_tuning(sets, tmp_path, monkeypatch):
    """The first body of an arm chooses the rate of the others."""
    monkeypatch.setattr(table2_glue, "ARMS", ("rope",))

    def smaller(settings):
        design = small_design(settings["designs"]["convergence"], seeds=[1, 2])
        tasks = [task for task in settings["tasks"] if task["name"] == "MRPC"]
        tuning = settings["tuning"] | {"max_length": 20, "learning_rates": [1e-3, 1e-2]}
        return {"designs": {"convergence": design}, "tasks": tasks, "tuning": tuning}

    rows = rows_of(table2_glue, "fine-tuning", tmp_path, sets, smaller)
    runs = tmp_path / "runs" / "fine-tuning" / "MRPC" / "rope"
    for seed in (1, 2):
        report = check_tuned(values(rows), "MRPC, F1", "rope", runs / f"seed-{seed}", "f1")
        assert report["model"].endswith(f"runs/convergence/rope/seed-{seed}")
    for arm, suffix in {"rope": "", "rope, random body": "-random-body"}.items():
        first, second = (report_of(runs / f"seed-{seed}{suffix}") for seed in (1, 2))
        check_rates(rows, f"{arm} on MRPC", first["chosen"]["learning_rate"])
        assert [rate["learning_rate"] for rate in second["rates"]] == [first["chosen"]["learning_rate"]]


@pytest.mark.parametrize(
    ("name", "measures"),
    [
        ("glue-small", ["CoLA, Matthews' correlation", "RTE, accuracy"]),
        ("glue-large", ["QNLI, accuracy", "QQP, F1", "MNLI-m, accuracy", "MNLI-mm, accuracy"]),
    ],
)
def test_the_rest_of_glue(name, measures, sets, tmp_path, monkeypatch):
    rng, pair = random.Random(6), ("sentence1", "sentence2")
    columns = {"cola": ("label", "sentence"), "rte": ("label", *pair), "qnli": ("label", "question", "sentence")}
    columns |= {"qqp": ("is_duplicate", "question1", "question2"), "mnli": ("gold_label", *pair)}
    for table, names in columns.items():
        make_tables(sets / "glue", table, lambda: english(rng), *names)
    for valid in ("matched", "mismatched"):
        shutil.copyfile(sets / "glue" / "mnli_dev.tsv", sets / "glue" / f"mnli_dev_{valid}.tsv")
    monkeypatch.setattr(table2_glue, "ARMS", ("rope",))

    def smaller(settings):
        design = small_design(settings["designs"]["convergence"], seeds=[1])
        return {"designs": {"convergence": design}, "tuning": settings["tuning"] | {"max_length": 20, "epochs": 1}}

    found = values(rows_of(rest_of_glue, name, tmp_path, sets, smaller))
    for measure in measures:
        tuned = tmp_path / "runs" / "fine-tuning" / measure.split(",")[0] / "rope" / "seed-1"
        metric = {"Matthews' correlation": "matthews", "F1": "f1"}.get(measure.split(", ")[1], "accuracy")
        assert found[measure, "rope", 1] == (report_of(tuned)["chosen"]["valid"][metric] or 0)
        assert -1 <= found[measure, "rope, bag of words", 1] <= 1


def test_long_texts(sets, tmp_path):
    write_laws(sets)

    def smaller(settings):
        models = {name: small_design(settings["models"][name]) for name in ("WoBERT", "RoFormer")}
        return {"models": models, "arms": settings["arms"][1:], "read_at": [128, 256]}

    rows = rows_of(table5_long_texts, "long-texts", tmp_path, sets, smaller)
    check_rules("long-texts", rows)
    found = values(rows)
    for _, arm, _ in (key for key in found if key[0] == "SCM, accuracy"):
        on_valid = found["triples, accuracy on valid records", arm, 1]
        assert found["triples, accuracy", arm, 1] * 64 % 1 == on_valid * 16 % 1 == 0
        assert round(7 * found["SCM, accuracy", arm, 1], 9) % 1 == 0
    by_length = {row["step"]: row["value"] for row in rows if row["measure"] == table5_long_texts.BY_LENGTH}
    assert list(by_length) == [128, 256] and by_length[256] == found["triples, accuracy", "RoFormer at 256", 1]


def test_the_comparison_of_judgments(sets):
    """Vectors and the first step's gradient are those of transformers and sentence-transformers."""
    from sentence_transformers.util import cos_sim

    body, rng = sets / "characters", random.Random(5)
    texts = [chinese(rng, 30 + i) for i in range(24)]
    triples = [dict(A=texts[i], B=texts[i + 1], C=texts[i + 2], label="BC"[i % 2]) for i in range(0, 24, 3)]
    comparer = table5_long_texts.Comparer(body, None, 1)
    model, tokenizer = transformers.BertModel.from_pretrained(body), transformers.BertTokenizer.from_pretrained(body)

    def vectors(texts):
        rows = (tokenizer(text, truncation=True, max_length=20, return_tensors="pt") for text in texts)
        return torch.cat([model(**row).last_hidden_state.mean(1) for row in rows])

    cosines = cos_sim(vectors(texts), vectors(texts))
    own = comparer.vectors(texts, 20)
    assert torch.allclose(own @ own.T, cosines, atol=tol.T4_MAX)
    said = ["BC"[int(cosines[i, i + 1] < cosines[i, i + 2])] for i in range(0, 24, 3)]
    right = np.mean([row["label"] == each for row, each in zip(triples, said, strict=True)])
    assert comparer.accuracy(triples, 20) == right
    positives = [row[row["label"]] for row in triples]
    negatives = [row["C" if row["label"] == "B" else "B"] for row in triples]
    scores = 20 * cos_sim(vectors([row["A"] for row in triples]), vectors(positives + negatives))
    torch.nn.functional.cross_entropy(scores, torch.arange(8)).backward()
    expected = model.embeddings.word_embeddings.weight.grad
    seen = []
    name = "embeddings.word_embeddings.weight"
    weight = next(value for key, value in comparer.model.named_parameters() if key.endswith(name))
    weight.register_post_accumulate_grad_hook(lambda w: seen.append(w.grad.clone()))
    comparer.model.train = lambda mode=False: comparer.model  # without dropout
    comparer.train(triples, dict(seed=1, batch=8, rate=1e-3, epochs=1, length=20))
    assert torch.allclose(seen[0], expected, atol=tol.T4_MAX * expected.abs().max())
    comparer.train(triples, dict(seed=1, batch=8, rate=1e-2, epochs=20, length=20))
    assert comparer.accuracy(triples, 20) == 1


def test_the_bag_of_words_of_triples(sets, tmp_path):
    """In float64 from the definition of tf-idf, of the first 18 characters of each text."""
    rng = random.Random(6)
    files = {split: tmp_path / f"{split}.jsonl" for split in ("train", "test")}
    for file in files.values():
        rows = [{name: chinese(rng, 30) for name in "ABC"} | dict(label=rng.choice("BC")) for _ in range(40)]
        write_lines(file, rows)
    sides = {split: tuned_models.read_lines(file) for split, file in files.items()}

    def counts(text):
        return np.array([text[:18].count(character) for character in CHARACTERS], float)

    # scikit-learn's weights see each first text once, and both others.
    seen = np.array([counts(row[name]) > 0 for row in sides["train"] for name in "ABC"])
    weights = np.log((1 + len(seen)) / (1 + seen.sum(0))) + 1

    def cosine(a, b):
        a, b = counts(a) * weights, counts(b) * weights
        return a @ b / np.sqrt((a @ a) * (b @ b))

    said = ["B" if cosine(row["A"], row["B"]) >= cosine(row["A"], row["C"]) else "C" for row in sides["test"]]
    expected = np.mean([row["label"] == each for row, each in zip(sides["test"], said, strict=True)])
    assert tuned_models.bag_of_words(table5_long_texts.TASK, files, sets / "characters", 20) == expected
