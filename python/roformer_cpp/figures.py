"""Draws the mathematics of rotary position embedding, as SVG files with the plotted numbers as CSV files:

    python -m roformer_cpp.figures --output pictures

Every picture is two functions, `<name>_numbers` (columns of numbers, from theory.py) and `_draw_<name>`; the same
numbers give the same bytes.
"""

import argparse
import csv
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from . import theory
from ._command import exit_code
from ._style import COLOUR_MAP, COLOURS, picture

SENTENCE = ["Enhanced", "Transformer", "with", "Rotary", "Position", "Embedding"]  # of the paper's Figure 1
DECAY_DIMS = (64, 128, 256)
DECAY_NEAR, DECAY_FAR, DECAY_BINS = 256, 65536, 48  # positions; far ones are put together in bins
HEAT_POSITIONS, HEAT_DIM = 100, 64
MATRIX_DIM, MATRIX_POSITION = 8, 3
POINT, FACTOR, TURN = complex(2, 1), complex(0.9, 1.2), np.pi / 3  # of the plane


# ---- numbers ----


def plane_numbers():
    """A point z; z turned by TURN; z times FACTOR. Real and imaginary parts, lengths and angles in radians."""
    points = np.array([POINT, POINT * np.exp(1j * TURN), FACTOR, POINT * FACTOR])
    names = ["point", "turned", "factor", "turned and stretched"]
    return {"name": names, "x": points.real, "y": points.imag, "length": np.abs(points), "angle": np.angle(points)}


def sinusoid_numbers():
    """Eq. 4 at positions 0 .. 99, a column for each of 64 dimensions."""
    return _by_position(np.stack([theory.sinusoid(p, HEAT_DIM) for p in range(HEAT_POSITIONS)]))


def rotated_vector_numbers():
    """One vector of normal random numbers, turned by positions 0 .. 99."""
    vector = np.random.default_rng(0).standard_normal(HEAT_DIM)
    return _by_position(np.stack([theory.rotary_matrix(p, HEAT_DIM) @ vector for p in range(HEAT_POSITIONS)]))


def block_matrix_numbers():
    """R^8_{Theta,m} at m = 3 (Eq. 15)."""
    matrix = theory.rotary_matrix(MATRIX_POSITION, MATRIX_DIM)
    return {"row": np.arange(MATRIX_DIM)} | {f"column {j}": matrix[:, j] for j in range(MATRIX_DIM)}


def rope_scheme_numbers():
    """Random vectors x of the sentence's words and y, turned by their positions, which count from 1 as in the paper."""
    before = np.random.default_rng(1).standard_normal((len(SENTENCE), MATRIX_DIM))
    positions = np.arange(1, len(SENTENCE) + 1)
    after = np.stack([theory.rotary_matrix(m, MATRIX_DIM) @ x for m, x in zip(positions, before, strict=True)])
    columns = {f"x {j + 1}": before[:, j] for j in range(MATRIX_DIM)}
    return {"word": SENTENCE, "position": positions} | columns | {f"y {j + 1}": after[:, j] for j in range(MATRIX_DIM)}


def decay_numbers():
    """Figure 2 for three sizes of a head: each distance to 256; then the mean, the lowest and the highest value over
    all distances from `from` to `to`."""
    edges = np.round(np.geomspace(DECAY_NEAR + 1, DECAY_FAR + 1, DECAY_BINS + 1)).astype(int)
    edges = np.concatenate([np.arange(DECAY_NEAR + 1), edges])
    numbers = {"from": edges[:-1], "to": edges[1:] - 1}
    for dim in DECAY_DIMS:
        bins = [theory.decay_curve(np.arange(*ends), dim) for ends in pairwise(edges)]
        for name, of_bin in [("mean", np.mean), ("lowest", np.min), ("highest", np.max)]:
            numbers[f"{name}, d = {dim}"] = np.array([of_bin(values) for values in bins])
    return numbers


def _by_position(rows):
    return {"position": np.arange(len(rows))} | {f"dimension {j}": rows[:, j] for j in range(rows.shape[1])}


# ---- drawing ----


