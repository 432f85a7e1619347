"""The numbers of each experiment without training, against NumPy in float64, SciPy, mpmath and the golden numbers."""

import json
import math

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch

import tolerances as tol
from cli_support import results

THETA = 10000.0 ** (-np.arange(32) / 32)  # of heads of 64


def rows(result):
    """{first cell: the other cells}"""
    return {row[0]: row[1:] for row in result["table"]["rows"]}


def series(result):
    return {line["name"]: (np.array(line["x"]), np.array(line["y"])) for line in result["series"]}


def normal(*shape, seed=None):
    if seed is not None:
        torch.manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64).numpy()


def complex_pairs(x):
    return x[..., 0::2] + 1j * x[..., 1::2]


def turned(x, positions):
    """Rows x [T, .., D] turned by their positions."""
    angle = np.asarray(positions, float).reshape(-1, *[1] * (x.ndim - 1)) * THETA
    z = complex_pairs(x) * np.exp(1j * angle)
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def sinusoid(positions, width=64):
    angle = np.asarray(positions, float)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(positions), width)


def decay(r, dim, base):
    angle = np.asarray(r, float)[:, None] * float(base) ** (-np.arange(0, dim, 2) / dim)
    return np.abs(np.cumsum(np.exp(1j * angle), 1)).mean(1)


def test_form_of_results(numeric):
    with_scale = {name for name, result in numeric.items() if result["scale"] == "tiny"}
    assert with_scale == {"random-features", "rotation-cost", "attention-time"}
    for name, result in numeric.items():
        assert result["name"] == name and result["scale"] in ("tiny", "any") and result["seconds"] > 0
        columns = result["table"]["columns"]
        assert result["table"]["rows"] and all(len(row) == len(columns) for row in result["table"]["rows"]), name
        assert all(len(line["x"]) == len(line["y"]) > 0 for line in result["series"]), name
        assert set(result["claims"]) <= set(result["verdicts"]) == set(result["figures"]), name
        measured = {"supported", "inconclusive"} if result["kind"] == "measurement" else {"proved", "refuted"}
        possible = {"smoke run"} if name in with_scale else measured
        assert set(result["verdicts"].values()) <= possible, name
        assert result["seeds"] == result["settings"].get("seeds", [])
        assert {"cpu", "threads", "torch", "commit"} <= set(result["machine"])
        assert "nan" not in json.dumps(result).lower().split(), name


def test_permutation(numeric):
    found = rows(numeric["permutation"])
    assert found.pop("none")[2] < tol.T1_ATOL
    assert len(found) == 16 and all(low > tol.VISIBLE for _, low, _ in found.values())


def test_relative_score(numeric):
    result = numeric["relative-score"]
    q, k = normal(64, 64, seed=1), normal(64, 64)
    (x, y), *_ = series(result).values()
    truth = (complex_pairs(q[0]) * complex_pairs(k[0]).conj() * np.exp(1j * np.outer(x, THETA))).sum(1).real
    np.testing.assert_allclose(y, truth / np.linalg.norm(q[0]) / np.linalg.norm(k[0]), atol=tol.UNIT_SCORE_F64)
    positions = np.arange(64)
    norms = (np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1))[:, None, None]

    def added(shift):
        p = sinusoid(positions + shift)
        return np.einsum("pmd,pnd->pmn", q[:, None] + p, k[:, None] + p) / norms

    _, *moved = rows(result).items()
    assert len(moved) > 1
    for name, (exact, single, by_sum) in moved:
        assert exact < tol.T1_ATOL and single < tol.RELATIVE_F32
        assert by_sum == pytest.approx(np.abs(added(int(name.split()[-1])) - added(0)).max(), rel=tol.EXPERIMENT_RTOL)


def test_any_position(numeric):
    result = numeric["any-position"]
    *evaluated, _, _ = rows(result).items()
    assert len(evaluated) > 2
    for name, (exact, product) in evaluated:
        position = int(name.split()[-1])
        with mpmath.workdps(40):
            angles = [position * mpmath.mpf(10000) ** (mpmath.mpf(-2 * i) / 64) for i in range(32)]
            truth = np.array([[float(mpmath.cos(a)), float(mpmath.sin(a))] for a in angles])
        angle = THETA.astype(np.float32) * np.float32(position)
        single = np.stack([torch.cos(torch.tensor(angle)), torch.sin(torch.tensor(angle))], 1)
        assert exact <= tol.TABLE_F32
        assert product == pytest.approx(np.abs(single - truth).max(), rel=tol.FLOAT32_COSINE_RTOL)
    lengths = [row[1] for row in result["table"]["rows"][-2:]]
    assert lengths == [1024, 64]


def test_norm(numeric):
    x = normal(1024, 64, seed=1)
    for position, (change, change32, matrix, added) in rows(numeric["norm"]).items():
        assert change < tol.NORM_F64 and change32 < tol.NORM_F32 and matrix < tol.NORM_F64
        p = sinusoid([position])
        truth = np.abs(np.linalg.norm(x + p, axis=1) / np.linalg.norm(x, axis=1) - 1).max()
        assert added == pytest.approx(truth, rel=tol.EXPERIMENT_RTOL)


