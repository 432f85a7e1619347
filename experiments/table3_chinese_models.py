"""The Chinese models of the paper's Table 3 (R-TAB-3), characters or words as tokens, and three position encodings:
BERT, WoBERT, NEZHA and RoFormer. Each is the same body, trained on the same laws for the same number of steps with
whole-word masking, and tuned on reviews of at most 128 tokens. On such short texts the paper has RoFormer equal to
WoBERT (C-22).
"""

import json

from . import corpus
from .language_models import masked_run, pretrained, rows_of_body
from .run import Experiment, row, seeds_of
from .tuned_models import DICTIONARY, files_of, task_files, tuned_rows, tuning_rates

MODELS = {  # tokens, family, position encoding
    "BERT": ("characters", "bert", "learned"),
    "WoBERT": ("words", "bert", "learned"),
    "NEZHA": ("characters", "bert", {"type": "nezha", "max_relative_position": 64}),
    "RoFormer": ("words", "roformer", "rope"),
}
BY_CHARACTER = "held-out loss, nats per character token"


def corpus_of(scale, tokens):
    found = corpus.laws(scale)
    found |= {"name": f"{found['name']}-{tokens}", "dictionary": DICTIONARY}
    if tokens == "characters":
        return found
    if scale == "paper":  # WoBERT's vocabulary, and RoFormer's
        return found | {"pipeline": "roformer", "tokens": "vocabs/roformer_chinese_base_vocab.txt"}
    return found | {"pipeline": "roformer", "add_words": 100 if scale == "tiny" else 8000}


def run_file(scale, family, encoding):
    """Scale paper: R-CFG-5 without the warm start and the stages of the paper's models."""
    run = masked_run(scale, 600)
    model = {key: value for key, value in run["model"].items() if key != "model_type"}
    model |= {"family": family, "position_encoding": encoding}
    return run | {"model": model, "mask": {"unit": "whole-word"}}


def settings(scale):
    task = {
        "name": "ChnSentiCorp",
        "task": "classification",
        "metric": "accuracy",
        "columns": {"text": "text", "label": "label"},
        "train": "zh_cls/chnsenticorp_train.tsv",
        "valid": "zh_cls/chnsenticorp_dev.tsv",
        "test": "zh_cls/chnsenticorp_test.tsv",
        "most": 256 if scale == "tiny" else 0,
    }
    corpora = {tokens: corpus_of(scale, tokens) for tokens in ("characters", "words")}
    models = {
        name: {"tokens": tokens, "run": run_file(scale, family, encoding)}
        for name, (tokens, family, encoding) in MODELS.items()
    }
    rates = [2e-5, 3e-5, 4e-5, 5e-5] if scale == "paper" else tuning_rates(scale)
    tuning = {"epochs": 1 if scale == "tiny" else 3, "batch": 32, "learning_rates": rates, "max_length": 128}
    files = [file for each in corpora.values() for file in corpus.files_of(each)] + files_of(task)
    of_data = {"corpora": corpora, "task": task, "files": list(dict.fromkeys(files))}
    return of_data | {"seeds": seeds_of(scale), "models": models, "tuning": tuning}


def run(context, settings):
    data = {tokens: corpus.prepared(context, each) for tokens, each in settings["corpora"].items()}
    bodies = {}
    for name, model in settings["models"].items():
        bodies[name] = [
            pretrained(context, ("chinese-models", name), model["run"], data[model["tokens"]], seed)
            for seed in settings["seeds"]
        ]
    counts = {tokens: _held_out_tokens(folder) for tokens, folder in data.items()}
    files = task_files(context, settings["task"])
    for name, model in settings["models"].items():
        # A word token covers several character tokens of the same held-out texts.
        characters = counts["characters"] / counts[model["tokens"]]
        for body in bodies[name]:
            loss, *curve = rows_of_body(name, body)
            by_character = row(BY_CHARACTER, name, loss["value"] / characters, seed=body.seed, made=body.record)
            yield from [loss, by_character, *curve]
        tuning = settings["tuning"] | ({"dict": DICTIONARY} if model["tokens"] == "words" else {})
        folder = context.path("runs", "chinese-models", "tuned", name)
        measure = "ChnSentiCorp, accuracy"
        yield from tuned_rows(context, settings["task"], tuning, files, name, bodies[name], folder, measure)


def _held_out_tokens(data):
    return json.loads((data / "data.json").read_text(encoding="utf-8"))["splits"]["valid"]["tokens"]


EXPERIMENTS = [
    Experiment(
        "chinese-models",
        "BERT, WoBERT, NEZHA and RoFormer side by side (Table 3)",
        run,
        settings,
        hours=2.4,
        exceptions=("from random weights and in one stage, where the paper's models start from others in stages",),
    )
]