def _draw_plane(figure, numbers):
    point, turned, factor, product = numbers["x"] + 1j * numbers["y"]
    panels = figure.subplots(1, 3, sharey=True)
    titles = [
        "z = a + bi = |z| (cos α + i sin α)",
        "$e^{iθ}$ z: turned by θ = 60°",
        "w z: turned by arg w, times |w| = 1.5",
    ]
    for axes, title in zip(panels, titles, strict=True):
        axes.set(aspect="equal", xlim=(-1.2, 2.7), ylim=(-0.5, 3.8), title=title, xlabel="real part")
        axes.axhline(0, color="gray", linewidth=0.8)
        axes.axvline(0, color="gray", linewidth=0.8)
        _arrow(axes, point, "z", "#0072B2")
    panels[0].set_ylabel("imaginary part")
    panels[0].plot([point.real, point.real, 0], [0, point.imag, point.imag], ":", color="black", linewidth=1)
    panels[0].text(point.real, -0.3, "a", ha="center")
    panels[0].text(-0.25, point.imag, "b", va="center")
    _arc(panels[0], 0, np.angle(point), 0.9, "α")
    _arrow(panels[1], turned, "$e^{iθ}$z", "#D55E00")
    _arc(panels[1], np.angle(point), np.angle(turned), 0.9, "θ")
    _arrow(panels[2], factor, "w", "#555555")
    _arrow(panels[2], product, "wz", "#D55E00")
    _arc(panels[2], np.angle(point), np.angle(product), 0.6, "")


def _draw_block_matrix(figure, numbers):
    matrix = np.stack([numbers[f"column {j}"] for j in range(MATRIX_DIM)], axis=1)
    axes = figure.subplots()
    image = _cells(axes, matrix, (-1, 1))
    for i in range(MATRIX_DIM):
        for j in range(MATRIX_DIM):
            same_pair, below = i // 2 == j // 2, (i % 2) - (j % 2)
            sign = "−" if below < 0 else ""
            name = f"{sign}{'sin' if below else 'cos'} m$θ_{i // 2}$" if same_pair else "0"
            light = matrix[i, j] > 0.1
            axes.text(j, i, name, ha="center", va="center", color="black" if light else "white", fontsize=8)
    axes.set(xticks=range(MATRIX_DIM), yticks=range(MATRIX_DIM), xlabel="column", ylabel="row")
    angles = ", ".join(f"$θ_{i}$ = {theta:g}" for i, theta in enumerate(theory.frequencies(MATRIX_DIM)))
    axes.set_title(f"$R_m$ for d = 8; {angles}; colours at m = {MATRIX_POSITION}")
    figure.colorbar(image, ax=axes, shrink=0.8)


