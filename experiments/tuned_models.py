"""What the experiments on tasks share: files made from the sets of --data, models tuned on them with `roformer
finetune`, and their controls: the same body with random weights, and a bag of words of scikit-learn.

A task is a dict: `name`; `task`, `metric` and `columns` as `roformer finetune` takes them; `train`, `valid` and, where
there is one, `test`, files of --data in which quotation marks are text (without `test` the valid file is measured);
`most`: the first so many training records are used, 0: all. A tuning is a dict of options of `roformer finetune`, with
`learning_rates`.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from . import corpus, judge
from .language_models import design, masked_run
from .run import identity_of, row, seeds_of

DICTIONARY = "vocabs/jieba_dict.txt"
_SPLITS = ("train", "valid", "test")


def chinese_design(scale):
    """The body of X-03 on Chinese laws: BERT's learned table, and rope."""
    return design("chinese", corpus.laws(scale), seeds_of(scale), ["learned", "rope"], masked_run(scale, 600))


def tuning_rates(scale):
    """Rates for small models; the valid file chooses one. A small model of random weights needs higher rates than
    BERT."""
    return [5e-4] if scale == "tiny" else [2e-4, 5e-4, 1e-3]


def files_of(task):
    """The files of --data that the task names."""
    return [task[split] for split in _SPLITS if split in task]


# ---- task files


def read_table(path):
    """The records of a TSV file whose first line has the names; quotation marks are text."""
    names, *rows = (line.split("\t") for line in _lines(path))
    return [dict(zip(names, row, strict=True)) for row in rows]


def read_lines(path):
    """The records of a file of JSON lines."""
    return [json.loads(line) for line in _lines(path)]


def _lines(path):
    lines = path.read_text(encoding="utf-8").split("\n")  # splitlines has more line ends than that
    return [line.removesuffix("\r") for line in lines if line.strip()]


def task_files(context, task):
    """{split: file of JSON lines} of the sets that a task names, with the task's own names of fields."""

    def read():
        found = {}
        for split in _SPLITS:
            records = read_table(context.data / task[split]) if split in task else []
            records = records[: task["most"] or None] if split == "train" else records
            found[split] = [{name: each[field] for name, field in task["columns"].items()} for each in records]
        return found

    how = {key: value for key, value in task.items() if key != "pretrained"}
    return made_files(context, task["name"], how, files_of(task), read)