def test_bilinear(numeric):
    normal(64, 64, seed=1)
    k = normal(64, 64)
    (linear, linear_sum), (zero, zero_sum) = rows(numeric["bilinear"]).values()
    assert linear < tol.T1_ATOL and zero == 0 and linear_sum > tol.VISIBLE
    p = sinusoid(np.arange(64))
    assert zero_sum == pytest.approx(np.abs(np.einsum("md,pnd->pmn", p, k[:, None] + p)).max(), rel=tol.EXPERIMENT_RTOL)


def test_sinusoid(numeric):
    found = [value for (value,) in rows(numeric["sinusoid"]).values()]
    distances = np.sqrt((2 - 2 * np.cos(np.outer(np.arange(1, 10000), THETA))).sum(1))  # only the difference counts
    assert found[0] == pytest.approx(distances.min(), rel=tol.EXPERIMENT_RTOL)
    assert found[1] == pytest.approx(np.abs(sinusoid(np.arange(10000))).max(), abs=tol.TABLE_F64) and found[1] <= 1
    assert found[2] == 0 and max(found[3:6]) < tol.T1_ATOL and found[6] < tol.NORM_F64
    tokens = normal(2, 64, seed=1)
    change = [turned(np.tile(token, (10000, 1)), np.arange(10000)) - token for token in tokens]
    assert found[7] == pytest.approx(np.abs(change[0] - change[1]).max(), rel=tol.EXPERIMENT_RTOL)


def test_linear_attention(numeric):
    table = numeric["linear-attention"]["table"]["rows"]
    golden = [
        [1.20177986889, -0.20177986889, 1.24101352458, -0.241013524577, 1.42974341483, -0.429743414834],
        [-1.2917328864, 0.727259189852, -0.44087066942, 0.47123260212, 1.05664681714, -0.622515605629],
        [2.28838455061, -1.28838455061, -14.520507432, 15.520507432, 2.4339342326, -1.4339342326],
    ]
    for form, outputs in enumerate(golden):
        np.testing.assert_allclose([row[1 + form] for row in table[:6]], outputs, rtol=tol.LINEAR_ROTATED_DENOMINATOR)
    smallest, error, least, lowest, highest = (row[1:] for row in table[6:])
    np.testing.assert_allclose(smallest[:2], [0.046037258, -0.84964966], rtol=tol.GOLDEN_WEIGHTS_RTOL)
    assert round(smallest[2], 1) == -8.7
    q, k = normal(1024, 64, seed=1), normal(1024, 64)
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    plain, rotated = q @ k.T, turned(q, np.arange(1024)) @ turned(k, np.arange(1024)).T
    for form, (numerator, denominator) in enumerate([(plain, plain), (rotated, plain), (rotated, rotated)]):
        weights = numerator / denominator.sum(1, keepdims=True)
        assert least[form] == pytest.approx(denominator.sum(1).min(), rel=tol.EXPERIMENT_RTOL)
        assert lowest[form] == pytest.approx(weights.sum(1).min(), rel=tol.CANCELLED_SUM_RTOL)
        assert highest[form] == pytest.approx(weights.sum(1).max(), rel=tol.CANCELLED_SUM_RTOL)
        assert error[form] < tol.LINEAR_ROTATED_DENOMINATOR


def test_pairwise(numeric):
    """Ranks that follow from the equations: of products of 16 features, and of the terms."""
    result = numeric["pairwise"]
    names = [info["name"] for info in results("info", "--encodings")]
    found = rows(result)
    assert list(found) == names
    states = {name: np.array(row[2:6]) for name, row in found.items()}
    full = np.array([64, 128, 256, 512]) // 2 - 1  # of half as many rows, each without its mean
    for name in ("none", "learned", "rope", "xpos", "axial", "path"):  # products of vectors of 16, rotated or reflected
        assert (states[name] == 16).all(), name
    for name in ("alibi", "fox"):  # exp(a_m - a_n), which multiplies each feature
        assert (states[name] == 16).all() and found[name][6] == "factor", name
    for name in ("music", "huang-m1", "huang-m3", "deberta"):  # a number or vector of its own for each distance
        assert (states[name] == full).all(), name
    # Distances beyond a clip share a row; sinusoids of m - n are sums of products in 64 dimensions; so are the queries
    # and keys of positions in 16, and row and column of the first token.
    most = {"shaw": 16 + 17, "nezha": 16 + 65, "t5": 16 + 129, "transformer-xl": 16 + 64, "tupe-a": 16 + 16 + 2}
    for name, bound in most.items():
        assert states[name][-1] <= bound, name
    pairwise = {name for name, row in found.items() if row[1] == "yes"}
    for name, row in found.items():
        assert row[7] == states[name][-1] / states[name][-2]
        assert row[8] == ("no" if name in pairwise or name == "log-n" else "yes")  # log-n scales scores
    assert result["verdicts"] == {"C-26": "refuted", "C-05": "refuted"}
    assert {name for name in pairwise if found[name][7] >= 1.5} >= {"music", "huang-m1", "deberta"}


