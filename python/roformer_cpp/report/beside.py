"""The paper's numbers beside ours: its Tables 1 to 5, and its Figure 3 in words."""

from dataclasses import dataclass, field, replace
from statistics import fmean

from . import words
from .results import Table


@dataclass(frozen=True)
class Comparison:
    title: str
    note: str  # what is compared with what
    table: Table
    remarks: list = field(default_factory=list)  # sentences below the table


# The paper's Figure 3 is a picture; what is read from it is approximate.
FIGURE_3 = (
    "The paper's Figure 3 has two pictures and no table. Left: masked-LM loss of BERT and of RoFormer over 250,000 "
    "steps (the text says 100,000), on an axis from 2 to 10; RoFormer's curve is below BERT's from early on. Right: "
    "the loss of a Performer with and without RoPE over 100,000 steps, on an axis from 1.3 to 3.2; the curve with "
    "RoPE is below. The paper names one run for each curve and no range."
)
_FIGURE_3_EXPERIMENTS = (
    ("left", "convergence", ""),
    ("right", "linear-language-model", ", with the feature map elu + 1 in place of the Performer's random features"),
)


def comparisons(found):
    """[Comparison] in the order of the paper's tables; without those whose table the register lacks."""
    by_id = {table.id: table for table in found.tables}
    return [_comparison(found, by_id[id], *TABLES[id]) for id in TABLES if id in by_id]


def _comparison(found, paper, experiment, maker, columns):
    if len(paper.table.columns) < columns:
        raise ValueError(
            f"[report] {paper.id} of register.json must have {columns} columns, got {len(paper.table.columns)}"
        )
    result = _shown(found, experiment)
    made = maker(result, paper)
    stale = "; ".join(found.stale(result)) if result else ""
    said = [f"Our numbers are of a stale result of {experiment}: {stale}."] if stale else []
    return replace(made, remarks=made.remarks + said + _why_not_shown(found, experiment))


def figure_3(found):
    """[(where our curves of a side of Figure 3 are, the experiment)] of those that may stand beside the paper's."""
    shown = [(side + how, _shown(found, name)) for side, name, how in _FIGURE_3_EXPERIMENTS]
    return [
        (f"{side}, of a stale result" if found.stale(result) else side, result.name) for side, result in shown if result
    ]


def not_in_figure_3(found):
    """[a sentence on a side of Figure 3 without our curves]."""
    return [
        f"{side.capitalize()}: {why}" for side, name, _ in _FIGURE_3_EXPERIMENTS for why in _why_not_shown(found, name)
    ]


def _why_not_shown(found, experiment):
    """[a sentence on why there are no numbers of ours]; empty where there are."""
    result = found.result_of(experiment)
    if result is None:
        return [f"{experiment} has not been run."]
    if result.is_smoke_run:
        return [f"Of {experiment} there is a smoke run alone."]
    reasons = result.why_not_counted
    return [f"Our result of {experiment} is not counted: {'; '.join(reasons)}."] if reasons else []


def _shown(found, experiment):
    """The result of an experiment, None where its numbers may not stand beside the paper's."""
    return None if _why_not_shown(found, experiment) else found.result_of(experiment)


def _rows(result):
    """The rows of a result's table as dicts; of "lowest" and "highest" the first. Empty without a result."""
    if result is None:
        return []
    names = result.table.columns
    return [{name: row[names.index(name)] for name in names} for row in result.table.rows]


def _value(rows, wanted, column, scale=1.0):
    """The number of the first row whose cells are those wanted; None without one."""
    for row in rows:
        if all(row.get(name) == value for name, value in wanted.items()) and words.is_number(row.get(column)):
            return row[column] * scale
    return None


def _title(paper):
    return f"{paper.title} ({paper.source})"


_BLEU = "BLEU"  # measures::kBleu of reproduce/src/rules.h
_DRAWN_LINES = "rope less sinusoidal, paired bootstrap over lines: "  # rows of the table of `translation`


def _translation(result, paper):
    arms = {"Transformer-base": "sinusoidal", "RoFormer": "rope"}
    bleu = {arm: [] for arm in arms.values()}  # by seed
    for measure in result.measures if result else []:
        if measure.name == _BLEU and measure.arm in bleu:
            bleu[measure.arm].append(measure.value)
    table = []
    for model, published in (row[:2] for row in paper.table.rows):
        of_seeds = bleu.get(arms.get(model))
        ours = [fmean(of_seeds), min(of_seeds), max(of_seeds)] if of_seeds else [None] * 3
        table.append([model, published, *ours])
    return Comparison(
        _title(paper),
        "Paper: WMT 2014, news. Here: Multi30k, captions of pictures, which are short and alike, so that BLEU is "
        "higher, and a small model; the mean over seeds and the lowest and highest of them. Only the difference "
        "between the rows can be compared.",
        Table(["model", "paper, BLEU", "here, BLEU", "lowest", "highest"], table),
        _bootstrap(_rows(result), bleu) + _over_seeds(result),
    )


