"""The report's pictures: the paper's Figures 2 and 3 with our curves, and the atlas as a scatter plot."""

import numpy as np

from roformer_cpp._style import COLOURS, DASHES, picture

from .language_models import CURVE

_SMOOTH = 100  # points of a curve of training losses
SHORT, LONG = 128, 1024  # lengths of the atlas
CORNER = (1.60, 1.70)  # most encodings have lower losses than these


def figure_2(result, path):
    """The bound of Section 3.4.3 by distance, for the paper's base and three head sizes."""
    with picture(path, 6.2, 2.8) as figure:
        axes = figure.subplots()
        for size in (64, 128, 256):
            (distances, bounds), *_ = result.curves("f by distance", f"head size {size}").values()
            near = distances.index(256) + 1
            axes.plot(distances[:near], np.array(bounds[:near]) / bounds[0], label=f"head size {size}")
        axes.set(xlabel="distance", ylabel="bound, as a share of that at 0", xlim=(0, 256), ylim=(0, 1))
        axes.legend()


def figure_3(result, path, names):
    """Training loss by step, mean and range over seeds. `names`: {arm: label} in the order of the legend."""
    with picture(path, 6.2, 3.0) as figure:
        axes = figure.subplots()
        for i, (arm, label) in enumerate(names.items()):
            curves = list(result.curves(CURVE, arm).values())
            if not curves:  # none was logged
                continue
            length = min(len(steps) for steps, _ in curves)  # a run that diverged ends earlier
            x = np.array(curves[0][0][:length])
            values = np.array([losses[:length] for _, losses in curves])
            every = max(1, len(x) // _SMOOTH)
            starts = np.arange(0, len(x) - every + 1, every)
            x = np.array([x[start : start + every].mean() for start in starts])
            values = np.array([values[:, start : start + every].mean(1) for start in starts]).T
            axes.plot(x, values.mean(0), label=label, color=COLOURS[i], linestyle=DASHES[i])
            axes.fill_between(x, values.min(0), values.max(0), color=COLOURS[i], alpha=0.2, linewidth=0)
        axes.set(xlabel="training step", ylabel="training loss, nats per token", xlim=(0, None))
        axes.legend()


def atlas(entries, path):
    """Scatter plots of the loss at the training length and at eight times it: all encodings, and the crowded corner.

    The larger a dot, the slower its attention.
    """
    shown = [entry for entry in entries if entry.losses.get(LONG) is not None]
    points = np.array([[entry.losses[SHORT], entry.losses[LONG], entry.time or 1.0] for entry in shown])
    near = (points[:, 0] < CORNER[0]) & (points[:, 1] < CORNER[1])
    with picture(path, 7.6, 4.4) as figure:
        whole, corner = figure.subplots(1, 2, width_ratios=(1, 1.15))
        for axes, inside in ((whole, np.full(len(shown), True)), (corner, near)):
            x, y, time = points[inside].T
            axes.scatter(x, y, s=24 * time**0.9, color=COLOURS[1], alpha=0.45, linewidth=0)
            axes.axline((1.5, 1.5), slope=1, color=COLOURS[0], linewidth=0.8, linestyle=":")
            axes.set(xlabel=f"loss at {SHORT} bytes (training length), nats")
        for names, x, y in _together([(*point[:2], entry.name) for entry, point in zip(shown, points, strict=True)]):
            if x >= CORNER[0] or y >= CORNER[1]:
                whole.annotate(names, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=6.5)
        limits = min(1.45, points[:, 0].min() - 0.05), max(2.25, points[:, 0].max() + 0.05)
        whole.set(ylabel=f"loss at {LONG:,} bytes, nats", xlim=limits)
        whole.indicate_inset((1.48, 1.46, CORNER[0] - 1.48, CORNER[1] - 1.46), edgecolor=COLOURS[2], alpha=1.0)
        _label_on_the_right(
            corner, [(*point[:2], entry.name) for entry, point in zip(shown, points, strict=True)], near
        )


def _together(labelled, distance=0.06):
    """[(names, x, y)]: names whose dots are nearer than this share a label."""
    groups = []
    for x, y, name in sorted(labelled, key=lambda each: each[1]):
        last = groups[-1] if groups else None
        if last and abs(last[1] - x) < distance and abs(last[2] - y) < distance:
            groups[-1] = (f"{last[0]}, {name}", last[1], last[2])
        else:
            groups.append((name, x, y))
    return groups


def _label_on_the_right(axes, labelled, inside):
    """Names in a column, from low to high losses, with a line to each dot."""
    labelled = sorted((entry for entry, kept in zip(labelled, inside, strict=True) if kept), key=lambda each: each[1])
    axes.set(xlim=(1.48, CORNER[0]), ylim=(1.46, CORNER[1]))
    heights = np.linspace(1.465, CORNER[1] - 0.005, len(labelled))
    for (x, y, name), height in zip(labelled, heights, strict=True):
        line = dict(arrowstyle="-", color=COLOURS[0], linewidth=0.3, alpha=0.5)
        axes.annotate(name, (x, y), (CORNER[0] + 0.004, height), fontsize=6.5, va="center", arrowprops=line)
