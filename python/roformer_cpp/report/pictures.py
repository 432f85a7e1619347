"""The report's pictures: a result's series as curves, its means over seeds as dots with ranges, and the theory's."""

import re
from dataclasses import dataclass
from itertools import groupby
from textwrap import fill

import numpy as np
from matplotlib.colors import LogNorm

from .. import figures
from .._style import COLOUR_MAP, COLOURS, DASHES, picture
from . import units

WIDTH = 6.2  # inches
LABEL = 54  # characters below panels of that width together
MAX_TICKS = 10  # an axis with more values has matplotlib's ticks
MAX_POINTS = 300  # of a curve; longer ones are drawn as means of neighbours
_SEED = re.compile(r"^(.*), seed \d+$")


@dataclass(frozen=True)
class Picture:
    file: str  # in the folder of pictures
    title: str
    note: str  # how to read it; may be empty


# Names of the axes of an experiment's series; others are drawn without names.
@dataclass(frozen=True)
class _Axes:
    x: str = ""
    y: str = ""
    yscale: str = "linear"
    factor: float = 1.0  # from values of the file to those of a linear axis


_TRAINING = _Axes("training step", "training loss, nats per token")
_AXES = {
    "relative-score": _Axes("distance", "score"),
    "decay": _Axes("distance r", "mean of |$S_1$| .. |$S_{d/2}$|"),
    "score-by-distance": _Axes("distance", "score"),
    "trained-scores": _Axes("distance", "mean score"),
    "random-features": _Axes("features", "relative error", "log"),
    "attention-time": _Axes("tokens", "time, seconds", "log"),
    "trained-frequencies": _Axes("pair", "frequency, radians per token", "log"),
    "convergence": _TRAINING,
    "encodings": _TRAINING,
    "staged-pretraining": _TRAINING,
    "linear-language-model": _TRAINING,
    "chinese-models": _TRAINING,
    "translation": _TRAINING,
    "extrapolation": _Axes("tokens before", "held-out loss, nats per token"),
    "long-texts": _Axes("tokens of a pair", "accuracy, %", factor=100.0),
}

# Titles of figures.FIGURES.
_THEORY = {
    "plane": "A point of the complex plane; turned; multiplied by another number",
    "rope_scheme": "How RoPE turns the pairs of a query or key (the paper's Figure 1)",
    "block_matrix": "The rotation as a matrix (Eq. 15)",
    "decay": "The bound that decays with distance (the paper's Figure 2), at every distance to 65,536",
    "sinusoid": "The sinusoidal encoding (Eq. 4)",
    "rotated_vector": "One vector turned by the positions 0 to 99",
}


def draw(result, folder):
    """Writes the pictures of a result to a folder; returns them, none if it has nothing to draw."""
    drawn = []
    if result.series:
        file = f"{result.name}-curves.svg"
        drawn.append(Picture(file, f"{result.title} Curves", _draw_curves(result, folder / file)))
    for i, heat in enumerate(result.maps):
        file = f"{result.name}-map-{i + 1}.svg"
        _draw_map(heat, folder / file)
        drawn.append(Picture(file, heat.name, f"The darker, the more: {heat.value_name}, on a logarithmic scale."))
    spreads = _spread_columns(result.table)
    if spreads and result.table.rows:
        file = f"{result.name}-spread.svg"
        _draw_spreads(result.name, result.table, spreads, folder / file)
        note = "Means over seeds; lines from the lowest to the highest." if len(result.seeds) > 1 else "One seed."
        drawn.append(Picture(file, f"{result.title} Means", note))
    return drawn


def draw_theory(folder):
    for name in _THEORY:
        figures.draw_svg(name, figures.FIGURES[name][0](), folder / f"{name}.svg")
    return [Picture(f"{name}.svg", title, title) for name, title in _THEORY.items()]


# ---- curves ----


