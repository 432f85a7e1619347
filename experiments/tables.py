"""The RoFormer paper's Tables 1 to 5, with our numbers in every cell that was measured.

The register also has R-TAB-6 (a learned table, T5's bias and RoPE) and R-TAB-7 (RoFormerV2 and WoBERT).
"""

from dataclasses import dataclass

from .markdown import NOTHING, fixed, number, text
from .table1_translation import BLEU
from .table2_glue import METRICS
from .table3_chinese_models import BY_CHARACTER
from .table5_long_texts import TRIPLES

LARGE = ("QNLI", "QQP", "MNLI-m", "MNLI-mm")


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


def _published(found, number_of_table):
    return found.tables[f"R-TAB-{number_of_table}"]["rows"]


def _cell(result, measure, arm, factor=1, decimals=1):
    """The mean over seeds."""
    mean = result.mean(measure, arm) if result else None
    return fixed(None if mean is None else factor * mean, decimals)


def _score_and_bag(result, measure, arm):
    """The score of an arm, and that of a bag of words, in per cent."""
    return [_cell(result, measure, name, 100) for name in (arm, f"{arm}, bag of words")]


def _translation(found):
    result, rows = found.get("translation"), []
    for (model, published), arm in zip(_published(found, 1), ("sinusoidal", "rope"), strict=True):
        bleu = list(result.values(BLEU, arm).values()) if result else []
        ours = f"{_cell(result, BLEU, arm, decimals=2)} ({min(bleu):.2f} to {max(bleu):.2f})" if bleu else NOTHING
        rows.append([model, number(published), ours])
    return Comparison(
        "Table 1: translation from English to German",
        "translation",
        "The paper trains Transformer-base on WMT 2014. Ours is a small model on Multi30k, whose captions are short "
        "and alike, so BLEU is higher. Mean over seeds, with the lowest and highest.",
        ["model", "BLEU, paper", "BLEU, ours"],
        rows,
    )


def _glue(found):
    result, large, rows = found.get("fine-tuning"), found.get("glue-large"), []
    metrics = {"MRPC": METRICS["f1"], "QQP": METRICS["f1"], "STS-B": METRICS["spearman"]}
    tasks = found.tables["R-TAB-2"]["columns"][1:]
    by_model = {model: dict(zip(tasks, values, strict=True)) for model, *values in _published(found, 2)}
    for task in tasks:
        measure, run = f"{task}, {metrics.get(task, 'accuracy')}", large if task in LARGE else result
        ours = [_cell(run, measure, "learned", 100), *_score_and_bag(run, measure, "rope")]
        rows.append([text(task), *(number(by_model[model][task]) for model in ("BERT", "RoFormer")), *ours])
    return Comparison(
        "Table 2: GLUE",
        "fine-tuning",
        "F1 of MRPC and QQP, Spearman correlation of STS-B, accuracy of the rest, all in per cent. The paper takes "
        "BERT from the test server and RoFormer from the validation set. Ours are encoders of 4 layers of 128 that "
        f"were pretrained for minutes{'' if large else '; QNLI, QQP and MNLI were not run'}.",
        ["task", "BERT, paper", "RoFormer, paper", "learned table, ours", "RoPE, ours", "bag of words, ours"],
        rows,
    )


def _chinese_models(found):
    result, rows = found.get("chinese-models"), []
    for model, *how in _published(found, 3):
        loss = _cell(result, BY_CHARACTER, model, decimals=2)
        rows.append([text(model), *map(text, how), loss, *_score_and_bag(result, "ChnSentiCorp, accuracy", model)])
    return Comparison(
        "Table 3: Chinese models",
        "chinese-models",
        "The paper's table only says how the models differ. Ours are trained on the same law texts for "
        "600 steps and fine-tuned on ChnSentiCorp.",
        ["model", "tokens", "positions", "loss, nats per character", "ChnSentiCorp, %", "bag of words, %"],
        rows,
    )


def _stages(found):
    result, rows = found.get("staged-pretraining"), []
    stages = result.about["settings"]["run"]["stages"] if result else [{}] * 6
    for published, stage in zip(_published(found, 4), stages, strict=True):
        after, arm = f"after stage {published[0]}", f"{stage.get('max_length')} tokens"
        scores = [_cell(result, f"held-out loss {after}", arm, decimals=2)]
        scores.append(_cell(result, f"held-out accuracy {after}", arm, 100))
        theirs = [number(published[i]) for i in (0, 1, 3, 4, 5)]
        rows.append([*theirs, *(number(stage.get(key)) for key in ("max_length", "steps")), *scores])
    return Comparison(
        "Table 4: staged pretraining",
        "staged-pretraining",
        "The paper pretrains on 34 GB of Chinese texts. Ours are Chinese laws, in rows a quarter as long and for a "
        "two-hundredth of the steps; losses and accuracies are of held-out rows of the stage's length.",
        [
            *("stage", "length, paper", "steps, paper", "loss, paper", "accuracy %, paper"),
            *("length, ours", "steps, ours", "loss, ours", "accuracy %, ours"),
        ],
        rows,
    )


def _long_texts(found):
    result, rows = found.get("long-texts"), []
    arms = [f"{name} at {length}" for name, length in result.about["settings"]["arms"]] if result else [""] * 4
    ours = dict(zip(("BERT-512", "WoBERT-512", "RoFormer-512", "RoFormer-1024"), arms, strict=True))
    for model, *published in _published(found, 5):
        arm = ours.get(model)
        scores = _score_and_bag(result, TRIPLES, arm)
        rows.append([model, *map(number, published[:2]), arm.replace(" at ", "-") if arm else NOTHING, *scores])
    return Comparison(
        "Table 5: similar cases of law",
        "long-texts",
        "The paper's task is CAIL2019-SCM, whose pairs of texts it reads together. Ours are triples of judgments, at "
        "a quarter of the length; each text is read alone, and the greater cosine wins. Guessing gives 50 %.",
        ["model", "validation %, paper", "test %, paper", "model, ours", "test %, ours", "bag of words %, ours"],
        rows,
    )
