"""The learning rate of an arm: short runs with several rates, and then whole ones, since short runs favour high rates.

A search is a dict: `rates`, rising by one factor; `steps` of the short runs; `seed` of the short runs, which no other
run has; `beyond`: while the best rate is the lowest or highest, the next rate beyond is tried, at most this many times;
`lower`, 0: short runs decide; else whole runs follow, from the highest rate whose short loss is within `tie` of the
best to lower rates while the loss falls, at most this many below the best short rate.
"""

import math

from . import judge
from .run import row


def rate_search(scale, small_steps, tiny_lower=0):
    """The search of language models; None at scale paper, which has published rates."""
    if scale == "paper":
        return None
    tiny = scale == "tiny"
    beyond, lower = (0, tiny_lower) if tiny else (2, 3)
    rates = {"rates": [3e-4, 1e-3, 3e-3], "steps": 4 if tiny else small_steps}
    return rates | {"seed": 1000, "beyond": beyond, "lower": lower, "tie": 0.05}


def best_of(losses):
    """The rate of the lowest loss, of equal ones the lowest rate."""
    return min(sorted(losses), key=losses.__getitem__)


def search_rate(search, short_run, whole_run=None):
    """The chosen rate, and the losses by rate of the short runs and of the whole ones. The runs are functions of a rate
    that return a loss; infinite: the run has diverged."""
    factor = search["rates"][1] / search["rates"][0] if len(search["rates"]) > 1 else 1
    short = _try_short(search, factor, short_run)
    whole = _try_whole(search, factor, whole_run, short) if search["lower"] else {}
    return best_of(whole or short), short, whole


def _try_short(search, factor, run):
    losses, to_try = {}, search["rates"]
    for beyond in range(search["beyond"] + 1):
        losses |= {rate: run(rate) for rate in to_try}
        best = best_of(losses)
        if factor == 1 or beyond == search["beyond"] or min(losses) < best < max(losses):
            break
        to_try = [best / factor if best == min(losses) else best * factor]
    return losses


def _try_whole(search, factor, run, short):
    best = best_of(short)
    rate = max(rate for rate, loss in short.items() if loss <= short[best] + search["tie"])
    losses, below = {}, 0
    while below <= search["lower"]:
        losses[rate] = run(rate)
        if math.isfinite(losses[rate]) and best_of(losses) != rate:
            break  # worse than the one before
        rate = max((tried for tried in short if tried < rate), default=rate / factor)
        below += rate < best
    return losses


def rows_of_search(arm, short, whole):
    """The rows by which judge.why_not_tuned decides."""
    for measure, losses in ((judge.SHORT_RUN, short), (judge.WHOLE_RUN, whole)):
        for rate in sorted(losses):
            yield row(measure, arm, losses[rate], learning_rate=rate)
