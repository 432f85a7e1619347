"""Trains a model for vectors of texts, with the losses of sentence-transformers:
`roformer train-embedding --model DIR --train pairs.jsonl --loss MultipleNegativesRankingLoss --output DIR`.

DIR is an encoder of transformers or of roformer, or a directory of sentence-transformers. Records are JSON lines, or
CSV or TSV with a header row: anchor and positive; anchor, positive and negative; or sentence1, sentence2 and score. In
a checkout: `python -m roformer_cpp.train_embedding`.
"""

import argparse
import contextlib
import csv
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import _checks, _metrics
from ._command import exit_code

_WHERE = "train-embedding"
_PAIR, _TRIPLE, _SCORED = (
    ("anchor", "positive"),
    ("anchor", "positive", "negative"),
    ("sentence1", "sentence2", "score"),
)
_FORMS = (_PAIR, _TRIPLE, _SCORED)
LOSSES = {
    "MultipleNegativesRankingLoss": (_PAIR, _TRIPLE),
    "CachedMultipleNegativesRankingLoss": (_PAIR, _TRIPLE),
    "TripletLoss": (_TRIPLE,),
    "CosineSimilarityLoss": (_SCORED,),
    "CoSENTLoss": (_SCORED,),
    "AnglELoss": (_SCORED,),
}


