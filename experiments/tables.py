"""The RoFormer paper's Tables 1 to 5, with our numbers in every cell that was measured.

The register also has R-TAB-6 (a learned table, T5's bias and RoPE) and R-TAB-7 (RoFormerV2 and WoBERT).
"""

from dataclasses import dataclass
from statistics import fmean

from .markdown import NOTHING, fixed, number, text


@dataclass(frozen=True)
class Comparison:
    heading: str
    experiment: str
    setting: str  # in one or two sentences: what differs from the paper
    columns: list
    rows: list  # of Markdown


def comparisons(found):
    """[Comparison] in the order of the paper."""
    makers = (_translation, _glue, _chinese_models, _stages, _long_texts)
    return [make(found) for make in makers]


def _table_of(found, number_of_table):
    return found.tables[f"R-TAB-{number_of_table}"]


def _cell(result, key, column, factor=1.0, decimals=1):
    """The cell of the first row that has these values."""
    for row in result.rows if result else []:
        if all(row.get(name) == value for name, value in key.items()) and row.get(column) is not None:
            return fixed(row[column] * factor, decimals)
    return NOTHING


def _score_and_bag(result, key):
    """The accuracy of a row, and that of a bag of words, in per cent."""
    return [_cell(result, key, column, 100) for column in ("accuracy", "bag of words")]


def _translation(found):
    result = found.results.get("translation")
    rows = []
    for model, arm, published in zip(
        ("Transformer-base", "RoFormer"), ("sinusoidal", "rope"), _table_of(found, 1)["rows"], strict=True
    ):
        bleu = list(result.measured("BLEU", arm).values()) if result else []
        ours = f"{fmean(bleu):.2f} ({min(bleu):.2f} to {max(bleu):.2f})" if bleu else NOTHING
        rows.append([model, number(published[1]), ours])
    return Comparison(
        "Table 1: translation from English to German",
        "translation",
        "The paper trains Transformer-base on WMT 2014. Ours is a small model on Multi30k, whose captions are short "
        "and alike, so BLEU is higher. Mean over seeds, with the lowest and highest.",
        ["model", "BLEU, paper", "BLEU, ours"],
        rows,
    )


def _glue(found):
    result, published = found.results.get("fine-tuning"), _table_of(found, 2)
    by_model = {row[0]: dict(zip(published["columns"], row, strict=True)) for row in published["rows"]}
    rows = []
    for task in published["columns"][1:]:
        ours = [
            _cell(result, {"task": task, "encoding": arm}, column, 100)
            for arm, column in (("learned", "mean"), ("rope", "mean"), ("rope", "bag of words"))
        ]
        rows.append([text(task), *(number(by_model[model][task]) for model in ("BERT", "RoFormer")), *ours])
    return Comparison(
        "Table 2: GLUE",
        "fine-tuning",
        "F1 of MRPC and QQP, Spearman correlation of STS-B, accuracy of the rest, all in per cent. The paper takes "
        "BERT from the test server and RoFormer from the validation set. Ours are encoders of 4 layers of 128 that "
        "were pretrained for minutes; QNLI, QQP and MNLI were not run.",
        ["task", "BERT, paper", "RoFormer, paper", "learned table, ours", "RoPE, ours", "bag of words, ours"],
        rows,
    )


def _chinese_models(found):
    result = found.results.get("chinese-models")
    rows = []
    for row in _table_of(found, 3)["rows"]:
        key = {"model": row[0]}
        loss = _cell(result, key, "for a character", decimals=2)
        rows.append([*map(text, row), loss, *_score_and_bag(result, key)])
    return Comparison(
        "Table 3: Chinese models",
        "chinese-models",
        "The paper's table only says how the models differ. Ours are trained on the same law texts for "
        "600 steps and fine-tuned on ChnSentiCorp.",
        ["model", "tokens", "positions", "loss, nats per character", "ChnSentiCorp, %", "bag of words, %"],
        rows,
    )


def _stages(found):
    result = found.results.get("staged-pretraining")
    rows = []
    for published in _table_of(found, 4)["rows"]:
        stage = [row for row in result.rows if row["stage"] == published[0]] if result else []
        ours = next((row for row in stage if row["trained on"] == row["measured on"]), {})
        numbers = [number(ours.get(name)) for name in ("trained on", "steps")]
        scores = [fixed(ours.get("loss"), 2), fixed(100 * ours["accuracy"] if ours else None, 1)]
        theirs = [number(published[i]) for i in (0, 1, 3, 4, 5)]
        rows.append([*theirs, *numbers, *scores])
    return Comparison(
        "Table 4: staged pretraining",
        "staged-pretraining",
        "The paper pretrains on Chinese texts. Ours are a quarter as long, and from English books; losses and "
        "accuracies are of held-out rows of the stage's length.",
        [
            *("stage", "length, paper", "steps, paper", "loss, paper", "accuracy %, paper"),
            *("length, ours", "steps, ours", "loss, ours", "accuracy %, ours"),
        ],
        rows,
    )


def _long_texts(found):
    result = found.results.get("long-texts")
    ours = {
        "BERT-512": ("BERT", 128),
        "WoBERT-512": (None, None),
        "RoFormer-512": ("RoFormer", 128),
        "RoFormer-1024": ("RoFormer", 256),
    }
    rows = []
    for name, *published in _table_of(found, 5)["rows"]:
        model, tokens = ours[name]
        scores = _score_and_bag(result, {"model": model, "tokens": tokens})
        rows.append([name, *map(number, published[:2]), f"{model}-{tokens}" if model else NOTHING, *scores])
    return Comparison(
        "Table 5: similar cases of law",
        "long-texts",
        "The paper's task is CAIL2019-SCM. Ours are triples of judgments, at a quarter of the length. Guessing "
        "gives 50 %.",
        ["model", "validation %, paper", "test %, paper", "model, ours", "test %, ours", "bag of words %, ours"],
        rows,
    )
