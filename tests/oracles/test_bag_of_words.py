"""The bag-of-words baseline of roformer finetune beside scikit-learn's, on texts whose words are tokens."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, matthews_corrcoef
from sklearn.naive_bayes import GaussianNB, MultinomialNB

import cli_support
import task_files
import tolerances
from engine_case import make_oracle

WORDS = [f"{first}{second}" for first in "bcdfg" for second in "aeiou"]
LABELS = ["few", "many", "most"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with a token for each word, all but the last, which is [UNK] and a word like others."""
    folder = tmp_path_factory.mktemp("words")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS[:-1]]
    make_oracle("RoFormer", "ForMaskedLM", vocab_size=len(tokens)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


def text(rng, favourite=0.0):
    """Words of which one occurs more often than others; some are in few texts."""
    return " ".join(WORDS[0] if rng.random() < favourite else rng.choice(WORDS) for _ in range(rng.randint(1, 12)))


def single(rng):
    k = rng.randrange(3)
    return dict(text=text(rng, 0.1 + 0.3 * k), label=LABELS[k])


def pair(rng):
    first = text(rng)
    kept = [word for word in first.split() if rng.random() < 0.5]
    k = rng.randrange(3)
    second = " ".join([text(rng), kept[0] if k and kept else rng.choice(WORDS), *(kept if k == 2 else [])])
    return dict(text=first, pair=second, label=LABELS[k])


def likeness(rng):
    record = pair(rng)
    return dict(record, label=LABELS.index(record["label"]) + rng.random())


def triple(rng):
    record, other = pair(rng), text(rng)
    label = rng.choice("BC")
    return dict(A=record["text"], **{label: record["pair"], "BC".replace(label, ""): other}, label=label)


def finetuned(model, folder, files, task):
    """The baseline's metrics on the test file."""
    cli_support.results(*task_files.options(model, files, folder / "out", task, "--epochs", 1))
    assert "bag of words" in (folder / "out" / "report.md").read_text()
    return json.loads((folder / "out" / "report.json").read_text())["bag_of_words"]["test"]


def measured(model, folder, task, kind):
    """Records of the train and test files, and the baseline's metrics on the latter."""
    files = task_files.write_splits(folder, kind, train=90, valid=60)
    return *(cli_support.lines_of(files[name]) for name in ("train", "test")), finetuned(model, folder, files, task)


def column(rows, name):
    return [row[name] for row in rows]


def cosines(train, rows, *names):
    """The first named text with each of the others."""
    vectors = TfidfVectorizer(token_pattern=r"\S+").fit([row[name] for row in train for name in names])
    first, *others = (vectors.transform(column(rows, name)) for name in names)
    return np.stack([np.asarray(first.multiply(other).sum(1)).ravel() for other in others], 1)


def counts(train, rows):
    return CountVectorizer(token_pattern=r"\S+").fit(column(train, "text")).transform(column(rows, "text"))


@pytest.mark.parametrize(
    ("kind", "features", "classifier"),
    [(single, counts, MultinomialNB()), (pair, lambda *rows: cosines(*rows, "text", "pair"), GaussianNB())],
)
def test_class_of_a_text_or_a_pair(model, tmp_path, kind, features, classifier):
    train, test, ours = measured(model, tmp_path, "classification", kind)
    predicted = classifier.fit(features(train, train), column(train, "label")).predict(features(train, test))
    assert ours["accuracy"] == accuracy_score(column(test, "label"), predicted) > 0.5
    assert ours["matthews"] == pytest.approx(matthews_corrcoef(column(test, "label"), predicted))


def test_number_of_a_pair(model, tmp_path):
    train, test, ours = measured(model, tmp_path, "regression", likeness)
    line = LinearRegression().fit(cosines(train, train, "text", "pair"), column(train, "label"))
    predicted, gold = line.predict(cosines(train, test, "text", "pair")), np.array(column(test, "label"))
    assert ours["mse"] == pytest.approx(np.mean((predicted - gold) ** 2), rel=tolerances.BAG_OF_WORDS)
    assert ours["spearman"] == pytest.approx(spearmanr(predicted, gold)[0], rel=tolerances.BAG_OF_WORDS)
    assert ours["spearman"] > 0.4


def test_triples(model, tmp_path):
    train, test, ours = measured(model, tmp_path, "triples", triple)
    of_b, of_c = cosines(train, test, "A", "B", "C").T
    right = np.where(np.array(column(test, "label")) == "B", of_b - of_c, of_c - of_b)
    assert ours["accuracy"] == pytest.approx(np.mean((right > 0) + 0.5 * (right == 0)))
    assert ours["accuracy"] > 0.5


def test_a_text_without_known_words_has_a_class_and_a_cosine(model, tmp_path):
    """Words that the training texts lack count nothing: the most frequent class, and no likeness."""
    train = [dict(text="ba be", label="x")] * 3 + [dict(text="bi bo", label="y")] * 2
    test = [dict(text="fa fe", label="x"), dict(text="fi", label="y")]
    rows = {"train": train, "valid": test, "test": test}
    files = {name: task_files.write(tmp_path / f"{name}.jsonl", each) for name, each in rows.items()}
    assert finetuned(model, tmp_path, files, "classification")["accuracy"] == 0.5