def _named(forms: tuple[tuple[str, ...], ...]) -> str:
    return " or ".join(", ".join(form) for form in forms)


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The records of a file, with the numbers of their lines."""
    if path.suffix not in (".jsonl", ".csv", ".tsv"):
        raise ValueError(f"[{_WHERE}] a file of records must end in .jsonl, .csv or .tsv, got {path}")
    number = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            if path.suffix == ".jsonl":
                for number, line in enumerate(file, 1):
                    yield number, json.loads(line)
            else:
                form = {"delimiter": ","} if path.suffix == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
                table = csv.DictReader(file, strict=True, **form)
                for record in table:
                    number = table.line_num
                    yield number, record
    except UnicodeDecodeError as error:
        raise ValueError(f"[{_WHERE}] {path} must be UTF-8, got {error.reason} after line {number}") from None
    except (ValueError, RecursionError, csv.Error) as error:  # csv.Error: in the record after that line
        line = number + isinstance(error, csv.Error)
        raise ValueError(f"[{_WHERE}] {path}:{line} must be a record, got {error}") from None


def read_records(path: Path) -> dict[str, list]:
    """The columns of a file, named as in one of _FORMS."""
    found: dict[str, list] = {}
    for number, record in _lines(path):
        where, forms = f"[{_WHERE}] {path}:{number}", (tuple(found),) if found else _FORMS
        form = next((form for form in forms if isinstance(record, dict) and set(form) == set(record)), None)
        if form is None:
            got = ", ".join(map(str, record)) if isinstance(record, dict) else _checks.kind(record)
            raise ValueError(f"{where} must have the keys {_named(forms)}, got {_checks.short(got) or 'none'}")
        for key in form:
            value, rule = record[key], "a text that is not empty"
            if key == "score":
                rule = "a finite number"
                with contextlib.suppress(ValueError):
                    value = float(value) if isinstance(value, str) else value
            if not (_metrics.is_number(value) if key == "score" else isinstance(value, str) and value.strip()):
                raise ValueError(f"{where} {key} must be {rule}, got {_checks.shown(value)}")
            found.setdefault(key, []).append(value)
    if not found:
        raise ValueError(f"[{_WHERE}] {path} must have records, got none")
    return found


def _measured(model: Any, records: dict[str, list]) -> tuple[str, float | None]:
    """The first metric of the evaluator of sentence-transformers for records of this form."""
    from sentence_transformers.sentence_transformer import evaluation

    if "score" in records:
        evaluator = evaluation.EmbeddingSimilarityEvaluator(*records.values())
    elif "negative" in records:
        evaluator = evaluation.TripletEvaluator(*records.values())
    else:
        relevant: dict[str, set[str]] = {}
        for anchor, positive in zip(*records.values(), strict=True):
            relevant.setdefault(anchor, set()).add(positive)
        queries, corpus = ({text: text for text in texts} for texts in (relevant, records["positive"]))
        evaluator = evaluation.InformationRetrievalEvaluator(queries, corpus, relevant)
    value = evaluator(model)[evaluator.primary_metric]
    return evaluator.primary_metric, value if math.isfinite(value) else None  # a correlation with equal scores


def _opened(options: argparse.Namespace) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    model = SentenceTransformer(_checks.directory(_WHERE, options.model), model_kwargs={"dtype": torch.float32})
    limit = getattr(getattr(model.transformers_model, "config", None), "max_position_embeddings", None)
    for name, module in model.named_modules() if limit is not None else ():
        if name.endswith(".position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limit -= module.padding_idx + 1  # RoBERTa's positions begin after the padding's
    if options.max_length is not None:
        if limit is not None and options.max_length > limit:
            rule = f"--max-length must be at most {limit}, by max_position_embeddings of the model"
            raise ValueError(f"[{_WHERE}] {rule}, got {options.max_length}")
        model.max_seq_length = options.max_length
    if options.pooling is not None:
        places = [i for i, module in enumerate(model) if isinstance(module, Pooling)]
        if len(places) != 1:
            raise ValueError(f"[{_WHERE}] --pooling needs a model with one Pooling, got {len(places)}")
        model[places[0]] = Pooling(model[places[0]].embedding_dimension, options.pooling)
    return model


def _loss(model: Any, options: argparse.Namespace) -> Any:
    from sentence_transformers.sentence_transformer import losses

    batched = {} if options.mini_batch is None else {"mini_batch_size": options.mini_batch}
    if batched and not options.loss.startswith("Cached"):
        raise ValueError(f"[{_WHERE}] --mini-batch needs CachedMultipleNegativesRankingLoss, got {options.loss}")
    loss, width = getattr(losses, options.loss)(model, **batched), model.get_embedding_dimension()
    if not options.matryoshka:
        return loss
    if max(options.matryoshka) > width:
        raise ValueError(f"[{_WHERE}] --matryoshka must be at most {width}, got {max(options.matryoshka)}")
    return losses.MatryoshkaLoss(model, loss, sorted({width, *options.matryoshka}, reverse=True))


def _adapter(encoder: Any, rank: int) -> Any:
    """LoRA of the linear layers that vectors are computed with."""
    import peft
    from torch import nn

    named = [] if encoder is None else encoder.named_modules()
    linear = [name for name, module in named if isinstance(module, nn.Linear)]
    targets = [name for name in linear if not name.endswith("pooler.dense")]
    if not targets:
        raise ValueError(f"[{_WHERE}] --lora-rank needs a model with linear layers, got none")
    return peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets)


def _trained(model: Any, records: dict[str, list], options: argparse.Namespace, run: Any) -> list[dict[str, Any]]:
    """Trains the model; the losses of its steps."""
    import datasets
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    datasets.disable_progress_bars()
    has_negatives = "MultipleNegatives" in options.loss
    arguments = SentenceTransformerTrainingArguments(
        str(options.output),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch,
        learning_rate=options.learning_rate,
        warmup_steps=options.warmup,
        seed=options.seed,
        batch_sampler="no_duplicates" if has_negatives else "batch_sampler",
        logging_steps=10,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_strategy="steps" if options.save_every else "no",
        save_steps=options.save_every or 1,
        save_total_limit=options.keep,
        report_to=[],
        prompts=model.prompts[model.default_prompt_name] if model.default_prompt_name else None,
    )
    loss = _loss(model, options)
    rows = datasets.Dataset.from_dict(records)
    trainer = SentenceTransformerTrainer(model, arguments, rows, loss=loss, callbacks=[run])
    with run:
        mean = trainer.train(resume_from_checkpoint=run.checkpoint).training_loss
    if not math.isfinite(mean):
        raise RuntimeError(f"[{_WHERE}] the loss must be finite, got {mean}")
    if run.received:
        sys.exit(128 + run.received)
    return [{"type": "train"} | line for line in trainer.state.log_history if "loss" in line]


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Trains and saves; returns the result that the command prints."""
    hint = '. Hint: pip install "sentence-transformers[train]" peft'
    needed = ["sentence_transformers", "datasets", "accelerate", *(["peft"] if options.lora_rank else [])]
    modules = [_checks.needed(name, f"[{_WHERE}] {name} must be installed", hint) for name in needed]
    import transformers

    from . import register

    records, valid = read_records(options.train), read_records(options.valid) if options.valid else None
    form = tuple(records)
    if form not in LOSSES[options.loss]:
        raise ValueError(
            f"[{_WHERE}] {options.loss} needs {_named(LOSSES[options.loss])}, got {_named((form,))} in {options.train}"
        )
    if "MultipleNegatives" in options.loss and min(options.batch, len(records[form[0]])) < 2 and form == _PAIR:
        raise ValueError(f"[{_WHERE}] {options.loss} needs at least 2 records in a batch, which are negatives, got 1")
    if options.epochs == 0:
        raise ValueError(f"[{_WHERE}] --epochs must be above 0, got 0")
    if options.loss == "CosineSimilarityLoss" and (far := max(map(abs, records["score"]))) > 1:
        raise ValueError(f"[{_WHERE}] scores must be between -1 and 1, as cosines are, got {far} in {options.train}")
    register()
    from ._embedding_run import Run

    run = Run(_WHERE, options)
    transformers.set_seed(options.seed)
    model = _opened(options)
    before = _measured(model, valid) if valid else None
    if options.lora_rank:
        model.requires_grad_(False)  # of Dense modules too, which the adapter does not contain
        model.add_adapter(_adapter(model.transformers_model, options.lora_rank))
    lines = _trained(model, records, options, run)
    if options.lora_rank:
        model.transformers_model.save_pretrained(options.output / "adapter")
        model = _opened(options)
        modules[-1].PeftModel.from_pretrained(model.transformers_model, options.output / "adapter").merge_and_unload()
    model.save_pretrained(str(options.output), create_model_card=False)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (options.output / _metrics.NAME).write_text(text, encoding="utf-8")
    result = {"output": str(options.output), "records": len(records[form[0]])}
    if valid:
        metric, after = _measured(model, valid)
        result |= {"metric": metric, "before": before[1], "after": after}
    return result