def _draw_rope_scheme(figure, numbers):
    before, after = (np.stack([numbers[f"{name} {j + 1}"] for j in range(MATRIX_DIM)], axis=1) for name in ("x", "y"))
    limit = np.abs([before, after]).max()
    grid = figure.add_gridspec(2, 8, height_ratios=[1, 1.35])
    word = 2  # whose pairs are drawn: "with", at position 3
    theta = theory.frequencies(MATRIX_DIM)
    for i in range(MATRIX_DIM // 2):
        x, turned = theory.as_complex(before[word])[i], theory.as_complex(after[word])[i]
        axes, reach = figure.add_subplot(grid[0, 2 * i : 2 * i + 2]), 1.35 * abs(x)
        axes.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[])
        axes.set_title(f"pair {i + 1}: 3$θ_{i + 1}$ = {3 * theta[i]:g} rad")
        axes.axhline(0, color="gray", linewidth=0.6)
        axes.axvline(0, color="gray", linewidth=0.6)
        axes.spines[:].set_visible(False)
        _arrow(axes, x, "", "#0072B2", linestyle="--")
        _arrow(axes, turned, "", "#D55E00")
        _arc(axes, np.angle(x), np.angle(x) + 3 * theta[i], 0.5 * abs(x), "")
    panels = figure.add_subplot(grid[1, :4]), figure.add_subplot(grid[1, 4:])
    for axes, values, letter in zip(panels, (before, after), ("x", "y"), strict=True):
        image = _cells(axes, values, (-limit, limit))
        axes.set_xticks(range(MATRIX_DIM), [f"${letter}_{{{j + 1}}}$" for j in range(MATRIX_DIM)])
        for pair in range(1, MATRIX_DIM // 2):
            axes.axvline(2 * pair - 0.5, color="white", linewidth=4)
    panels[0].set_yticks(range(len(SENTENCE)), SENTENCE)
    panels[1].set_yticks(range(len(SENTENCE)), [f"m = {m}" for m in numbers["position"]])
    panels[0].set_title("queries or keys x (of “with”: dashed above)")
    panels[1].set_title("y: pair i turned by m$θ_i$ (solid above)")
    figure.colorbar(image, ax=panels, shrink=0.8)


def _draw_decay(figure, numbers):
    near, far = figure.subplots(1, 2, sharey=True)
    single = numbers["from"] == numbers["to"]
    middle = np.sqrt(numbers["from"] * numbers["to"])
    sparse = np.r_[1:33, 33 : DECAY_NEAR + 1 : 4, DECAY_NEAR + 1 : len(middle)]  # enough for a logarithmic axis
    for dim, colour in zip(DECAY_DIMS, COLOURS, strict=False):
        mean, lowest, highest = (numbers[f"{name}, d = {dim}"] for name in ("mean", "lowest", "highest"))
        near.plot(middle[single], mean[single], label=f"d = {dim}")
        far.plot(middle[sparse], mean[sparse])
        far.fill_between(middle[~single], lowest[~single], highest[~single], color=colour, alpha=0.2, linewidth=0)
    near.set(xlabel="distance r", ylabel="mean of |$S_1$| .. |$S_{d/2}$|", ylim=(0, None), title="r to 256")
    far.set(xlabel="distance r, logarithmic", xscale="log", title="r to 65,536; from 257 on mean and range of bins")
    far.minorticks_off()
    near.legend()


def _arrow(axes, z, name, colour, linestyle="-"):
    arrow = dict(arrowstyle="-|>", color=colour, linewidth=1.6, linestyle=linestyle, shrinkA=0, shrinkB=0)
    axes.annotate("", (z.real, z.imag), (0, 0), arrowprops=arrow)
    away = z + 0.22 * z / abs(z)
    axes.text(away.real, away.imag, name, color=colour, ha="center", va="center")


def _arc(axes, start, end, radius, name):
    angles = np.linspace(start, end, 60)
    axes.plot(radius * np.cos(angles), radius * np.sin(angles), "-", color="black", linewidth=1)
    middle = 1.25 * radius * np.exp(0.5j * (start + end))
    axes.text(middle.real, middle.imag, name, ha="center", va="center")


def _cells(axes, values, limits):
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    # Enlarged here, because some viewers of SVG blur the pixels of a small picture.
    return axes.imshow(values, cmap=COLOUR_MAP, vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="nearest")


def _heat_map(figure, numbers, xlabel, label):
    rows = np.stack([numbers[f"dimension {j}"] for j in range(HEAT_DIM)], axis=1)
    limit = np.abs(rows).max()
    axes = figure.subplots()
    image = _cells(axes, rows, (-limit, limit))
    axes.set(xlabel=xlabel, ylabel="position")
    figure.colorbar(image, ax=axes, label=label)


# ---- pictures ----

_draw_sinusoid = partial(_heat_map, xlabel="dimension: even ones sine, odd ones cosine", label="element of $p_i$")
_draw_rotated_vector = partial(_heat_map, xlabel="dimension", label="element of $R_m x$")
# name: numbers, drawing, width and height in inches
FIGURES = {
    "plane": (plane_numbers, _draw_plane, (8.5, 3.8)),
    "sinusoid": (sinusoid_numbers, _draw_sinusoid, (6.0, 4.0)),
    "block_matrix": (block_matrix_numbers, _draw_block_matrix, (6.2, 4.6)),
    "rope_scheme": (rope_scheme_numbers, _draw_rope_scheme, (8.0, 5.0)),
    "rotated_vector": (rotated_vector_numbers, _draw_rotated_vector, (6.0, 4.0)),
    "decay": (decay_numbers, _draw_decay, (8.0, 3.4)),
}


def draw(name, folder):
    """Writes <folder>/<name>.svg and <name>.csv, for a name in FIGURES: columns under their names, floats with all
    their digits."""
    make, drawing, (width, height) = FIGURES[name]
    numbers = make()
    with (Path(folder) / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(numbers)
        writer.writerows(zip(*(np.asarray(column).tolist() for column in numbers.values()), strict=True))
    with picture(Path(folder) / f"{name}.svg", width, height) as figure:
        drawing(figure, numbers)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m roformer_cpp.figures", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the pictures and their numbers")
    output = parser.parse_args(arguments).output

    def draw_all():
        output.mkdir(parents=True, exist_ok=True)
        for name in FIGURES:
            draw(name, output)

    return exit_code(draw_all)


if __name__ == "__main__":
    sys.exit(main())
