"""Properties of the rotation, each measured on the operator with random vectors:

relative-score (C-02): scores depend on the difference of positions. norm (C-06): the rotation is orthogonal. bilinear
(C-27): scores are bilinear forms between query and key: nothing is added. Each is compared with an added sinusoid.
"""

from .run import Experiment, row

DRAWN = {"seeds": [1], "pairs": 64, "head_dim": 64, "positions": 64}


def _random_pairs(pairs, head_dim, seed):
    import torch

    torch.manual_seed(seed)
    return torch.randn(2, pairs, head_dim, dtype=torch.float64)


def _placed(x_PD, positions, is_added=False):
    """Each vector at each position [T,P,D]: rotated, or with a sinusoid added."""
    from .vectors import rotated, sinusoid

    x_TPD = x_PD.expand(len(positions), *x_PD.shape)
    if is_added:
        return x_TPD + sinusoid(positions, x_PD.shape[1])[:, None]
    return rotated(x_TPD.contiguous(), positions)


def _scores(query_PD, key_PD, positions, is_added=False):
    """The score of every pair with its query at each position m and its key at each n: [P,T,T]."""
    query_PTD, key_PTD = (_placed(x, positions, is_added).transpose(0, 1).double() for x in (query_PD, key_PD))
    return query_PTD @ key_PTD.mT


def _closed_form(query_PD, key_PD, positions):
    """The sum over pairs of (q_a k_a + q_b k_b) cos(r theta) + (q_a k_b - q_b k_a) sin(r theta), r = m - n."""
    import torch

    from .vectors import frequencies

    (qa, qb), (ka, kb) = ((x[:, ::2], x[:, 1::2]) for x in (query_PD, key_PD))
    distance_TT = positions[:, None] - positions
    angle_TTI = distance_TT[..., None] * frequencies(query_PD.shape[1])
    real, imaginary = qa * ka + qb * kb, qa * kb - qb * ka
    waves = (real, angle_TTI.cos()), (imaginary, angle_TTI.sin())
    return sum(torch.einsum("pi,mni->pmn", factors, wave) for factors, wave in waves)


def relative_settings():
    return DRAWN | {"shifts": [1, 7, 1000, 100000]}


def run_relative(_, settings):
    import torch

    from .vectors import largest

    pairs = _random_pairs(settings["pairs"], settings["head_dim"], settings["seeds"][0])
    norms_P11 = (pairs[0].norm(dim=1) * pairs[1].norm(dim=1))[:, None, None]
    first = torch.arange(settings["positions"])

    def scores(dtype, shift=0, is_added=False):
        return _scores(*pairs.to(dtype), first + shift, is_added) / norms_P11

    expected = _closed_form(*pairs, first) / norms_P11
    worst = {dtype: largest(scores(dtype) - expected) for dtype in (torch.float64, torch.float32)}
    least_added = float("inf")
    for shift in settings["shifts"]:
        for dtype in worst:
            worst[dtype] = max(worst[dtype], largest(scores(dtype, shift) - scores(dtype)))
        moved, at_first = (scores(torch.float64, by, is_added=True) for by in (shift, 0))
        least_added = min(least_added, largest(moved - at_first))
    measure = "difference of scores by moving both positions, of |q| |k|"
    yield row(measure, "rope, float64", worst[torch.float64])
    yield row(measure, "rope, float32", worst[torch.float32])
    yield row(measure, "sinusoid added, least of the shifts", least_added)
    for distance, score in enumerate(scores(torch.float64)[0, :, 0].tolist()):
        yield row("score of a random pair, of |q| |k|", "rope", score, step=distance)


def norm_settings():
    return {"seeds": [1], "vectors": 1024, "head_dim": 64, "positions": [0, 1, 17, 1535, 100000, 1000000]}


def run_norm(_, settings):
    import torch

    from .vectors import largest

    x_PD = _random_pairs(settings["vectors"], settings["head_dim"], settings["seeds"][0])[0]
    basis_DD = torch.eye(settings["head_dim"], dtype=torch.float64)
    found = []
    for position in settings["positions"]:
        at = torch.tensor([position])

        def change(x, at=at, **how):
            return largest(_placed(x, at, **how)[0].double().norm(dim=1) / x.double().norm(dim=1) - 1)

        rows_DD = _placed(basis_DD, at)[0]  # row j: R e_j
        matrix = largest(rows_DD @ rows_DD.T - basis_DD)
        found.append((change(x_PD), change(x_PD.float()), matrix, change(x_PD, is_added=True)))
    by64, by32, matrix, added = zip(*found, strict=True)
    yield row("change of |x|", "rope, float64", max(by64))
    yield row("change of |x|", "rope, float32", max(by32))
    yield row("R^T R - I", "rope, float64", max(matrix))
    yield row("change of |x|", "sinusoid added, least of the positions", min(added))


def run_bilinear(_, settings):
    import torch

    from .vectors import largest

    (query_PD, key_PD), (other_PD, _) = (
        _random_pairs(settings["pairs"], settings["head_dim"], settings["seeds"][0] + i) for i in range(2)
    )
    positions = torch.arange(settings["positions"])
    for arm, is_added in (("rope", False), ("sinusoid added", True)):

        def score(query, is_added=is_added):
            return _scores(query, key_PD, positions, is_added)

        combined = score(2 * query_PD - 3 * other_PD)
        error = largest(combined - (2 * score(query_PD) - 3 * score(other_PD))) / largest(combined)
        yield row("score(2q - 3q') less 2 score(q) - 3 score(q'), of the largest", arm, error)
        yield row("largest score of a query of zeros", arm, largest(score(torch.zeros_like(query_PD))))


EXPERIMENTS = [
    Experiment(
        "relative-score",
        "Do rotated scores depend on relative positions alone?",
        run_relative,
        relative_settings,
        has_scale=False,
    ),
    Experiment("norm", "Is the rotation orthogonal?", run_norm, norm_settings, has_scale=False),
    Experiment("bilinear", "Does RoPE multiply where others add?", run_bilinear, lambda: DRAWN, has_scale=False),
]
