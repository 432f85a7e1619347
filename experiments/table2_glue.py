"""X-09 and C-20, the paper's Table 2 (R-TAB-2): the models of X-03 and their Chinese counterparts, with BERT's learned
table and with RoPE, tuned on classes of texts, on paraphrases and on graded similarity. Where GLUE's test files are
not public, the valid file is measured, which also chose the epoch. Spearman's correlations are fractions.
"""

from .figure3_convergence import convergence_design
from .language_models import settings_of, train
from .run import Experiment
from .tuned_models import chinese_design, files_of, task_files, tuned_rows, tuning_rates

ARMS = ("learned", "rope")
METRICS = {"f1": "F1", "matthews": "Matthews' correlation", "spearman": "Spearman's correlation"}


def task(scale, name, metric, columns, files, test=False, pretrained="convergence"):
    """columns: of the files, of text, label and perhaps pair, in this order."""
    kind = "regression" if metric == "spearman" else "classification"
    columns = dict(zip(("text", "label") if len(columns) == 2 else ("text", "pair", "label"), columns, strict=True))
    about = {"name": name, "task": kind, "metric": metric, "columns": columns, "pretrained": pretrained}
    splits = {"train": f"{files}_train.tsv", "valid": f"{files}_dev.tsv"}
    splits |= {"test": f"{files}_test.tsv"} if test else {}
    return about | splits | {"most": 256 if scale == "tiny" else 0}


def tasks(scale):
    pair, chinese = ("sentence1", "sentence2"), "chinese"
    return [
        task(scale, "SST-2", "accuracy", ("sentence", "label"), "glue/sst2"),
        task(scale, "MRPC", "f1", (*pair, "label"), "glue/mrpc", test=True),
        task(scale, "STS-B", "spearman", (*pair, "score"), "glue/stsb", test=True),
        task(scale, "ChnSentiCorp", "accuracy", ("text", "label"), "zh_cls/chnsenticorp", True, chinese),
        task(scale, "AFQMC", "accuracy", (*pair, "label"), "zh_pairs/afqmc", pretrained=chinese),
    ]


def tuning(scale):
    """Scale paper: BERT's (R-CFG-3). A small model of random weights needs a higher rate than its four."""
    if scale == "paper":
        return {"epochs": 3, "batch": 32, "learning_rates": [2e-5, 3e-5, 4e-5, 5e-5], "max_length": 512}
    epochs = 1 if scale == "tiny" else 3
    return {"epochs": epochs, "batch": 32, "learning_rates": tuning_rates(scale), "max_length": 128}


def settings(scale):
    return settings_of_tasks(scale, tasks(scale), convergence_design(scale), chinese_design(scale))


def settings_of_tasks(scale, of_tasks, *designs):
    found = settings_of(*designs, tasks=of_tasks, tuning=tuning(scale))
    return found | {
        "files": list(dict.fromkeys([*found["files"], *(file for task in of_tasks for file in files_of(task))]))
    }


def run(context, settings):
    bodies = {}
    for name, design in settings["designs"].items():
        bodies[name], rates = train(context, design, list(ARMS))
        yield from rates
    for task in settings["tasks"]:
        files = task_files(context, task)
        measure = f"{task['name']}, {METRICS.get(task['metric'], task['metric'])}"
        for arm in ARMS:
            of_arm = [body for body in bodies[task["pretrained"]] if body.arm == arm]
            folder = context.path("runs", "fine-tuning", task["name"], arm)
            yield from tuned_rows(context, task, settings["tuning"], files, arm, of_arm, folder, measure)


EXPERIMENTS = [
    Experiment(
        "fine-tuning",
        "Fine-tuning with RoPE and with BERT's learned table (Table 2)",
        run,
        settings,
        hours=1.7,
        exceptions=("three of the paper's six tasks, and two Chinese ones; glue-large has the other three",),
    )
]
