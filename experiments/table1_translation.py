"""X-10 and C-19, the paper's Table 1 (R-TAB-1): translation from English to German with sinusoids and with RoPE in
both self-attentions, equal otherwise. The learning rate of each arm is searched for in the same way. The weights of
the last checkpoints are averaged, and the test set is translated once.

Scale small: Multi30k with a narrow model and 8,000 steps, for which a dropout of 0.3, usual for small corpora, is too
much (docs/reproduce.md has the figures). Scale paper: R-CFG-1, WMT 2014 with Transformer-base as fairseq trains it.
BLEU is sacreBLEU's, of raw texts; the paper's is of tokenized texts.
"""

import math
from pathlib import Path

import numpy as np

from .language_models import CURVE, metrics, thinned
from .rate_search import rows_of_search, search_rate
from .run import Experiment, identity_of, row, seeds_of, write_json

ARMS = {"sinusoidal": {"type": "sinusoidal", "layout": "half"}, "rope": "rope"}
BLEU, ABOVE_FLOOR = "BLEU", "BLEU above the least of the scale"
HELD_OUT = "held-out loss, nats per target token"


def settings(scale):
    is_paper, tiny = scale == "paper", scale == "tiny"
    folder = "wmt14_en_de" if is_paper else "multi30k_en_de"
    names = {"train": "train", "valid": "newstest2013", "test": "newstest2014"}
    names = names if is_paper else {"train": "train", "valid": "val", "test": "test2016"}
    texts = {part: [f"{folder}/{name}.en", f"{folder}/{name}.de"] for part, name in names.items()}
    rates = {"rates": [1.25e-3, 2.5e-3, 5e-3], "steps": 2000, "seed": 1000, "beyond": 2, "lower": 0}
    return texts | {
        "files": [file for pair in texts.values() for file in pair],
        # Three gave 1.45 BLEU [-0.14, 3.04]; two more were planned before they ran.
        "seeds": [1, 2, 3, 4, 5] if scale == "small" else seeds_of(scale),
        "vocabulary": 37000 if is_paper else 4000,  # of both languages
        "run": _base_run() if is_paper else _small_run(tiny),
        "encodings": ARMS,
        "search": rates if scale == "small" else None,
        "averaged": 5,
        "translate": {"beams": 4, "length_penalty": 0.6},
        "draws": 1000,
        "floor": 25 if is_paper else 33,  # BLEU that both arms must reach before they are compared
    }


def _base_run():
    # A step has eight micro-batches, as on fairseq's eight machines.
    every = {"checkpoint_every_steps": 1000, "evaluate_every_steps": 1000}
    return {
        "model": {},
        "steps": 100000,
        "max_tokens": 3584,
        "accumulate": 8,
        "schedule": _schedule(5e-4, 4000),
    } | every


def _small_run(tiny):
    sizes = {"layers": 1 if tiny else 4, "attention_heads": 4, "ffn_dim": 256}
    model = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    return {
        "model": {"d_model": 128, "dropout": 0.1} | model,
        "steps": 30 if tiny else 8000,
        "max_tokens": 1024 if tiny else 4096,
        "max_length": 128,
        "schedule": _schedule(5e-3, 10 if tiny else 2000),
        "evaluate_every_steps": 30 if tiny else 1000,
        "checkpoint_every_steps": 6 if tiny else 250,
    }


def _schedule(rate, warmup_steps):
    return {"kind": "inverse_sqrt", "learning_rate": rate, "warmup_steps": warmup_steps, "initial_rate": 1e-7}


def run(context, settings):
    sources, references = (_lines(context.data / file) for file in settings["test"])
    if len(sources) != len(references):  # before training, not after it
        raise ValueError(
            f"[translation] both files of the test set must have a line for each pair, got {len(sources)} lines in "
            f"{settings['test'][0]} and {len(references)} in {settings['test'][1]}"
        )
    _make_tokenizer(context, settings)
    rates, scores = {}, {}
    for arm in settings["encodings"]:
        rates[arm] = None
        if settings["search"] is not None:
            rates[arm], *tried = search_rate(
                settings["search"], lambda rate, arm=arm: _short(context, settings, arm, rate)
            )
            yield from rows_of_search(arm, *tried)
    for arm, rate in rates.items():
        for seed in settings["seeds"]:
            directory = context.path("runs", "translation", arm, f"seed-{seed}")
            context.note(f"translation, {arm}, seed {seed}")
            made = _trained(context, settings, arm, rate, seed, directory)
            about = {"seed": seed, "made": made}
            yield row(HELD_OUT, arm, made["outcome"]["loss"], **about)
            counts = bleu_counts(made["outcome"]["translations"], references)
            scores.setdefault(arm, []).append(counts)
            yield row(BLEU, arm, bleu(counts.sum(0)), learning_rate=rate, **about)
            yield row(ABOVE_FLOOR, arm, bleu(counts.sum(0)) - settings["floor"], **about)
            curve = [(line["step"], line["loss"]) for line in metrics(directory, "train")]
            yield from (row(CURVE, arm, loss, step=step, **about) for step, loss in thinned(curve))
    # What the choice of test sentences can change, compared with what seeds change.
    ends = bootstrap(scores["rope"], scores["sinusoidal"], settings["draws"], settings["seeds"][0])
    for name, value in zip(("low", "high"), ends, strict=True):
        yield row(f"BLEU, paired bootstrap over lines: {name}", "rope less sinusoidal", value)