def _at_least(kind: type, least: int) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be a number from {least}, got {text}")
        return value

    read.__name__ = kind.__name__  # for the message of argparse
    return read


def _sizes(text: str) -> list[int]:
    return [_at_least(int, 1)(each) for each in text.split(",")]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="roformer train-embedding", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, count, number = parser.add_argument, _at_least(int, 1), _at_least(float, 0)
    add("--model", type=Path, required=True, help="the directory of an encoder, or of sentence-transformers")
    add("--train", type=Path, required=True, help="records, .jsonl, .csv or .tsv")
    add("--valid", type=Path, help="records that the model is measured on, before and after")
    add("--output", type=Path, required=True, help="a new directory")
    add("--loss", required=True, choices=LOSSES, help="of sentence-transformers: %(choices)s", metavar="NAME")
    add("--matryoshka", type=_sizes, help="lengths of shorter vectors that are trained too: 128,64")
    add("--lora-rank", type=count, help="train adapters of this rank; adapter/ has peft's files, the model is merged")
    add("--pooling", help="mean, cls, max, lasttoken, .. (default: that of the directory, else mean)")
    add("--max-length", type=count, help="tokens of a text (default: that of the directory)")
    add("--epochs", type=number, default=1.0, help="default: %(default)s")
    add("--batch", type=count, default=32, help="records of a step (default: %(default)s)")
    add("--mini-batch", type=count, help="records computed together, for the cached loss (default: 32)")
    add("--learning-rate", type=number, default=2e-5, help="default: %(default)s")
    add("--warmup", type=number, default=0.1, help="a part of all steps, or steps (default: %(default)s)")
    add("--seed", type=_at_least(int, 0), default=0, help="default: %(default)s")
    add("--save-every", type=count, metavar="N", help="write a checkpoint every N steps into the output directory")
    add("--keep", type=count, default=2, metavar="N", help="how many checkpoints remain (default: %(default)s)")
    add("--resume", action="store_true", help="continue from the newest checkpoint, or start if there is none")
    options = parser.parse_args(arguments)

    def work() -> None:
        with contextlib.redirect_stdout(sys.stderr):
            result = train(options)
        print(json.dumps(result))

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
