"""Small pictures of one encoding each, as SVG in the colours of the page (classes of atlas.py's style)."""

import math
from dataclasses import dataclass
from html import escape
from statistics import fmean

from . import words

_WIDTH, _HEIGHT = 220, 110
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 206, 8, 92
_BAR, _GAP = 8, 3
_EQUAL_GUESSES = math.log(256)  # the loss of guessing all bytes alike


@dataclass(frozen=True)
class OfSeeds:
    """The values of one arm, one for each seed."""

    values: tuple

    @property
    def mean(self):
        return fmean(self.values)

    @property
    def ends(self):
        """(lowest, highest) where there are several seeds, () otherwise."""
        return (min(self.values), max(self.values)) if len(self.values) > 1 else ()

    def text(self, form):
        """The mean and, in brackets, the ends."""
        ends = f" ({' to '.join(map(form, self.ends))})" if self.ends else ""
        return form(self.mean) + ends


@dataclass(frozen=True)
class Reach:
    """What the axes of all pictures of losses hold."""

    lengths: tuple  # rising
    low: float
    high: float
    is_clipped: bool = False  # whether there are losses above ln 256, where the axis ends

    @staticmethod
    def of(losses_of_all):
        values = [loss for losses in losses_of_all for of_seeds in losses.values() for loss in of_seeds.values]
        lengths = tuple(sorted({length for losses in losses_of_all for length in losses}))
        low, high = min(values, default=0.0), max(values, default=1.0)
        is_clipped = low < _EQUAL_GUESSES < high
        return Reach(lengths, low, _EQUAL_GUESSES if is_clipped else high, is_clipped)

    def x(self, length):
        """By its logarithm."""
        if len(self.lengths) < 2:
            return (_LEFT + _RIGHT) / 2
        first, last = math.log(self.lengths[0]), math.log(self.lengths[-1])
        return _LEFT + (_RIGHT - _LEFT) * (math.log(length) - first) / (last - first)

    def y(self, loss):
        span = self.high - self.low
        return _BOTTOM - (_BOTTOM - _TOP) * ((min(loss, self.high) - self.low) / span if span > 0 else 0.5)


def _svg(label, height, inside):
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {height}" '
        f'xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def loss_by_length(name, losses, reach):
    """A line through the means of one encoding, and the ranges of its seeds; `reach` has the axes."""
    points = [(reach.x(length), of_seeds) for length, of_seeds in sorted(losses.items())]
    line = " ".join(f"{x:.1f},{reach.y(of_seeds.mean):.1f}" for x, of_seeds in points)
    inside = f'<path class="axis" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}" fill="none"/>'
    inside += f'<polyline class="mine" points="{line}"/>'
    for x, of_seeds in points:
        if of_seeds.ends:
            low, high = map(reach.y, of_seeds.ends)
            inside += f'<path class="range" d="M{x:.1f} {low:.1f}V{high:.1f}"/>'
        inside += _mark(x, reach.y(of_seeds.mean), reach.is_clipped and of_seeds.mean > reach.high)
    inside += "".join(
        f'<text x="{reach.x(length):.1f}" y="{_BOTTOM + 13}" text-anchor="middle">{length}</text>'
        for length in reach.lengths
    )
    for loss in dict.fromkeys((reach.low, reach.high)):
        text = "ln 256" if reach.is_clipped and loss == reach.high else words.number(loss)
        inside += f'<text x="{_LEFT - 4}" y="{reach.y(loss) + 3:.1f}" text-anchor="end">{text}</text>'
    said = ", ".join(f"{of_seeds.text(words.number)} at {length}" for length, of_seeds in sorted(losses.items()))
    return _svg(f"{name}: loss, nats per byte, {said}", _HEIGHT, inside)


def _mark(x, y, is_beyond):
    """A dot, or a triangle for a loss beyond the end of the axis."""
    if is_beyond:
        return f'<path class="dot" d="M{x - 4:.1f} {y + 4:.1f}H{x + 4:.1f}L{x:.1f} {y - 4:.1f}Z"/>'
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'


def accuracy_bars(name, accuracies):
    """A group of bars for each task, one for each length, with the ranges of the seeds."""
    inside, y, said = "", 2, []
    full = _RIGHT - _LEFT
    for task, by_length in accuracies.items():
        y += 11
        inside += f'<text x="{_LEFT}" y="{y - 2}">{escape(task)}</text>'
        for length, of_seeds in sorted(by_length.items()):
            inside += f'<text x="{_LEFT - 4}" y="{y + _BAR - 1}" text-anchor="end">{length}</text>'
            inside += f'<rect class="track" x="{_LEFT}" y="{y}" width="{full}" height="{_BAR}"/>'
            inside += f'<rect class="bar" x="{_LEFT}" y="{y}" width="{full * of_seeds.mean:.1f}" height="{_BAR}"/>'
            if of_seeds.ends:
                low, high = (_LEFT + full * accuracy for accuracy in of_seeds.ends)
                inside += f'<path class="range" d="M{low:.1f} {y + _BAR / 2:g}H{high:.1f}"/>'
            y += _BAR + _GAP
            said.append(f"{task} {of_seeds.text(words.percent)} % at {length}")
    return _svg(f"{name}: {', '.join(said)}", y + 4, inside)
