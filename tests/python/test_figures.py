"""The pictures of the theory: numbers against the defining formulas in mpmath, and the files
(R-FIG-1, R-FIG-2, R-FIG-4 to R-FIG-7)."""

import csv
import sys

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

from roformer_cpp import figures
from tolerances import T1_ATOL, T1_RTOL

T1 = dict(atol=T1_ATOL, rtol=T1_RTOL)
LARGEST_SVG_BYTES = 60_000


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(40):
        yield


def theta(i, dim):
    return mpmath.mpf(10000) ** (-mpmath.mpf(2 * i) / dim)


def turned(vector, position):
    """R_m x by Eq. 34."""
    out = []
    for i in range(len(vector) // 2):
        a, b, angle = mpmath.mpf(vector[2 * i]), mpmath.mpf(vector[2 * i + 1]), position * theta(i, len(vector))
        out += [a * mpmath.cos(angle) - b * mpmath.sin(angle), b * mpmath.cos(angle) + a * mpmath.sin(angle)]
    return [float(x) for x in out]


def mean_of_partial_sums(distance, dim):
    total, sums = mpmath.mpc(0), []
    for i in range(dim // 2):
        total += mpmath.expj(distance * theta(i, dim))
        sums.append(abs(total))
    return float(mpmath.fsum(sums) / len(sums))


def rows(numbers, prefix):
    return np.stack([column for name, column in numbers.items() if name.startswith(prefix)], axis=1)


def test_plane():
    numbers = figures.plane_numbers()
    z, out, w, product = (mpmath.mpc(x, y) for x, y in zip(numbers["x"], numbers["y"], strict=True))
    assert_allclose(complex(out), complex(z * mpmath.expj(mpmath.pi / 3)), **T1)
    assert_allclose(complex(product), complex(z * w), **T1)
    assert_allclose(numbers["angle"][3], float(mpmath.arg(z) + mpmath.arg(w)), **T1)
    assert_allclose(numbers["length"], [float(abs(x)) for x in (z, out, w, product)], **T1)


def test_sinusoid():
    table = rows(figures.sinusoid_numbers(), "dimension")
    expected = [[(mpmath.sin, mpmath.cos)[j % 2](p * theta(j // 2, 64)) for j in range(64)] for p in range(100)]
    assert_allclose(table, np.array(expected, dtype=float), **T1)


def test_rotated_vector():
    table = rows(figures.rotated_vector_numbers(), "dimension")
    assert_allclose(table, [turned(table[0], p) for p in range(100)], **T1)


def test_block_matrix():
    matrix = rows(figures.block_matrix_numbers(), "column")
    assert_allclose(matrix, np.transpose([turned(unit, 3) for unit in np.eye(8)]), **T1)


def test_rope_scheme_counts_from_one():
    numbers = figures.rope_scheme_numbers()
    assert numbers["position"].tolist() == [1, 2, 3, 4, 5, 6]
    before, after = rows(numbers, "x "), rows(numbers, "y ")
    assert_allclose(after, [turned(x, m + 1) for m, x in enumerate(before)], **T1)


def test_decay():
    numbers = figures.decay_numbers()
    assert (numbers["from"][1:] == numbers["to"][:-1] + 1).all()
    assert numbers["from"][0] == 0 and numbers["to"][-1] == 65536
    for dim in (64, 128, 256):
        means, lowest, highest = (numbers[f"{name}, d = {dim}"] for name in ("mean", "lowest", "highest"))
        for r in (0, 1, 100, 256):
            assert numbers["from"][r] == numbers["to"][r] == r
            assert_allclose([means[r], lowest[r], highest[r]], mean_of_partial_sums(r, dim), **T1)
        values = [mean_of_partial_sums(r, dim) for r in range(numbers["from"][257], numbers["to"][257] + 1)]
        assert len(values) > 1
        assert_allclose([means[257], lowest[257], highest[257]], [np.mean(values), min(values), max(values)], **T1)


def test_files_are_small_and_always_the_same(tmp_path):
    assert figures.main(["--output", str(tmp_path / "first")]) == 0
    for name in ("plane", "block_matrix"):
        figures.draw(name, tmp_path)
        assert (tmp_path / "first" / f"{name}.svg").read_bytes() == (tmp_path / f"{name}.svg").read_bytes()
    for name in figures.FIGURES:
        svg = (tmp_path / "first" / f"{name}.svg").read_bytes()
        assert len(svg) < LARGEST_SVG_BYTES and b"<dc:date>" not in svg
        with (tmp_path / "first" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
        numbers = figures.FIGURES[name][0]()
        assert header == list(numbers)
        assert lines[-1] == [str(np.asarray(column).tolist()[-1]) for column in numbers.values()]  # all digits


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert figures.main(["--output", str(tmp_path)]) == 1
    assert "matplotlib must be installed" in capsys.readouterr().err
