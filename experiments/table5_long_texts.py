"""X-08 (C-16, C-22; the paper's Table 5, R-TAB-5): which of two judgments is like a third, by 128 tokens of the pair
and by 256, with BERT's learned table (which ends at the 128 it was pretrained on) and with RoPE. Training triples are
two judgments of one cause of action and one of another cause, and those of CAIL2019-SCM whose documents are in no
other part; they are tested on triples of other judgments, and on SCM's of other documents. Characters are tokens.
"""

from collections import defaultdict

import numpy as np

from .language_models import settings_of, train
from .run import Experiment, row
from .tuned_models import chinese_design, made_files, read_lines, read_table, tuned_rows, tuning_rates

DOCUMENTS, SCM_DOCUMENTS = "cjrc_legal_docs/cjrc_docs.jsonl", "cail2019_scm/docs.jsonl"
SCM_TRIPLES = "cail2019_scm/triples.tsv"
TASK = {"name": "triples", "task": "triples", "metric": "accuracy"}
TRIPLES, ON_SCM = "triples, accuracy", "SCM, accuracy"
BY_LENGTH = "triples, accuracy by the tokens that are read"


def settings(scale):
    """Scale paper: R-CFG-6."""
    tiny, is_paper = scale == "tiny", scale == "paper"
    shorter = 512 if is_paper else 128
    tuning = {"epochs": 1, "batch": 16, "learning_rates": tuning_rates(scale)}
    if is_paper:
        tuning = {"epochs": 20, "batch": 4, "learning_rates": [6e-6]}
    found = settings_of(chinese_design(scale))
    return found | {
        "files": [*found["files"], DOCUMENTS, SCM_DOCUMENTS, SCM_TRIPLES],
        "triples": {"train": 64, "valid": 16, "test": 64} if tiny else {"train": 20000, "valid": 300, "test": 1000},
        "tuning": tuning,
        "arms": [["BERT", "learned", shorter], ["RoFormer", "rope", shorter], ["RoFormer", "rope", 2 * shorter]],
        "read_at": [128, 256, 512] + ([] if tiny else [1024, 1536]),
    }


def run(context, settings):
    bodies, _ = train(context, settings["designs"]["chinese"])
    how = {"triples": settings["triples"], "valid": "every fifth pair of a cause"}
    all_files = [DOCUMENTS, SCM_DOCUMENTS, SCM_TRIPLES]
    files = made_files(context, "triples", how, all_files, lambda: records_of(context.data, settings["triples"]))
    scm = made_files(
        context, "scm", "test", all_files[1:], lambda: {"train": [], "test": scm_triples(context.data, "test")}
    )
    for name, encoding, length in settings["arms"]:
        arm, folder = f"{name} at {length}", context.path("runs", "long-texts", f"{name}-{length}")
        of_arm = [body for body in bodies if body.arm == encoding]
        tuning = settings["tuning"] | {"max_length": length}
        yield from tuned_rows(context, TASK, tuning, files, arm, of_arm, folder, TRIPLES)
        for body in of_arm:
            directory = folder / f"seed-{body.seed}"
            about = {"seed": body.seed, "made": context.record(directory)}
            yield row(ON_SCM, arm, _accuracy(context, directory, scm["test"], length), **about)
            # The last arm's model also reads other lengths than it was tuned at.
            for other in settings["read_at"] if [name, encoding, length] == settings["arms"][-1] else []:
                value = _accuracy(context, directory, files["test"], other)
                yield row(BY_LENGTH, arm, value, step=other, **about)


def _accuracy(context, model, file, length):
    *_, last = context.roformer("evaluate", model=model, input=file, max_length=length)
    return last["accuracy"]


def records_of(data, counts):
    parts = read_rulings(data)
    found = {
        split: same_cause_triples(parts[split], counts[split], seed)
        for seed, split in enumerate(("train", "valid", "test"), 1)
    }
    found["train"] += scm_triples(data, "train")
    return found


def read_rulings(data):
    """{split: judgments}. Of those of the training part that have one cause, every fifth pair is for choosing the
    epoch: pairs, because a judgment alone has none that is like it. A text that is in several parts is left out of the
    training ones."""
    parts, seen = {"train": [], "valid": [], "test": []}, defaultdict(int)
    for ruling in read_lines(data / DOCUMENTS):
        split = "test"
        if ruling["split"] != "test":
            pair = seen[ruling["domain"], ruling["cause"]] // 2
            seen[ruling["domain"], ruling["cause"]] += 1
            split = "valid" if pair % 5 == 2 else "train"
        parts[split].append(ruling)
    for own, other in (("valid", "test"), ("train", "test"), ("train", "valid")):
        texts = {ruling["text"] for ruling in parts[other]}
        parts[own] = [ruling for ruling in parts[own] if ruling["text"] not in texts]
    return parts


def same_cause_triples(documents, count, seed):
    """Triples: A, a document; one of its cause; and one of the same domain with another cause; in an order that is
    drawn."""
    random, by_cause, by_domain = np.random.default_rng(seed), defaultdict(list), defaultdict(list)
    for each in documents:
        by_cause[each["domain"], each["cause"]].append(each)
        by_domain[each["domain"]].append(each)
    anchors = [each for each in documents if len(by_cause[each["domain"], each["cause"]]) > 1]
    triples = []

    def one_of(list_of):
        return list_of[random.integers(len(list_of))]

    for _ in range(100 * count if anchors else 0):  # a draw without a matching document is repeated
        if len(triples) == count:
            break
        a = one_of(anchors)
        alike, other, label = one_of(by_cause[a["domain"], a["cause"]]), one_of(by_domain[a["domain"]]), one_of("BC")
        if alike is not a and other["cause"] != a["cause"]:
            sides = {label: alike["text"], "C" if label == "B" else "B": other["text"]}
            triples.append({"A": a["text"], "B": sides["B"], "C": sides["C"], "label": label})
    return triples


def scm_triples(data, side):
    """SCM's triples with all documents on that side of a split of the documents."""
    texts = {str(each["doc"]): each["text"] for each in read_lines(data / SCM_DOCUMENTS)}
    rows = [each for each in read_table(data / SCM_TRIPLES) if each["doc_side"] == side]
    return [{name: texts[each[name]] for name in "ABC"} | {"label": each["label"]} for each in rows]


EXPERIMENTS = [
    Experiment(
        "long-texts",
        "Does RoFormer gain by reading more of long texts? (Table 5)",
        run,
        settings,
        hours=3.2,
        exceptions=(
            "triples of judgments, and those of CAIL2019-SCM on one side of a split of its documents, where the paper "
            "has 8,964 triples in parts of 6 to 2 to 2",
            "bodies pretrained on --data from random weights",
        ),
    )
]