def made_files(context, name, how, files, read):
    """{split: file} of the records {split: [dict]} that `read()` makes of files of --data; splits without records have
    none. Valid and test records with the inputs of a training record, all but `label`, are left out: published sets
    share some."""
    folder = context.path("corpus", "tasks", name)

    def inputs(record):
        return json.dumps({key: value for key, value in record.items() if key != "label"}, sort_keys=True)

    def make():
        splits = read()
        trained = {inputs(record) for record in splits["train"]}
        counts = {}
        folder.mkdir(parents=True, exist_ok=True)
        for split, records in splits.items():
            kept = [each for each in records if split == "train" or inputs(each) not in trained]
            lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in kept)
            (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
            counts[split] = len(kept)
        return counts

    made_of = {"how": how, "data": identity_of(context.data, files)}
    counts = context.share("tasks", [name], lambda _: context.kept(folder / "task.json", made_of, make))[name]
    return {split: folder / f"{split}.jsonl" for split, count in counts.items() if count > 0}


# ---- tuning


@dataclass(frozen=True)
class Tuned:
    """A tuned model. Metrics belong to the chosen rate; an undefined rank correlation is 0."""

    metrics: dict  # by split: train (a sample of its records), valid, test
    baseline: dict  # of the most frequent class or the mean
    rates: dict  # {rate: metric on valid} of the rates that were tried
    learning_rate: float  # the one that was chosen
    record: dict


def measured_split(files):
    return "test" if "test" in files else "valid"


def tune(context, task, tuning, files, model, directory, seed):
    """Tunes the model in the directory `model`; the output goes to `directory`."""
    options = {key: value for key, value in tuning.items() if key != "dict"}
    made_of = {"task": task["name"], "tuning": tuning, "seed": seed, "model": identity_of(model, ["model.safetensors"])}
    made_of["files"] = identity_of(Path(), files.values())
    if "dict" in tuning:
        options["dict"] = context.data / tuning["dict"]
    with context.recorded(directory, made_of) as record:
        if not record["finished"]:
            directory.parent.mkdir(parents=True, exist_ok=True)
            what = {key: task[key] for key in ("task", "metric")}
            context.roformer("finetune", model=model, output=directory, seed=seed, **what, **files, **options)
    report = json.loads((directory / "report.json").read_text(encoding="utf-8"))

    def metrics(name):
        found = {split: of_split[task["metric"]] for split, of_split in report[name].items() if split in _SPLITS}
        return {split: value or 0 for split, value in found.items()}

    rates = {rate["learning_rate"]: rate["mean"] or 0 for rate in report["rates"]}
    chosen = report["chosen"]["learning_rate"]
    return Tuned(metrics("chosen"), metrics("baseline"), rates, chosen, record)


def random_body(model, directory, seed):
    """The directory of a body like that in `model` with random weights: what fine-tuning learns without pretraining."""
    import roformer_cpp

    if not (directory / "model.safetensors").exists():
        directory.mkdir(parents=True, exist_ok=True)
        for file in model.iterdir():
            if file.is_file() and file.name not in ("model.safetensors", "modules.json"):
                shutil.copyfile(file, directory / file.name)
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        roformer_cpp.build_model(config, seed=seed).save(directory)
    return directory


def rows_of_rates(arm, task, tuned):
    """The rows by which judge.why_not_tuned decides: metrics as losses."""
    for rate, metric in sorted(tuned.rates.items()):
        yield row(judge.SHORT_RUN, f"{arm} on {task['name']}", -metric, learning_rate=rate, made=tuned.record)


def tuned_rows(context, task, tuning, files, arm, bodies, folder, measure):
    """The rows of an arm: its bodies, each paired with a body of random weights, tuned one seed after another. The
    first seed chooses the rate of the later ones.

    Args:
        bodies: things with a `directory` and a `seed`.
        folder: of the tuned models, seed-<n> and seed-<n>-random-body.
    """
    rates, split = {}, measured_split(files)
    dictionary = context.data / tuning["dict"] if "dict" in tuning else None
    words = bag_of_words(task, files, bodies[0].directory, tuning["max_length"], dictionary)
    for body in bodies:
        directory = folder / f"seed-{body.seed}"
        drawn = random_body(body.directory, body.directory / "random-body", body.seed)
        sides = [(f"{arm}, random body", drawn, directory.with_name(f"{directory.name}-random-body"))]
        sides.append((arm, body.directory, directory))
        for name, model, output in sides:
            context.note(f"{task['name']}, {name}, seed {body.seed}")
            chosen = tuning | {"learning_rates": rates.get(name, tuning["learning_rates"])}
            tuned = tune(context, task, chosen, files, model, output, body.seed)
            if name not in rates:
                yield from rows_of_rates(name, task, tuned)
            rates[name] = [tuned.learning_rate]
            about = {
                "seed": body.seed,
                "task": task["name"],
                "learning_rate": tuned.learning_rate,
                "made": tuned.record,
            }
            yield row(measure, name, tuned.metrics[split], **about)
            yield row(f"{measure} on training records", name, tuned.metrics["train"], **about)
        for control, value in (("bag of words", words), ("baseline", tuned.baseline[split])):
            yield row(measure, f"{arm}, {control}", value, seed=body.seed, task=task["name"])


# ---- bag of words


def bag_of_words(task, files, model, max_length, dictionary=None):
    """The metric of a bag of words on the measured file: of the tokens that a model reads, without their order. Naive
    Bayes of single texts; of pairs a Gaussian of each class, or a line, of the cosine of tf-idf; of triples the higher
    cosine."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LinearRegression
    from sklearn.naive_bayes import GaussianNB, MultinomialNB

    import roformer_cpp

    tokenizer = roformer_cpp.Tokenizer(model, dictionary=dictionary)
    sides = [read_lines(files["train"]), read_lines(files[measured_split(files)])]
    number = float if task["task"] == "regression" else str
    known, labels = ([number(each["label"]) for each in records] for records in sides)
    if task["task"] == "triples":
        alone = [{name: _tokens(tokenizer, records, max_length, name)[0] for name in "ABC"} for records in sides]
        inputs = [[(texts["A"], texts[other]) for other in "BC"] for texts in alone]
    elif "pair" in task["columns"]:
        inputs = [[_tokens(tokenizer, records, max_length, "text", "pair")] for records in sides]
    else:
        (trained, _), (asked, _) = (_tokens(tokenizer, records, max_length, "text") for records in sides)
        counts = CountVectorizer(analyzer=list)
        bayes = MultinomialNB().fit(counts.fit_transform(trained), known)
        return _metric(task["metric"], labels, bayes.predict(counts.transform(asked)))
    weights = TfidfVectorizer(analyzer=list)
    weights.fit([*inputs[0][0][0], *(text for _, seconds in inputs[0] for text in seconds)])

    def cosines(pairs):
        products = [weights.transform(first).multiply(weights.transform(second)) for first, second in pairs]
        return np.hstack([np.asarray(product.sum(1)) for product in products])

    asked = cosines(inputs[1])
    if task["task"] == "triples":
        return _metric(task["metric"], labels, np.where(asked[:, 0] >= asked[:, 1], "B", "C"))
    fitted = (LinearRegression if number is float else GaussianNB)().fit(cosines(inputs[0]), known)
    return _metric(task["metric"], labels, fitted.predict(asked))


def _tokens(tokenizer, records, max_length, first, second=None):
    """The ids of the first texts and of the second texts, as far as they fit into a row."""
    texts = [[each[name] for each in records] for name in (first, second) if name is not None]
    rows = tokenizer(*texts, truncation=True, max_length=max_length, return_special_tokens_mask=True)
    found = [], []
    for ids, types, special in zip(
        *(rows[k] for k in ("input_ids", "token_type_ids", "special_tokens_mask")), strict=True
    ):
        for text in (0, 1):
            found[text].append([i for i, of, mark in zip(ids, types, special, strict=True) if of == text and not mark])
    return found


def _metric(name, labels, predicted):
    if name == "accuracy":
        return float(np.mean(np.array(labels) == predicted))
    if name == "f1":
        from sklearn.metrics import f1_score

        return float(f1_score(labels, predicted, pos_label=sorted(set(labels))[1]))
    if name == "matthews":
        from sklearn.metrics import matthews_corrcoef

        return float(matthews_corrcoef(labels, predicted))
    found = stats.spearmanr(labels, predicted).statistic
    return float(found) if np.isfinite(found) else 0.0