def _lines(path):
    return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")


def _tokenizer(context):
    return context.path("corpus", "translation", "tokenizer")


def _make_tokenizer(context, settings):
    """Makes the vocabulary of both languages, once for the same files."""
    made_of = {"files": identity_of(context.data, settings["train"]), "size": settings["vocabulary"]}
    inputs = [context.data / file for file in settings["train"]]
    options = {"byte_pairs": True, "format": "text", "size": settings["vocabulary"]}

    def make():
        _tokenizer(context).parent.mkdir(parents=True, exist_ok=True)
        context.roformer("vocab", input=inputs, output=_tokenizer(context), **options)

    context.kept(context.path("corpus", "translation", "made_of.json"), made_of, make)


def _short(context, settings, arm, rate):
    """The held-out loss of a short run."""
    context.note(f"translation, {arm}: a short run at the rate {rate:g}")
    directory = context.path("runs", "translation-rates", f"{rate:g}", arm)
    search = settings["search"]
    loss = _trained(context, settings, arm, rate, search["seed"], directory, search["steps"])["outcome"]["loss"]
    return math.inf if loss is None else loss


def _trained(context, settings, arm, rate, seed, directory, short_steps=None):
    """The record of a run that is trained; its outcome has the held-out loss, and of a whole run the translations."""
    run = settings["run"] | {"model": settings["run"]["model"] | {"position_encoding": settings["encodings"][arm]}}
    if rate is not None:
        run["schedule"] = run["schedule"] | {"learning_rate": rate}
    if short_steps is not None:
        run["steps"] = short_steps
    made_of = {"run": run, "seed": seed, "data": identity_of(context.data, settings["files"])}
    with context.recorded(directory, made_of) as record:
        if not record["finished"]:
            config = Path(f"{directory}.run.json")
            write_json(config, run)
            texts = {part: [context.data / file for file in settings[part]] for part in ("train", "valid")}
            where = {"config": config, "tokenizer": _tokenizer(context), "output": directory}
            *_, last = context.roformer("train-translation", seed=seed, **where, **texts)
            record["outcome"] = {"loss": last.get("valid_loss")}
            if short_steps is None:
                record["outcome"]["translations"] = _translated(context, settings, directory)
    return record


def _translated(context, settings, directory):
    """The translations of the test set by the mean of the last checkpoints."""
    averaged, output = directory / "averaged", directory / "test.txt"
    if not averaged.exists():
        context.roformer("average", run=directory, last=settings["averaged"], output=averaged)
    given = context.data / settings["test"][0]
    context.roformer("translate", model=averaged, input=given, output=output, **settings["translate"])
    return _lines(output)


def bleu_counts(translations, references):
    """What BLEU needs of each line, int64 [lines, 10]: correct n-grams, n-grams, words, words of the reference."""
    from sacrebleu.metrics import BLEU as Metric

    metric, counts = Metric(effective_order=True), []
    for translation, reference in zip(translations, references, strict=True):
        line = metric.sentence_score(translation, [reference])
        counts.append([*line.counts, *line.totals, line.sys_len, line.ref_len])
    return np.array(counts, dtype=np.int64)


def bleu(counts):
    """sacreBLEU's score of the sums of bleu_counts."""
    from sacrebleu.metrics import BLEU as Metric

    correct, total, words, reference_words = counts[:4].tolist(), counts[4:8].tolist(), int(counts[8]), int(counts[9])
    return Metric.compute_bleu(correct, total, words, reference_words, smooth_method="exp").score


def bootstrap(own, other, draws, seed):
    """The interval with 95 % of the differences of mean BLEU when the lines of a test set are drawn with replacement,
    the same for all systems (Koehn 2004). own, other: the bleu_counts of systems."""
    random, lines = np.random.default_rng(seed), len(own[0])
    differences = []
    for _ in range(draws):
        drawn = random.integers(lines, size=lines)
        means = [np.mean([bleu(counts[drawn].sum(0)) for counts in side]) for side in (own, other)]
        differences.append(means[0] - means[1])
    return np.quantile(differences, [0.025, 0.975])


EXPERIMENTS = [
    Experiment(
        "translation",
        "Translation with sinusoids and with RoPE (Table 1)",
        run,
        settings,
        hours=8.0,
        exceptions=(
            "BLEU is sacreBLEU's, of texts as they are written; the paper's is of tokenized texts",
            "a step has eight micro-batches in place of eight processes",
        ),
    )
]
