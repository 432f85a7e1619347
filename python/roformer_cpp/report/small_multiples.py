"""Small pictures of one encoding each, as SVG in the colours of the page (classes of atlas.py's style)."""

import math
from dataclasses import dataclass
from html import escape

from . import words

_WIDTH, _HEIGHT = 220, 110
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 206, 8, 92
_BAR, _GAP = 8, 3


@dataclass(frozen=True)
class Reach:
    """What the axes of all pictures of losses hold."""

    lengths: tuple  # rising
    low: float
    high: float

    @staticmethod
    def of(losses_of_all):
        values = [loss for losses in losses_of_all for loss in losses.values()]
        lengths = tuple(sorted({length for losses in losses_of_all for length in losses}))
        return Reach(lengths, min(values, default=0.0), max(values, default=1.0))

    def x(self, length):
        """By its logarithm."""
        if len(self.lengths) < 2:
            return (_LEFT + _RIGHT) / 2
        first, last = math.log(self.lengths[0]), math.log(self.lengths[-1])
        return _LEFT + (_RIGHT - _LEFT) * (math.log(length) - first) / (last - first)

    def y(self, loss):
        span = self.high - self.low
        return _BOTTOM - (_BOTTOM - _TOP) * ((loss - self.low) / span if span > 0 else 0.5)


def _svg(label, height, inside):
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {height}" '
        f'xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def loss_by_length(name, losses, reach):
    """A line through the losses of one encoding; `reach` has the axes."""
    points = [(reach.x(length), reach.y(losses[length])) for length in sorted(losses)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    inside = f'<path class="axis" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}" fill="none"/>'
    inside += f'<polyline class="mine" points="{line}"/>'
    inside += "".join(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    inside += "".join(
        f'<text x="{reach.x(length):.1f}" y="{_BOTTOM + 13}" text-anchor="middle">{length}</text>'
        for length in reach.lengths
    )
    for loss in dict.fromkeys((reach.low, reach.high)):
        inside += f'<text x="{_LEFT - 4}" y="{reach.y(loss) + 3:.1f}" text-anchor="end">{words.number(loss)}</text>'
    said = ", ".join(f"{words.number(losses[length])} at {length}" for length in sorted(losses))
    return _svg(f"{name}: loss, nats per byte, {said}", _HEIGHT, inside)


def accuracy_bars(name, accuracies):
    """A group of bars for each task, one for each length."""
    inside, y, said = "", 2, []
    for task, by_length in accuracies.items():
        y += 11
        inside += f'<text x="{_LEFT}" y="{y - 2}">{escape(task)}</text>'
        for length in sorted(by_length):
            width, full = (_RIGHT - _LEFT) * by_length[length], _RIGHT - _LEFT
            inside += f'<text x="{_LEFT - 4}" y="{y + _BAR - 1}" text-anchor="end">{length}</text>'
            inside += f'<rect class="track" x="{_LEFT}" y="{y}" width="{full}" height="{_BAR}"/>'
            inside += f'<rect class="bar" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}"/>'
            y += _BAR + _GAP
            said.append(f"{task} {100 * by_length[length]:.1f} % at {length}")
    return _svg(f"{name}: {', '.join(said)}", y + 4, inside)
