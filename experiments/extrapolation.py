"""X-06 (C-23): causal models of bytes that are trained on one length, and the same last tokens read after longer
contexts; with RoPE also extended in four ways, as keys of config.json.

The rows that are read here do not begin with [CLS], as rows of training do. A model without an encoding may find
positions by it, so its losses here differ from the losses that the precondition compares; no rule reads them.
"""

import json
import shutil

from . import corpus
from .language_models import byte_run, design, rows_of_runs, settings_of, train
from .rate_search import rate_search
from .run import Experiment, row, seeds_of

AT_TWICE = "loss of the last tokens at twice the length less that at it, nats per token"
LAST, BY_POSITION = "loss of the last tokens after {} tokens, nats per token", "loss by position, nats per token"


def _scaled(kind, factor, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, "factor": factor, **more}}


EXTENSIONS = {  # keys for a context of `factor` times the training length; ReRoPE's window is half of that length
    "rope, interpolated": ("linear", lambda factor, _: _scaled("linear", factor)),
    "rope, NTK": ("ntk", lambda factor, _: _scaled("ntk", factor)),
    "rope, YaRN": ("yarn", lambda factor, length: _scaled("yarn", factor, original_max_position_embeddings=length)),
    "rope, ReRoPE": ("rerope", lambda _, length: {"position_encoding": {"type": "rerope", "window": length // 2}}),
}


def settings(scale):
    run = byte_run(scale, "softmax", 128, 32) | {"evaluate_batches": 0}  # all
    arms, factors = ["none", "learned", "alibi", "xpos", "rope"], [1, 2, 4, 8]
    of_corpus, search = corpus.wikipedia(scale), rate_search(scale, 500)
    of_design = design("extrapolation", of_corpus, seeds_of(scale), arms, run, lengths=factors, search=search)
    reading = {"rows": 2 if scale == "tiny" else 128, "window": 32, "last": 64, "factors": factors}
    return settings_of(of_design, reading=reading)


def run(context, settings):
    of_design, reading = settings["designs"]["extrapolation"], settings["reading"]
    length = of_design["run"]["stages"][-1]["max_length"]

    def read(run, data):
        return read_lengths(run, data, length, **reading)

    runs, rates = train(context, of_design, read=("extrapolation", reading, read))
    yield from rates
    yield from rows_of_runs(runs)
    for run in runs:
        if run.diverged:
            continue
        about = {"seed": run.seed, "made": run.record}
        last = run.reading["last"]
        for arm, by_factor in last.items():
            for factor, loss in by_factor.items():
                yield row(LAST.format(int(factor) * length), arm, loss, **about)
            if "2" in by_factor:
                yield row(AT_TWICE, arm, by_factor["2"] - last[run.arm]["1"], **about)
        for position, loss in run.reading["by position"]:
            yield row(BY_POSITION, run.arm, loss, step=position, **about)


def read_lengths(run, data, length, rows, window, last, factors):
    """`last`, the loss of the last tokens by arm or extension and by factor, and `by position`, pairs of a position and
    the loss, mean over rows and a window of positions."""
    ids_BT = corpus.held_out_rows(data, rows, factors[-1] * length)
    found = {}
    for factor, loss in zip(factors, run.losses, strict=True):
        if loss is not None:  # else beyond a learned table
            found.setdefault(run.arm, {})[str(factor)] = loss_of_last(run.directory, ids_BT, factor * length, last)
        if run.arm == "rope" and factor > 1:
            for name, (folder, keys) in EXTENSIONS.items():
                model = extended(run.directory, f"{folder}-{factor}", keys(factor, length))
                found.setdefault(name, {})[str(factor)] = loss_of_last(model, ids_BT, factor * length, last)
    readable = factors[-1] * length if run.losses[-1] is not None else length
    return {"last": found, "by position": loss_by_position(run.directory, ids_BT[:, :readable], window)}


def extended(directory, name, keys):
    """A copy of a model with other keys of config.json."""
    copy = directory / name
    copy.mkdir(exist_ok=True)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8")) | keys
    for key in ("model_type", "architectures", "rotary_value"):  # transformers' RoFormer lacks these keys
        config.pop(key, None)
    (copy / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for path in directory.iterdir():
        if path.is_file() and path.name != "config.json":
            shutil.copyfile(path, copy / path.name)
    return copy


def loss_of_last(directory, ids_BT, context, last):
    """The mean loss of the `last` tokens of rows when the model reads the `context` tokens before the end: the same
    tokens are scored for every context."""
    import torch

    import roformer_cpp

    model = roformer_cpp.load_model(directory, "RfEncoderForCausalLM")
    total = 0.0
    with torch.no_grad():
        for row_BT in ids_BT[:, -context:].split(8):
            logits_BTV = model(row_BT)["logits"][:, context - last - 1 : context - 1].double()
            targets_BT = row_BT[:, context - last :]
            total += torch.nn.functional.cross_entropy(logits_BTV.mT, targets_BT, reduction="sum").item()
    return total / (len(ids_BT) * last)


def loss_by_position(directory, ids_BT, window):
    import torch

    import roformer_cpp

    model = roformer_cpp.load_model(directory, "RfEncoderForCausalLM")
    with torch.no_grad():
        logits_BTV = model(ids_BT)["logits"][:, :-1]
        losses_T = torch.nn.functional.cross_entropy(logits_BTV.mT, ids_BT[:, 1:], reduction="none").mean(0)
    ends = [(begin, min(begin + window, len(losses_T))) for begin in range(0, len(losses_T), window)]
    return [((begin + 1 + end) / 2, losses_T[begin:end].mean().item()) for begin, end in ends]


EXPERIMENTS = [
    Experiment(
        "extrapolation",
        "Does RoPE read texts longer than those it was trained on?",
        run,
        settings,
        shares_arms=True,
        hours=1.6,
        exceptions=(
            "the claim's source names no hyperparameters; the body and the schedule are those of linear-language-model",
        ),
    )
]
