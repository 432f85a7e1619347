"""How an experiment's models were trained, in words, from the settings and records of its result."""

from . import words
from .results import Table


def about(found, result):
    """Sentences on an experiment: its models, and what a reader has to know."""
    note = found.experiments.get(result.name, {}).get("note", "")
    return [text for text in (models(result), note) if text]


def models(result, of="tokens"):
    """Sentences on the models and their training; "" where the settings do not say it. `of`: what rows hold."""
    texts = {}  # by sentence: the names of the designs
    try:
        for name, run in _runs(result.settings):
            text = _translation(run) if "d_model" in run["model"] else _language_models(run, of)
            texts.setdefault(text, []).append(name)
        sentences = [f"{', '.join(names)}: {text}" if len(texts) > 1 else text for text, names in texts.items()]
        is_of_bytes = {corpus.get("tokens") for corpus in _corpora(result.settings)} == {"bytes"}
        sentences += ["A token is a byte."] if of == "tokens" and is_of_bytes else []
        sentences += [_tuning(result.settings["tuning"])] if "tuning" in result.settings else []
    except (KeyError, TypeError, ValueError):
        return ""
    return " ".join(sentences)


def rule_lines(result, claim):
    """[(text, role, found, p, outcome)] of the claim's rule, as it was judged: found is the mean with its interval, of
    a learning rate what was tried; p is corrected for several parts."""
    lines = []
    for check in result.checks.get(claim, []):
        found = _rates(result, check["tuned"]) if "tuned" in check else _interval(check)
        p = check.get("p_holm")
        lines.append((check["text"], check["role"], found, "" if p is None else f"{p:.2g}", check["outcome"]))
    return lines


def rule_values(result):
    """A Table of the values that the rules compare: a row for each arm and measure, a column for each seed; None where
    the result has none."""
    units = {check["text"]: check.get("unit", "") for checks in result.checks.values() for check in checks}
    compared = {}  # by arm and measure: the unit
    for rule in result.rules.values():
        for kind in ("preconditions", "parts"):
            for contrast, text in zip(rule.get(kind, []), rule.get("texts", {}).get(kind, []), strict=False):
                for arm in filter(None, (contrast.get("arm"), contrast.get("against"))):
                    compared.setdefault((arm, contrast.get("measure")), units.get(text, ""))
    rows = []
    for (arm, name), unit in compared.items():
        by_seed = {each.seed: each.value for each in result.measures if (each.arm, each.name) == (arm, name)}
        values = [words.scaled(by_seed.get(seed), 100 if unit else None) for seed in result.seeds]
        if by_seed:
            rows.append([arm, f"{name.removesuffix(', fraction')}, %" if unit else name, *values])
    return Table(["arm", "what", *(f"seed {seed}" for seed in result.seeds)], rows) if rows else None


def _interval(check):
    """In the unit of the check's text; "" without a mean."""
    if check.get("mean") is None:
        return ""
    unit = check.get("unit", "")
    factor = 100 if unit else None
    mean, low, high = (words.number(words.scaled(check.get(key), factor)) for key in ("mean", "low", "high"))
    return (f"{mean} [{low}, {high}]" if "low" in check else mean) + (f" {unit}" if unit else "")


def _rates(result, arm):
    """The learning rate that was chosen for an arm, and what was tried; "" where the result lacks it."""
    tried = next((each for each in result.rates if each.arm == arm), None)
    if tried is None:
        return ""
    # Those of tasks are kept as losses: the metric, negated.
    sign = -1 if "tuning" in result.settings or result.name == "similar-texts" else 1
    found = _found(tried.rates, tried.losses, sign)
    if not tried.whole_rates:
        return f"{words.number(tried.chosen)}; tried: {found}"
    whole = _found(tried.whole_rates, tried.whole_losses, sign)
    return f"{words.number(tried.chosen)}; short runs: {found}; whole runs: {whole}"


def command(result):
    """The command that makes the result."""
    scale = [] if result.scale == words.NO_SCALE else ["--scale", result.scale]
    data = ["--data", "data"] if result.settings.get("files") else []
    threads = {part.get("threads") for run in result.training for part in run.get("parts", [])}
    if result.kind == "measurement":
        threads.add(result.machine.get("threads"))
    threads = [f"--threads {n}" for n in threads if n] if len(threads) == 1 else []
    return " ".join(["roformer reproduce", result.name, *scale, "--output reproduced", *data, *threads])


def _runs(settings, name=""):
    """(name of its design, run file) of each run file in the settings."""
    if not isinstance(settings, dict):
        return
    if isinstance(settings.get("model"), dict):
        yield name, settings
        return
    for key, value in settings.items():
        yield from _runs(value, name if key in ("design", "designs", "run", "run_files") else key)


def _corpora(settings):
    """Each corpus in the settings."""
    if not isinstance(settings, dict):
        return
    if isinstance(settings.get("corpus"), dict):
        yield settings["corpus"]
    for value in settings.values():
        yield from _corpora(value)


def _language_models(run, of):
    model, stages = run["model"], run["stages"]
    kind = "Causal models" if run["objective"] == "causal" else "Encoders"
    text = (
        f"{kind} of {model['num_hidden_layers']} layers of {model['hidden_size']} with "
        f"{model['num_attention_heads']} heads, trained for {sum(stage['steps'] for stage in stages):,} steps"
    )
    if len(stages) == 1:
        text += f" of {stages[0]['batch']} rows of {stages[0]['max_length']} {of}"
    else:
        lengths = [stage["max_length"] for stage in stages]
        text += f" in {len(stages)} stages, of rows of {min(lengths)} to {max(lengths)} {of}"
    schedule = run["schedule"]
    text += f"; learning rate {schedule['kind']}"
    text += f" after {schedule['warmup_steps']:,} steps of warm-up." if schedule["warmup_steps"] else "."
    batches = run["evaluate_batches"]
    return text + (f" The held-out loss is that of the first {batches} batches of held-out text." if batches else "")


def _translation(run):
    model = run["model"]
    return (
        f"Encoder-decoders of {model['encoder_layers']} + {model['decoder_layers']} layers of {model['d_model']} with "
        f"{model['encoder_attention_heads']} heads, trained for {run['steps']:,} steps of batches of up to "
        f"{run['max_tokens']:,} tokens."
    )


def _tuning(tuning):
    tried = ", ".join(map(words.number, tuning["learning_rates"]))
    epochs = f"{tuning['epochs']} epoch{'s' * (tuning['epochs'] != 1)}"
    return f"Tuned for {epochs} in batches of {tuning['batch']}, with the learning rates {tried}."


def _found(rates, losses, sign):
    """As 0.001 5.5, 0.003 5.6."""
    return ", ".join(
        f"{words.number(rate)} {'diverged' if loss is None else words.number(sign * loss)}"
        for rate, loss in zip(rates, losses, strict=True)
    )
