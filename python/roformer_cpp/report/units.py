"""Units of the columns of results' tables. Fractions are shown in per cent, as the papers print them."""

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
    "real-weights": {"training records", "dev", "test", "baseline", "bag of words"},
    "similar-texts": {"dev", "test"},
}
# What all fractions of an experiment are, where no column says it.
_METRICS = {"real-weights": "rank correlation", "similar-texts": "rank correlation"}


def percent_columns(experiment, columns):
    """The indices of columns that hold fractions, with the ranges that follow them."""
    fractions, found, inside = _FRACTIONS.get(experiment, set()), [], False
    for i, name in enumerate(columns):
        inside = name in fractions or (inside and name in ("lowest", "highest"))
        if inside:
            found.append(i)
    return found


def headings(experiment, columns):
    """The names of columns with their units."""
    percent = percent_columns(experiment, columns)
    return [_heading(experiment, name, i in percent) for i, name in enumerate(columns)]


def _heading(experiment, name, is_percent):
    if is_percent:
        metric = _METRICS.get(experiment)
        return f"{name}, {metric}, %" if metric else f"{name}, %"
    unit = "" if (experiment, name) in _NO_UNITS else _UNITS.get(name, "")
    return f"{name}, {unit}" if unit else name
