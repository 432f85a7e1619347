"""BLEU of a corpus against sacreBLEU: words of mteval-v13a, and scores with every way to have no matches."""

import random
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from test_metrics import close, ours

MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k_en_de"
LINES = [
    "Der Hund, 3.5 Jahre alt, bellt...",
    "1,000.5 - 2-3 e.g. a-b 1-b b-1 .5 5. ,",
    'Sie sagte: "Ja!" (nein) [x] {y} ~z~ a/b a\\b #1 $2 50% & so;',
    "&quot;Zitat&quot; &amp; &lt;b&gt; &amp;lt;",
    "Grüße aus Zürich – 12,5 €, 中文。 a\u00a0b\u2003c\u3000d",
    "a..b,,c .. ,, '' it's don't",
    "<skipped> x-\ny \t tab  two",
    "",
    "x",
    "ä.ö,ü 1.ä 1,ä ä.1",
]


def test_words():
    (got,) = ours([{"of": "bleu", "gold": LINES, "predicted": LINES}])
    tokenizer = Tokenizer13a()
    assert got["words"] == [tokenizer(line).split() for line in LINES]
    assert close(got["bleu"], 100)


def corpora():
    rng = random.Random(1)
    words = ["der", "die", "Hund", "rennt", "groß", "ein", ",", ".", "3.5", "Mann's", "x-y"]
    for count, length, kept in ((1, 3, 0.5), (1, 12, 0.9), (5, 4, 0.3), (20, 15, 0.7), (20, 15, 0.0), (60, 25, 0.8)):
        gold = [" ".join(rng.choices(words, k=rng.randint(1, length))) for _ in range(count)]
        predicted = [" ".join(word for word in line.split() if rng.random() < kept) or "y" for line in gold]
        yield gold, predicted
        yield predicted, gold
    yield ["a b c d e f"], ["a b c"]  # no 4-gram
    yield ["a b c d"], ["q r s t"]
    yield ["a b c d e"], ["a c b e d"]  # no 2-gram in common
    yield ["a"], [""]


def test_scores():
    cases = list(corpora())
    results = ours({"of": "bleu", "gold": gold, "predicted": predicted} for gold, predicted in cases)
    metric = BLEU()
    theirs = [metric.corpus_score(predicted, [gold]).score for gold, predicted in cases]
    signature = str(metric.get_signature())
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert all(close(got["bleu"], expected) for got, expected in zip(results, theirs, strict=True))
    assert sum(0 < score < 100 for score in theirs) > 4


@pytest.mark.skipif(not MULTI30K.exists(), reason="needs ../shared/data/multi30k_en_de")
def test_real_text():
    """English as if it were a translation into German: real punctuation, few matches; and lines moved by one word."""
    gold = (MULTI30K / "test2016.de").read_text().splitlines()
    for predicted in ((MULTI30K / "test2016.en").read_text().splitlines(), [line[line.find(" ") :] for line in gold]):
        (got,) = ours([{"of": "bleu", "gold": gold, "predicted": predicted}])
        assert close(got["bleu"], sacrebleu.corpus_bleu(predicted, [gold]).score)
