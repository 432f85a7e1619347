"""Units of the columns of results' tables, and the factors from values in files to those that are shown: fractions
are shown in per cent, as the papers print them, and losses in nats."""

import math

# Columns by name, and how they are headed. Those of "lowest" and "highest" follow the one before them.
_UNITS = {
    "held-out loss": "nats per token",
    "late training loss": "nats per token, the mean of the last two thirds of the steps",
    "loss": "nats per token",
    "smallest denominator by keys": "the mean weight of a key",
    "error, independent": "of the exact output",
    "error, orthogonal": "of the exact output",
    "for a character": "nats per character",
    "loss of the last tokens, nats per token": "",
    "peak MiB": "",
    "largest difference": "of the largest output",
    "largest change": "of it",
    "trained on": "tokens",
    "measured on": "tokens",
    "tokens": "",
}
# Columns that are none of these in an experiment: its "measured on" are parts of a data set.
_NO_UNITS = {("fine-tuning", "measured on")}
# Columns of fractions, by experiment.
_FRACTIONS = {
    "synthetic": {"accuracy at 64 tokens", "accuracy at 128 tokens", "accuracy at 256 tokens"},
    "staged-pretraining": {"accuracy", "of the same tokens"},
    "chinese-models": {"accuracy", "baseline", "bag of words", "training records"},
    "long-texts": {"accuracy", "bag of words", "on SCM", "training records"},
    "fine-tuning": {"mean", "baseline", "bag of words", "training records"},
}
# Columns of rank correlations, by experiment.
_CORRELATIONS = {
    "real-weights": {"training records", "dev", "test", "baseline", "bag of words"},
    "similar-texts": {"dev", "test"},
}
# Columns in another unit than the rules', by name: what is shown, and the factor.
_OTHER_UNITS = {"held-out bits per byte": ("held-out loss, nats per token", math.log(2))}


def factors(experiment, columns):
    """By the indices of columns: those with another unit than in the file, and the ranges that follow them."""
    found, factor = {}, None
    for i, name in enumerate(columns):
        if name not in ("lowest", "highest"):
            factor = 100.0 if name in _FRACTIONS.get(experiment, ()) else _OTHER_UNITS.get(name, ("", None))[1]
        if factor is not None:
            found[i] = factor
    return found


def headings(experiment, columns):
    """The names of columns with their units."""
    shown = factors(experiment, columns)
    return [_heading(experiment, name, shown.get(i) == 100) for i, name in enumerate(columns)]


def _heading(experiment, name, is_percent):
    if is_percent:
        return f"{name}, %"
    if name in _OTHER_UNITS:
        return _OTHER_UNITS[name][0]
    if name in _CORRELATIONS.get(experiment, ()):
        return f"{name}, rank correlation"
    unit = "" if (experiment, name) in _NO_UNITS else _UNITS.get(name, "")
    return f"{name}, {unit}" if unit else name
