"""The tasks of GLUE that `fine-tuning` leaves out, tuned and measured as its tasks are: two small ones, which the
paper's Table 2 does not have, and its three large ones. QNLI, QQP and MNLI are measured on their valid files; MNLI is
tuned once for each of its two.
"""

from . import table2_glue
from .figure3_convergence import convergence_design
from .run import Experiment
from .table2_glue import settings_of_tasks, task


def small_tasks(scale):
    return [
        task(scale, "CoLA", "matthews", ("sentence", "label"), "glue/cola"),
        task(scale, "RTE", "accuracy", ("sentence1", "sentence2", "label"), "glue/rte"),
    ]


def large_tasks(scale):
    """Columns are named as in GLUE's files."""

    def mnli(name, valid):
        columns = ("sentence1", "sentence2", "gold_label")
        return task(scale, name, "accuracy", columns, "glue/mnli") | {"valid": f"glue/mnli_dev_{valid}.tsv"}

    return [
        task(scale, "QNLI", "accuracy", ("question", "sentence", "label"), "glue/qnli"),
        task(scale, "QQP", "f1", ("question1", "question2", "is_duplicate"), "glue/qqp"),
        mnli("MNLI-m", "matched"),
        mnli("MNLI-mm", "mismatched"),
    ]


def _experiment(name, what, tasks, hours):
    def settings(scale):
        return settings_of_tasks(scale, tasks(scale), convergence_design(scale))

    question = f"Fine-tuning with RoPE and with BERT's learned table: {what} (Table 2)"
    return Experiment(name, question, table2_glue.run, settings, hours=hours)


EXPERIMENTS = [
    _experiment("glue-small", "CoLA and RTE", small_tasks, 0.3),
    _experiment("glue-large", "QNLI, QQP and MNLI", large_tasks, 20),
]