def _draw_curves(result, output):
    """Draws a panel for series of the same x, a colour for each name, seeds as mean and range. Returns a note on it."""
    panels = [list(panel) for _, panel in groupby(sorted(result.series, key=_reach_and_x), key=_reach_and_x)]
    names = list(dict.fromkeys(_name_and_seed(series)[0] for series in result.series))
    axes_of = _AXES.get(result.name, _Axes())
    columns = 2 if max(map(len, names)) < 40 else 1
    height = 2.8 * len(panels) + 0.19 * -(-len(names) // columns)
    neighbours = 1
    with picture(output, WIDTH, height) as figure:
        for axes, panel in zip(np.atleast_1d(figure.subplots(len(panels))), panels, strict=True):
            for name, group in _by_name(panel).items():
                i = names.index(name)
                style = dict(color=COLOURS[i % 7], linestyle=DASHES[(i + i // 7) % 7])
                neighbours = max(neighbours, _draw_group(axes, name, group, axes_of.factor, style))
            axes.set(xlabel=axes_of.x, ylabel=axes_of.y)
            if axes_of.yscale == "log":
                _set_log(axes, "y", np.array([value for series in panel for value in series.y], dtype=float))
            x = np.array(panel[0].x)
            if len(x) > 2 and x.min() >= 0 and np.median(x) < 0.4 * x[-1]:  # denser where it begins
                _set_log(axes, "x", x)
                axes.set(xlim=(x.min(), None))
                axes.xaxis.minorticks_off()
            if len(x) <= MAX_TICKS:
                axes.set_xticks(x, [f"{value:g}" for value in x])
        pairs = [pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        lines = {label: line for line, label in pairs}  # each once
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns)
    seeds = any(_name_and_seed(series)[1] for series in result.series) and len(result.seeds) > 1
    notes = ["Means over seeds, shaded from the lowest to the highest."] if seeds else []
    notes += [f"Points are means of up to {neighbours} neighbours."] if neighbours > 1 else []
    return " ".join(notes)


def _set_log(axes, which, values):
    """A logarithmic axis; if there are values that it cannot show, 0 and negative ones, it is linear around 0."""
    values = values[np.isfinite(values)]
    if values.size == 0 or values.min() > 0:
        axes.set(**{f"{which}scale": "log"})
        return
    sizes = np.abs(values[values != 0])
    # Four decades of either sign: the labels of more would be on one another around 0.
    smallest = max(sizes.min(initial=1.0), 1e-4 * sizes.max(initial=0.0))
    getattr(axes, f"set_{which}scale")("symlog", linthresh=smallest)


def _reach_and_x(series):
    return series.x[-1:], series.x


def _name_and_seed(series):
    match = _SEED.match(series.name)
    return (match[1], True) if match else (series.name, False)


def _by_name(panel):
    groups = {}
    for series in panel:
        groups.setdefault(_name_and_seed(series)[0], []).append(series)
    return groups


def _draw_group(axes, name, group, factor, style):
    """Draws the seeds of a name, all of the same x. Returns how many neighbours a point is the mean of."""
    values = factor * np.array([series.y for series in group], dtype=float)  # None: nan
    x, values, neighbours = _thinned(np.array(group[0].x), values)
    axes.plot(x, values.mean(0), label=name, **style)
    if len(group) > 1:
        axes.fill_between(x, values.min(0), values.max(0), color=style["color"], alpha=0.2, linewidth=0)
    return neighbours


def _thinned(x, values):
    neighbours = max(1, -(-len(x) // MAX_POINTS))
    starts = np.arange(0, len(x), neighbours)
    sizes = np.diff(np.append(starts, len(x)))
    means = np.add.reduceat(values, starts, axis=1) / sizes if len(x) else values
    return (np.add.reduceat(x, starts) / sizes if len(x) else x), means, neighbours


# ---- dots with ranges ----


def _spread_columns(table):
    """Indices of columns of numbers that "lowest" and "highest" follow."""
    names = table.columns
    triples = [i for i in range(1, len(names) - 2) if names[i + 1 : i + 3] == ["lowest", "highest"]]
    return [i for i in triples if not any(isinstance(cell, str) for row in table.rows for cell in row[i : i + 3])]


def _row_names(table, before):
    """The columns that distinguish rows, and the rows' names: as many as needed of those before `before` that vary."""
    varied = [i for i in range(before) if len({str(row[i]) for row in table.rows}) > 1] or [0]
    for count in range(1, len(varied) + 1):
        names = [", ".join(str(row[i]) for i in varied[:count]) for row in table.rows]
        if len(set(names)) == len(names):
            break
    return ", ".join(str(table.columns[i]) for i in varied[:count]), names


def _draw_spreads(experiment, table, spreads, output):
    """A panel for each column; where rows are of several tasks, one for each task, on an axis of its own."""
    by_task = table.columns[0] == "task"
    groups = list(dict.fromkeys(row[0] for row in table.rows)) if by_task else [None]
    factors = units.factors(experiment, table.columns)
    headings = units.headings(experiment, table.columns)
    sizes = [sum(group is None or row[0] == group for row in table.rows) for group in groups]
    height = 1.0 + 0.22 * sum(sizes) + 0.75 * (len(groups) - 1)
    with picture(output, WIDTH, height) as figure:
        axes_of = figure.subplots(
            len(groups), len(spreads), squeeze=False, sharey="row", gridspec_kw={"height_ratios": sizes}
        )
        for group, panels in zip(groups, axes_of, strict=True):
            rows = [row for row in table.rows if group is None or row[0] == group]
            what, names = _row_names(type(table)(table.columns, rows), spreads[0])
            places = np.arange(len(names))
            for axes, column in zip(panels, spreads, strict=True):
                cells = np.array([row[column : column + 3] for row in rows], dtype=float)
                means, lowest, highest = (factors.get(column, 1.0) * cells).T
                axes.hlines(places, lowest, highest, color=COLOURS[1], linewidth=2)
                axes.plot(means, places, "o", color=COLOURS[1], markersize=4)
                label = f"{group}, {rows[0][1]}, {headings[column]}" if by_task else headings[column]
                axes.set(xlabel=fill(label, LABEL // len(spreads)))
            panels[0].set_yticks(places, names)
            panels[0].set(ylabel=what, ylim=(len(names) - 0.5, -0.5))  # the first row on top


# ---- heat maps ----


def _draw_map(heat, output):
    """x must rise in equal steps."""
    values = np.array(heat.values, dtype=float)
    smallest = values[values > 0].min(initial=values.max() or 1.0)
    half = (heat.x[-1] - heat.x[0]) / max(len(heat.x) - 1, 1) / 2 or 0.5
    with picture(output, WIDTH, 1.2 + 0.2 * len(heat.y)) as figure:
        axes = figure.subplots()
        cells = axes.imshow(
            np.maximum(values, smallest),
            norm=LogNorm(),
            cmap=f"{COLOUR_MAP}_r",
            aspect="auto",
            interpolation="nearest",
            extent=(heat.x[0] - half, heat.x[-1] + half, len(heat.y) - 0.5, -0.5),
        )
        axes.set(xlabel=heat.x_name, yticks=np.arange(len(heat.y)), yticklabels=heat.y)
        axes.grid(False)
        figure.colorbar(cells, ax=axes, label=heat.value_name)