def test_decay(numeric):
    result = numeric["decay"]
    for name, (x, y) in series(result).items():
        dim, base = (int(word.strip(",")) for word in np.array(name.split())[[2, 4]])
        np.testing.assert_allclose(y, decay(x, dim, base), atol=tol.DECAY_GOLDEN)
    table = {tuple(row[:2]): row[2:] for row in result["table"]["rows"]}
    assert result["kind"] == "measurement" and result["verdicts"] == {"C-04": "inconclusive"}
    assert table[64, 10000][4] == "no"  # the last mean of 32 distances is above the one before
    start, end, correlation, rises, falls, lowest, highest = table[128, 10000]
    assert start == 32.5 and end == pytest.approx(6.54309732297894, abs=tol.DECAY_GOLDEN)
    assert correlation == pytest.approx(-0.8708, abs=tol.DECAY_PRINTED) and rises == 115 and falls == "yes"
    curve = decay(np.arange(257), 128, 10000)
    assert correlation == pytest.approx(scipy.stats.spearmanr(np.arange(257), curve).statistic, abs=tol.T1_ATOL)
    x, y = series(result)["head size 128, base 10000, far"]
    golden = {512: 5.3114, 1024: 4.0241, 65536: 4.8918}
    assert x[-1] == 65536 and y[-1] == pytest.approx(golden[65536], abs=tol.DECAY_PRINTED)
    assert (lowest, highest) == (y[x >= 512].min(), y[x >= 512].max())
    assert table[128, 1000000][0] == 32.5


def test_score_by_distance(numeric):
    result = numeric["score-by-distance"]
    ((_, y),) = series(result).values()
    golden = {0: 64, 1: 61.83366332, 8: 44.82782389, 128: 18.16661041, 1024: 16.82719942}
    np.testing.assert_allclose([y[r] for r in golden], list(golden.values()), atol=10 * tol.DECAY_GOLDEN)
    samples = result["settings"]["samples"]
    torch.manual_seed(1)
    for distance, (ones, variance) in rows(result).items():
        assert ones == y[distance]
        scores = []
        for _ in range(samples // 20000):
            q, k = normal(1, 20000, 64), normal(20000, 64)
            scores.append((complex_pairs(q[0]) * np.exp(1j * distance * THETA) * complex_pairs(k).conj()).sum(1).real)
        assert variance == pytest.approx(np.concatenate(scores).var() / 64, rel=tol.EXPERIMENT_RTOL)
        assert abs(variance - 1) < tol.SCORE_VARIANCE


def test_random_features(numeric):
    result = numeric["random-features"]
    torch.manual_seed(1)
    q, k, v = (0.5 * normal(1, 64, 4, 16)[0].transpose(1, 0, 2) for _ in range(3))  # [H, T, D]
    scores = q @ k.transpose(0, 2, 1) / 4
    exact = np.exp(scores) / np.exp(scores).sum(2, keepdims=True) @ v
    rng = np.random.default_rng(1)
    for m, (independent, orthogonal) in rows(result).items():
        errors = []
        for _ in range(40):
            w = rng.standard_normal((m, 16))
            fq, fk = (np.exp(x @ w.T / 2 - (x**2).sum(2, keepdims=True) / 8) for x in (q, k))
            weights = fq @ fk.transpose(0, 2, 1)
            found = weights / weights.sum(2, keepdims=True) @ v
            errors.append(np.linalg.norm(found - exact) / np.linalg.norm(exact))
        assert independent == pytest.approx(np.mean(errors), rel=tol.FEATURE_ERROR_RTOL), m
        assert orthogonal < (1 + tol.MSE_RTOL) * independent
    numbers, errors = np.array([(m, e[0]) for m, e in rows(result).items()]).T
    assert np.polyfit(np.log(numbers), np.log(errors), 1)[0] == pytest.approx(-0.5, abs=tol.SLOPE)


def test_costs(numeric):
    times = rows(numeric["rotation-cost"])
    assert list(times) == ["rotation", "addition of positions", "product with the matrix R", "a layer, forward"]
    assert all(
        ms > 0 and math.isclose(times_rotation, ms / times["rotation"][0]) for ms, times_rotation in times.values()
    )
    found = rows(numeric["attention-time"])
    assert list(found) == [128, 256, 512, 1024] and all(min(cells) > 0 for cells in found.values())


def test_chinese_tokens(data_sets, tmp_path):
    folder, texts = data_sets
    results("reproduce", "chinese-tokens", "--output", tmp_path, "--data", folder)
    result = json.loads((tmp_path / "any" / "chinese-tokens" / "result.json").read_text())
    found = rows(result)
    assert list(found) == list(texts)
    for name, words in texts.items():
        characters = sum(map(len, words))
        count, by_character, by_word, ratio = found[name]
        assert count == characters and by_character == pytest.approx(1000)
        assert by_word == pytest.approx(1000 * len(words) / characters)
        assert ratio == pytest.approx(len(words) / characters)