def _over_seeds(result):
    """[a sentence on the interval over seeds, by which C-19 is judged]; empty where the result lacks it."""
    parts = [check for check in (result.checks.get("C-19", []) if result else []) if check["role"] == "part"]
    if not parts or not {"mean", "low", "high"} <= parts[0].keys():
        return []
    low, high = (words.number(parts[0][end]) for end in ("low", "high"))
    return [
        f"C-19 is judged over seeds, since models that are trained again differ: the 95 % interval of the "
        f"difference is from {low} to {high} BLEU, so the claim is {result.verdicts['C-19']}."
    ]


def _bootstrap(rows, bleu):
    """[a sentence on what the choice of test lines can change]; empty where the table does not say it."""
    low, high = (_value(rows, {"encoding": _DRAWN_LINES + end}, "BLEU") for end in ("low", "high"))
    if low is None or high is None or not all(bleu.values()):
        return []
    difference = words.number(fmean(bleu["rope"]) - fmean(bleu["sinusoidal"]))
    return [
        f"RoPE less sinusoids: {difference} BLEU. In a paired bootstrap over the lines of the test set, with these "
        f"trained models, 95 % of the differences are between {words.number(low)} and {words.number(high)}."
    ]


def _glue(result, paper):
    rows = _rows(result)
    encodings = {"BERT": "learned", "RoFormer": "rope"}
    table = []
    for i, task in enumerate(paper.table.columns[1:], 1):
        cells = {row[0]: row[i] for row in paper.table.rows}
        ours = [_value(rows, {"task": task, "encoding": encodings[model]}, "mean", 100) for model in encodings]
        counted = _value(rows, {"task": task}, "bag of words", 100)
        table.append([task, cells.get("BERT"), cells.get("RoFormer"), *ours, counted])
    return Comparison(
        _title(paper),
        "In points of 100: F1 of MRPC and QQP, Spearman's correlation of STS-B, accuracy of the others. The paper's "
        "BERT was measured on the test server, its RoFormer on the validation set. Here: bodies of 4 layers of 128 "
        "that were pretrained for minutes. A model that is not above the bag of words does not show that it uses "
        "the order of words.",
        Table(
            ["task", "paper, BERT", "paper, RoFormer", "here, learned table", "here, RoPE", "here, bag of words"], table
        ),
    )


def _chinese_models(result, paper):
    rows = _rows(result)
    table = [
        [
            *row,
            _value(rows, {"model": row[0]}, "for a character"),
            _value(rows, {"model": row[0]}, "accuracy", 100),
            _value(rows, {"model": row[0]}, "bag of words", 100),
        ]
        for row in paper.table.rows
    ]
    columns = [
        *paper.table.columns,
        "here, held-out loss, nats per character",
        "here, ChnSentiCorp, %",
        "here, bag of words, %",
    ]
    return Comparison(
        _title(paper),
        "The paper's table has no numbers: it says what distinguishes the models. Here the four are trained on the "
        "same laws for 600 steps and tuned on reviews.",
        Table(columns, table),
    )


def _stages(result, paper):
    rows = _rows(result)
    table = []
    for published in paper.table.rows:
        ours = [row for row in rows if row.get("stage") == published[0]]
        ours = [row for row in ours if row.get("trained on") == row.get("measured on")][:1]
        numbers = [_value(ours, {}, name) for name in ("trained on", "batch", "steps", "loss")]
        table.append([*published[:6], *numbers, _value(ours, {}, "accuracy", 100)])
    columns = ["stage", "paper, tokens", "batch", "steps", "loss, nats", "accuracy, %"]
    columns += ["here, tokens", "batch", "steps", "loss, nats", "accuracy, %"]
    return Comparison(
        _title(paper),
        "Lengths here are about a quarter of the paper's, steps 200 to 700 times fewer; losses and accuracies are held "
        "out, on rows of the length that the stage was trained on.",
        Table(columns, table),
    )


def _similar_cases(result, paper):
    rows = _rows(result)
    lengths = sorted({row.get("tokens") for row in rows if words.is_number(row.get("tokens"))})
    arms = {}
    if len(lengths) > 1:
        arms = {
            "BERT-512": ("BERT", lengths[0]),
            "RoFormer-512": ("RoFormer", lengths[0]),
            "RoFormer-1024": ("RoFormer", lengths[1]),
        }
    table = []
    for name, validation, test in (row[:3] for row in paper.table.rows):
        model, tokens = arms.get(name, (None, None))
        wanted = {"model": model, "tokens": tokens}
        table.append(
            [
                *(name, validation, test),
                f"{model}-{tokens}" if model else None,
                _value(rows, wanted, "accuracy", 100),
                _value(rows, wanted, "bag of words", 100),
            ]
        )
    return Comparison(
        _title(paper),
        "Paper: CAIL2019-SCM. Here: triples of judgments by their cause of action, at a quarter of the lengths. Chance "
        "is 50 %.",
        Table(
            ["paper, model", "validation, %", "test, %", "here, model", "test, %", "bag of words, %"],
            table,
        ),
    )


# By the paper's table: the experiment that has our numbers, what makes the comparison, and the columns that it reads.
TABLES = {
    "R-TAB-1": ("translation", _translation, 2),
    "R-TAB-2": ("fine-tuning", _glue, 1),
    "R-TAB-3": ("chinese-models", _chinese_models, 1),
    "R-TAB-4": ("staged-pretraining", _stages, 6),
    "R-TAB-5": ("long-texts", _similar_cases, 3),
}
