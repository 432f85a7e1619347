"""Parts of X-03's models.

word-position (X-15, C-11): the four terms of Eq. 6 in the first layer of models with a learned table. trained-scores
(X-02, C-04): scores by distance in models with RoPE, and scores of the same queries and keys at permuted positions.
"""

import math

from . import corpus
from .figure3_convergence import convergence_design
from .language_models import rows_of_runs, settings_of, train
from .run import Experiment, row

MIDDLE_TERMS = "spread of the middle terms, of that of the first"
TERMS = ("word to word", "word to position", "position to word", "position to position")
NEAR_LESS_FAR = "score of near pairs less far ones, of its spread"
MEAN_SCORE, ATTENTION = "mean score by distance", "mean attention by position of the key from the query"


def _settings(scale, arm, **more):
    reading = {"rows": 4 if scale == "tiny" else 32, "tokens": 128} | more
    return settings_of(convergence_design(scale), arm=arm, reading=reading)


def word_settings(scale):
    return _settings(scale, "learned")


def score_settings(scale):
    # Distances, both ends included; reach is that of the picture of attention, to either side.
    return _settings(scale, "rope", near=[1, 8], far=[64, 127], reach=32)


def _trained(context, settings, name, read):
    """The rows of the runs without an encoding and of the arm, and the arm's runs with their readings."""
    design, reading = settings["designs"]["convergence"], settings["reading"]
    none, rates = train(context, design, ["none"])
    runs, of_arm = train(
        context, design, [settings["arm"]], (name, reading, lambda run, data: read(run, data, **reading))
    )
    return [*rates, *of_arm, *rows_of_runs([*none, *runs])], [run for run in runs if not run.diverged]


def run_words(context, settings):
    rows, runs = _trained(context, settings, "words", read_words)
    yield from rows
    for run in runs:
        about = {"seed": run.seed, "made": run.record}
        for term, spread in zip(TERMS, run.reading, strict=True):
            yield row(f"spread of the term {term}", run.arm, spread, **about)
        yield row(MIDDLE_TERMS, run.arm, max(run.reading[1:3]) / run.reading[0], **about)


def read_words(run, data, rows, tokens):
    """The standard deviations of the four terms over all pairs of tokens and all rows, means over heads."""
    import torch

    import roformer_cpp

    from .layer_parts import input_parts, projected

    model = roformer_cpp.load_model(run.directory, "RfEncoderForMaskedLM", dtype="float64")
    with torch.no_grad():
        content, position = input_parts(model, corpus.held_out_rows(data, rows, tokens))
        sides = projected(model, 0, content), projected(model, 0, position, with_bias=False)
        return [_spreads(query @ key.mT).mean().item() for query, _ in sides for _, key in sides]


def _spreads(scores_BHTT):
    """The standard deviation of each head."""
    return scores_BHTT.transpose(0, 1).flatten(1).std(1, correction=0)


def run_scores(context, settings):
    rows, runs = _trained(context, settings, "scores", read_scores)
    yield from rows
    for run in runs:
        about = {"seed": run.seed, "made": run.record}
        yield row(NEAR_LESS_FAR, "rope", run.reading["near less far"], **about)
        yield row(NEAR_LESS_FAR, "positions permuted", run.reading["permuted"], **about)
        for distance, score in enumerate(run.reading["mean by distance"]):
            yield row(MEAN_SCORE, "rope", score, step=distance, **about)
        for head, by_offset in (
            run.reading["attention"].items() if run is runs[0] else ()
        ):  # maps of one model are enough
            for offset, weight in enumerate(by_offset, -settings["reading"]["reach"]):
                yield row(ATTENTION, head, weight, step=offset, **about)


def read_scores(run, data, rows, tokens, near, far, reach):
    import torch

    import roformer_cpp

    from .layer_parts import layer_inputs, projected

    model = roformer_cpp.load_model(run.directory, "RfEncoderForMaskedLM", dtype="float64")
    positions = torch.arange(tokens)
    with torch.no_grad():
        inputs = layer_inputs(model, corpus.held_out_rows(data, rows, tokens))
        torch.manual_seed(run.seed)

        def scores(positions):
            for layer, x_BTC in enumerate(inputs):
                query, key = (
                    roformer_cpp.rope(x, positions, layout="pairs", heads_first=True)
                    for x in projected(model, layer, x_BTC)
                )
                yield query @ key.mT / math.sqrt(query.shape[-1])

        layers, permuted = list(scores(positions)), list(scores(torch.randperm(tokens)))
        attention = {}
        for layer, scores_BHTT in enumerate(layers, 1):
            weights_HTT = scores_BHTT.softmax(-1).mean(0)
            for head, weights_TT in enumerate(weights_HTT, 1):
                means = [weights_TT.diagonal(offset).mean().item() for offset in range(-reach, reach + 1)]
                attention[f"layer {layer}, head {head}"] = means
        mean_TT = torch.stack([scores_BHTT.mean((0, 1)) for scores_BHTT in layers]).mean(0)
        distance_TT = (positions[:, None] - positions).abs()
        by_distance = [mean_TT[distance_TT == distance].mean().item() for distance in positions]
        found = {"mean by distance": by_distance, "attention": attention}
        near_less_far = {"near less far": layers, "permuted": permuted}
        return found | {key: _near_less_far(of, distance_TT, near, far) for key, of in near_less_far.items()}


def _near_less_far(layers, distance_TT, near, far):
    """The mean score of near pairs less that of far ones, by the standard deviation of the head's scores: mean over
    heads and layers."""
    import torch

    def mean(scores_BHTT, ends):
        return scores_BHTT[:, :, (distance_TT >= ends[0]) & (distance_TT <= ends[1])].mean((0, 2))

    return (
        torch.stack([((mean(each, near) - mean(each, far)) / _spreads(each)).mean() for each in layers]).mean().item()
    )


EXPERIMENTS = [
    Experiment(
        "word-position", "Do words and absolute positions have to do with each other?", run_words, word_settings
    ),
    Experiment("trained-scores", "Do scores decay with distance? A trained model", run_scores, score_settings),
]
